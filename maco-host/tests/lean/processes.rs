//! Ranks that are processes, each of which is this test program with `rank_program`: all goes well, one is killed, one lives and does not call.

use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use half::bf16;
use maco_host::{Communicator, Device, Reduce};

use crate::failures::works_on;
use crate::{SIZES, all, filled, mixed};

/// What a rank does as a process of its own; see `started`.
#[test]
#[ignore = "a rank of other tests"]
fn rank_program() {
    let Ok(case) = env::var("CASE") else { return };
    let on_gpu = env::var("ON_GPU").is_ok();
    let run = || {
        let ranks = Communicator::from_env()?;
        let device = if on_gpu { Device::gpu(ranks.local_rank())? } else { Device::cpu() };
        ranks.set_deadline(Duration::from_secs(if case == "absent" { 2 } else { 20 }))?;
        if case == "fine" {
            for size in SIZES {
                all::<f32>(&ranks, size, Reduce::Sum)?;
                all::<bf16>(&ranks, size, Reduce::Mean)?;
            }
            mixed(&ranks, 5)?;
            return ranks.barrier();
        }
        for call in 0..40 {
            if call == 30 && ranks.rank() == 1 {
                if case == "killed" {
                    // No farewell.
                    process::abort();
                }
                thread::sleep(Duration::from_secs(6));
                process::exit(0);
            }
            let begin = Instant::now();
            let mut x = device.upload(&filled::<f32>(ranks.rank(), 100 * call), [100 * call])?;
            if let Err(error) = ranks.all_reduce(&mut x) {
                println!("<said>after {} ms</said>", begin.elapsed().as_millis());
                works_on(&device)?;
                println!("<said>works on</said>");
                return Err(error);
            }
        }
        Ok(())
    };
    if let Err(error) = run() {
        println!("<said>{error}</said>");
        process::exit(i32::from(error.code()));
    }
}

/// No socket, and no file in `/dev/shm`. Notes of a lost rank are for a launcher, which removes the folder.
fn nothing_left(folder: &Path) {
    let left: Vec<_> = fs::read_dir(folder.join("job")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name.to_string_lossy().starts_with("lost-")), "{left:?} is left");
    let sockets = fs::read_to_string("/proc/net/unix").unwrap();
    assert!(!sockets.lines().any(|line| line.contains(folder.to_str().unwrap())), "sockets are left");
    let own = fs::metadata(folder).unwrap().uid();
    let shared: Vec<_> = fs::read_dir("/dev/shm").map(|entries| entries.flatten().collect()).unwrap_or_default();
    let left = shared.iter().filter(|entry| entry.file_name().to_string_lossy().starts_with("maco"));
    assert_eq!(left.filter(|entry| entry.metadata().is_ok_and(|found| found.uid() == own)).count(), 0, "in /dev/shm");
}

/// What each of these processes wrote, and its exit code. Nothing else is left of them.
fn started(case: &str, ranks: u32, on_gpu: bool) -> Vec<(Option<i32>, String)> {
    let folder = tempfile::Builder::new().prefix("maco-test-").tempdir().unwrap();
    fs::DirBuilder::new().mode(0o700).create(folder.path().join("job")).unwrap();
    let children: Vec<_> = (0..ranks)
        .map(|rank| {
            let mut command = Command::new(env::current_exe().unwrap());
            command.args(["--ignored", "--exact", "processes::rank_program", "--nocapture"]).env("CASE", case).env("RUST_BACKTRACE", "0");
            for (variable, value) in [("RANK", rank), ("WORLD_SIZE", ranks), ("LOCAL_RANK", rank), ("LOCAL_WORLD_SIZE", ranks)] {
                command.env(variable, value.to_string());
            }
            command.env("MACO_JOB_FOLDER", folder.path().join("job"));
            if on_gpu {
                command.env("ON_GPU", "1");
            }
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let outputs: Vec<_> = children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    nothing_left(folder.path());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    outputs.iter().map(|output| (output.status.code(), text(&output.stdout) + &text(&output.stderr))).collect()
}

/// What all but rank 1 said, who then worked on, and how they ended.
fn survivors(case: &str, ranks: u32, on_gpu: bool) -> Vec<(Option<i32>, String)> {
    let mut ended = started(case, ranks, on_gpu);
    ended.remove(1);
    for (_, text) in &ended {
        assert!(text.contains("<said>works on</said>"), "{text}");
    }
    ended
}

#[test]
fn processes() {
    for ranks in [2, 3, 4] {
        for (code, text) in started("fine", ranks, false) {
            assert_eq!(code, Some(0), "{text}");
        }
    }
}

/// Milliseconds to the error.
fn after(text: &str) -> u64 {
    let ms = text.split("<said>after ").nth(1).and_then(|rest| rest.split(" ms").next());
    ms.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
}

#[test]
fn a_killed_rank_is_named_at_once() {
    for ranks in [2, 3, 4] {
        for (code, text) in survivors("killed", ranks, false) {
            assert!(code == Some(99) && text.contains("at `all_reduce`") && text.contains("rank 1 is gone"), "{text}");
            assert!(after(&text) < 10_000, "{text}");
        }
    }
}

/// The host ends what the kernel waits for.
#[test]
#[ignore = "needs a GPU"]
fn gpu_a_killed_rank_is_named_at_once() {
    for ranks in [2, 3, 4].into_iter().filter(|ranks| Device::gpu(ranks - 1).is_ok()) {
        for (code, text) in survivors("killed", ranks, true) {
            assert!(code == Some(95) && text.contains("rank 1 is gone, while others wait for `all_reduce`"), "{text}");
            assert!(after(&text) < 10_000, "{text}");
        }
    }
}

#[test]
fn a_rank_that_lives_and_does_not_call() {
    for (code, text) in survivors("absent", 3, false) {
        assert!(code == Some(99) && text.contains("at `all_reduce` for rank 1") && text.contains("deadline passed"), "{text}");
        assert!((1000..5000).contains(&after(&text)), "{text}");
    }
}
