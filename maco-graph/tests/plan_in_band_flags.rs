//! Which edges have in-band flags, and that they order nothing else.
mod plan_graphs;

use maco_graph::ir::{Graph, TensorKind};
use maco_graph::plan::{Defect, Hazard, Options, Plan, Schedule, oracle, plan, plan_without};
use maco_graph::spec::{TaskKind, TaskSpec};
use plan_graphs::{ADD, Build, FILL, GEMM, SCALE, axis};

/// As `skinny_linear` of the library.
static GEMV: TaskSpec =
    TaskSpec { kind: TaskKind::Gemv { operand_b: 1, operand_a: Some(0) }, axes: &[axis("i", &[8, 16]), axis("j", &[8])], ..GEMM };
/// Its body does more than multiply.
static MORE: TaskSpec = TaskSpec { kind: TaskKind::Gemv { operand_b: 1, operand_a: None }, ..GEMV };

/// x → wide → y, by GEMVs of `m` rows.
fn pair([m, n, k]: [u64; 3], tasks: [&'static TaskSpec; 2]) -> Graph {
    let mut build = Build::default();
    let (x, up, down) = (build.input("x", &[m, k]), build.input("up", &[n, k]), build.input("down", &[k, n]));
    let wide = build.temp("wide", &[m, n]);
    let y = build.tensor("y", TensorKind::Out, &[m, k]);
    build.call(tasks[0], &[x, up, wide]);
    build.call(tasks[1], &[wide, down, y]);
    build.0
}

/// The tensor between them.
const WIDE: u32 = 3;

/// The calls that read an operand with in-band flags.
fn in_band(plan: &Plan) -> Vec<u32> {
    assert_eq!(oracle::conflict(plan), None);
    assert_eq!(plan.verify(), Ok(()));
    plan.relations.iter().filter(|relation| relation.in_band).map(|relation| relation.consumer).collect()
}

fn planned(graph: Graph) -> Plan {
    plan(graph, &Options::new(3)).unwrap()
}

#[test]
fn small_tensors_between_gemvs_use_in_band_flags() {
    for shape in [[1, 64, 16], [1, 8, 1], [8, 1984, 8], [16, 960, 8], [33, 96, 8], [1, 16384, 8]] {
        let plan = planned(pair(shape, [&GEMV; 2]));
        assert_eq!(in_band(&plan), [1], "{shape:?}");
        let relation = plan.in_band_input(1).unwrap();
        assert_eq!((relation.producer, relation.tensor, relation.hazard), (0, WIDE, Hazard::Raw));
        // The waits are kept: the hang report uses them.
        assert!(relation.waits > 0 && plan.in_band_input(0).is_none());
        assert!(
            plan.to_string().contains(", in-band flags")
                && plan.json().contains("\"in_band\": true")
                && plan.dot().contains("in-band flags")
        );
    }
}

#[test]
fn other_edges_use_counters() {
    for shape in [[1, 60, 16], [8, 2048, 8], [64, 520, 8], [1, 16448, 8]] {
        assert_eq!(in_band(&planned(pair(shape, [&GEMV; 2]))), [0; 0], "{shape:?}");
    }
    let shape = [2, 64, 16];
    for tasks in [[&MORE, &GEMV], [&GEMV, &MORE], [&GEMM, &GEMV], [&GEMV, &GEMM]] {
        assert_eq!(in_band(&planned(pair(shape, tasks))), [0; 0], "{} {}", tasks[0].name, tasks[1].name);
    }
    let with = |options: Options| in_band(&plan(pair(shape, [&GEMV; 2]), &options).unwrap());
    assert_eq!(with(Options { schedule: Schedule::Tickets, ..Options::new(3) }), [1]);
    assert_eq!(with(Options { in_band_flags: false, ..Options::new(3) }), [0; 0]);
    for schedule in [Schedule::Schedulers(1), Schedule::SpareWarps(1)] {
        assert_eq!(with(Options { schedule, ..Options::new(3) }), [0; 0]);
    }
    // Its memory is the caller's.
    let mut graph = pair(shape, [&GEMV; 2]);
    graph.tensors[WIDE as usize].kind = TensorKind::Out;
    assert_eq!(in_band(&planned(graph)), [0; 0]);
}

#[test]
fn a_tensor_written_twice_uses_counters() {
    let mut build = Build(pair([2, 64, 16], [&GEMV; 2]));
    build.call(&SCALE, &[WIDE]);
    assert_eq!(in_band(&planned(build.0)), [0; 0]);
}

#[test]
fn other_readers_wait_for_counters() {
    let mut build = Build(pair([2, 64, 16], [&GEMV; 2]));
    let (square, sum) = (build.tensor("square", TensorKind::Out, &[2, 2]), build.tensor("sum", TensorKind::Out, &[2, 64]));
    build.call(&GEMV, &[WIDE, WIDE, square]);
    build.call(&ADD, &[WIDE, WIDE, sum]);
    let plan = planned(build.0);
    assert_eq!(in_band(&plan), [1]);
    for call in [2, 3] {
        assert!(plan.relations.iter().any(|relation| (relation.producer, relation.consumer) == (0, call) && relation.waits > 0));
    }
}

/// A GEMV reads `s`, the next one reads its result, and the reader of that overwrites `s`.
fn around() -> Graph {
    let mut build = Build::default();
    let (v, w) = (build.input("v", &[16, 16]), build.input("w", &[16, 16]));
    let (s, t, u) = (build.temp("s", &[3, 16]), build.temp("t", &[3, 16]), build.temp("u", &[3, 16]));
    build.call(&FILL, &[s]);
    build.call(&GEMV, &[s, w, t]);
    build.call(&GEMV, &[t, v, u]);
    build.call(&ADD, &[u, u, s]);
    build.0
}

/// A wait for a task behind an in-band edge does not acquire what is before that edge: the last call waits for the first GEMV,
/// too, although the second one lies between.
#[test]
fn an_in_band_edge_orders_nothing_else() {
    let by_counters = Options { in_band_flags: false, ..Options::new(3) };
    assert_eq!(in_band(&planned(around())), [2]);
    // Without write-after-read relations a plan with counters still has the order, and one with in-band flags has not.
    assert_eq!(oracle::conflict(&plan_without(around(), &by_counters, Hazard::War).unwrap()), None);
    let blind = plan_without(around(), &Options::new(3), Hazard::War).unwrap();
    let conflict = oracle::conflict(&blind).expect("the write of `s` may overtake its reader");
    assert_eq!((blind.tasks[conflict.later as usize].call, conflict.tensor), (3, 2));
    // The in-band edge itself is needed too: its waits put readers behind writers in all lists.
    let dropped = plan_without(around(), &Options::new(3), Hazard::Raw).unwrap();
    assert!(dropped.relations.iter().all(|relation| !relation.in_band) && oracle::conflict(&dropped).is_some());
}

#[test]
fn invalid_in_band_edges_are_defects() {
    let good = planned(around());
    let at = |producer: u32, consumer: u32| {
        good.relations.iter().position(|relation| (relation.producer, relation.consumer) == (producer, consumer)).unwrap()
    };
    let defect = |change: &dyn Fn(&mut Plan)| {
        let mut plan = good.clone();
        change(&mut plan);
        plan.verify()
    };
    // `u` is not operand A of `ADD`; `s` is written twice.
    assert_eq!(defect(&|plan| plan.relations[at(2, 3)].in_band = true), Err(Defect::InBand { call: 3, tensor: 4 }));
    assert_eq!(defect(&|plan| plan.relations[at(0, 1)].in_band = true), Err(Defect::InBand { call: 1, tensor: 2 }));
    let in_band = at(1, 2);
    let wrong = Err(Defect::InBand { call: 2, tensor: 3 });
    // Signals of others, or none.
    assert_eq!(defect(&|plan| plan.relations[in_band].counters = plan.relations[at(0, 1)].counters.clone()), wrong);
    assert_eq!(defect(&|plan| plan.relations[in_band].counters = 0..0), wrong);
    assert_eq!(defect(&|plan| plan.relations[in_band].hazard = Hazard::Waw), wrong);
    assert_eq!(defect(&|plan| plan.relations[in_band].producer = 2), wrong);
}
