//! Ranks that are processes: how they are started, and what they say.

use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use maco_host::{Communicator, Error};
use tempfile::TempDir;

use crate::patterns::Case;
use crate::{failures, gpu, setup};

pub fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().map(|value| value.parse().unwrap())
}

/// For the test that has started it.
pub fn say(text: impl std::fmt::Display) {
    println!("<said>{text}</said>");
}

/// What this process does as a rank.
pub fn run() {
    let Ok(name) = env::var("CASE") else { return };
    let result = Communicator::from_env().and_then(|ranks| {
        ranks.set_deadline(Duration::from_millis(number("DEADLINE").unwrap_or(20_000)))?;
        match Case::ALL.iter().find(|case| format!("{case:?}") == name) {
            Some(case) => case.run(&ranks),
            None if name == "again" => setup::again(&ranks),
            None if name.starts_with("gpu ") => gpu::run(&name, &ranks),
            None => failures::run(&name, &ranks, number("SPECIAL") == Some(ranks.rank().into())),
        }
    });
    exit(result);
}

fn exit(result: Result<(), Error>) {
    if let Err(error) = result {
        say(&error);
        process::exit(i32::from(error.code()));
    }
}

/// Where a job meets.
pub struct Rendezvous(TempDir);

impl Rendezvous {
    pub fn new() -> Rendezvous {
        let folder = tempfile::Builder::new().prefix("maco-test-").tempdir().unwrap();
        fs::DirBuilder::new().mode(0o700).create(folder.path().join("job")).unwrap();
        Rendezvous(folder)
    }

    /// This program as rank `rank` of `ranks`.
    pub fn rank(&self, rank: u32, ranks: u32, case: &str) -> Command {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "rank_program", "--nocapture", "--test-threads=1"]);
        command.env("CASE", case).env("RUST_BACKTRACE", "0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for (variable, value) in [("RANK", rank), ("WORLD_SIZE", ranks), ("LOCAL_RANK", rank), ("LOCAL_WORLD_SIZE", ranks)] {
            command.env(variable, value.to_string());
        }
        command.env("MACO_JOB_FOLDER", self.0.path().join("job"));
        command
    }

    pub fn start(&self, ranks: u32, case: &str) -> Vec<Child> {
        (0..ranks).map(|rank| self.rank(rank, ranks, case).spawn().unwrap()).collect()
    }

    /// No socket, and no file in `/dev/shm`.
    pub fn nothing_left(&self) {
        let left: Vec<_> = fs::read_dir(self.0.path().join("job")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| name.to_string_lossy().starts_with("lost-")), "{left:?} is left");
        let sockets = fs::read_to_string("/proc/net/unix").unwrap();
        assert!(!sockets.lines().any(|line| line.contains(self.0.path().to_str().unwrap())), "sockets are left");
        let own = fs::metadata(self.0.path()).unwrap().uid();
        let shared: Vec<_> = fs::read_dir("/dev/shm").map(|entries| entries.flatten().collect()).unwrap_or_default();
        let left = shared.iter().filter(|entry| entry.file_name().to_string_lossy().starts_with("maco"));
        assert_eq!(left.filter(|entry| entry.metadata().is_ok_and(|found| found.uid() == own)).count(), 0, "in /dev/shm");
    }
}

/// What a rank said, and how it ended.
#[derive(Debug)]
pub struct Ended {
    pub said: Vec<String>,
    pub status: Option<i32>,
    pub all: String,
}

impl Ended {
    fn of(output: &Output) -> Ended {
        let all = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let said = all.split("<said>").skip(1).filter_map(|rest| rest.split_once("</said>")).map(|(text, _)| text.to_owned()).collect();
        Ended { said, status: output.status.code(), all }
    }
}

/// Waits for these; no program here needs two minutes.
pub fn ends(children: Vec<Child>) -> Vec<Ended> {
    let limit = Instant::now() + Duration::from_secs(120);
    let read = |from: Box<dyn Read + Send>| {
        let mut from = from;
        thread::spawn(move || {
            let mut text = Vec::new();
            from.read_to_end(&mut text).unwrap();
            text
        })
    };
    let waiting: Vec<_> = children
        .into_iter()
        .map(|mut child| {
            let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
            (child, read(Box::new(out)), read(Box::new(err)))
        })
        .collect();
    let end = |(mut child, out, err): (Child, thread::JoinHandle<Vec<u8>>, thread::JoinHandle<Vec<u8>>)| {
        let late = loop {
            match child.try_wait().unwrap() {
                Some(_) => break false,
                None if Instant::now() >= limit => break true,
                None => thread::sleep(Duration::from_millis(5)),
            }
        };
        if late {
            child.kill().unwrap();
        }
        let status = child.wait().unwrap();
        let ended = Ended::of(&Output { status, stdout: out.join().unwrap(), stderr: err.join().unwrap() });
        assert!(!late, "a rank did not end: {ended:?}");
        ended
    };
    waiting.into_iter().map(end).collect()
}

/// All ended well.
pub fn fine(ended: &[Ended]) {
    for (rank, ended) in ended.iter().enumerate() {
        assert_eq!(ended.status, Some(0), "rank {rank}: {}", ended.all);
    }
}
