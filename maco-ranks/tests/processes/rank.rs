//! What a rank does in each case.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use maco_ranks::{Error, Group, Job};

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().map(|value| value.parse().unwrap())
}

/// For the test that has started it.
fn say(text: impl std::fmt::Display) {
    println!("<said>{text}</said>");
}

pub fn run() {
    let Ok(case) = env::var("CASE") else { return };
    let deadline = Duration::from_millis(number("DEADLINE").unwrap_or(20_000));
    let begin = Instant::now();
    let result = Job::from_env().and_then(|job| {
        let special = number("SPECIAL") == Some(job.rank.into());
        if case == "absent" && special {
            thread::sleep(Duration::from_secs(25));
        }
        let group = Group::join(job, deadline)?;
        match &*case {
            "all" => everything(&group),
            "tcp" => over_tcp(&group),
            "meet" | "absent" => group.barrier(),
            "end" => {
                if special {
                    Ok(())
                } else {
                    group.barrier().and_then(|()| group.barrier())
                }
            }
            "exit" => {
                group.barrier()?;
                if special {
                    process::exit(3);
                }
                group.barrier()
            }
            "linger" => {
                group.barrier()?;
                if special {
                    // Its connection closes, and it goes on for a while.
                    let lost = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                        let _lost = group;
                        std::panic::resume_unwind(Box::new(()));
                    }));
                    assert!(lost.is_err());
                    thread::sleep(Duration::from_millis(500));
                    process::exit(3);
                }
                group.barrier()
            }
            "wait" => waits(&group, special),
            "order" => {
                if special {
                    group.all_gather(b"x").map(drop)
                } else {
                    group.barrier()
                }
            }
            "shape" => {
                let lines = ["tensor w: [8, 8]".to_owned(), format!("tensor x: [4, {}]", if special { 6 } else { 5 })];
                group.agree("plan", &lines, Ok(()))
            }
            "setup" => group.vote("set-up", if special { Err("no room on this GPU") } else { Ok(b"") }).map(drop),
            other => panic!("no case {other}"),
        }
    });
    if let Err(error) = result {
        say(format!("{} ms: {error}", begin.elapsed().as_millis()));
        process::exit(i32::from(error.code()));
    }
}

/// Until the test does something to one of the ranks; how long after that the others learn of it is what they say.
fn waits(group: &Group, special: bool) -> Result<(), Error> {
    group.barrier()?;
    if special {
        fs::write(env::var("READY").unwrap(), process::id().to_string()).unwrap();
        thread::sleep(Duration::from_secs(25));
    }
    let begin = Instant::now();
    group.barrier().inspect_err(|_| say(format!("waited {} ms", begin.elapsed().as_millis())))
}

fn everything(group: &Group) -> Result<(), Error> {
    let (rank, ranks) = (group.rank(), group.ranks());
    assert!(group.one_host() && group.local_rank() == rank && group.local_ranks() == ranks);
    group.barrier()?;
    let own = vec![rank as u8; 1000 * (rank as usize + 1)];
    let all = group.all_gather(&own)?;
    assert!(all.iter().zip(0..).all(|(value, rank)| *value == vec![rank as u8; 1000 * (rank as usize + 1)]));
    // The job's number is that of all.
    assert!(group.all_gather(&group.job().to_le_bytes())?.iter().all(|job| *job == group.job().to_le_bytes()));
    let memory = group.share(1 << 20)?;
    for other in 0..ranks {
        memory.words(other)[rank as usize].store(u64::from(rank) * 100 + u64::from(other), Ordering::Release);
    }
    group.barrier()?;
    for other in 0..ranks {
        assert_eq!(memory.words(rank)[other as usize].load(Ordering::Acquire), u64::from(other) * 100 + u64::from(rank));
    }
    // A second group at the same time, then another one when both are gone.
    let second = Group::join(Job::from_env()?, Duration::from_secs(20))?;
    assert_ne!(second.job(), group.job());
    second.barrier()?;
    group.barrier()?;
    drop(second);
    let third = Group::join(Job::from_env()?, Duration::from_secs(20))?;
    third.barrier()?;
    group.barrier()
}

fn over_tcp(group: &Group) -> Result<(), Error> {
    assert!(!group.one_host());
    let all = group.all_gather(&vec![group.rank() as u8; 100_000])?;
    assert!(all.iter().zip(0..).all(|(value, rank)| *value == vec![rank; 100_000]));
    let error = group.share(8).unwrap_err();
    assert!(error.code() == 96 && error.to_string().contains("met over TCP"), "{error}");
    let second = Group::join(Job::from_env()?, Duration::from_secs(20))?;
    second.barrier()?;
    group.barrier()
}
