//! Ranks that are processes: this test program with one of its tests. How they are started, and what they leave behind.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, process};

/// This program, which runs one of its tests that are ignored; what it prints can be read.
pub fn program(test: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--ignored", "--exact", test, "--nocapture", "--test-threads=1"]).env("RUST_BACKTRACE", "0");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Where a job meets: a folder that is gone with this.
pub struct Rendezvous(PathBuf);

impl Rendezvous {
    pub fn new() -> Rendezvous {
        static RENDEZVOUS: AtomicU32 = AtomicU32::new(0);
        let name = format!("maco-test-{}-{}", process::id(), RENDEZVOUS.fetch_add(1, Ordering::Relaxed));
        let folder = env::temp_dir().join(name);
        fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
        Rendezvous(folder)
    }

    /// [`program`] as a rank.
    pub fn rank(&self, test: &str, rank: u32, ranks: u32) -> Command {
        let mut command = program(test);
        for (variable, value) in [("RANK", rank), ("WORLD_SIZE", ranks), ("LOCAL_RANK", rank), ("LOCAL_WORLD_SIZE", ranks)] {
            command.env(variable, value.to_string());
        }
        command.env("MACO_JOB_FOLDER", &self.0);
        command
    }

    /// No socket, and no file in `/dev/shm`. Notes of a lost rank are for a launcher, which removes the folder.
    pub fn nothing_left(&self) {
        let left: Vec<_> = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| name.to_string_lossy().starts_with("lost-")), "{left:?} is left");
        let sockets = fs::read_to_string("/proc/net/unix").unwrap();
        assert!(!sockets.lines().any(|line| line.contains(self.0.to_str().unwrap())), "sockets are left");
        let own = fs::metadata(&self.0).unwrap().uid();
        let shared: Vec<_> = fs::read_dir("/dev/shm").map(|entries| entries.flatten().collect()).unwrap_or_default();
        let left = shared.iter().filter(|entry| entry.file_name().to_string_lossy().starts_with("maco"));
        assert_eq!(left.filter(|entry| entry.metadata().is_ok_and(|found| found.uid() == own)).count(), 0, "in /dev/shm");
    }
}

impl Drop for Rendezvous {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // the test has failed, if it cannot be
    }
}

/// Waits for these: exit code and text of each.
pub fn ends(children: Vec<Child>) -> Vec<(Option<i32>, String)> {
    let outputs = children.into_iter().map(|child| child.wait_with_output().unwrap());
    outputs
        .map(|output| {
            let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            (output.status.code(), text)
        })
        .collect()
}
