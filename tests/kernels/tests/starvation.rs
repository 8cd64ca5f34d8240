//! A chain on the way to the end is not kept waiting by tasks that nobody waits for, however many there are.
mod support;

use kernels::chains::{self, LINKS};
use maco::{Device, PlanOptions, Schedule, Tensor};

/// Tasks beside the chain.
const FAN: usize = 50_000;

struct Ends {
    root: u32,
    fan: Vec<u32>,
    links: Vec<u32>,
}

impl Ends {
    /// From the end of the root to that of the last link that another one waits for: nanoseconds on a GPU, ended tasks on a CPU. For
    /// the very last one nobody waits, as for the fan: it may come when it likes.
    fn chain(&self) -> u32 {
        self.links[LINKS - 2].wrapping_sub(self.root)
    }

    /// The same to the end of the last of the fan.
    fn fan(&self) -> u32 {
        self.fan.iter().map(|end| end.wrapping_sub(self.root)).max().unwrap()
    }

    #[track_caller]
    fn check(self) -> Ends {
        let mut before = 0;
        for (n, end) in self.links.iter().map(|end| end.wrapping_sub(self.root)).enumerate() {
            assert!(end > before && end < u32::MAX / 2, "link {n} ended at {end}, the one before at {before}");
            before = end;
        }
        assert!(self.fan.iter().all(|end| (1..u32::MAX / 2).contains(&end.wrapping_sub(self.root))), "the fan waits for the root");
        self
    }
}

fn outputs(device: &Device) -> [Tensor<u32>; LINKS] {
    std::array::from_fn(|_| device.zeros::<u32>([8]).unwrap())
}

fn first(tensor: &Tensor<u32>) -> u32 {
    tensor.download().unwrap()[0]
}

/// The second of two launches: the first one has warmed everything up.
fn starved(device: &Device, options: &PlanOptions, nanoseconds: u32) -> Ends {
    let plan = chains::starved::plan_with(device, chains::starved::Dims { C: 8 * FAN as u64 }, options).unwrap();
    let x = device.zeros::<u32>([1]).unwrap();
    let (mut root, mut fan, mut links) = (device.zeros::<u32>([8]).unwrap(), device.zeros::<u32>([8 * FAN]).unwrap(), outputs(device));
    for _ in 0..2 {
        plan.run(&x, nanoseconds, &mut root, &mut fan, &mut links).unwrap();
    }
    let fan = fan.download().unwrap().into_iter().step_by(8).collect();
    Ends { root: first(&root), fan, links: links.iter().map(first).collect() }.check()
}

fn alone(device: &Device, options: &PlanOptions, nanoseconds: u32) -> Ends {
    let plan = chains::alone::plan_with(device, chains::alone::Dims {}, options).unwrap();
    let x = device.zeros::<u32>([1]).unwrap();
    let (mut root, mut links) = (device.zeros::<u32>([8]).unwrap(), outputs(device));
    for _ in 0..2 {
        plan.run(&x, nanoseconds, &mut root, &mut links).unwrap();
    }
    Ends { root: first(&root), fan: vec![], links: links.iter().map(first).collect() }.check()
}

/// On a CPU threads come and go, so time says little: what counts is how much of the fan one worker did first. It never has more than
/// two tasks, so whoever is late, it cannot run ahead.
#[test]
fn cpu_schedulers_keep_a_chain_going() {
    let device = Device::cpu_with(1);
    for schedule in [Schedule::Schedulers(1), Schedule::SpareWarps(1)] {
        let ends = starved(&device, &PlanOptions::new().schedule(schedule), 0);
        assert!(ends.chain() as usize <= 3 * LINKS, "{schedule}: the chain of {LINKS} ended behind {} of {FAN} tasks", ends.chain());
    }
    // Else the graph would show nothing: in program order the chain comes last.
    for schedule in [Schedule::Static, Schedule::Tickets] {
        let ends = starved(&device, &PlanOptions::new().schedule(schedule), 0);
        assert!(ends.chain() as usize >= FAN, "{schedule}: the chain ended behind {} of {FAN} tasks", ends.chain());
    }
}

/// The chain takes at most three times as long as alone.
#[test]
#[ignore = "gpu"]
fn gpu_schedulers_keep_a_chain_going() {
    let device = Device::gpu(0).expect("a GPU");
    let mut slow = vec![];
    for schedule in [Schedule::Schedulers(1), Schedule::Schedulers(4), Schedule::SpareWarps(1), Schedule::SpareWarps(4)] {
        for nanoseconds in [1_000, 5_000, 20_000] {
            let options = PlanOptions::new().schedule(schedule);
            let (least, beside) = (alone(&device, &options, nanoseconds).chain(), starved(&device, &options, nanoseconds));
            let (chain, fan) = (beside.chain(), beside.fan());
            let ratio = f64::from(chain) / f64::from(least);
            println!(
                "{schedule}, tasks of {nanoseconds} ns: chain {:.1} µs alone, {:.1} µs beside the fan ({ratio:.2} ×), fan {:.1} µs",
                f64::from(least) / 1e3,
                f64::from(chain) / 1e3,
                f64::from(fan) / 1e3
            );
            if matches!(schedule, Schedule::Schedulers(_)) && ratio > 3.0 {
                slow.push(format!("{schedule}, tasks of {nanoseconds} ns: {ratio:.2} ×"));
            }
        }
    }
    assert!(slow.is_empty(), "{slow:?}");
}
