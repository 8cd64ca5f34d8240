//! Ranks that are late, each at other places: each has delays of its own, by its seed, in every role. Not a number changes.
//!
//! Takes half a minute: ranks sleep, and each of them waits for the latest.
#![allow(dead_code)]

#[path = "../../kernels/tests/support/rounds.rs"]
mod rounds;

use std::time::Duration;

use delays::ranks::exchanged;
use maco::Schedule::{Static, Tickets};
use maco::{Communicator, Device, PlanOptions, Tensor};
use rounds::{left_out, rounds};

const M: u64 = 35;
const N: u64 = 67;

/// Small, so that sums are exact.
fn number(rank: u32, at: u64, salt: u32) -> f32 {
    let mut bits = (u64::from(rank) << 40 ^ at << 8 ^ u64::from(salt)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits ^= bits >> 29;
    ((bits.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as i64 % 15 - 7) as f32
}

/// One rank of a world: launches under `seeds` seeds, none of which another rank has at the same time.
fn straggle(communicator: &Communicator, device: &Device, options: &PlanOptions, seeds: u32) {
    let (rank, ranks) = (communicator.rank(), communicator.ranks());
    let planes = u64::from(ranks);
    let plan = exchanged::plan_with(device, exchanged::Dims { M, N, R: planes }, options).unwrap();
    let flat = || device.zeros::<f32>([M, N]).unwrap();
    let deep = || device.zeros::<f32>([planes, M, N]).unwrap();
    for round in 0..seeds {
        // Each rank is the one without delays now and then; the others are late for it.
        plan.set_delays(if round % (ranks + 1) == rank { 0 } else { 1 + round * ranks + rank });
        let root = round % ranks;
        let own: Vec<f32> = (0..M * N).map(|at| number(rank, at, round)).collect();
        let mine: Vec<f32> = (0..planes * M * N).map(|at| number(rank, at, round + 10_000)).collect();
        let x = device.upload(&own, [M, N]).unwrap();
        let parts = device.upload(&mine, [planes, M, N]).unwrap();
        let (mut sum, mut large, mut told, mut scattered) = (flat(), flat(), flat(), flat());
        let (mut gathered, mut swapped, mut back) = (deep(), deep(), deep());
        // And it comes late, by up to a third of a millisecond.
        std::thread::sleep(Duration::from_micros(number(rank, round.into(), 1).abs() as u64 * 50));
        plan.run(&x, &parts, &mut sum, &mut large, &mut told, &mut gathered, &mut scattered, &mut swapped, &mut back, root)
            .unwrap_or_else(|error| panic!("round {round}, rank {rank} of {ranks}: {error}"));

        let check = |found: &Tensor<f32>, expected: &dyn Fn(u32, u64) -> f32, what: &str| {
            for (place, found) in (0..).zip(found.download().unwrap()) {
                let (plane, at) = ((place / (M * N)) as u32, place % (M * N));
                let expected = expected(plane, at);
                assert!(found == expected, "{what}, round {round}, rank {rank} of {ranks}, plane {plane}, {at}: {found}, not {expected}");
            }
        };
        let before = |rank: u32, at: u64| number((rank + ranks - 1) % ranks, at, round);
        let all = |at: u64| (0..ranks).map(|rank| number(rank, at, round)).sum::<f32>();
        let of_mine = |rank: u32, plane: u32, at: u64| number(rank, u64::from(plane) * M * N + at, round + 10_000);
        check(&sum, &|_, at| all(at), "all_reduce");
        check(&large, &|_, at| all(at) + ranks as f32 * all(at), "all_reduce with signals");
        check(&told, &|_, at| before(root, at), "broadcast");
        check(&gathered, &before, "all_gather");
        check(&scattered, &|_, at| (0..ranks).map(|from| of_mine(from, rank, at)).sum(), "reduce_scatter");
        check(&swapped, &|plane, at| of_mine(plane, rank, at), "all_to_all");
        check(&back, &|plane, at| of_mine(rank, plane, at), "four exchanges over channels");
    }
}

/// Both forms of the CPU executor: a thread for each worker, and one for each role of it.
#[test]
fn ranks_with_delays_of_their_own() {
    for (ranks, workers, schedule, pipelined) in
        [(2, 2, Static, true), (2, 1, Tickets, false), (3, 2, Tickets, true), (4, 1, Static, false)]
    {
        Communicator::threads(ranks, |communicator| {
            communicator.set_deadline(Duration::from_secs(60)).unwrap();
            let options = PlanOptions::new().communicator(communicator.clone()).schedule(schedule).pipelined(pipelined);
            straggle(&communicator, &Device::cpu_with(workers), &options, rounds(24) as u32);
        })
        .unwrap();
    }
}

#[test]
#[ignore = "gpu"]
fn gpu_ranks_with_delays_of_their_own() {
    for (ranks, schedule) in [(2, Static), (2, Tickets), (3, Static), (4, Tickets)] {
        if Device::gpu(ranks - 1).is_err() {
            left_out(&format!("{ranks} ranks"), "there are fewer GPUs");
            continue;
        }
        Communicator::threads(ranks, |communicator| {
            let device = Device::gpu(communicator.local_rank()).unwrap();
            // Few workers have long lists, in which what is late is late for more.
            for workers in [2, device.workers()] {
                let options = PlanOptions::new().communicator(communicator.clone()).schedule(schedule).workers(workers);
                straggle(&communicator, &device, &options, rounds(500) as u32);
            }
        })
        .unwrap();
    }
}
