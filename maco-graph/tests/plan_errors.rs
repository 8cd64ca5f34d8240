//! Every error of planning, by code and by the names in the message; and that no graph causes a panic.

mod plan_graphs;

use maco_graph::ir::{Graph, ScalarSource, Tensor, TensorKind, View, ViewAxis};
use maco_graph::plan::{Options, PlanError, plan};
use maco_graph::spec::{Access, Axis, Element, Index, Param, ScalarType, TaskSpec};
use plan_graphs::random::scripts;
use plan_graphs::*;
use proptest::prelude::*;

use Access::{Read, Reduce, Update, Write};
use Index::{All, Halo, Tile, TileOver};

fn refused(graph: Graph) -> PlanError {
    plan(graph, &Options::new(132)).expect_err("the graph should be refused")
}

/// Refused with `code`, and the message holds all of `names`.
#[track_caller]
fn check(graph: Graph, code: u16, names: &[&str]) {
    let error = refused(graph);
    let text = error.to_string();
    assert_eq!(error.code(), code, "{text}");
    assert!(text.starts_with(&format!("MACO{code:04}: ")), "{text}");
    assert!(text.contains("\n  = help: "), "{text}");
    for name in names {
        assert!(text.contains(name), "`{name}` is not in: {text}");
    }
}

/// One call of `task` on new InOut tensors of the given shapes.
fn one(task: &'static TaskSpec, shapes: &[&[u64]]) -> Build {
    let mut build = Build::default();
    let tensors: Vec<u32> = shapes.iter().enumerate().map(|(n, shape)| build.tensor(&format!("t{n}"), TensorKind::InOut, shape)).collect();
    build.call(task, &tensors);
    build
}

const I: &[Axis] = &[axis("i", &[2])];
const IJ: &[Axis] = &[axis("i", &[2]), axis("j", &[2])];

#[test]
fn overlapping_writes_of_a_grid() {
    static MISSING: TaskSpec = task("missing", IJ, &[tensor("x", Read, &[Tile(1)]), tensor("y", Write, &[Tile(0), All])]);
    static OVER: TaskSpec = task("over", I, &[tensor("y", Write, &[TileOver(0, 2)])]);
    static WIDE: TaskSpec = task("wide", I, &[tensor("y", Update, &[Halo { axis: 0, before: 0, after: 1 }])]);
    static EXACT: TaskSpec = task("exact", I, &[tensor("y", Update, &[Halo { axis: 0, before: 0, after: 0 }])]);
    check(one(&MISSING, &[&[8], &[8, 8]]).0, 1, &["`missing` (call #0)", "`j`", "`t1`", "`y`"]);
    check(one(&OVER, &[&[8]]).0, 1, &["`over`", "`i`"]);
    check(one(&WIDE, &[&[8]]).0, 1, &["`wide`"]);
    assert!(plan(one(&EXACT, &[&[8]]).0, &Options::new(1)).is_ok());
    // One tile along the axis cannot overlap with another.
    assert!(plan(one(&MISSING, &[&[2], &[8, 8]]).0, &Options::new(1)).is_ok());
    assert!(plan(one(&OVER, &[&[1]]).0, &Options::new(1)).is_ok());
}

#[test]
fn a_view_that_holds_elements_twice_is_not_written() {
    let mut build = one(&SCALE, &[&[8, 8]]);
    let view = &mut build.0.calls[0].operands[0];
    view.axes = vec![ViewAxis { axis: 0, step: 1, extent: 4 }, ViewAxis { axis: 0, step: 2, extent: 2 }];
    check(build.0, 1, &["`t0`", "`x`", "twice"]);
}

#[test]
fn a_tensor_written_and_used_in_one_call() {
    let mut build = Build::default();
    let h = build.temp("h", &[8, 8]);
    build.call(&NORM, &[h, h]);
    check(build.0, 1, &["`norm` (call #0)", "`h`", "`y`", "`x`"]);
    // The order of the parameters does not matter.
    static BACK: TaskSpec = task("back", I, &[tensor("y", Write, &[Tile(0)]), tensor("x", Read, &[All])]);
    let mut build = Build::default();
    let h = build.temp("h", &[8]);
    build.call(&BACK, &[h, h]);
    check(build.0, 1, &["`back`", "`h`", "`y`", "`x`"]);
    // Disjoint halves are fine.
    let mut build = Build::default();
    let h = build.temp("h", &[8, 8]);
    let views = vec![build.slice(h, 1, 0, 4), build.slice(h, 1, 4, 8)];
    build.call_on(&NORM, views);
    assert!(plan(build.0, &Options::new(1)).is_ok());
}

#[test]
fn tiles_that_reduce_into_one_place() {
    static SUM: TaskSpec = task("sum", IJ, &[tensor("x", Read, &[Tile(0), Tile(1)]), tensor("y", Reduce, &[Tile(0)])]);
    check(one(&SUM, &[&[8, 8], &[8]]).0, 18, &["`sum`", "`j`", "`t1`"]);
}

#[test]
fn a_grid_that_does_not_agree() {
    check(one(&ADD, &[&[9, 8], &[9, 8], &[12, 8]]).0, 5, &["`add` (call #0)", "`i`", "`a`", "`c`", "3 tiles", "4", "9 here", "12 there"]);
    // Empty in one argument only.
    check(one(&ADD, &[&[0, 8], &[9, 8], &[9, 8]]).0, 5, &["`a`", "`b`"]);
}

#[test]
fn arguments_that_do_not_fit() {
    check(one(&ADD, &[&[9, 8], &[9, 8]]).0, 7, &["3 tensors", "found 2"]);
    check(one(&NORM, &[&[9, 8], &[9]]).0, 4, &["`y`", "2 dimensions", "`t1`", "has 1"]);
    static SCALAR: TaskSpec = task("by", I, &[tensor("x", Update, &[Tile(0)]), Param::Scalar { name: "by", ty: ScalarType::F32 }]);
    check(one(&SCALAR, &[&[9]]).0, 7, &["1 scalars", "found 0"]);
    let mut build = one(&SCALAR, &[&[9]]);
    build.0.calls[0].scalars = vec![ScalarSource::Parameter(0)];
    check(build.0.clone(), 29, &["scalar 0 of 0"]);
    build.0.calls[0].scalars = vec![ScalarSource::Literal(1.5f32.to_bits())];
    let plan = plan(build.0, &Options::new(1)).unwrap();
    assert!(plan.to_string().contains("(t0, 1.5)"), "{plan}");
    let mut build = one(&NORM, &[&[9, 8], &[9, 8]]);
    build.0.calls[0].element = 1;
    check(build.0, 6, &["element type 1 of 1"]);
}

#[test]
fn an_in_is_not_written() {
    let mut build = one(&NORM, &[&[9, 8], &[9, 8]]);
    build.0.tensors[1].kind = TensorKind::In;
    check(build.0, 9, &["`t1`", "`norm`", "`y`"]);
}

#[test]
fn specs_that_contradict_themselves() {
    static ZERO: TaskSpec = task("zero", I, &[tensor("y", Read, &[TileOver(0, 0)])]);
    static FAR: TaskSpec = task("far", I, &[tensor("y", Read, &[Tile(1)])]);
    static IDLE: TaskSpec = task("idle", IJ, &[tensor("y", Write, &[Tile(0)])]);
    static NO_TILE: TaskSpec = task("no_tile", &[axis("i", &[])], &[tensor("y", Read, &[Tile(0)])]);
    static ZERO_TILE: TaskSpec = task("zero_tile", &[axis("i", &[0])], &[tensor("y", Read, &[Tile(0)])]);
    check(one(&ZERO, &[&[8]]).0, 12, &["`y`", "`zero`"]);
    check(one(&FAR, &[&[8]]).0, 13, &["`far`", "axis 1", "has 1"]);
    check(one(&IDLE, &[&[8]]).0, 28, &["`idle`", "`j`"]);
    check(one(&NO_TILE, &[&[8]]).0, 29, &["`no_tile`"]);
    check(one(&ZERO_TILE, &[&[8]]).0, 29, &["`zero_tile`"]);
    static MANY: [u32; 300] = [1; 300];
    static HUGE: TaskSpec = task("huge", &[axis("i", &MANY), axis("j", &MANY)], &[tensor("y", Read, &[Tile(0), Tile(1)])]);
    check(one(&HUGE, &[&[8, 8]]).0, 23, &["90000 instances"]);
}

#[test]
fn forced_tiles() {
    let mut build = one(&NORM, &[&[9, 8], &[9, 8]]);
    build.0.calls[0].tile = Some(vec![2]);
    check(build.0.clone(), 17, &["tile of 2", "`i`", "[1, 3]"]);
    build.0.calls[0].tile = Some(vec![1, 1]);
    check(build.0, 17, &["2 sizes", "1 axes"]);
}

#[test]
fn workers_out_of_range() {
    for workers in [0, u32::MAX] {
        let error = plan(Graph::default(), &Options::new(workers)).unwrap_err();
        assert_eq!(error.code(), 21, "{error}");
    }
}

#[test]
fn too_many_axes_instances_or_tensors() {
    const X: Param = tensor("x", Read, &[Tile(0)]);
    static SEVEN: TaskSpec = task("seven", I, &[X; 7]);
    static FOUR: TaskSpec = task("four", &[axis("i", &[1]); 4], &[X]);
    check(one(&SEVEN, &[&[8][..]; 7]).0, 23, &["7 tensor parameters", "at most 6"]);
    check(one(&FOUR, &[&[8]]).0, 23, &["4 grid axes", "at most 3"]);
    let mut build = one(&NORM, &[&[9, 8], &[9, 8]]);
    build.temp("deep", &[1; 5]);
    check(build.0, 23, &["`deep`", "rank 5"]);
    let mut build = Build::default();
    build.temp("point", &[]);
    check(build.0, 23, &["`point`", "rank 0"]);
}

#[test]
fn views_out_of_range() {
    let mut build = one(&NORM, &[&[9, 8], &[9, 8]]);
    build.0.calls[0].operands[0].offset[1] = 1;
    check(build.0.clone(), 25, &["`t0`", "`x`", "ends at 9", "axis 1", "extent of 8"]);
    build.0.calls[0].operands[0].offset[1] = u64::MAX;
    check(build.0.clone(), 25, &[]);
    build.0.calls[0].operands[0].offset[1] = 0;
    build.0.calls[0].operands[0].axes[0].step = u64::MAX;
    check(build.0.clone(), 25, &[]);
    build.0.calls[0].operands[0].axes[0] = ViewAxis { axis: 0, step: 0, extent: u64::MAX };
    check(build.0.clone(), 25, &[]);
    build.0.calls[0].operands[0].axes[0] = ViewAxis { axis: 7, step: 1, extent: 1 };
    check(build.0.clone(), 29, &["`t0`"]);
    build.0.calls[0].operands[0] = View { tensor: 9, offset: vec![], axes: vec![] };
    check(build.0, 29, &["tensor 9 of 2"]);
}

#[test]
fn tasks_and_extents_beyond_the_limits() {
    static TINY: TaskSpec = task("tiny", &[axis("i", &[1]), axis("j", &[1])], &[tensor("x", Update, &[Tile(0), Tile(1)])]);
    check(one(&TINY, &[&[2000, 2000]]).0, 27, &["`tiny` (call #0)", "4000000 tasks", "1048576"]);
    check(one(&TINY, &[&[2147483647, 2147483647]]).0, 27, &["tasks"]);
    check(one(&TINY, &[&[2147483648, 1]]).0, 27, &["`t0`", "2147483648 elements", "axis 0"]);
    static OVER: TaskSpec = task("over", &[axis("i", &[1])], &[tensor("x", Read, &[TileOver(0, u32::MAX)])]);
    check(one(&OVER, &[&[2147483647]]).0, 27, &["tasks"]);
    let few = Options { max_tasks: 3, ..Options::new(1) };
    assert_eq!(plan(one(&SCALE, &[&[4, 8]]).0, &few).unwrap_err().code(), 27);
    assert!(plan(one(&SCALE, &[&[2, 12]]).0, &few).is_ok());
}

#[test]
fn an_empty_grid_of_long_axes_is_no_overflow() {
    static CUBIC: TaskSpec = task("cubic", &[axis("i", &[1]); 3], &[tensor("x", Update, &[Tile(0), Tile(1), Tile(2)])]);
    let plan = plan(one(&CUBIC, &[&[2147483647, 2147483647, 0]]).0, &Options::new(4)).unwrap();
    assert!(plan.tasks.is_empty());
}

/// Interesting numbers for a field of a graph.
fn odd() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..20, Just(u64::MAX), Just(1 << 31), Just((1 << 31) - 1), Just(1 << 32), any::<u64>()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    /// A legal graph with some fields overwritten is planned or refused; it never panics.
    #[test]
    fn no_graph_panics(script in scripts(4), hits in prop::collection::vec((any::<u16>(), 0u8..13, odd()), 1..4)) {
        let mut graph = script.graph();
        if graph.calls.is_empty() {
            return Ok(());
        }
        for (place, field, value) in hits {
            let index = usize::from(place) % graph.calls.len();
            let tensors = graph.tensors.len();
            let call = &mut graph.calls[index];
            let operands = call.operands.len();
            let view = call.operands.get_mut(usize::from(place >> 4) % operands.max(1));
            match (field, view) {
                (0, Some(view)) => view.tensor = value as u32,
                (1, Some(view)) => view.offset.iter_mut().for_each(|offset| *offset = value),
                (2, Some(view)) => if let Some(axis) = view.axes.first_mut() { axis.extent = value },
                (3, Some(view)) => if let Some(axis) = view.axes.last_mut() { axis.extent = value },
                (4, Some(view)) => if let Some(axis) = view.axes.first_mut() { axis.step = value },
                (5, Some(view)) => if let Some(axis) = view.axes.last_mut() { axis.axis = value as u8 },
                (6, Some(view)) => { view.axes.pop(); }
                (7, Some(view)) => { view.offset.pop(); }
                (8, _) => { call.operands.pop(); }
                (9, _) => call.element = value as u32,
                (10, _) => call.tile = Some(vec![value as u32; 2]),
                (11, _) => call.slot = value as u32,
                _ => {
                    let tensor: &mut Tensor = &mut graph.tensors[usize::from(place) % tensors];
                    tensor.shape[0] = value;
                    tensor.element = Element::F32;
                }
            }
        }
        let options = Options { max_tasks: 1 << 12, ..script.options() };
        let outcome = plan(graph, &options);
        prop_assert!(!matches!(outcome, Err(PlanError::Unverified(_))), "{:?}", outcome);
    }
}
