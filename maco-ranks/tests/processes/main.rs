//! Ranks that are processes: they meet in a folder or over TCP, are killed, come late or not at all. Each process is this test program with `rank_program`.
//!
//! Takes a quarter of a minute: ranks that are killed, late or absent are noticed when a deadline of seconds has passed.

mod failures;
mod launcher;
mod meeting;
mod rank;

use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

const TOKEN: &str = "a token of this test, and no other's";

/// A rank of a job, by `rank.rs`.
#[test]
#[ignore = "is what other tests start"]
fn rank_program() {
    rank::run();
}

/// This program as a rank.
fn rank_command(case: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "rank_program", "--nocapture", "--test-threads=1"]);
    command.env("CASE", case).env("RUST_BACKTRACE", "0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Where a job meets.
enum Rendezvous {
    Folder(TempDir),
    Tcp(u16),
}

impl Rendezvous {
    fn folder() -> Rendezvous {
        let folder = tempfile::Builder::new().prefix("maco-test-").tempdir().unwrap();
        std::fs::DirBuilder::new().mode(0o700).create(folder.path().join("job")).unwrap();
        Rendezvous::Folder(folder)
    }

    fn tcp() -> Rendezvous {
        Rendezvous::Tcp(TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port())
    }

    /// Rank `rank` of `ranks`.
    fn rank(&self, rank: u32, ranks: u32, case: &str) -> Command {
        let mut command = rank_command(case);
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", ranks.to_string());
        match self {
            Rendezvous::Folder(folder) => {
                command.env("MACO_JOB_FOLDER", folder.path().join("job"));
                command.env("LOCAL_RANK", rank.to_string()).env("LOCAL_WORLD_SIZE", ranks.to_string());
            }
            // As if each were on a host of its own.
            Rendezvous::Tcp(port) => {
                command.env("LOCAL_RANK", "0").env("LOCAL_WORLD_SIZE", "1").env("MASTER_ADDR", "127.0.0.1");
                command.env("MASTER_PORT", "1").env("MACO_PORT", port.to_string()).env("MACO_TOKEN", TOKEN);
            }
        }
        command
    }

    fn start(&self, ranks: u32, case: &str) -> Vec<Child> {
        (0..ranks).map(|rank| self.rank(rank, ranks, case).spawn().unwrap()).collect()
    }
}

/// What a rank said, and how it ended.
#[derive(Debug)]
struct Ended {
    said: Vec<String>,
    status: Option<i32>,
    all: String,
}

impl Ended {
    fn of(output: &Output) -> Ended {
        let all = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let said = all.split("<said>").skip(1).filter_map(|rest| rest.split_once("</said>")).map(|(text, _)| text.to_owned()).collect();
        Ended { said, status: output.status.code(), all }
    }
}

/// Waits for these; no program here needs half a minute.
fn ends(children: Vec<Child>) -> Vec<Ended> {
    let limit = Instant::now() + Duration::from_secs(30);
    let waiting: Vec<_> = children
        .into_iter()
        .map(|mut child| {
            let [mut out, mut err] =
                [Box::new(child.stdout.take().unwrap()) as Box<dyn Read + Send>, Box::new(child.stderr.take().unwrap())];
            let [out, err] = [
                thread::spawn(move || {
                    let mut text = Vec::new();
                    out.read_to_end(&mut text).unwrap();
                    text
                }),
                thread::spawn(move || {
                    let mut text = Vec::new();
                    err.read_to_end(&mut text).unwrap();
                    text
                }),
            ];
            (child, out, err)
        })
        .collect();
    waiting
        .into_iter()
        .map(|(mut child, out, err)| {
            let status = loop {
                if let Some(status) = child.try_wait().unwrap() {
                    break status;
                }
                if Instant::now() >= limit {
                    child.kill().unwrap();
                    let status = child.wait().unwrap();
                    let output = Output { status, stdout: out.join().unwrap(), stderr: err.join().unwrap() };
                    panic!("a rank did not end: {:?}", Ended::of(&output));
                }
                thread::sleep(Duration::from_millis(5));
            };
            Ended::of(&Output { status, stdout: out.join().unwrap(), stderr: err.join().unwrap() })
        })
        .collect()
}

/// All ended well.
fn fine(ended: &[Ended]) {
    for (rank, ended) in ended.iter().enumerate() {
        assert_eq!(ended.status, Some(0), "rank {rank}: {}", ended.all);
    }
}

/// Waits until `done`.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < limit, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn nothing_left(folder: &Path) {
    let left: Vec<_> = std::fs::read_dir(folder).map(|entries| entries.map(|entry| entry.unwrap().path()).collect()).unwrap_or_default();
    assert!(left.is_empty(), "{left:?} is left");
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    let name = folder.to_str().unwrap();
    assert!(!sockets.lines().any(|line| line.contains(name)), "sockets are left");
    let own = rustix::process::geteuid().as_raw();
    let shared: Vec<_> = std::fs::read_dir("/dev/shm").map(|entries| entries.flatten().collect()).unwrap_or_default();
    let left = shared.iter().filter(|entry| entry.file_name().to_string_lossy().starts_with("maco"));
    assert_eq!(left.filter(|entry| entry.metadata().is_ok_and(|found| found.uid() == own)).count(), 0, "in /dev/shm");
}
