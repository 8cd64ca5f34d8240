//! `maco launch`: what it starts, prints, passes on and leaves.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::{nothing_left, until};

/// `maco launch`, with its folders in `base`.
fn maco(base: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_maco"));
    command.args(arguments).env("XDG_RUNTIME_DIR", base).env("RUST_BACKTRACE", "0").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn texts(output: &Output) -> (String, String) {
    (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Output, status, and that nothing is left of it.
fn launch(arguments: &[&str]) -> (String, String, i32) {
    let base = tempfile::tempdir().unwrap();
    let output = maco(base.path(), arguments).output().unwrap();
    nothing_left(base.path());
    let (out, err) = texts(&output);
    (out, err, output.status.code().unwrap())
}

fn sh<'a>(options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    [&["launch"], options, &["--", "sh", "-c", script]].concat()
}

#[test]
fn ranks_of_a_launcher_meet() {
    let base = tempfile::tempdir().unwrap();
    for ranks in ["1", "2", "3", "4", "6", "8"] {
        let exe = std::env::current_exe().unwrap();
        let program = [exe.to_str().unwrap(), "--ignored", "--exact", "rank_program", "--nocapture"];
        let arguments = [&["launch", "-n", ranks, "--timeout", "30s", "--"], &program[..]].concat();
        let output = maco(base.path(), &arguments).env("CASE", "all").output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{:?}", texts(&output));
        nothing_left(base.path());
    }
}

#[test]
fn each_rank_has_its_variables_and_its_lines() {
    let script =
        "echo out $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE; echo err $RANK >&2; stat -c %a $MACO_JOB_FOLDER; printf end";
    let (out, err, status) = launch(&sh(&["-n", "3"], script));
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    let expected: Vec<String> =
        (0..3).flat_map(|n| [format!("[{n}] 700"), format!("[{n}] end"), format!("[{n}] out {n} of 3, {n} of 3")]).collect();
    assert_eq!((lines, status), (expected.iter().map(String::as_str).collect(), 0));
    let mut lines: Vec<&str> = err.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[0] err 0", "[1] err 1", "[2] err 2"]);
    for output in ["plain", "inherit"] {
        let (out, _, _) = launch(&sh(&["-n", "1", "--output", output], "echo plainly"));
        assert_eq!(out, "plainly\n", "{output}");
    }
}

#[test]
fn the_first_failure_is_named_and_its_status_given_on() {
    let begin = Instant::now();
    let (_, err, status) = launch(&sh(&["-n", "3", "--grace", "100ms"], "[ $RANK = 1 ] && exit 7; sleep 60"));
    assert_eq!(status, 7);
    assert!(
        err.contains("maco launch: rank 1 failed: it ended with status 7\n")
            && err.contains("maco launch: ends ranks 0 and 2, since another one failed\n"),
        "{err}"
    );
    let (_, err, status) = launch(&sh(&["-n", "2", "--grace", "100ms"], "[ $RANK = 1 ] && kill -9 $$; sleep 60"));
    assert_eq!(status, 128 + 9);
    assert!(err.contains("rank 1 failed: it was killed by signal 9 (SIGKILL)"), "{err}");
    // One that does not want to end.
    let (_, _, status) =
        launch(&sh(&["-n", "2", "--grace", "0s"], "[ $RANK = 1 ] && { sleep 0.3; exit 5; }; trap '' TERM; sleep 60 & sleep 60"));
    assert_eq!(status, 5);
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}

#[test]
fn survivors_have_time_to_say_what_they_saw() {
    let base = tempfile::tempdir().unwrap();
    let exe = std::env::current_exe().unwrap();
    let program = [exe.to_str().unwrap(), "--ignored", "--exact", "rank_program", "--nocapture"];
    let arguments = [&["launch", "-n", "3", "--grace", "10s", "--"], &program[..]].concat();
    // In the second case they end before the one that was the cause.
    for case in ["exit", "linger"] {
        let output = maco(base.path(), &arguments).env("CASE", case).env("SPECIAL", "1").output().unwrap();
        let (out, err) = texts(&output);
        assert_eq!(output.status.code(), Some(3), "{case}: {out}{err}");
        for rank in [0, 2] {
            let told = |line: &str| line.starts_with(&format!("[{rank}] ")) && line.contains("MACO0095: rank 1 is gone");
            assert!(out.lines().any(told), "{case}: {out}{err}");
        }
        assert!(case == "exit" || err.contains("maco launch: rank 1 was the first to fail\n"), "{err}");
        nothing_left(base.path());
    }
}

#[test]
fn after_the_timeout_all_are_ended() {
    let begin = Instant::now();
    let (_, err, status) = launch(&sh(&["-n", "2", "--timeout", "2s"], "[ $RANK = 0 ] || sleep 60"));
    assert_eq!(status, 124);
    assert!(err.contains("maco launch: ends rank 1 after 2s\n"), "{err}");
    assert!(begin.elapsed() < Duration::from_secs(30));
}

/// Starts ranks that write their numbers of process, and waits for them.
fn pids(base: &Path, script: &str, ranks: u32) -> (std::process::Child, Vec<Pid>) {
    let folder = base.join("pids");
    fs::create_dir(&folder).unwrap();
    let script = script.replace("READY", &format!("echo $$ > {0}/$RANK.new; mv {0}/$RANK.new {0}/$RANK", folder.display()));
    let ranks = ranks.to_string();
    let child = maco(&base.join("run"), &sh(&["-n", &ranks], &script)).spawn().unwrap();
    let read = |rank: u32| fs::read_to_string(folder.join(rank.to_string())).ok();
    let count = ranks.parse().unwrap();
    until("ranks are there", || (0..count).all(|rank| read(rank).is_some()));
    (child, (0..count).map(|rank| Pid::from_raw(read(rank).unwrap().trim().parse().unwrap()).unwrap()).collect())
}

fn base() -> tempfile::TempDir {
    let base = tempfile::tempdir().unwrap();
    fs::create_dir(base.path().join("run")).unwrap();
    base
}

#[test]
fn signals_go_on_to_all_ranks() {
    for (signal, name) in [(Signal::TERM, "TERM"), (Signal::INT, "INT"), (Signal::USR1, "USR1")] {
        let base = base();
        let script = format!("trap 'echo got {name}; exit 0' {name}; READY; while true; do sleep 0.02; done");
        let (child, _) = pids(base.path(), &script, 3);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        let (out, err) = texts(&output);
        assert_eq!(output.status.code(), Some(0), "{out}{err}");
        for rank in 0..3 {
            assert!(out.contains(&format!("[{rank}] got {name}\n")), "{out}{err}");
        }
        nothing_left(&base.path().join("run"));
    }
}

#[test]
fn no_rank_outlives_a_launcher_that_is_killed() {
    let base = base();
    let (mut child, ranks) = pids(base.path(), "READY; while true; do sleep 0.02; done", 3);
    child.kill().unwrap();
    child.wait().unwrap();
    until("ranks end", || ranks.iter().all(|&pid| ended(pid)));
}

/// Gone, or a zombie that nobody collects.
fn ended(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    test_kill_process(pid).is_err() || status.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('Z'))
}

#[test]
fn what_ranks_start_ends_with_them() {
    let base = base();
    let file = base.path().join("grandchild");
    let script = format!("sleep 60 & echo $! > {}; exit 0", file.display());
    let begin = Instant::now();
    let output = maco(&base.path().join("run"), &sh(&["-n", "1"], &script)).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    let pid = Pid::from_raw(fs::read_to_string(file).unwrap().trim().parse().unwrap()).unwrap();
    until("the grandchild ends", || ended(pid));
    thread::sleep(Duration::from_millis(1));
}

#[test]
fn help_teaches_and_mistakes_are_said() {
    let (out, _, status) = launch(&["launch", "--help"]);
    assert_eq!(status, 0);
    for word in ["maco launch -n 4 -- target/release/mlp", "RANK", "MACO_JOB_FOLDER", "--timeout", "--grace", "exit status"] {
        assert!(out.contains(word), "no {word} in {out}");
    }
    for (arguments, word) in [
        (&["launch", "-n", "0", "--", "true"][..], "0 is not in 1..=1024"),
        (&["launch", "-n", "2"], "<PROGRAM>"),
        (&["launch", "-n", "2", "--timeout", "3 weeks", "--", "true"], "no unit of time"),
    ] {
        let (_, err, status) = launch(arguments);
        assert!(status == 2 && err.contains(word), "{status}: {err}");
    }
    let (_, err, status) = launch(&["launch", "-n", "2", "--", "/no/such/program"]);
    assert!(status == 125 && err.contains("rank 0: `/no/such/program` could not be started: No such file"), "{status}: {err}");
}
