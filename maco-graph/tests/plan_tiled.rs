//! Tiles of calls that memory bounds: large enough for the ring, small enough that workers end together.
mod plan_graphs;

use maco_graph::ir::TensorKind;
use maco_graph::plan::{Options, PlannedCall, plan};
use maco_graph::spec::{Access, Index, TaskKind, TaskSpec};
use plan_graphs::{Build, axis, task, tensor};

/// `copy` of the library.
static COPY: TaskSpec = TaskSpec {
    kind: TaskKind::Tiled,
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
fn many_rounds_are_of_tasks_that_fill_the_ring_and_no_more() {
    for columns in [1024, 2048, 4096, 5120, 8192, 14336] {
        assert_eq!(planned(&COPY, 16384, columns).tile, [16, 1024], "{columns} columns");
    }
    // Of narrow tensors more rows.
    for columns in [64, 128, 512] {
        assert_eq!(planned(&COPY, 1 << 20, columns).tile, [64, 1024], "{columns} columns");
    }
}

#[test]
fn one_round_goes_to_as_many_workers_as_there_are_tiles_for() {
    for (rows, tile, grid) in [(1, 64, [1, 4]), (4, 64, [1, 4]), (8, 4, [2, 4]), (128, 4, [32, 4]), (512, 16, [32, 4])] {
        let call = planned(&COPY, rows, 4096);
        assert_eq!((call.tile[0], &call.grid[..2]), (tile, &grid[..]), "{rows} rows");
    }
}

#[test]
fn nothing_has_no_tasks() {
    assert!(planned(&COPY, 0, 4096).grid.contains(&0));
}
