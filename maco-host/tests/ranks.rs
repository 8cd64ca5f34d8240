//! Plans of several ranks: each gets its plan, or all get the same error, which names rank and difference.

mod kernels;

use std::os::unix::fs::DirBuilderExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use kernels::{ADD, Builder, CENTRE, DOUBLE, RAW, chain};
use maco_graph::ir::TensorKind::{In, InOut, Temp};
use maco_graph::spec::Element::F32;
use maco_graph::spec::{Placement, Reduction};
use maco_host::{Arguments, Communicator, Device, Error, Plan, PlanOptions, Program};

const SIZES: [u32; 6] = [1, 2, 3, 4, 6, 8];

fn options(communicator: &Communicator) -> PlanOptions {
    PlanOptions::new().communicator(communicator.clone())
}

fn plan(communicator: &Communicator, program: Program) -> Result<Plan, Error> {
    Plan::build(&Device::cpu_with(2), program, &options(communicator))
}

/// The error of every rank, which is one.
fn one(results: Vec<Result<Plan, Error>>) -> (u16, String) {
    let errors: Vec<(u16, String)> =
        results.into_iter().map(|result| result.unwrap_err()).map(|error| (error.code(), error.to_string())).collect();
    assert!(errors.windows(2).all(|pair| pair[0] == pair[1]), "{errors:#?}");
    errors[0].clone()
}

/// The error when `rank` has `other`, and the rest `chain`.
fn odd(ranks: u32, rank: u32, other: impl Fn() -> Program + Sync) -> (u16, String) {
    let run = |communicator: Communicator| {
        let program = if communicator.rank() == rank { other() } else { chain(&ADD, 4, 5).program() };
        let result = plan(&communicator, program);
        // The ranks go on.
        plan(&communicator, chain(&ADD, 4, 5).program()).unwrap();
        result
    };
    one(Communicator::threads(ranks, run).unwrap())
}

fn runs(communicator: &Communicator) -> Result<(), Error> {
    let device = Device::cpu_with(2);
    let plan = Plan::build(&device, chain(&ADD, 13, 21).program(), &options(communicator))?;
    let by = communicator.rank() as f32;
    let x = device.upload(&[1.0f32; 13 * 21], [13, 21])?;
    let mut y = device.zeros::<f32>([13, 21])?;
    for _ in 0..3 {
        plan.run(Arguments::new().tensor(&x).scalar(by).tensor_mut(&mut y))?;
    }
    let value = 2.0 * (1.0 + by);
    assert!(y.download()?.iter().all(|&found| found == value - 21.0 * value));
    communicator.barrier()
}

#[test]
fn ranks_of_any_number_plan_and_run_what_is_replicated() {
    for ranks in SIZES {
        let results = Communicator::threads(ranks, |communicator| {
            assert_eq!((communicator.ranks(), communicator.local_ranks()), (ranks, ranks));
            assert_eq!(
                communicator.all_gather_bytes(&[communicator.rank() as u8]).unwrap(),
                (0..ranks as u8).map(|n| vec![n]).collect::<Vec<_>>()
            );
            communicator.check().unwrap();
            runs(&communicator).map(|()| communicator.rank())
        });
        assert_eq!(results.unwrap().into_iter().collect::<Result<Vec<_>, _>>().unwrap(), (0..ranks).collect::<Vec<_>>());
    }
    runs(&Communicator::single()).unwrap();
}

#[test]
fn what_differs_is_named() {
    let base = || Builder::new("chain").tensor("x", In, F32, &[4, 5]).tensor("h", Temp, F32, &[4, 5]);
    for (ranks, rank) in [(2, 0), (2, 1), (3, 2), (8, 5)] {
        let (code, text) = odd(ranks, rank, || chain(&ADD, 4, 6).program());
        assert_eq!(code, 97, "{text}");
        assert!(text.starts_with("MACO0097: `plan of megakernel by_hand` is not the same on all ranks\n"), "{text}");
        assert!(
            text.contains(&format!("\n  rank {rank}: tensor x: [4, 6] f32 In\n")) && text.contains(": tensor x: [4, 5] f32 In\n"),
            "{text}"
        );
    }
    let (_, text) = odd(3, 1, || chain(&kernels::SLOW, 4, 5).program());
    assert!(text.contains("\n  ranks 0 and 2: call #0: add(x, h, by), instance") && text.contains("\n  rank 1: call #0: slow("), "{text}");
    // The same calls in another order.
    let turned =
        |first, second| base().scalar("by").tensor("y", InOut, F32, &[4, 5]).call(first, &["y"], &[]).call(second, &["x", "y"], &[]);
    let run = |communicator: Communicator| {
        let program = if communicator.rank() == 1 {
            turned(&DOUBLE, &CENTRE)
        } else {
            base().scalar("by").tensor("y", InOut, F32, &[4, 5]).call(&CENTRE, &["x", "y"], &[]).call(&DOUBLE, &["y"], &[])
        };
        plan(&communicator, program.program())
    };
    let (code, text) = one(Communicator::threads(2, run).unwrap());
    assert!(code == 97 && text.contains("\n  rank 0: call #0: centre(x, y)") && text.contains("\n  rank 1: call #0: double(y)"), "{text}");
    // Placement.
    let (_, text) = odd(2, 1, || {
        let mut program = chain(&ADD, 4, 5).program();
        program.graph.tensors[0].placement = Placement::Sharded(0);
        program
    });
    assert!(text.contains("\n  rank 1: tensor x: [4, 5] f32 In, sharded along axis 0\n"), "{text}");
    // Scalars and more calls.
    let (_, text) = odd(2, 0, || {
        let mut program = chain(&ADD, 4, 5).program();
        program.graph.calls.pop();
        program
    });
    assert!(text.contains("\n  rank 0: nothing more\n"), "{text}");
}

#[test]
fn another_megakernel_is_another_operation() {
    let run = |communicator: Communicator| {
        let mut program = chain(&ADD, 4, 5).program();
        if communicator.rank() == 1 {
            program.name = "other";
        }
        plan(&communicator, program)
    };
    let (code, text) = one(Communicator::threads(3, run).unwrap());
    assert!(code == 95 && text.contains("rank 1 ") && text.contains("`sizes of megakernel other`"), "{text}");
}

#[test]
fn an_error_of_one_rank_is_everybodys() {
    for ranks in [2, 4] {
        let bad = ranks - 1;
        let run = |communicator: Communicator| {
            let workers = if communicator.rank() == bad { 99 } else { 1 };
            Plan::build(&Device::cpu_with(2), chain(&ADD, 4, 5).program(), &options(&communicator).workers(workers))
        };
        let (code, text) = one(Communicator::threads(ranks, run).unwrap());
        assert_eq!(code, 96, "{text}");
        assert!(
            text.starts_with(&format!("MACO0096: rank {bad} failed at `plan of megakernel by_hand`"))
                && text.contains("because: MACO0039: 99 workers"),
            "{text}"
        );
        // Before there is a graph.
        let run = |communicator: Communicator| {
            let program = || if communicator.rank() == bad { Err(Error::NoDriver) } else { Ok(chain(&ADD, 4, 5).program()) };
            Plan::build_from(&Device::cpu_with(2), "by_hand", program, &options(&communicator))
        };
        let (code, text) = one(Communicator::threads(ranks, run).unwrap());
        assert!(
            code == 96
                && text.contains(&format!("rank {bad} failed at `sizes of megakernel by_hand`"))
                && text.contains("because: MACO0040"),
            "{text}"
        );
    }
}

#[test]
fn an_error_of_all_ranks_is_their_own() {
    let run = |communicator: Communicator| {
        let program = Builder::new("raw").tensor("x", InOut, F32, &[8, 8]).call(&RAW, &["x"], &[]).program();
        plan(&communicator, program)
    };
    let (code, text) = one(Communicator::threads(3, run).unwrap());
    assert!(code == 52 && text.starts_with("MACO0052: task `double`"), "{text}");
}

/// Shards are each rank's own: a graph without collectives runs on each rank by itself.
#[test]
fn shards_need_no_other_rank() {
    for placement in [Placement::Sharded(0), Placement::Partial(Reduction::Sum)] {
        let program = || {
            let mut program = chain(&ADD, 4, 5).program();
            program.graph.tensors[1].placement = placement;
            program
        };
        for result in Communicator::threads(2, |communicator| plan(&communicator, program()).map(drop)).unwrap() {
            result.unwrap();
        }
        assert!(plan(&Communicator::single(), program()).is_ok());
    }
}

#[test]
fn a_rank_that_does_not_plan_is_named() {
    let told = AtomicU32::new(0);
    let results = Communicator::threads(3, |communicator| {
        communicator.set_deadline(Duration::from_millis(if communicator.rank() == 0 { 300 } else { 20_000 })).unwrap();
        if communicator.rank() == 1 {
            while told.load(Ordering::Relaxed) < 2 {
                thread::sleep(Duration::from_millis(1));
            }
            return communicator.barrier().unwrap_err();
        }
        let begin = Instant::now();
        let error = plan(&communicator, chain(&ADD, 4, 5).program()).unwrap_err();
        told.fetch_add(1, Ordering::Relaxed);
        assert!(begin.elapsed() < Duration::from_secs(10));
        error
    });
    for error in results.unwrap() {
        assert!(error.to_string().starts_with("MACO0095: rank 1 did not come to `sizes of megakernel by_hand` within"), "{error}");
    }
}

#[test]
fn communicators_of_one_rank_are_equal() {
    assert_eq!(Communicator::single(), Communicator::single());
    let found = Communicator::threads(2, |communicator| (communicator == communicator.clone(), format!("{communicator:?}"))).unwrap();
    assert_eq!(found, [(true, "Communicator(rank 0 of 2)".to_owned()), (true, "Communicator(rank 1 of 2)".to_owned())]);
    assert_eq!(Communicator::threads(0, |_| ()).unwrap_err().code(), 93);
}

/// A rank of the test below.
#[test]
#[ignore = "is what another test starts"]
fn rank_program() {
    let Ok(killed) = env::var("KILLED") else { return };
    let result = Communicator::from_env().and_then(|communicator| {
        runs(&communicator)?;
        if communicator.rank().to_string() == killed {
            process::abort();
        }
        plan(&communicator, chain(&ADD, 4, 5).program())
    });
    match result {
        Ok(_) => process::exit(0),
        Err(error) => {
            println!("<said>{error}</said>");
            process::exit(i32::from(error.code()));
        }
    }
}

#[test]
fn processes_plan_together_and_notice_a_killed_one() {
    for (ranks, killed) in [(2, None), (3, Some(1)), (3, Some(0)), (4, None)] {
        let folder = env::temp_dir().join(format!("maco-plan-{}-{ranks}-{killed:?}", process::id()));
        fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
        let children: Vec<_> = (0..ranks)
            .map(|rank: u32| {
                let mut command = Command::new(env::current_exe().unwrap());
                command.args(["--ignored", "--exact", "rank_program", "--nocapture"]).stdout(Stdio::piped()).stderr(Stdio::null());
                command.env("KILLED", killed.map_or(String::new(), |rank| rank.to_string())).env("MACO_JOB_FOLDER", &folder);
                for (variable, value) in [("RANK", rank), ("WORLD_SIZE", ranks), ("LOCAL_RANK", rank), ("LOCAL_WORLD_SIZE", ranks)] {
                    command.env(variable, value.to_string());
                }
                command.spawn().unwrap()
            })
            .collect();
        for (rank, child) in (0..).zip(children) {
            let output = child.wait_with_output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            match killed {
                None => assert_eq!(output.status.code(), Some(0), "rank {rank}: {text}"),
                Some(killed) if killed == rank => assert_eq!(output.status.code(), None),
                Some(killed) => assert!(text.contains(&format!("<said>MACO0095: rank {killed} is gone")), "rank {rank}: {text}"),
            }
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
