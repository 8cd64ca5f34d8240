//! Temps that share memory: which do, what that saves, and that no two are in use in the same bytes.

mod plan_graphs;

use maco_graph::ir::{Graph, TensorKind, ViewAxis};
use maco_graph::plan::{Cost, Costs, Defect, Hazard, Options, Plan, Schedule, oracle, plan};
use maco_graph::spec::{Access, Index, Placement, TaskSpec};
use plan_graphs::random::Draw;
use plan_graphs::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRng, TestRunner};

fn planned(build: Build, workers: u32) -> Plan {
    plan(build.0, &Options::new(workers)).unwrap()
}

fn planned_with(build: Build, options: &Options) -> Plan {
    plan(build.0, options).unwrap()
}

fn offset(plan: &Plan, name: &str) -> u64 {
    let tensor = plan.graph.tensors.iter().position(|tensor| tensor.name == name).unwrap();
    plan.temps.ranges[tensor].offset
}

fn index(plan: &Plan, name: &str) -> u32 {
    plan.graph.tensors.iter().position(|tensor| tensor.name == name).unwrap() as u32
}

/// `layers` times h = x · upᵀ, x = h · downᵀ.
fn mlp(layers: usize, rows: u64, wide: u64, narrow: u64) -> Build {
    let mut build = Build::default();
    let mut x = build.input("x", &[rows, narrow]);
    for n in 0..layers {
        let (up, down) = (build.input("up", &[wide, narrow]), build.input("down", &[narrow, wide]));
        let (h, y) = (build.temp(&format!("h{n}"), &[rows, wide]), build.temp(&format!("x{n}"), &[rows, narrow]));
        build.call(&GEMM, &[x, up, h]);
        build.call(&GEMM, &[h, down, y]);
        x = y;
    }
    let out = build.tensor("out", TensorKind::Out, &[rows, narrow]);
    build.call(&SCALE_INTO, &[x, out]);
    build
}

static SCALE_INTO: TaskSpec = task(
    "scale",
    &[axis("i", &[64]), axis("j", &[64])],
    &[tensor("x", Access::Read, &[Index::Tile(0), Index::Tile(1)]), tensor("y", Access::Write, &[Index::Tile(0), Index::Tile(1)])],
);

#[test]
fn a_chain_of_layers_has_the_temps_of_one() {
    let one = planned(mlp(1, 512, 1024, 512), 132);
    let apart = (512 * 1024 + 512 * 512) * 2;
    assert_eq!((one.memory().temps, one.memory().saved), (apart, 0));
    let many = planned(mlp(32, 512, 1024, 512), 132);
    // The tiles of h1 come after those of x0 of the same rows, which come after all tiles that read these rows of h0. No edge is needed.
    assert_eq!((many.memory().temps, many.memory().saved), (apart, 31 * apart));
    assert_eq!(many.relations.len(), 64);
    assert_eq!(many.memory().peak, apart);
    assert_eq!((offset(&many, "h0"), offset(&many, "x0")), (offset(&many, "h7"), offset(&many, "x9")));
    let weights = 32 * 2 * 512 * 1024 * 2 + 512 * 512 * 2;
    assert_eq!(many.memory().weights, weights);
    let text = many.memory().to_string();
    assert_eq!(text, "weights 64.5 MiB, temps 1.5 MiB (at most 1.5 MiB in use, 46.5 MiB saved by sharing)");
}

#[test]
fn an_option_gives_every_temp_memory_of_its_own() {
    let plan = plan(mlp(4, 512, 1024, 512).0, &Options { share_temps: false, ..Options::new(132) }).unwrap();
    let mut ends: Vec<(u64, u64)> =
        plan.temps.ranges.iter().filter(|range| range.bytes > 0).map(|range| (range.offset, range.bytes)).collect();
    ends.sort_unstable();
    assert_eq!((ends.len(), plan.memory().saved), (8, 0));
    assert!(ends.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
    assert_eq!(plan.temps.bytes, 4 * (512 * 1024 + 512 * 512) * 2);
}

/// A layer of a decoder on `rows` tokens: norm, queries, keys and values, attention of all rows, projection plus residual, norm, gate and up, their
/// product, down plus residual.
fn decoder(layers: usize, rows: u64, hidden: u64, wide: u64) -> Build {
    use Access::*;
    use Index::*;
    static NORM: TaskSpec = task("rmsnorm", &[axis("i", &[4])], &[tensor("x", Read, &[Tile(0), All]), tensor("y", Write, &[Tile(0), All])]);
    static ATTENTION: TaskSpec = task(
        "attention",
        &[axis("i", &[64]), axis("j", &[128])],
        &[
            tensor("q", Read, &[Tile(0), Tile(1)]),
            tensor("k", Read, &[All, Tile(1)]),
            tensor("v", Read, &[All, Tile(1)]),
            tensor("y", Write, &[Tile(0), Tile(1)]),
        ],
    );
    static ADD: TaskSpec = task(
        "add",
        &[axis("i", &[16]), axis("j", &[1024])],
        &[tensor("a", Read, &[Tile(0), Tile(1)]), tensor("b", Read, &[Tile(0), Tile(1)]), tensor("y", Write, &[Tile(0), Tile(1)])],
    );
    let mut build = Build::default();
    let mut x = build.input("x", &[rows, hidden]);
    for _ in 0..layers {
        let mut weights = |rows, columns| build.input("w", &[rows, columns]);
        let (qkv_w, o_w, up_w, gate_w, down_w) =
            (weights(3 * hidden, hidden), weights(hidden, hidden), weights(wide, hidden), weights(wide, hidden), weights(hidden, wide));
        let mut temp = |columns| build.temp("t", &[rows, columns]);
        let (n, qkv, a, o, x1) = (temp(hidden), temp(3 * hidden), temp(hidden), temp(hidden), temp(hidden));
        let (n1, up, gate, act, down, x2) = (temp(hidden), temp(wide), temp(wide), temp(wide), temp(hidden), temp(hidden));
        build.call(&NORM, &[x, n]);
        build.call(&GEMM, &[n, qkv_w, qkv]);
        let [q, k, v] = [0, 1, 2].map(|part| build.slice(qkv, 1, part * hidden, (part + 1) * hidden));
        let y = build.whole(a);
        build.call_on(&ATTENTION, vec![q, k, v, y]);
        build.call(&GEMM, &[a, o_w, o]);
        build.call(&ADD, &[x, o, x1]);
        build.call(&NORM, &[x1, n1]);
        build.call(&GEMM, &[n1, up_w, up]);
        build.call(&GEMM, &[n1, gate_w, gate]);
        build.call(&ADD, &[up, gate, act]);
        build.call(&GEMM, &[act, down_w, down]);
        build.call(&ADD, &[x1, down, x2]);
        x = x2;
    }
    let out = build.tensor("out", TensorKind::Out, &[rows, hidden]);
    build.call(&SCALE_INTO, &[x, out]);
    build
}

#[test]
fn thirty_two_layers_need_at_most_three_times_the_temps_of_one() {
    for (rows, hidden, wide) in [(64, 1024, 3072), (512, 1024, 3072), (4096, 1024, 3072)] {
        let of = |layers| decoder(layers, rows, hidden, wide);
        let (one, many, apart) = (planned(of(1), 132), planned(of(32), 132), planned_apart(of(32), 132));
        println!(
            "{rows} rows: {} relations, {} of them added; {} waits, {} with temps apart",
            many.relations.len(),
            added(&many).len(),
            many.waits.len(),
            apart.waits.len()
        );
        assert_eq!(many.waves, apart.waves);
        let (one, many) = (one.memory(), many.memory());
        println!("{rows} rows: one layer {one}; 32 layers {many}");
        assert!(many.temps <= 3 * one.temps, "{rows} rows: {many:?}, {one:?}");
        assert!(many.peak <= many.temps);
    }
}

#[test]
fn temps_with_in_band_flags_and_those_of_several_ranks_share_with_none() {
    let mut build = mlp(3, 512, 1024, 512);
    for tensor in build.0.tensors.iter_mut().filter(|tensor| tensor.name.starts_with('h')) {
        tensor.placement = Placement::Sharded(0);
    }
    let plan = planned(build, 132);
    let offsets = ["h0", "h1", "h2"].map(|name| offset(&plan, name));
    assert!(offsets[0] != offsets[1] && offsets[0] != offsets[2] && offsets[1] != offsets[2]);
    assert_eq!(offset(&plan, "x0"), offset(&plan, "x2"));
    assert_eq!(plan.memory().saved, 2 * 512 * 512 * 2);
}

#[test]
fn a_temp_that_is_read_before_it_is_written_shares_with_none() {
    let mut build = Build::default();
    let (a, b, c, d) = (build.temp("a", &[64, 64]), build.temp("b", &[64, 64]), build.temp("c", &[64, 64]), build.temp("d", &[64, 64]));
    build.call(&FILL, &[a]);
    build.call(&WHOLE_INTO, &[a, b]);
    // `c` is updated first.
    build.call(&SCALE64, &[c]);
    build.call(&WHOLE_INTO, &[b, d]);
    let plan = planned(build, 8);
    assert_eq!(offset(&plan, "a"), offset(&plan, "d"));
    assert!(["a", "b", "d"].iter().all(|name| offset(&plan, name) != offset(&plan, "c")));
}

static WHOLE_INTO: TaskSpec =
    task("whole_into", &[], &[tensor("x", Access::Read, &[Index::All, Index::All]), tensor("y", Access::Write, &[Index::All, Index::All])]);

/// Two branches of the same input: a long one of small temps, and one step at its begin that reads a large temp. Then a large temp of another layout.
fn branches(steps: usize, last: &[u64; 2]) -> Build {
    let mut build = Build::default();
    let big = build.temp("big", &[64, 64]);
    let sum = build.tensor("sum", TensorKind::Out, &[64, 64]);
    build.call(&FILL64, &[big]);
    build.call(&SCALE_INTO, &[big, sum]);
    let mut x = build.input("x", &[64, 64]);
    for n in 0..steps {
        let y = build.tensor(&format!("step{n}"), TensorKind::Out, &[64, 64]);
        build.call(&SCALE_INTO, &[x, y]);
        x = y;
    }
    let (late, out) = (build.temp("late", last), build.tensor("out", TensorKind::Out, last));
    let of = build.slice(x, 0, 0, last[0]);
    let of =
        maco_graph::ir::View { axes: vec![ViewAxis { extent: last[0], ..of.axes[0] }, ViewAxis { extent: last[1], ..of.axes[1] }], ..of };
    let to = build.whole(late);
    build.call_on(&SCALE_INTO, vec![of, to]);
    build.call(&SCALE_INTO, &[late, out]);
    build
}

static FILL64: TaskSpec =
    task("fill", &[axis("i", &[64]), axis("j", &[64])], &[tensor("y", Access::Write, &[Index::Tile(0), Index::Tile(1)])]);

/// The edges that shared buffers need.
fn added(plan: &Plan) -> Vec<(u32, u32, Hazard)> {
    let writes = |call: u32, tensor: u32| plan.graph.calls[call as usize].operands.iter().any(|view| view.tensor == tensor);
    let foreign = plan.relations.iter().filter(|relation| !writes(relation.consumer, relation.tensor));
    foreign.map(|relation| (relation.producer, relation.consumer, relation.hazard)).collect()
}

#[test]
fn an_edge_is_added_where_no_task_begins_later() {
    // The large temp is read in the second of many steps; nothing orders that before the last one.
    for last in [[64, 64], [64, 48]] {
        let plan = planned(branches(6, &last), 8);
        assert_eq!(offset(&plan, "big"), offset(&plan, "late"), "{last:?}");
        assert_eq!(added(&plan), [(1, 8, Hazard::War)], "{last:?}");
        assert_eq!(plan.memory().saved, last[0] * last[1] * 2);
        assert_eq!(oracle::conflict(&plan), None);
        let apart = planned_apart(branches(6, &last), 8);
        assert_eq!(plan.waves, apart.waves);
    }
}

/// Of three tiles that signal one counter, a later temp overwrites the middle one. The edge gives that tile another counter; the other two still signal
/// alike, but between them lies what is overwritten.
#[test]
fn an_edge_from_a_tile_between_tiles_that_signal_alike_is_proved() {
    let mut build = Build::default();
    let x = build.tensor("x", TensorKind::InOut, &[64, 192]);
    let (early, late) = (build.temp("early", &[64, 192]), build.temp("late", &[64, 192]));
    build.call(&SCALE_INTO, &[x, early]);
    let other = build.input("other", &[64, 192]);
    build.call(&WHOLE_INTO, &[other, x]);
    let mut step = build.input("step", &[64, 64]);
    for n in 0..6 {
        let next = build.tensor(&format!("step{n}"), TensorKind::Out, &[64, 64]);
        build.call(&SCALE_INTO, &[step, next]);
        step = next;
    }
    let views = vec![build.whole(step), build.slice(late, 1, 64, 128)];
    build.call_on(&SCALE_INTO, views);
    let plan = planned(build, 8);
    assert_eq!(offset(&plan, "early"), offset(&plan, "late"));
    assert_eq!(added(&plan), [(0, 8, Hazard::Waw)]);
    assert_eq!(plan.signals_of(0), plan.signals_of(2));
    assert_eq!((plan.signals_of(0).len(), plan.signals_of(1).len()), (1, 2));
    assert_eq!(oracle::conflict(&plan), None);
}

#[test]
fn temps_that_no_address_space_holds_are_left_to_who_allocates_them() {
    for share_temps in [true, false] {
        let mut build = Build::default();
        let huge = build.temp("huge", &[i32::MAX as u64; 4]);
        let mut corner = build.whole(huge);
        corner.axes.truncate(2);
        corner.axes.iter_mut().for_each(|axis| axis.extent = 64);
        build.call_on(&FILL64, vec![corner]);
        let [a, b, c] = ["a", "b", "c"].map(|name| build.temp(name, &[64, 64]));
        build.call(&FILL64, &[a]);
        build.call(&FILL64, &[b]);
        build.call(&ADD, &[a, b, c]);
        assert_eq!(planned_with(build, &Options { share_temps, ..Options::new(8) }).memory().temps, u64::MAX);
    }
}

fn planned_apart(build: Build, workers: u32) -> Plan {
    plan(build.0, &Options { share_temps: false, ..Options::new(workers) }).unwrap()
}

#[test]
fn no_edge_is_added_where_a_task_would_begin_later() {
    let plan_of = |steps, costs| plan(branches(steps, &[64, 64]).0, &Options { costs, ..Options::new(8) }).unwrap();
    // As soon as the large temp has been read at all.
    let plan = plan_of(0, None);
    assert_ne!(offset(&plan, "big"), offset(&plan, "late"));
    assert_eq!(added(&plan), []);
    // By costs: the fill takes longer than all steps.
    let cost = |task: &str, nanoseconds| Cost { task: task.into(), tile: vec![64, 64], nanoseconds };
    let costs = |fill| Some(Costs { hop: Some(100), entries: vec![cost("fill", fill), cost("scale", 1000)] });
    assert_eq!(added(&plan_of(6, costs(1000))).len(), 1);
    assert_eq!(added(&plan_of(6, costs(100_000))), []);
    assert_eq!(plan_of(6, costs(1000)).makespan(&costs(1000).unwrap()), {
        let apart = Options { costs: costs(1000), share_temps: false, ..Options::new(8) };
        planned_with(branches(6, &[64, 64]), &apart).makespan(&costs(1000).unwrap())
    });
    // Messages to schedulers cost more than waits.
    let pushed = Options { schedule: Schedule::Schedulers(2), ..Options::new(8) };
    assert_eq!(added(&planned_with(branches(6, &[64, 64]), &pushed)), []);
}

#[test]
fn the_verifier_notices_temps_that_overlap() {
    let sound = planned(mlp(2, 512, 1024, 512), 132);
    let tampered = |change: &dyn Fn(&mut Plan)| {
        let mut plan = sound.clone();
        change(&mut plan);
        plan.verify()
    };
    let (h0, x0, x1) = (index(&sound, "h0"), index(&sound, "x0"), index(&sound, "x1"));
    assert_eq!(tampered(&|_| {}), Ok(()));
    // What one call reads and writes, in the same bytes; or in some of the same.
    let same = tampered(&|plan| plan.temps.ranges[x0 as usize].offset = plan.temps.ranges[h0 as usize].offset);
    assert_eq!(same, Err(Defect::TempOverlap { tensor: x0, other: h0 }));
    let partly = tampered(&|plan| plan.temps.ranges[x0 as usize].offset = plan.temps.ranges[h0 as usize].offset + 256);
    assert!(matches!(partly, Err(Defect::TempOverlap { .. })), "{partly:?}");
    let outside = tampered(&|plan| plan.temps.bytes -= 256);
    assert!(matches!(outside, Err(Defect::TempOutside { .. })), "{outside:?}");
    let small = tampered(&|plan| plan.temps.ranges[x1 as usize].bytes -= 2);
    assert_eq!(small, Err(Defect::TempOutside { tensor: x1 }));
    assert_eq!(tampered(&|plan| plan.temps.ranges.truncate(1)), Err(Defect::TempOutside { tensor: 1 }));
}

/// Takes the waits of `call` for `counters` away.
fn without_waits(plan: &mut Plan, call: u32, counters: std::ops::Range<u32>) {
    let mut waits = Vec::new();
    for task in 0..plan.tasks.len() {
        let own = plan.waits_of(task as u32).to_vec();
        let node = &mut plan.tasks[task];
        node.first_wait = waits.len() as u32;
        let kept = own.into_iter().filter(|wait| node.call != call || !counters.contains(&wait.counter));
        waits.extend(kept);
        node.waits = (waits.len() as u32 - node.first_wait) as u16;
    }
    plan.waits = waits;
}

#[test]
fn the_verifier_notices_a_missing_edge() {
    for last in [[64, 64], [64, 48]] {
        let mut plan = planned(branches(6, &last), 8);
        let edge = plan.relations.iter().find(|relation| (relation.producer, relation.consumer) == (1, 8)).unwrap().clone();
        without_waits(&mut plan, 8, edge.counters);
        assert_eq!(plan.verify(), Err(Defect::TempOverlap { tensor: index(&plan, "late"), other: index(&plan, "big") }));
        assert!(oracle::conflict(&plan).is_some());
    }
    // An edge that the plan has anyhow: what writes h1 waits for x0, which was made of h0.
    let mut plan = planned(mlp(2, 512, 1024, 512), 132);
    let edge = plan.relations.iter().find(|relation| relation.tensor == index(&plan, "x0")).unwrap().clone();
    without_waits(&mut plan, edge.consumer, edge.counters);
    assert_eq!(plan.verify(), Err(Defect::TempOverlap { tensor: index(&plan, "h1"), other: index(&plan, "h0") }));
}

/// A random program of many temps.
#[derive(Clone, Debug)]
struct Program {
    numbers: Vec<u16>,
    workers: u32,
    schedule: Schedule,
}

fn programs() -> impl Strategy<Value = Program> {
    let schedule = prop_oneof![3 => Just(Schedule::Static), 1 => Just(Schedule::Tickets), 1 => Just(Schedule::Schedulers(1))];
    let numbers = prop::collection::vec(any::<u16>(), 30..120);
    (numbers, 1u32..9, schedule).prop_map(|(numbers, workers, schedule)| Program { numbers, workers, schedule })
}

impl Program {
    fn options(&self) -> Options {
        Options { schedule: self.schedule, ..Options::new(self.workers) }
    }

    /// Calls one after another, each of which writes a new temp, of operands that were written before, mostly just before.
    fn graph(&self) -> Graph {
        let mut draw = Draw::endless(&self.numbers);
        let mut build = Build::default();
        let shapes = [[12, 12], [12, 8], [8, 12], [12, 3]];
        let mut made: Vec<(u32, [u64; 2])> = shapes.iter().map(|shape| (build.input("in", shape), *shape)).collect();
        for _ in 0..self.numbers.len() / 5 {
            let near = 1 + draw.below(4) * draw.below(4);
            let operand = |draw: &mut Draw<'_>| made[made.len() - 1 - draw.below(near.min(made.len()))];
            let (x, shape) = operand(&mut draw);
            let (task, operands, shape): (_, Vec<u32>, [u64; 2]) = match draw.below(9) {
                0..3 => {
                    let width = [12, 8, 3][draw.below(3)];
                    let w = build.input("w", &[width, shape[1]]);
                    (&LINEAR, vec![x, w], [shape[0], width])
                }
                3 => (&NORM, vec![x], shape),
                4 => (&STENCIL, vec![x], shape),
                5 | 6 => {
                    let same: Vec<u32> = made.iter().filter(|(_, other)| *other == shape).map(|&(tensor, _)| tensor).collect();
                    (&ADD, vec![x, same[same.len() - 1 - draw.below(same.len().min(4))]], shape)
                }
                7 => (&FILL, vec![], shapes[draw.below(4)]),
                _ => {
                    // In place, if it is a temp.
                    if build.0.tensors[x as usize].kind == TensorKind::Temp {
                        build.call(&SCALE, &[x]).priority = [0, 0, 1][draw.below(3)];
                    }
                    continue;
                }
            };
            let y = build.temp("t", &shape);
            let pieces = task.name == "fill" && draw.below(2) == 0;
            if pieces {
                // In two pieces, by two calls.
                let cut = 1 + draw.below(shape[1] as usize - 1) as u64;
                for (from, to) in [(0, cut), (cut, shape[1])] {
                    let part = build.slice(y, 1, from, to);
                    build.call_on(task, vec![part]);
                }
            } else {
                let tensors: Vec<u32> = operands.into_iter().chain([y]).collect();
                let call = build.call(task, &tensors);
                call.priority = [0, 0, 0, 1, -1][draw.below(5)];
                call.drain = draw.below(8) == 7;
            }
            made.push((y, shape));
        }
        build.0
    }
}

fn config(cases: u32) -> Config {
    Config { cases, failure_persistence: None, ..Config::default() }
}

fn sound(plan: &Plan, program: &Program) -> Result<(), TestCaseError> {
    if let Some(conflict) = oracle::conflict(plan) {
        return Err(TestCaseError::fail(format!("{conflict:?}\n{plan}")));
    }
    simulate::agree(plan, &mut Draw::endless(&program.numbers), 4).map_err(|what| TestCaseError::fail(format!("{what}\n{plan}")))
}

proptest! {
    #![proptest_config(config(1000))]

    /// Every byte is ordered, and runs in which each write poisons the other temps of its bytes compute the program.
    #[test]
    fn random_programs_are_sound(program in programs()) {
        sound(&plan(program.graph(), &program.options()).unwrap(), &program)?;
    }

    /// Nothing but buffers and edges between temps changes.
    #[test]
    fn only_places_and_edges_change(program in programs()) {
        let shared = plan(program.graph(), &program.options()).unwrap();
        let apart = plan(program.graph(), &Options { share_temps: false, ..program.options() }).unwrap();
        let memory = shared.memory();
        prop_assert_eq!(memory.temps + memory.saved, apart.memory().temps);
        prop_assert_eq!(memory.peak, apart.memory().peak);
        prop_assert!(memory.peak <= memory.temps);
        prop_assert_eq!(shared.relations.len(), apart.relations.len() + added(&shared).len());
    }
}

/// The random programs share memory, with edges and without; and temps in a buffer that they should not have are noticed by the verifier, by the pair
/// check and by the runs.
#[test]
fn a_broken_placement_is_detected() {
    let mut runner = TestRunner::new_with_rng(config(300), TestRng::deterministic_rng(prop::test_runner::RngAlgorithm::ChaCha));
    let seen = std::cell::RefCell::new([0usize; 6]);
    let drawn = |program: Program| {
        let mut seen = seen.borrow_mut();
        let plan = plan(program.graph(), &program.options()).unwrap();
        seen[0] += usize::from(plan.memory().saved > 0);
        seen[1] += usize::from(!added(&plan).is_empty());
        let temps: Vec<usize> = (0..plan.graph.tensors.len()).filter(|&tensor| plan.temps.ranges[tensor].bytes > 0).collect();
        let mut draw = Draw::endless(&program.numbers);
        let (a, b) = (temps[draw.below(temps.len())], temps[draw.below(temps.len())]);
        let mut broken = plan.clone();
        broken.temps.ranges[a].offset = plan.temps.ranges[b].offset;
        broken.temps.bytes *= 2;
        let found = [broken.verify().is_err(), oracle::conflict(&broken).is_some(), simulate::agree(&broken, &mut draw, 8).is_err()];
        seen[2..5].iter_mut().zip(found).for_each(|(seen, found)| *seen += usize::from(found));
        // The verifier believes nothing that is wrong.
        prop_assert!(found[0] || !found[1] && !found[2], "{a} in place of {b}: {found:?}\n{broken}");
        seen[5] += usize::from(found[0] && !found[1]);
        Ok(())
    };
    runner.run(&programs(), drawn).unwrap();
    let seen = seen.into_inner();
    println!("{seen:?}");
    assert!(seen[..5].iter().all(|&count| count > 20), "{seen:?}");
}
