//! Tiles and dynamic scheduling of memory-bound calls: tiles are large enough for the ring, and small enough that workers end together.
mod plan_graphs;

use maco_graph::ir::TensorKind;
use maco_graph::plan::{Costs, Options, PlannedCall, Schedule, plan};
use maco_graph::spec::{Access, Index, RowsForm, TaskKind, TaskSpec};
use plan_graphs::{Build, axis, task, tensor};

/// `copy` of the library.
static COPY: TaskSpec = TaskSpec {
    kind: TaskKind::Rows(RowsForm::Any),
    ..task(
        "copy",
        &[axis("i", &[4, 16, 64]), axis("j", &[1024])],
        &[tensor("x", Access::Read, &[Index::Tile(0), Index::Tile(1)]), tensor("y", Access::Write, &[Index::Tile(0), Index::Tile(1)])],
    )
};

fn planned(task: &'static TaskSpec, rows: u64, columns: u64) -> PlannedCall {
    let mut build = Build::default();
    let (x, y) = (build.input("x", &[rows, columns]), build.tensor("y", TensorKind::Out, &[rows, columns]));
    build.call(task, &[x, y]);
    plan(build.0, &Options::new(132)).unwrap().calls[0].clone()
}

#[test]
fn many_rounds_use_the_smallest_tiles_that_fill_the_ring() {
    for columns in [1024, 2048, 4096, 5120, 8192, 14336] {
        assert_eq!(planned(&COPY, 16384, columns).tile, [16, 1024], "{columns} columns");
    }
    // Of narrow tensors more rows.
    for columns in [64, 128, 512] {
        assert_eq!(planned(&COPY, 1 << 20, columns).tile, [64, 1024], "{columns} columns");
    }
}

#[test]
fn one_round_uses_as_many_workers_as_possible() {
    for (rows, tile, grid) in [(1, 64, [1, 4]), (4, 64, [1, 4]), (8, 4, [2, 4]), (128, 4, [32, 4]), (512, 16, [32, 4])] {
        let call = planned(&COPY, rows, 4096);
        assert_eq!((call.tile[0], &call.grid[..2]), (tile, &grid[..]), "{rows} rows");
    }
}

/// Memory bandwidth differs between multiprocessors: many tasks are claimed. Not with an assignment, costs or schedulers, nor on few workers.
#[test]
fn many_rounds_are_scheduled_dynamically() {
    let of = |rows: u64, options: &Options| {
        let mut build = Build::default();
        let (x, y) = (build.input("x", &[rows, 4096]), build.tensor("y", TensorKind::Out, &[rows, 4096]));
        build.call(&COPY, &[x, y]);
        let plan = plan(build.0, options).unwrap();
        let claimed: Vec<_> = plan.lists.drains.clone();
        assert_eq!((plan.calls[0].dynamic, plan.graph.calls[0].drain), (!claimed.is_empty(), !claimed.is_empty()));
        assert!(claimed.is_empty() || matches!(&claimed[..], [all] if *all == (0..plan.tasks.len() as u32)) && plan.lists.order.is_empty());
        !claimed.is_empty()
    };
    let options = Options::new(132);
    assert!(of(16384, &options) && of(6336, &options) && !of(6320, &options));
    assert!(of(16384, &Options { workers: 16, ..options.clone() }) && !of(16384, &Options { workers: 15, ..options.clone() }));
    assert!(!of(16384, &Options { schedule: Schedule::Tickets, ..options.clone() }));
    assert!(!of(16384, &Options { assignment: Some(vec![0; 4096]), ..options.clone() }));
    // Of a plan whose tasks were measured, lists end together by what they take.
    assert!(!of(16384, &Options { costs: Some(Costs { hop: None, entries: Vec::new() }), ..options }));
}

/// Calls that the planner made dynamic and calls with `.drain()` are separate drains: the former are claimed early, the latter late.
#[test]
fn drained_and_dynamic_calls_are_separate_drains() {
    let mut build = Build::default();
    let x = build.input("x", &[16384, 4096]);
    let [y, z, w] = [TensorKind::Temp, TensorKind::Temp, TensorKind::Out].map(|kind| build.tensor("t", kind, &[16384, 4096]));
    build.call(&COPY, &[x, y]);
    build.call(&COPY, &[y, z]);
    build.call(&COPY, &[z, w]);
    build.0.calls[2].drain = true;
    let plan = plan(build.0, &Options::new(132)).unwrap();
    assert_eq!(plan.lists.drains, [0..8192, 8192..12288]);
    assert_eq!(plan.calls.iter().map(|call| call.dynamic).collect::<Vec<_>>(), [true, true, false]);
}

#[test]
fn empty_calls_have_no_tasks() {
    assert!(planned(&COPY, 0, 4096).grid.contains(&0));
}
