//! What ranks do that do not keep step: each is an error on every rank that is left, which names rank, operation and what was waited for.

mod support;

use std::os::unix::fs::DirBuilderExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, process};

use maco::{Arguments, Communicator, CudaGraph, Device, Error, PlanOptions, Schedule, Stream};
use ranks::collectives::{chain, of_f32, told};
use support::{are_there, in_time, launched};

fn options(communicator: &Communicator) -> PlanOptions {
    PlanOptions::new().communicator(communicator.clone())
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

fn planned(device: &Device, options: &PlanOptions) -> Result<chain::Plan, Error> {
    chain::plan_with(device, chain::Dims { M: 20, N: 30 }, options)
}

/// The device of a rank.
type Devices = fn(&Communicator) -> Device;

fn cpu(_: &Communicator) -> Device {
    Device::cpu_with(2)
}

fn gpu(communicator: &Communicator) -> Device {
    Device::gpu(communicator.local_rank()).unwrap()
}

/// The rank that does not run is named by all others, who go on with the same plan when all have recovered.
fn a_rank_never_runs(ranks: u32, idle: u32, devices: Devices) {
    let deadline = Duration::from_millis(200);
    let errors = Communicator::threads(ranks, |communicator| {
        let device = devices(&communicator);
        let options = options(&communicator).deadline(deadline);
        let plan = planned(&device, &options).unwrap();
        for _ in 0..3 {
            step(&communicator, &plan, &device).unwrap();
        }
        let begin = Instant::now();
        let error = (communicator.rank() != idle).then(|| step(&communicator, &plan, &device).unwrap_err());
        in_time(begin, deadline);
        if error.is_some() {
            let again = step(&communicator, &plan, &device).unwrap_err();
            assert_eq!(again.code(), 48, "until it is recovered: {again}; before: {error:?}");
        }
        plan.recover().unwrap();
        for _ in 0..3 {
            step(&communicator, &plan, &device).unwrap();
        }
        error
    });
    let errors: Vec<String> = errors.unwrap().into_iter().flatten().map(|error| error.to_string()).collect();
    assert_eq!(errors.len() as u32, ranks - 1);
    for error in &errors {
        assert!(error.starts_with("MACO0047: hang in megakernel `chain`: task `"), "{error}");
    }
    // Who hears it directly says so; those behind it may wait for one that waits.
    assert!(errors.iter().any(|error| error.contains(&format!(" waits for rank {idle} (worker "))), "{errors:#?}");
}

#[test]
fn a_rank_that_never_runs_is_named() {
    for (ranks, idle) in [(2, 0), (3, 2), (4, 1)] {
        a_rank_never_runs(ranks, idle, cpu);
    }
}

#[test]
#[ignore = "gpu"]
fn gpu_a_rank_that_never_runs_is_named() {
    for (ranks, idle) in [(2, 0), (3, 2), (4, 1)].into_iter().filter(|(ranks, _)| are_there(*ranks)) {
        a_rank_never_runs(ranks, idle, gpu);
    }
}

/// A rank that has a short deadline gives up alone; the others when theirs has passed. Then all go on.
fn a_shorter_deadline(ranks: u32, devices: Devices) {
    let errors = Communicator::threads(ranks, |communicator| {
        let device = devices(&communicator);
        let deadline = Duration::from_millis(if communicator.rank() == 1 { 100 } else { 700 });
        let plan = planned(&device, &options(&communicator).deadline(deadline)).unwrap();
        step(&communicator, &plan, &device).unwrap();
        let begin = Instant::now();
        let error = (communicator.rank() != 0).then(|| step(&communicator, &plan, &device).unwrap_err().to_string());
        in_time(begin, deadline);
        plan.recover().unwrap();
        (0..3).for_each(|_| step(&communicator, &plan, &device).unwrap());
        error
    });
    let errors = errors.unwrap();
    assert!(errors[0].is_none());
    for error in errors[1..].iter().map(|error| error.as_ref().unwrap()) {
        assert!(error.starts_with("MACO0047: hang in megakernel `chain`: task `") && error.contains(" waits for rank "), "{error}");
    }
    // It gets its numbers from rank 0; those behind it may wait for it.
    assert!(errors[1].as_ref().unwrap().contains(" waits for rank 0 (worker "), "{errors:#?}");
}

#[test]
fn a_shorter_deadline_of_one_rank() {
    [2, 3, 4].into_iter().for_each(|ranks| a_shorter_deadline(ranks, cpu));
}

#[test]
#[ignore = "gpu"]
fn gpu_a_shorter_deadline_of_one_rank() {
    [2, 3, 4].into_iter().filter(|ranks| are_there(*ranks)).for_each(|ranks| a_shorter_deadline(ranks, gpu));
}

#[test]
#[ignore = "gpu"]
fn gpu_each_rank_has_a_gpu_of_its_own() {
    let error = Communicator::threads(2, |communicator| planned(&Device::gpu(0).unwrap(), &options(&communicator)).err().unwrap());
    let text = same(error.unwrap());
    assert!(text.starts_with("MACO0098: megakernel `chain` cannot be planned for 2 ranks: ranks 0 and 1 have one GPU, "), "{text}");
}

/// What was captured is replayed, on all ranks alike, also behind launches that were not.
#[test]
#[ignore = "gpu"]
fn gpu_captured_collectives_are_replayed() {
    for ranks in [2, 3, 4].into_iter().filter(|ranks| are_there(*ranks)) {
        let run = |communicator: Communicator| {
            let device = gpu(&communicator);
            let (rank, ranks) = (communicator.rank(), communicator.ranks());
            let plan = planned(&device, &options(&communicator)).unwrap();
            let stream = Stream::new(&device).unwrap();
            let x = device.upload(&[rank as f32 + 1.0; 600], [20, 30]).unwrap();
            let [mut y, mut mean] = [(); 2].map(|()| device.zeros::<f32>([20, 30]).unwrap());
            let bound = plan.bind(Arguments::new().tensor(&x).tensor_mut(&mut y).tensor_mut(&mut mean)).unwrap();
            let graph = CudaGraph::capture::<Error>(&stream, |stream| (0..3).try_for_each(|_| bound.launch_on(stream))).unwrap();
            for _ in 0..20 {
                graph.launch(&stream).unwrap();
                stream.synchronize().unwrap();
                plan.check().unwrap();
                step(&communicator, &plan, &device).unwrap();
            }
            let all = (ranks * (ranks + 1)) as f32;
            assert!(y.download().unwrap().iter().all(|&value| value == all + ((rank + 1) % ranks) as f32 + 1.0), "rank {rank}");
        };
        Communicator::threads(ranks, run).unwrap();
    }
}

/// The error of every rank, which is one.
fn same(errors: Vec<Error>) -> String {
    let texts: Vec<String> = errors.iter().map(Error::to_string).collect();
    assert!(texts.windows(2).all(|pair| pair[0] == pair[1]), "{texts:#?}");
    texts[0].clone()
}

#[test]
fn what_these_ranks_cannot_run_is_refused() {
    let error = Communicator::threads(3, |communicator| {
        of_f32::plan_with(&Device::cpu_with(1), of_f32::Dims { M: 8, N: 8, R: 2 }, &options(&communicator)).err().unwrap()
    });
    let text = same(error.unwrap());
    assert!(
        text.starts_with("MACO0098: megakernel `of_f32` cannot be planned for 3 ranks: `all_gather` (call #6) has a plane of `gathered` for each rank, and there are 2 planes\nhelp: "),
        "{text}"
    );
    // One rank is a world too.
    let single = PlanOptions::new().communicator(Communicator::single());
    let error = of_f32::plan_with(&Device::cpu_with(1), of_f32::Dims { M: 8, N: 8, R: 2 }, &single).err().unwrap();
    assert!(error.to_string().starts_with("MACO0098: megakernel `of_f32` cannot be planned for 1 rank: "), "{error}");
    let error = Communicator::threads(2, |communicator| {
        planned(&Device::cpu_with(2), &options(&communicator).schedule(Schedule::Schedulers(1))).err().unwrap()
    });
    let text = same(error.unwrap());
    assert!(text.starts_with("MACO0098: megakernel `chain` cannot be planned for 2 ranks: `ring` (call #0) has tasks that wait for other ranks, and 1 schedulers push"), "{text}");
    // Without a communicator.
    let error = told::plan(&Device::cpu_with(1), told::Dims { M: 8, N: 8 }).err().unwrap();
    assert!(error.to_string().starts_with("MACO0072: "), "{error}");
}

#[test]
fn another_order_of_tasks_is_named() {
    let error = Communicator::threads(2, |communicator| {
        let workers = 1 + communicator.rank();
        planned(&Device::cpu_with(2), &options(&communicator).workers(workers)).err().unwrap()
    });
    let text = same(error.unwrap());
    assert!(
        text.starts_with("MACO0097: `plan of megakernel chain` is not the same on all ranks\n")
            && text.contains("\n  rank 0: workers: 1, static lists\n")
            && text.contains("\n  rank 1: workers: 2, static lists"),
        "{text}"
    );
    let error = Communicator::threads(2, |communicator| {
        let n = 30 + u64::from(communicator.rank());
        chain::plan_with(&Device::cpu_with(1), chain::Dims { M: 20, N: n }, &options(&communicator)).err().unwrap()
    });
    assert!(same(error.unwrap()).contains("\n  rank 1: tensor x: [20, 31] f32 In, sharded along axis 0"));
}

/// A rank of the test below.
#[test]
#[ignore = "is what another test starts"]
fn rank_program() {
    let Ok(killed) = env::var("KILLED") else { return };
    let result = Communicator::from_env().and_then(|communicator| {
        let device = Device::cpu_with(2);
        let plan = planned(&device, &options(&communicator))?;
        for _ in 0..5 {
            step(&communicator, &plan, &device)?;
        }
        if communicator.rank().to_string() == killed {
            process::abort();
        }
        if killed.is_empty() { Ok(()) } else { step(&communicator, &plan, &device) }
    });
    launched(result);
}

#[test]
fn processes_exchange_tiles_and_notice_a_killed_one() {
    for (ranks, killed) in [(2, None), (3, Some(1)), (3, Some(0)), (4, None), (4, Some(3))] {
        let folder = env::temp_dir().join(format!("maco-tiles-{}-{ranks}-{killed:?}", process::id()));
        fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
        let begin = Instant::now();
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
        assert!(begin.elapsed() < Duration::from_secs(30), "long before the deadline of 60 s");
        fs::remove_dir_all(&folder).unwrap();
    }
}
