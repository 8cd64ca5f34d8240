//! Tasks of a GEMV are assigned to the workers of the tiles that its epilogue reads.
mod plan_graphs;

use maco_graph::ir::{Graph, TensorKind};
use maco_graph::plan::{Options, Plan, Schedule, plan};
use maco_graph::spec::{Access, Index, TaskKind, TaskSpec};
use plan_graphs::{Build, GEMM, axis, tensor};

/// As `skinny_linear` of the library.
static GEMV: TaskSpec =
    TaskSpec { kind: TaskKind::Gemv { operand_b: 1, operand_a: Some(0) }, axes: &[axis("i", &[8]), axis("j", &[8])], ..GEMM };
/// Then with `r`, a tile of the result's shape.
static WITH: TaskSpec = TaskSpec {
    params: &[
        tensor("x", Access::Read, &[Index::Tile(0), Index::All]),
        tensor("w", Access::Read, &[Index::Tile(1), Index::All]),
        tensor("y", Access::Write, &[Index::Tile(0), Index::Tile(1)]),
        tensor("r", Access::Read, &[Index::Tile(0), Index::Tile(1)]),
    ],
    ..GEMV
};

/// A gated MLP of one row: x → gate, up with gate → down with x, where `gate` and `up` have `tiles` tiles; `with` is the task of `up`.
fn layer(tiles: u64, with: &'static TaskSpec) -> Graph {
    let mut build = Build::default();
    let (x, first) = (build.input("x", &[1, 64]), build.input("first", &[64, 64]));
    let [gate, up] = ["gate", "up"].map(|name| build.input(name, &[8 * tiles, 64]));
    let down = build.input("down", &[64, 8 * tiles]);
    let h = build.temp("h", &[1, 64]);
    let [open, wide] = ["open", "wide"].map(|name| build.temp(name, &[1, 8 * tiles]));
    let y = build.tensor("y", TensorKind::Out, &[1, 64]);
    build.call(&GEMV, &[x, first, h]);
    build.call(&GEMV, &[h, gate, open]);
    build.call(with, &[h, up, wide, open]);
    build.call(&WITH, &[wide, down, y, h]);
    build.0
}

/// The worker of each task of call `call`.
fn workers(plan: &Plan, call: usize) -> Vec<usize> {
    let tasks = plan.calls[call].tasks.clone();
    let of = |task| (0..plan.workers as usize).find(|&worker| plan.lists.of(worker).contains(&task)).unwrap();
    tasks.map(of).collect()
}

#[test]
fn gemv_tasks_follow_the_producer_of_their_epilogue_operand() {
    // Seven or all eight workers have a task in the last round.
    for tiles in [7, 8, 31, 32] {
        let assigned = plan(layer(tiles, &WITH), &Options::new(8)).unwrap();
        assert_eq!(workers(&assigned, 1), workers(&assigned, 2), "{tiles} tiles");
        // No other call reads `open`: its counters are not signalled.
        let waits: Vec<_> =
            assigned.calls[2].tasks.clone().flat_map(|task| assigned.waits_of(task).iter().map(move |wait| (task, wait.counter))).collect();
        let local = waits.iter().filter(|&&(task, counter)| assigned.worker_edges.contains(task, counter));
        assert_eq!(local.clone().count() as u64, tiles);
        assert!(local.into_iter().all(|&(_, counter)| !assigned.worker_edges.is_signalled(counter)));
    }
}

#[test]
fn round_robin_continues_after_such_a_call() {
    let assigned = plan(layer(8, &WITH), &Options::new(9)).unwrap();
    // Eight of nine workers each; `up` as `gate`, and `down` as the first, whose result it adds.
    let first: Vec<usize> = (0..8).collect();
    let second: Vec<usize> = (8..16).map(|n| n % 9).collect();
    assert_eq!([0, 1, 2, 3].map(|call| workers(&assigned, call)), [first.clone(), second.clone(), second, first]);
}

#[test]
fn other_calls_are_assigned_round_robin() {
    let round = |plan: &Plan| {
        let tasks = plan.tasks.len() as u32;
        (0..plan.workers).all(|worker| plan.lists.of(worker as usize).iter().copied().eq((worker..tasks).step_by(plan.workers as usize)))
    };
    // Half of the workers would be idle; tickets have no lists; a given assignment has precedence.
    assert!(round(&plan(layer(12, &WITH), &Options::new(24)).unwrap()));
    let tickets = Options { schedule: Schedule::Tickets, ..Options::new(8) };
    assert_eq!(plan(layer(8, &WITH), &tickets).unwrap().lists.starts.len(), 2);
    let assigned = plan(layer(8, &WITH), &Options::new(8)).unwrap();
    let placed = Options { assignment: Some(vec![3; assigned.tasks.len()]), ..Options::new(8) };
    assert_eq!(workers(&plan(layer(8, &WITH), &placed).unwrap(), 2), [3; 8]);
    // What is added is one row for all.
    static ROW: TaskSpec = TaskSpec {
        params: &[
            tensor("x", Access::Read, &[Index::Tile(0), Index::All]),
            tensor("w", Access::Read, &[Index::Tile(1), Index::All]),
            tensor("y", Access::Write, &[Index::Tile(0), Index::Tile(1)]),
            tensor("r", Access::Read, &[Index::Tile(0), Index::All]),
        ],
        ..GEMV
    };
    let assigned = plan(layer(8, &ROW), &Options::new(9)).unwrap();
    assert_ne!(workers(&assigned, 1), workers(&assigned, 2));
}
