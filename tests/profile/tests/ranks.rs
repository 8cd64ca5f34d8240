//! Profiles of several ranks are on one clock: no launch is outside of the time when its host ran it, and no rank has a sum before another one has begun to send.

use std::collections::HashMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs, process, thread};

use maco::profile::{Kind, Profile, RankProfiles, Span};
use maco::ranks::host_clock;
use maco::{Communicator, Device, Error, PlanOptions};
use profiled::kernels::summed;

/// Every rank records a sum as often as there are ranks, for each of which the others wait once; `seen` gets rank and profile.
fn record(communicator: &Communicator, device: &Device, mut seen: impl FnMut(u32, &summed::Plan, Profile)) -> Result<(), Error> {
    let options = PlanOptions::new().communicator(communicator.clone());
    let plan = summed::plan_with(device, summed::Dims { M: 64, N: 256 }, &options)?;
    let x = device.upload(&vec![1.0f32; 64 * 256], [64, 256])?;
    let mut y = device.zeros::<f32>([64, 256])?;
    plan.profile(true)?;
    plan.run(&x, &mut y)?;
    for late in 0..communicator.ranks() {
        communicator.barrier()?;
        if communicator.rank() == late {
            thread::sleep(Duration::from_millis(30));
        }
        let before = host_clock();
        plan.run(&x, &mut y)?;
        let after = host_clock();
        let profile = plan.profile_report()?;
        let clock = profile.rank.expect("one of several");
        assert_eq!((clock.rank, clock.ranks), (communicator.rank(), communicator.ranks()));
        let (begin, end) = (clock.origin, clock.origin + profile.elapsed);
        assert!(before <= begin + clock.error && end <= after + clock.error, "{before} ≤ {begin}, {end} ≤ {after} but for {}", clock.error);
        assert!(clock.error < 100_000, "an error of {} ns says nothing", clock.error);
        seen(late, &plan, profile);
    }
    assert!(y.download()?.iter().all(|&sum| sum == communicator.ranks() as f32));
    Ok(())
}

/// Each tile of a sum has come from all ranks. Of a large tile one task sends, and the one behind it receives.
fn sound(all: &RankProfiles) {
    // The first and the last task of each tile.
    let runs: Vec<HashMap<&[u32], [Span; 2]>> = all
        .ranks()
        .iter()
        .map(|profile| {
            let is_sum = |span: &&Span| profile.operations[profile.tasks[span.task as usize].operation as usize].name == "all_reduce";
            let mut tiles = HashMap::new();
            for span in profile.spans.iter().filter(|span| span.kind == Kind::Run).filter(is_sum) {
                let [first, last] = tiles.entry(&profile.tasks[span.task as usize].tile[..]).or_insert([*span; 2]);
                *first = if span.task < first.task { *span } else { *first };
                *last = if span.task > last.task { *span } else { *last };
            }
            tiles
        })
        .collect();
    let (shifts, error) = (all.shifts(), all.clock_error());
    assert!(!runs[0].is_empty());
    for (to, received) in runs.iter().enumerate() {
        for (from, sent) in runs.iter().enumerate() {
            for (tile, [_, receives]) in received {
                let (end, begin) = (shifts[to] + receives.end, shifts[from] + sent[tile][0].start);
                assert!(
                    end + error >= begin,
                    "rank {to} has tile {tile:?} at {end}, and rank {from} begins to send it at {begin}, ±{error}"
                );
            }
        }
    }
    let summary = all.summary();
    assert_eq!(summary.operations.iter().map(|row| row.label.as_str()).collect::<Vec<_>>(), ["copy", "all_reduce"]);
    assert!(
        summary.total.tasks as usize == runs.len() * all.ranks()[0].tasks.len()
            && summary.to_string().contains("\nclocks of ranks agree to ±")
    );
}

/// As threads.
fn threads(ranks: u32, device: fn(&Communicator) -> Device) {
    let results = Communicator::threads(ranks, |communicator| {
        record(&communicator, &device(&communicator), |_, plan, own| {
            let all = plan.profile_of_ranks(&communicator).unwrap();
            assert_eq!(all.ranks()[communicator.rank() as usize].spans, own.spans);
            sound(&all);
        })
    });
    results.unwrap().into_iter().collect::<Result<(), Error>>().unwrap();
}

#[test]
fn ranks_agree_on_the_time() {
    for ranks in [2, 3] {
        threads(ranks, |_| Device::cpu_with(2));
    }
}

#[test]
#[ignore = "gpu"]
fn gpu_ranks_agree_on_the_time() {
    if Device::gpu(1).is_err() {
        eprintln!("left out: 2 ranks need as many GPUs, and there are fewer");
        return;
    }
    threads(2, |communicator| Device::gpu(communicator.local_rank()).unwrap());
}

fn trace(folder: &Path, late: u32, rank: u32) -> PathBuf {
    folder.join(format!("trace{late}.rank{rank}.json"))
}

/// A rank of the test below.
#[test]
#[ignore = "is what another test starts"]
fn rank_program() {
    let Some(folder) = env::var_os("TRACES") else { return };
    let communicator = Communicator::from_env().unwrap();
    let rank = communicator.rank();
    record(&communicator, &Device::cpu_with(2), |late, _, profile| {
        profile.write_chrome(trace(Path::new(&folder), late, rank)).unwrap();
    })
    .unwrap();
}

/// Processes have begun to count at different times.
#[test]
fn files_of_processes_are_on_one_clock() {
    let folder = env::temp_dir().join(format!("maco-timeline-{}", process::id()));
    fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
    let ranks = 2;
    let start = |rank: u32| {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "rank_program", "--nocapture"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("TRACES", &folder).env("MACO_JOB_FOLDER", &folder);
        for (variable, value) in [("RANK", rank), ("WORLD_SIZE", ranks), ("LOCAL_RANK", rank), ("LOCAL_WORLD_SIZE", ranks)] {
            command.env(variable, value.to_string());
        }
        let child = command.spawn().unwrap();
        thread::sleep(Duration::from_millis(50));
        child
    };
    let children: Vec<_> = (0..ranks).map(start).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    for late in 0..ranks {
        let files: Vec<PathBuf> = (0..ranks).map(|rank| trace(&folder, late, rank)).collect();
        sound(&RankProfiles::merge_chrome(&files).unwrap());
    }
    fs::remove_dir_all(&folder).unwrap();
}
