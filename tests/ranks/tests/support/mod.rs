//! Worlds of ranks to test in.
#![allow(dead_code, unused_imports, unused_macros)]

pub mod periodic;
pub mod rendezvous;

use std::fmt::Debug;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use maco::{Communicator, Device, PlanOptions, Schedule, bf16, f16};

/// An element as small whole numbers.
pub trait Value: Copy + PartialEq + Debug {
    fn of(number: i64) -> Self;
    fn number(self) -> f64;
}

impl Value for bf16 {
    fn of(number: i64) -> bf16 {
        bf16::from_f32(number as f32)
    }
    fn number(self) -> f64 {
        self.to_f64()
    }
}
impl Value for f16 {
    fn of(number: i64) -> f16 {
        f16::from_f32(number as f32)
    }
    fn number(self) -> f64 {
        self.to_f64()
    }
}
impl Value for f32 {
    fn of(number: i64) -> f32 {
        number as f32
    }
    fn number(self) -> f64 {
        self.into()
    }
}
impl Value for i8 {
    fn of(number: i64) -> i8 {
        number as i8
    }
    fn number(self) -> f64 {
        self.into()
    }
}
impl Value for i32 {
    fn of(number: i64) -> i32 {
        number as i32
    }
    fn number(self) -> f64 {
        self.into()
    }
}

/// One number of a rank: small, so that sums are exact in every element.
pub fn number(rank: u32, at: u64, salt: u64) -> i64 {
    let mut bits = (u64::from(rank) << 40 ^ at << 8 ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits ^= bits >> 29;
    (bits.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as i64 % 15 - 7
}

/// The numbers of `rank`: `elements` of them.
pub fn numbers<E: Value>(rank: u32, elements: u64, salt: u64) -> Vec<E> {
    (0..elements).map(|at| E::of(number(rank, at, salt))).collect()
}

/// Tests on CPU ranks, and on as many GPUs.
macro_rules! everywhere {
    ($($name:ident),*) => {
        mod cpu {
            $(#[test] fn $name() { super::support::worlds(super::$name); })*
        }
        mod gpu {
            $(#[test] #[ignore = "gpu"] fn $name() { super::support::worlds_of_gpus(super::$name); })*
        }
    };
}
pub(crate) use everywhere;

/// Whether tests are to be short: `MACO_TESTS=short`, where a GPU is emulated.
pub fn short() -> bool {
    std::env::var("MACO_TESTS").is_ok_and(|value| value == "short")
}

/// How much later than it is due an error may come on a machine of two cores that has other work: each of eight threads and more comes to its turn late.
const SLACK: Duration = Duration::from_secs(3);

/// How long an error may take to come that is due after `deadline`, which `MACO_DEADLINE_SCALE` scales as it does that of the plan.
pub fn at_most(deadline: Duration) -> Duration {
    deadline.mul_f64(std::env::var("MACO_DEADLINE_SCALE").map_or(1.0, |scale| scale.parse().unwrap())) + SLACK
}

/// Fails if an error that was due after `deadline` came later. The wait for it began at `begin`.
#[track_caller]
pub fn in_time(begin: Instant, deadline: Duration) {
    let took = begin.elapsed();
    assert!(took < at_most(deadline), "took {took:?}, and was due after {deadline:?}");
}

/// A rank among others.
pub struct World {
    pub communicator: Communicator,
    pub device: Device,
    pub options: PlanOptions,
    /// Whether GEMMs send tiles to other ranks.
    pub pushes: bool,
}

/// Runs `test` as every rank of worlds of 1, 2, 3, 4, 6 and 8 ranks, with other schedules and numbers of workers.
pub fn worlds(test: impl Fn(&World) + Sync) {
    use maco::Schedule::{Static, Tickets};
    let settings = [
        (1, 2, Static, false),
        (2, 1, Static, false),
        (2, 3, Tickets, true),
        (3, 2, Static, true),
        (4, 1, Tickets, false),
        (6, 2, Static, false),
        (8, 1, Static, false),
    ];
    for (ranks, workers, schedule, pipelined) in settings {
        Communicator::threads(ranks, |communicator| {
            communicator.set_deadline(Duration::from_secs(30)).unwrap();
            let device = Device::cpu_with(workers);
            let options = PlanOptions::new().communicator(communicator.clone()).schedule(schedule).pipelined(pipelined);
            test(&World { communicator, device, options, pushes: pipelined });
        })
        .unwrap();
    }
}

/// Whether there is a GPU for each rank; if not, that the test is left out.
pub fn are_there(ranks: u32) -> bool {
    let there = Device::gpu(ranks - 1).is_ok();
    if !there {
        eprintln!("left out: {ranks} ranks need as many GPUs, and there are fewer");
    }
    there
}

/// Runs `test` as every rank of worlds of 2, 3 and 4 ranks, each of which has a GPU.
pub fn worlds_of_gpus(test: impl Fn(&World) + Sync) {
    use maco::Schedule::{Static, Tickets};
    let worlds: &[_] =
        if short() { &[(2, Static), (3, Tickets)] } else { &[(1, Static), (2, Static), (2, Tickets), (3, Tickets), (4, Static)] };
    for &(ranks, schedule) in worlds {
        on_gpus(ranks, schedule, &test);
    }
}

/// As long as it lives, no other test of this program has the GPUs: of two worlds on the same ones, each rank must call in one order.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // One that has failed is no reason to.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `test` as every rank of a world, each with a GPU, if there are so many.
pub fn on_gpus(ranks: u32, schedule: Schedule, test: impl Fn(&World) + Sync) {
    let _alone = alone();
    beside_others(ranks, schedule, test);
}

/// The same while others may have the GPUs, too.
pub fn beside_others(ranks: u32, schedule: Schedule, test: impl Fn(&World) + Sync) {
    if !are_there(ranks) {
        return;
    }
    Communicator::threads(ranks, |communicator| {
        let device = Device::gpu(communicator.local_rank()).unwrap();
        let options = PlanOptions::new().communicator(communicator.clone()).schedule(schedule);
        test(&World { communicator, device, options, pushes: true });
    })
    .unwrap();
}

/// Runs `test` as every rank of a world on the CPU.
pub fn on_cpus(ranks: u32, workers: u32, test: impl Fn(&World) + Sync) {
    Communicator::threads(ranks, |communicator| {
        communicator.set_deadline(Duration::from_secs(30)).unwrap();
        let device = Device::cpu_with(workers);
        let options = PlanOptions::new().communicator(communicator.clone());
        test(&World { communicator, device, options, pushes: false });
    })
    .unwrap();
}

/// Ends a process that is a rank, with what it has to say.
pub fn launched(result: Result<(), maco::Error>) -> ! {
    match result {
        Ok(()) => std::process::exit(0),
        Err(error) => {
            println!("<said>{error}</said>");
            std::process::exit(1);
        }
    }
}
