//! A rank that ends early, whose signal is lost, or that is killed: each survivor says which rank, which operation and what it waited for, and its device works on.

mod support;

use std::time::{Duration, Instant};
use std::{env, process, thread};

use maco::{Communicator, Device, Error, Fault, Plan, PlanOptions, Schedule};
use ranks::collectives::chain;
use support::rendezvous::{Rendezvous, ends, program};
use support::{alone, are_there, at_most, in_time, launched};

/// Of all waits inside of megakernels.
const DEADLINE: Duration = Duration::from_millis(300);
/// The same where a rank is killed. Launches on a GPU end by it; CPU ranks learn of it long before.
const DEADLINE_OF_KILLED: [Duration; 2] = [Duration::from_secs(20), Duration::from_secs(2)];

/// The device of a rank.
type Devices = fn(&Communicator) -> Device;

fn cpu(_: &Communicator) -> Device {
    Device::cpu_with(2)
}

fn gpu(communicator: &Communicator) -> Device {
    Device::gpu(communicator.local_rank()).unwrap()
}

/// In an order that no worker knows before: all signals are waited for.
fn planned(communicator: &Communicator, device: &Device, deadline: Duration) -> Result<chain::Plan, Error> {
    let options = PlanOptions::new().communicator(communicator.clone()).deadline(deadline).schedule(Schedule::Tickets).workers(2);
    chain::plan_with(device, chain::Dims { M: 20, N: 30 }, &options)
}

/// A step of the chain on numbers that make its results known.
fn step(communicator: &Communicator, plan: &chain::Plan, device: &Device) -> Result<(), Error> {
    let (rank, ranks) = (communicator.rank(), communicator.ranks());
    let x = device.upload(&[rank as f32 + 1.0; 600], [20, 30])?;
    let (mut y, mut mean) = (device.zeros::<f32>([20, 30])?, device.zeros::<f32>([20, 30])?);
    plan.run(&x, &mut y, &mut mean)?;
    let all = (ranks * (ranks + 1)) as f32;
    let next = ((rank + 1) % ranks) as f32 + 1.0;
    assert!(y.download()?.iter().all(|&value| value == all + next), "rank {rank} of {ranks}");
    assert!(mean.download()?.iter().all(|&value| value == all + all / (2 * ranks) as f32));
    Ok(())
}

/// In the process whose rank was left alone: a plan and a collective, on the same device.
fn works_on(device: &Device) {
    let alone = Communicator::single();
    let plan = planned(&alone, device, Duration::from_secs(2)).unwrap();
    (0..3).for_each(|_| step(&alone, &plan, device).unwrap());
    let mut x = device.upload(&[1.5f32, 2.5, -3.5], [3]).unwrap();
    alone.all_reduce(&mut x).unwrap();
    assert_eq!(x.download().unwrap(), [1.5, 2.5, -3.5]);
}

/// A hang of the chain, of a task that waits for this rank, or for one that does.
#[track_caller]
fn is_hang(text: &str) {
    let is_of_chain = text.starts_with("MACO0047: hang in megakernel `chain`: task `");
    assert!(is_of_chain && text.contains("(call #") && text.contains(" waits for rank "), "{text}");
}

/// Worlds, each with the number of its rank that does something special.
const WORLDS: [(u32, u32); 4] = [(2, 1), (2, 0), (3, 1), (4, 2)];

/// Makes a test of CPU ranks, and one of GPUs, of a function of world, special rank and devices.
macro_rules! on_both {
    ($($name:ident $gpu_name:ident $run:ident;)*) => {$(
        #[test]
        fn $name() {
            WORLDS.into_iter().for_each(|(ranks, special)| $run(ranks, special, cpu));
        }

        #[test]
        #[ignore = "gpu"]
        fn $gpu_name() {
            let _alone = alone();
            WORLDS.into_iter().filter(|(ranks, _)| are_there(*ranks)).for_each(|(ranks, special)| $run(ranks, special, gpu));
        }
    )*};
}
on_both! {
    a_rank_that_ends_early_is_named gpu_a_rank_that_ends_early_is_named ends_early;
    a_lost_signal_is_named gpu_a_lost_signal_is_named loses_a_signal;
}

/// One says farewell while the others still need it.
fn ends_early(ranks: u32, special: u32, devices: Devices) {
    let errors = Communicator::threads(ranks, |communicator| {
        let device = devices(&communicator);
        let plan = planned(&communicator, &device, DEADLINE).unwrap();
        (0..3).for_each(|_| step(&communicator, &plan, &device).unwrap());
        if communicator.rank() == special {
            return None;
        }
        let begin = Instant::now();
        let error = step(&communicator, &plan, &device).unwrap_err().to_string();
        in_time(begin, DEADLINE);
        let lost = plan.recover().unwrap_err().to_string();
        assert!(lost.starts_with(&format!("MACO0095: rank {special} has ended")), "{lost}");
        drop(plan);
        works_on(&device);
        Some(error)
    });
    let errors: Vec<String> = errors.unwrap().into_iter().flatten().collect();
    assert_eq!(errors.len() as u32, ranks - 1);
    errors.iter().for_each(|error| is_hang(error));
    assert!(errors.iter().any(|error| error.contains(&format!(" waits for rank {special} ("))), "{errors:#?}");
}

/// The first task of `call` that another one waits for.
fn awaited(plan: &Plan, call: u32) -> u32 {
    let graph = plan.graph();
    let is_awaited = |task: u32| graph.signals_of(task).iter().any(|&counter| graph.worker_edges.is_signalled(counter));
    (0..).zip(&graph.tasks).find(|&(task, node)| node.call == call && is_awaited(task)).expect("workers know no order").0
}

/// One whose launch loses a signal never sends: it says which, and the others wait for it.
fn loses_a_signal(ranks: u32, special: u32, devices: Devices) {
    let errors = Communicator::threads(ranks, |communicator| {
        let device = devices(&communicator);
        let plan = planned(&communicator, &device, DEADLINE).unwrap();
        (0..3).for_each(|_| step(&communicator, &plan, &device).unwrap());
        if communicator.rank() == special {
            // That of `b`, of which the sum is made.
            plan.inject(Some(Fault::LostSignal(awaited(&plan, 1)))).unwrap();
        }
        let begin = Instant::now();
        let error = step(&communicator, &plan, &device).unwrap_err().to_string();
        in_time(begin, DEADLINE);
        plan.inject(None).unwrap();
        plan.recover().unwrap();
        (0..3).for_each(|_| step(&communicator, &plan, &device).unwrap());
        error
    });
    for (rank, error) in (0..).zip(errors.unwrap()) {
        if rank == special {
            // The sum waits for it, and what is behind the sum for that.
            let waits =
                ["for `b` from task `add` (call #1, ", "for `c` from task `all_reduce` (call #2, ", "for `d` from task `add` (call #3, "];
            let is_told = waits.iter().any(|waits| error.contains(waits)) && error.contains(" signals");
            assert!(error.starts_with("MACO0047: hang in megakernel `chain`: task `") && is_told, "{error}");
        } else {
            is_hang(&error);
            assert!(error.contains(&format!(" waits for rank {special} (")), "rank {rank}: {error}");
        }
    }
}

/// A rank of the tests below: one of them is killed in the middle of a launch.
#[test]
#[ignore = "is what other tests start"]
fn rank_program() {
    let Ok(killed) = env::var("KILLED") else { return };
    let is_gpu = env::var("GPUS").is_ok();
    let result = Communicator::from_env().and_then(|communicator| {
        let device = if is_gpu { gpu(&communicator) } else { cpu(&communicator) };
        let plan = planned(&communicator, &device, DEADLINE_OF_KILLED[usize::from(is_gpu)])?;
        (0..5).try_for_each(|_| step(&communicator, &plan, &device))?;
        communicator.barrier()?;
        let begin = Instant::now();
        if communicator.rank().to_string() == killed {
            thread::spawn(|| {
                thread::sleep(Duration::from_millis(20));
                // As by SIGKILL: no farewell.
                process::abort();
            });
        }
        let error = loop {
            if let Err(error) = step(&communicator, &plan, &device) {
                break error;
            }
            assert!(begin.elapsed() < DEADLINE_OF_KILLED[0], "nobody is missed");
        };
        println!("<said>after {} ms</said>", begin.elapsed().as_millis());
        drop(plan);
        works_on(&device);
        println!("<said>works on</said>");
        Err(error)
    });
    launched(result);
}

/// Each survivor's text, which has worked on; nothing is left of the job.
fn killed(ranks: u32, killed: u32, is_gpu: bool) -> Vec<String> {
    let rendezvous = Rendezvous::new();
    let children = (0..ranks).map(|rank| {
        let mut command = rendezvous.rank("rank_program", rank, ranks);
        command.env("KILLED", killed.to_string());
        if is_gpu {
            command.env("GPUS", "1");
        }
        command.spawn().unwrap()
    });
    let ended = ends(children.collect());
    rendezvous.nothing_left();
    let survivors = (0..).zip(ended).filter(|(rank, (code, text))| {
        assert_eq!(*rank == killed, code.is_none(), "rank {rank}: {text}");
        *rank != killed
    });
    survivors
        .map(|(rank, (code, text))| {
            let after = text
                .split("<said>after ")
                .nth(1)
                .and_then(|rest| rest.split(" ms").next())
                .map(|ms| Duration::from_millis(ms.parse().unwrap()));
            let due = if is_gpu { DEADLINE_OF_KILLED[1] } else { Duration::ZERO };
            assert!(after.is_some_and(|after| after < at_most(due)), "rank {rank}: {text}");
            assert!(code == Some(1) && text.contains("<said>works on</said>"), "rank {rank}: {text}");
            text
        })
        .collect()
}

/// Worlds, each with the number of its rank that is killed.
const KILLED: [(u32, u32); 4] = [(2, 1), (2, 0), (3, 2), (4, 1)];

/// Every survivor says that `rank` is gone, whoever it waited for.
fn all_name(rank: u32, texts: &[String]) {
    for text in texts {
        let words = format!("<said>MACO0095: rank {rank} is gone, while others wait for `");
        assert!(text.contains(&words) && text.contains("megakernel chain"), "{text}");
    }
    // Who has all that it needs for now does not wait.
    let waits = |text: &String| text.contains("`task ") && text.contains("(call #") && text.contains(" in megakernel chain, for rank ");
    assert!(texts.iter().any(waits), "{texts:#?}");
}

#[test]
fn a_killed_rank_is_named_and_the_others_work_on() {
    KILLED.into_iter().for_each(|(ranks, rank)| all_name(rank, &killed(ranks, rank, false)));
}

/// Launches on a GPU end by their deadline: kernels do not know of processes. Hosts do.
#[test]
#[ignore = "gpu"]
fn gpu_a_killed_rank_is_named_and_the_others_work_on() {
    let _alone = alone();
    KILLED.into_iter().filter(|(ranks, _)| are_there(*ranks)).for_each(|(ranks, rank)| all_name(rank, &killed(ranks, rank, true)));
}

#[test]
fn programs_of_tests_are_found() {
    // Else the tests above would start nothing.
    let output = program("rank_program").env_remove("KILLED").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
}
