//! Ranks as child processes: start, signals, the first failure, and the end of all.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use maco_ranks::{FOLDER, MAX_RANKS, create_job_folder, lost_note, rank_names};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, set_parent_process_death_signal, waitid};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use crate::output::copy;

/// How long ranks may take to end after SIGTERM.
const TERMINATION: Duration = Duration::from_secs(2);
/// How long output may take that somebody else still holds.
const OUTPUT: Duration = Duration::from_secs(1);
/// The launcher's own failure, as of `timeout` and `env`: it could not start what it was to start.
const NOT_STARTED: i32 = 125;
/// As of `timeout`.
const TIMED_OUT: i32 = 124;

/// Starts a program several times, as the ranks of one job on this host.
///
/// Each process finds its rank in the environment: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, as with torchrun. The ranks meet in a folder that only this
/// user can enter, MACO_JOB_FOLDER, which is removed at the end. In the program, `Communicator::from_env()` joins them.
///
/// When a rank fails, the others have some seconds to say so (`--grace`), then they are ended. The exit status is that of the first rank that failed, 128 and the
/// signal's number if a signal ended it, 124 after the timeout, and 125 if ranks could not be started. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 go on
/// to all ranks.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  maco launch -n 4 -- target/release/mlp --layers 8\n  maco launch -n 2 --timeout 60s --output plain -- python3 train.py"
)]
pub struct Launch {
    /// How many ranks.
    #[arg(short = 'n', long = "ranks", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_RANKS)))]
    ranks: u32,
    /// End all ranks after this time, such as `90s`, `5m` or `500ms`; the exit status is then 124.
    #[arg(long, value_parser = duration)]
    timeout: Option<Duration>,
    /// How long the other ranks may go on when one has failed.
    #[arg(long, value_parser = duration, default_value = "2s")]
    grace: Duration,
    /// `prefix`: each line of output begins with its rank, as `[2] `; `plain`: lines as they are; `inherit`: the terminal itself, where lines may mix.
    #[arg(long, default_value = "prefix")]
    output: Output,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    program: Vec<OsString>,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Output {
    Prefix,
    Plain,
    Inherit,
}

fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let seconds = match &text[digits.len()..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        unit => return Err(format!("`{unit}` is no unit of time: ms, s, m or h")),
    };
    let number = digits.parse::<f64>().map_err(|_| "expected a time, such as `90s`".to_owned())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|error| error.to_string())
}

/// The folder in which the ranks meet.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Rank {
    number: u32,
    child: Child,
    ended: bool,
}

impl Rank {
    /// Whether it has ended; it is not collected.
    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Pid::from_raw(self.child.id() as i32).is_none_or(|pid| !matches!(waitid(WaitId::Pid(pid), options), Ok(None)))
    }

    /// To the rank and all that it has started, unless it was collected: its number may be another's then.
    fn signal(&self, signal: Signal) {
        if let (false, Some(group)) = (self.ended, Pid::from_raw(self.child.id() as i32)) {
            let _ = kill_process_group(group, signal);
        }
    }
}

/// All are to end.
struct End {
    /// When the next stronger signal is sent.
    until: Instant,
    terminated: bool,
}

impl Launch {
    /// The exit status.
    pub fn run(self) -> i32 {
        match self.start() {
            Ok(status) => status,
            Err(error) => {
                say(&error.to_string());
                NOT_STARTED
            }
        }
    }

    fn start(self) -> io::Result<i32> {
        let context = |what: &str, error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"));
        // Before the first rank, so that nothing is missed.
        let signals = signals()?;
        let help = "the folder of the job could not be made below XDG_RUNTIME_DIR or TMPDIR";
        let folder = Folder(create_job_folder().map_err(|error| context(help, error))?);
        let (ended, outputs) = channel();
        let mut ranks = Vec::with_capacity(self.ranks as usize);
        for number in 0..self.ranks {
            match self.spawn(number, &folder, &ended) {
                Ok(child) => ranks.push(Rank { number, child, ended: false }),
                Err(error) => {
                    ranks.iter().for_each(|rank| rank.signal(Signal::KILL));
                    ranks.iter_mut().for_each(|rank| drop(rank.child.wait()));
                    return Err(context(&format!("rank {number}: `{}` could not be started", self.program[0].display()), error));
                }
            }
        }
        drop(ended);
        let status = self.supervise(&mut ranks, &signals, &folder);
        // What a rank has started may outlive it, with its output open.
        let _ = outputs.recv_timeout(OUTPUT);
        Ok(status)
    }

    fn spawn(&self, number: u32, folder: &Folder, ended: &Sender<()>) -> io::Result<Child> {
        let mut command = Command::new(&self.program[0]);
        command.args(&self.program[1..]).stdin(Stdio::null()).env(FOLDER, &folder.0);
        for (variable, value) in [("RANK", number), ("WORLD_SIZE", self.ranks), ("LOCAL_RANK", number), ("LOCAL_WORLD_SIZE", self.ranks)] {
            command.env(variable, value.to_string());
        }
        // A group of its own: a signal reaches what the rank has started too.
        command.process_group(0);
        if self.output != Output::Inherit {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let launcher = rustix::process::getpid();
        // SAFETY: between fork and exec there are system calls only, without memory or locks.
        unsafe {
            command.pre_exec(move || {
                // Nobody is left if the launcher is killed.
                set_parent_process_death_signal(Some(Signal::KILL))?;
                if rustix::process::getppid() == Some(launcher) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
            });
        }
        let mut child = command.spawn()?;
        let prefix = if self.output == Output::Prefix { format!("[{number}] ") } else { String::new() };
        if let Some(stdout) = child.stdout.take() {
            copy(stdout, prefix.clone(), || Box::new(io::stdout()), ended.clone())?;
        }
        if let Some(stderr) = child.stderr.take() {
            copy(stderr, prefix, || Box::new(io::stderr()), ended.clone())?;
        }
        Ok(child)
    }

    /// Until all have ended.
    fn supervise(&self, ranks: &mut [Rank], signals: &Receiver<i32>, folder: &Folder) -> i32 {
        let timeout = self.timeout.map(|timeout| Instant::now() + timeout);
        let mut end: Option<End> = None;
        // Who failed by itself, and with which status, as they were seen.
        let mut failed: Vec<(u32, i32)> = Vec::new();
        loop {
            for rank in ranks.iter_mut().filter(|rank| !rank.ended) {
                if !rank.has_ended() {
                    continue;
                }
                // What it has started goes with it, before its number can be another's.
                rank.signal(Signal::KILL);
                let status = rank.child.wait().unwrap_or_default();
                rank.ended = true;
                if status.success() || end.as_ref().is_some_and(|end| end.terminated) {
                    continue;
                }
                say(&format!("rank {} {}", rank.number, words(status)));
                let status = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
                failed.push((rank.number, status));
                end.get_or_insert(End { until: Instant::now() + self.grace, terminated: false });
            }
            if ranks.iter().all(|rank| rank.ended) {
                let first = failed.iter().position(|(rank, _)| lost_note(&folder.0, *rank).exists()).unwrap_or(0);
                if first != 0 {
                    say(&format!("rank {} was the first to fail", failed[first].0));
                }
                return failed.get(first).map_or(if end.is_some() { TIMED_OUT } else { 0 }, |(_, status)| *status);
            }
            let now = Instant::now();
            if end.is_none() && timeout.is_some_and(|timeout| timeout <= now) {
                say(&format!("ends {} after {:?}", running(ranks), self.timeout.unwrap_or_default()));
                end = Some(End { until: now, terminated: false });
            }
            if let Some(end) = end.as_mut().filter(|end| end.until <= now) {
                if !end.terminated && !failed.is_empty() {
                    say(&format!("ends {}, since another one failed", running(ranks)));
                }
                let signal = if end.terminated { Signal::KILL } else { Signal::TERM };
                ranks.iter().for_each(|rank| rank.signal(signal));
                *end = End { until: now + TERMINATION, terminated: true };
            }
            let next = end.as_ref().map(|end| end.until).or(timeout);
            let left = next.map_or(Duration::MAX, |next| next.saturating_duration_since(Instant::now()));
            match signals.recv_timeout(left) {
                Ok(signal) => {
                    if let Some(signal) = Signal::from_named_raw(signal).filter(|&signal| signal != Signal::CHILD) {
                        ranks.iter().for_each(|rank| rank.signal(signal));
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => thread::sleep(left.min(Duration::from_millis(10))),
            }
        }
    }
}

fn signals() -> io::Result<Receiver<i32>> {
    let mut signals = Signals::new([SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2])?;
    let (sender, receiver) = channel();
    thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            if sender.send(signal).is_err() {
                return;
            }
        }
    })?;
    Ok(receiver)
}

/// `ended with status 3`, `was killed by signal 9 (SIGKILL)`
fn words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("failed: it ended with status {code}"),
        (None, Some(signal)) => {
            let name = signal_hook::low_level::signal_name(signal).map_or(String::new(), |name| format!(" ({name})"));
            format!("failed: it was killed by signal {signal}{name}")
        }
        (None, None) => format!("failed: {status}"),
    }
}

/// Those that have not ended.
fn running(ranks: &[Rank]) -> String {
    let numbers: Vec<u32> = ranks.iter().filter(|rank| !rank.ended).map(|rank| rank.number).collect();
    rank_names(&numbers)
}

fn say(text: &str) {
    let _ = writeln!(io::stderr(), "maco launch: {text}");
}
