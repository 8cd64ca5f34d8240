//! GEMMs that begin at another tile on each rank, and exchange what they make: exact, and the same as GEMMs that begin at the same one.

mod support;

use std::time::Duration;

use maco::{Communicator, Device, PlanOptions, Schedule, bf16};
use ranks::shares::shares;
use support::{Value, World, short};

/// Small whole numbers, different in each row of each rank.
fn of_row(rank: u32, row: u64, launch: u32) -> i64 {
    (row + u64::from(7 * rank + launch)) as i64 % 3 - 1
}

/// Elements of K that are not zero: all of a row are equal, so that products are known.
const DEPTH: u64 = 8;

fn begins(world: &World) {
    let (rank, ranks) = (world.communicator.rank(), world.communicator.ranks());
    let (count, device) = (u64::from(ranks), &world.device);
    let (m, k) = (128, 24);
    let (p, n) = (m * count, if short() { 256 } else { 256 * count + 256 });
    let dims = shares::Dims { M: m, N: n, K: k, R: count };
    let plan = shares::plan_with(device, dims, &world.options).unwrap();
    let same = shares::plan_with(device, dims, &world.options.clone().own_share(false)).unwrap();
    let first = |plan: &maco::Plan, call: usize| {
        let plan = plan.graph();
        let [row, column, _] = plan.tasks[plan.calls[call].tasks.start as usize].coord;
        [row, column]
    };
    if ranks > 1 {
        let next = (rank + 1) % ranks;
        let expected = [[0, if n > 256 { next } else { 0 }], [2 * next, 0], [2 * rank, 0]];
        assert_eq!([0, 2, 6].map(|call| first(&plan, call)), expected, "rank {rank} of {ranks}");
        let text = plan.graph().to_string();
        assert!(text.contains(&format!("from share {next} of {ranks}")), "{text}");
    }
    assert_eq!([0, 2, 6].map(|call| first(&same, call)), [[0; 2]; 3]);
    for launch in 0..3 {
        let rows = |count: u64, of: &dyn Fn(u64) -> i64| {
            let values: Vec<bf16> = (0..count * k).map(|at| bf16::of(if at % k < DEPTH { of(at / k) } else { 0 })).collect();
            device.upload(&values, [count, k]).unwrap()
        };
        let (x, w) = (rows(p, &|row| of_row(rank, row, launch)), rows(n, &|row| of_row(1, row, 0)));
        let (own, v) = (rows(m, &|row| of_row(rank, row, launch + 1)), rows(n, &|row| of_row(2, row, 0)));
        for (plan, how) in [(&plan, "at its share"), (&same, "where all begin")] {
            let new = |rows: u64| device.upload(&vec![bf16::of(99); (rows * n) as usize], [rows, n]).unwrap();
            let (mut sum, mut mine, mut of_all) = (new(p), new(m), new(p));
            let mut all = device.zeros::<bf16>([count, m, k]).unwrap();
            plan.run(&x, &w, &own, &v, &mut sum, &mut mine, &mut all, &mut of_all).unwrap();
            let summed =
                |row: u64, column: u64| DEPTH as i64 * (0..ranks).map(|rank| of_row(rank, row, launch) * of_row(1, column, 0)).sum::<i64>();
            let product = |row: u64, column: u64| DEPTH as i64 * of_row((row / m) as u32, row % m, launch + 1) * of_row(2, column, 0);
            let check = |found: &maco::Tensor<bf16>, what: &str, expected: &dyn Fn(u64, u64) -> i64| {
                for (at, value) in (0..).zip(found.download().unwrap()) {
                    let expected = bf16::of(expected(at / n, at % n));
                    assert!(
                        value == expected,
                        "{what}, begun {how}, rank {rank} of {ranks}, launch {launch}, {at}: {value:?}, not {expected:?}"
                    );
                }
            };
            check(&sum, "sum", &summed);
            check(&mine, "part", &|row, column| summed(u64::from(rank) * m + row, column));
            check(&of_all, "of what was gathered", &product);
        }
    }
}

/// Worlds of two, three and four ranks: by the roles of a GPU's worker, whose GEMMs send their tiles, and by tasks; by lists and by tickets.
#[test]
fn cpu_ranks_begin_at_their_shares() {
    let settings = [
        (1, 2, Schedule::Static, false),
        (2, 2, Schedule::Static, true),
        (3, 1, Schedule::Tickets, false),
        (3, 2, Schedule::Static, false),
        (4, 2, Schedule::Static, true),
    ];
    for (ranks, workers, schedule, pipelined) in settings {
        Communicator::threads(ranks, |communicator| {
            communicator.set_deadline(Duration::from_secs(60)).unwrap();
            let device = Device::cpu_with(workers);
            let options = PlanOptions::new().communicator(communicator.clone()).schedule(schedule).pipelined(pipelined);
            begins(&World { communicator, device, options, pushes: pipelined });
        })
        .unwrap();
    }
}

#[test]
#[ignore = "gpu"]
fn gpus_begin_at_their_shares() {
    support::worlds_of_gpus(begins);
}
