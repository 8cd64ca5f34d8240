//! Ten thousand operations of all kinds in one process, in an order that a seed chooses: megakernels, collectives outside, replays of a graph; some wait on
//! the host, others are queued. A wrong number stays wrong, so that it is enough to look now and then. And two communicators at once.

mod kept;
mod model;
#[path = "../support/mod.rs"]
mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kept::Kept;
use maco::{Error, Reduce, Schedule, Tensor, TensorElement, bf16, f16};
use model::{Operation, Random};
use support::{Value, World, alone, beside_others, number, on_cpus, on_gpus, short};

/// One tile, and several.
const SHAPES: [[u64; 2]; 2] = [[7, 9], [70, 130]];
/// Of each world of GPUs.
const OPERATIONS: usize = 10_000;
/// Of ranks of a CPU: a thousand take a second or two, and ten times as long where others have the processors.
const FEW: usize = 1000;

/// Several operations of one communicator, then several of the other: ranks that have one GPU for two communicators call in one order.
struct Turns(AtomicUsize);

const IN_A_ROW: usize = 3;

impl Turns {
    /// Until it is the turn of communicator `own` of two.
    fn wait(&self, own: usize) {
        let begin = Instant::now();
        while self.0.load(Ordering::Acquire) / IN_A_ROW % 2 != own {
            assert!(begin.elapsed() < Duration::from_secs(100), "the other communicator does not go on");
            thread::yield_now();
        }
    }

    fn end(&self, turns: usize) {
        self.0.fetch_add(turns, Ordering::Release);
    }
}

/// A sum of another element, of so many.
fn sum_of<E: Value + TensorElement + maco::RankElement>(world: &World, count: u64, by: Reduce) -> Result<(), Error> {
    let (rank, ranks) = (world.communicator.rank(), world.communicator.ranks());
    let all = |at: u64| (0..ranks).map(move |rank| number(rank, at, count));
    let mut x: Tensor<E> = world.device.upload(&support::numbers(rank, count, count), [count])?;
    world.communicator.all_reduce_by(&mut x, by)?;
    for (at, found) in (0..).zip(x.download()?) {
        let expected = if by == Reduce::Max { all(at).max().unwrap() } else { all(at).sum() };
        assert!(found == E::of(expected), "{by:?} of {count} numbers, {at}, on rank {rank} of {ranks}");
    }
    Ok(())
}

/// So many operations, the same on every rank.
fn mixed(world: &World, seed: u64, operations: usize, turns: Option<(&Turns, usize)>) -> Result<(), Error> {
    let ranks = world.communicator.ranks();
    let mut random = Random::new(seed);
    if let Some((turns, own)) = turns {
        turns.wait(own);
    }
    let mut kept = [Kept::new(world, SHAPES[0])?, Kept::new(world, SHAPES[1])?];
    if let Some((turns, _)) = turns {
        turns.end(IN_A_ROW);
    }
    for n in 0..operations {
        if let Some((turns, own)) = turns {
            turns.wait(own);
        }
        let large = random.below(16) == 0;
        let kept = &mut kept[usize::from(large)];
        let salt = random.below(1 << 20) as i32;
        match random.below(100) {
            0..5 => {
                let (count, by) = (u64::from(random.below(3000)), [Reduce::Sum, Reduce::Max][random.below(2) as usize]);
                match random.below(3) {
                    0 => sum_of::<bf16>(world, count, by)?,
                    1 => sum_of::<f16>(world, count, by)?,
                    _ => sum_of::<f32>(world, count, by)?,
                }
            }
            5..9 => kept.replay()?,
            _ => {
                let stream = [None, Some(0), Some(1)][random.below(3) as usize];
                kept.run(Operation::any(&mut random, ranks), salt, stream)?;
            }
        }
        if random.below(50) == 0 {
            kept.check(&format!("seed {seed}, behind operation {n}"))?;
        }
        if let Some((turns, _)) = turns {
            turns.end(1);
        }
    }
    // Not between the turns of the other one: it only waits.
    kept.iter_mut().try_for_each(|kept| kept.check(&format!("seed {seed}, behind all operations")))?;
    world.communicator.barrier()
}

#[test]
fn operations_of_all_kinds() {
    for ranks in [2, 3, 4] {
        on_cpus(ranks, 1, |world| mixed(world, 10 + u64::from(ranks), FEW, None).unwrap());
    }
}

#[test]
#[ignore = "gpu"]
fn gpu_ten_thousand_operations() {
    for ranks in [2, 3, 4] {
        on_gpus(ranks, Schedule::Static, |world| mixed(world, u64::from(ranks), if short() { 60 } else { OPERATIONS }, None).unwrap());
    }
}

/// Each has threads and devices of its own, and goes its own way.
#[test]
fn two_communicators_at_once() {
    thread::scope(|scope| {
        for (ranks, seed) in [(2, 21), (3, 22)] {
            scope.spawn(move || on_cpus(ranks, 1, |world| mixed(world, seed, FEW / 2, None).unwrap()));
        }
    });
}

/// On the same GPUs, each with threads of its own.
#[test]
#[ignore = "gpu"]
fn gpu_two_communicators_at_once() {
    let _alone = alone();
    for ranks in [2, 3, 4] {
        let turns: Vec<Turns> = (0..ranks).map(|_| Turns(AtomicUsize::new(0))).collect();
        let operations = if short() { 30 } else { 3000 };
        thread::scope(|scope| {
            for own in [0, 1] {
                let turns = &turns;
                scope.spawn(move || {
                    beside_others(ranks, Schedule::Static, |world| {
                        let turns = &turns[world.communicator.rank() as usize];
                        mixed(world, 31 + own as u64, operations, Some((turns, own))).unwrap();
                    });
                });
            }
        });
    }
}
