//! Another process has the same devices, which computes without a pause: ranks become slower, and nothing else.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

use maco::{Communicator, CudaGraph, Device, Error, PlanOptions, Reduce, Stream};
use ranks::collectives::chain;
use ranks::sizes::sum_of_f32;
use support::rendezvous::program;
use support::{are_there, number, numbers, on_cpus, on_gpus, short};

/// Of tensors of the other process, on a GPU: a launch takes a millisecond or two, and the next one comes at once.
const LARGE: [u64; 2] = [16_384, 16_384];
const SMALL: [u64; 2] = [64, 128];

/// The other process: on each device one launch follows another one until nobody wants any more of it. Then it says how many there were.
#[test]
#[ignore = "is what other tests start"]
fn busy_program() {
    let Ok(gpus) = env::var("BUSY") else { return };
    let gpus: u32 = gpus.parse().unwrap();
    let ends = AtomicBool::new(false);
    let launches = |n: u32| -> Result<u32, Error> {
        let (device, [m, n]) = if gpus == 0 { (Device::cpu_with(1), SMALL) } else { (Device::gpu(n)?, LARGE) };
        let options = PlanOptions::new().communicator(Communicator::single());
        let plan = sum_of_f32::plan_with(&device, sum_of_f32::Dims { M: m, N: n }, &options)?;
        let (x, mut y) = (device.zeros::<f32>([m, n])?, device.zeros::<f32>([m, n])?);
        let mut launches = 0;
        while !ends.load(Ordering::Relaxed) {
            plan.run(&x, &mut y)?;
            launches += 1;
            if launches == 3 {
                println!("busy");
            }
        }
        Ok(launches)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..gpus.max(1)).map(|n| scope.spawn(move || launches(n).unwrap())).collect();
        // Whoever has started it closes this.
        let _ = std::io::stdin().read(&mut [0]);
        ends.store(true, Ordering::Relaxed);
        for thread in threads {
            println!("launches: {}", thread.join().unwrap());
        }
    });
}

/// It runs as long as this is there.
struct Busy {
    child: Child,
    said: BufReader<ChildStdout>,
    devices: usize,
}

impl Busy {
    /// Returns when it computes on so many GPUs, or on the CPU.
    fn new(gpus: u32) -> Busy {
        let mut command = program("busy_program");
        let mut child = command.env("BUSY", gpus.to_string()).stdin(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut busy = Busy { child, said, devices: gpus.max(1) as usize };
        for _ in 0..busy.devices {
            busy.line("busy");
        }
        busy
    }

    fn line(&mut self, what: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "the other process does not say `{what}`");
            // The first one may be behind a line of the test harness.
            if let Some(at) = line.find(what) {
                return line[at..].trim().to_owned();
            }
        }
    }

    /// Ends it: how often it has launched on the device where that was the least often.
    fn end(mut self) -> u32 {
        assert!(self.child.try_wait().unwrap().is_none(), "the other process has ended");
        let mut stdin = self.child.stdin.take().unwrap();
        let _ = stdin.flush();
        drop(stdin);
        let launches = (0..self.devices).map(|_| self.line("launches: ")["launches: ".len()..].parse::<u32>().unwrap()).min().unwrap();
        assert!(self.child.wait().unwrap().success());
        launches
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // If the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Chains in megakernels, collectives outside, and replays of both.
fn steps(world: &support::World, steps: u64) -> Result<(), Error> {
    let (communicator, device) = (&world.communicator, &world.device);
    let (rank, ranks, [m, n]) = (communicator.rank(), communicator.ranks(), [50, 300]);
    let plan = chain::plan_with(device, chain::Dims { M: m, N: n }, &world.options)?;
    let stream = Stream::new(device)?;
    let mut z = device.upload(&[1i32; 5000], [5000])?;
    communicator.all_reduce_by(&mut z, Reduce::Max)?;
    let graph = if device.is_gpu() {
        Some(CudaGraph::capture::<Error>(&stream, |stream| communicator.all_reduce_on(stream, &mut z, Reduce::Sum))?)
    } else {
        None
    };
    for step in 0..steps {
        let of = |rank: u32, at: u64| number(rank, at, step);
        let x = device.upload(&numbers::<f32>(rank, m * n, step), [m, n])?;
        let [mut y, mut mean] = [device.zeros::<f32>([m, n])?, device.zeros::<f32>([m, n])?];
        plan.run(&x, &mut y, &mut mean)?;
        match &graph {
            Some(graph) => graph.launch(&stream)?,
            None => communicator.all_reduce(&mut z)?,
        }
        let mut sum = device.upload(&numbers::<f32>(rank, 40_001, step), [40_001])?;
        communicator.all_reduce(&mut sum)?;
        let all = |at: u64| 2 * (0..ranks).map(|rank| of(rank, at)).sum::<i64>();
        for (at, found) in (0..).zip(y.download()?) {
            assert_eq!(found, (all(at) + of((rank + 1) % ranks, at)) as f32, "rank {rank} of {ranks}, step {step}, {at}");
        }
        for (at, found) in (0..).zip(sum.download()?) {
            assert_eq!(2.0 * found, all(at) as f32, "all_reduce, rank {rank} of {ranks}, step {step}, {at}");
        }
    }
    stream.synchronize()?;
    communicator.check_collectives()?;
    let expected = (ranks as i32).wrapping_pow(steps as u32);
    assert!(z.download()?.iter().all(|&found| found == expected), "replays, rank {rank} of {ranks}");
    communicator.barrier()
}

#[test]
fn another_process_has_the_processors() {
    let busy = Busy::new(0);
    for ranks in [2, 3] {
        on_cpus(ranks, 2, |world| steps(world, 20).unwrap());
    }
    let launches = busy.end();
    assert!(launches > 3, "it has computed beside the ranks: {launches} launches");
}

/// The driver gives each process the whole GPU for some milliseconds in turn, on each GPU by itself: ranks wait for others that have none.
#[test]
#[ignore = "gpu"]
fn gpu_another_process_has_the_gpus() {
    let most = (0..8).take_while(|&n| Device::gpu(n).is_ok()).count() as u32;
    if !are_there(2) {
        return;
    }
    let busy = Busy::new(most.min(4));
    let begin = Instant::now();
    for ranks in [2, 3, 4] {
        on_gpus(ranks, maco::Schedule::Static, |world| steps(world, if short() { 5 } else { 100 }).unwrap());
    }
    eprintln!("with another process beside: {:?}", begin.elapsed());
    let launches = busy.end();
    assert!(begin.elapsed() < Duration::from_secs(60) && launches > 10, "it has computed beside the ranks: {launches} launches");
}
