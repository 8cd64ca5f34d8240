//! Which edges are carried by flags in the data, and that nothing else follows from them.
mod plan_graphs;

use maco_graph::ir::{Graph, TensorKind};
use maco_graph::plan::{Defect, Hazard, Options, Plan, Schedule, oracle, plan, plan_without};
use maco_graph::spec::{TaskKind, TaskSpec};
use plan_graphs::{ADD, Build, FILL, GEMM, SCALE, axis};

/// As `skinny_linear` of the library.
static PRODUCT: TaskSpec =
    TaskSpec { kind: TaskKind::Gemv { operand_b: 1, operand_a: Some(0) }, axes: &[axis("i", &[8, 16]), axis("j", &[8])], ..GEMM };
/// Its body does more than multiply.
static MORE: TaskSpec = TaskSpec { kind: TaskKind::Gemv { operand_b: 1, operand_a: None }, ..PRODUCT };

/// x → wide → y, by products of `m` rows.
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

/// The calls that get a factor by its flags.
fn carried(plan: &Plan) -> Vec<u32> {
    assert_eq!(oracle::conflict(plan), None);
    assert_eq!(plan.verify(), Ok(()));
    plan.relations.iter().filter(|relation| relation.in_band).map(|relation| relation.consumer).collect()
}

fn planned(graph: Graph) -> Plan {
    plan(graph, &Options::new(3)).unwrap()
}

#[test]
fn small_results_of_products_are_carried_to_products() {
    for shape in [[1, 64, 16], [1, 8, 1], [8, 1984, 8], [16, 960, 8], [33, 96, 8], [1, 16384, 8]] {
        let plan = planned(pair(shape, [&PRODUCT; 2]));
        assert_eq!(carried(&plan), [1], "{shape:?}");
        let relation = plan.in_band_input(1).unwrap();
        assert_eq!((relation.producer, relation.tensor, relation.hazard), (0, WIDE, Hazard::Raw));
        // The waits are there all the same: who looks for the cause of a hang asks for them.
        assert!(relation.waits > 0 && plan.in_band_input(0).is_none());
        assert!(plan.to_string().contains(", carried") && plan.json().contains("\"carried\": true") && plan.dot().contains("carried"));
    }
}

#[test]
fn others_are_not() {
    for shape in [[1, 60, 16], [8, 2048, 8], [64, 520, 8], [1, 16448, 8]] {
        assert_eq!(carried(&planned(pair(shape, [&PRODUCT; 2]))), [0; 0], "{shape:?}");
    }
    let shape = [2, 64, 16];
    for tasks in [[&MORE, &PRODUCT], [&PRODUCT, &MORE], [&GEMM, &PRODUCT], [&PRODUCT, &GEMM]] {
        assert_eq!(carried(&planned(pair(shape, tasks))), [0; 0], "{} {}", tasks[0].name, tasks[1].name);
    }
    let with = |options: Options| carried(&plan(pair(shape, [&PRODUCT; 2]), &options).unwrap());
    assert_eq!(with(Options { schedule: Schedule::Tickets, ..Options::new(3) }), [1]);
    assert_eq!(with(Options { in_band_flags: false, ..Options::new(3) }), [0; 0]);
    for schedule in [Schedule::Schedulers(1), Schedule::SpareWarps(1)] {
        assert_eq!(with(Options { schedule, ..Options::new(3) }), [0; 0]);
    }
    // Its memory is the caller's.
    let mut graph = pair(shape, [&PRODUCT; 2]);
    graph.tensors[WIDE as usize].kind = TensorKind::Out;
    assert_eq!(carried(&planned(graph)), [0; 0]);
}

#[test]
fn what_is_written_twice_is_not_carried() {
    let mut build = Build(pair([2, 64, 16], [&PRODUCT; 2]));
    build.call(&SCALE, &[WIDE]);
    assert_eq!(carried(&planned(build.0)), [0; 0]);
}

#[test]
fn who_reads_it_in_another_way_waits() {
    let mut build = Build(pair([2, 64, 16], [&PRODUCT; 2]));
    let (square, sum) = (build.tensor("square", TensorKind::Out, &[2, 2]), build.tensor("sum", TensorKind::Out, &[2, 64]));
    build.call(&PRODUCT, &[WIDE, WIDE, square]);
    build.call(&ADD, &[WIDE, WIDE, sum]);
    let plan = planned(build.0);
    assert_eq!(carried(&plan), [1]);
    for call in [2, 3] {
        assert!(plan.relations.iter().any(|relation| (relation.producer, relation.consumer) == (0, call) && relation.waits > 0));
    }
}

/// A product reads `s`, the next one reads its result, and what reads that one's overwrites `s`.
fn around() -> Graph {
    let mut build = Build::default();
    let (v, w) = (build.input("v", &[16, 16]), build.input("w", &[16, 16]));
    let (s, t, u) = (build.temp("s", &[3, 16]), build.temp("t", &[3, 16]), build.temp("u", &[3, 16]));
    build.call(&FILL, &[s]);
    build.call(&PRODUCT, &[s, w, t]);
    build.call(&PRODUCT, &[t, v, u]);
    build.call(&ADD, &[u, u, s]);
    build.0
}

/// Who waits for a task that has passed a carried edge has not acquired what is before that edge: the last call waits for the first product,
/// too, although the second one lies between.
#[test]
fn nothing_follows_through_a_carried_edge() {
    let by_counters = Options { in_band_flags: false, ..Options::new(3) };
    assert_eq!(carried(&planned(around())), [2]);
    // Blind to writes after reads, a plan by counters keeps the order all the same, and one with flags does not.
    assert_eq!(oracle::conflict(&plan_without(around(), &by_counters, Hazard::War).unwrap()), None);
    let blind = plan_without(around(), &Options::new(3), Hazard::War).unwrap();
    let conflict = oracle::conflict(&blind).expect("the write of `s` may overtake its reader");
    assert_eq!((blind.tasks[conflict.later as usize].call, conflict.tensor), (3, 2));
    // Nor is the carried edge itself dropped: its waits are what puts readers behind writers in all lists.
    let dropped = plan_without(around(), &Options::new(3), Hazard::Raw).unwrap();
    assert!(dropped.relations.iter().all(|relation| !relation.in_band) && oracle::conflict(&dropped).is_some());
}

#[test]
fn flags_that_nobody_writes_are_a_defect() {
    let good = planned(around());
    let at = |producer: u32, consumer: u32| {
        good.relations.iter().position(|relation| (relation.producer, relation.consumer) == (producer, consumer)).unwrap()
    };
    let defect = |change: &dyn Fn(&mut Plan)| {
        let mut plan = good.clone();
        change(&mut plan);
        plan.verify()
    };
    // `u` is no factor of who adds; `s` is written twice.
    assert_eq!(defect(&|plan| plan.relations[at(2, 3)].in_band = true), Err(Defect::InBand { call: 3, tensor: 4 }));
    assert_eq!(defect(&|plan| plan.relations[at(0, 1)].in_band = true), Err(Defect::InBand { call: 1, tensor: 2 }));
    let carried = at(1, 2);
    let wrong = Err(Defect::InBand { call: 2, tensor: 3 });
    // Signals of others, or none.
    assert_eq!(defect(&|plan| plan.relations[carried].counters = plan.relations[at(0, 1)].counters.clone()), wrong);
    assert_eq!(defect(&|plan| plan.relations[carried].counters = 0..0), wrong);
    assert_eq!(defect(&|plan| plan.relations[carried].hazard = Hazard::Waw), wrong);
    assert_eq!(defect(&|plan| plan.relations[carried].producer = 2), wrong);
}
