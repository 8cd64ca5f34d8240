//! Which RMSNorm and unary calls are fused into GEMVs as prologues, and that such plans are correct.
mod plan_graphs;

use maco_graph::ir::{Graph, ScalarSource, TensorKind};
use maco_graph::plan::{Defect, Options, Plan, Schedule, oracle, plan};
use maco_graph::spec::{Access, Element, Index, Param, RowsForm, ScalarType, TaskKind, TaskSpec};
use plan_graphs::{ADD, Build, GEMM, SCALE, axis, task, tensor};

/// As `skinny_linear` of the library.
static GEMV: TaskSpec =
    TaskSpec { kind: TaskKind::Gemv { operand_b: 1, operand_a: Some(0) }, axes: &[axis("i", &[8, 16]), axis("j", &[8])], ..GEMM };
const X: Param = tensor("x", Access::Read, &[Index::Tile(0), Index::All]);
const W: Param = tensor("w", Access::Read, &[Index::Tile(1), Index::All]);
const Y: Param = tensor("y", Access::Write, &[Index::Tile(0), Index::Tile(1)]);
const R: Param = tensor("r", Access::Read, &[Index::Tile(0), Index::Tile(1)]);
/// Then `add(r)`, once and more often.
static WITH: TaskSpec = TaskSpec { params: &[X, W, Y, R], ..GEMV };
static WITH_TWO: TaskSpec = TaskSpec { params: &[X, W, Y, R, R], ..GEMV };
static WITH_THREE: TaskSpec = TaskSpec { params: &[X, W, Y, R, R, R], ..GEMV };
/// As `rmsnorm`.
static RMSNORM: TaskSpec = TaskSpec {
    kind: TaskKind::Rows(RowsForm::RmsNorm { x: 0, weight: 1, y: 2, epsilon: 0 }),
    ..task(
        "rmsnorm",
        &[axis("i", &[8])],
        &[
            tensor("x", Access::Read, &[Index::Tile(0), Index::All]),
            tensor("weight", Access::Read, &[Index::All]),
            tensor("y", Access::Write, &[Index::Tile(0), Index::All]),
            Param::Scalar { name: "epsilon", ty: ScalarType::F32 },
        ],
    )
};
const TILED: &[Index] = &[Index::Tile(0), Index::Tile(1)];
/// As `gelu`, and as a user's own with a scalar.
static MAP: TaskSpec = TaskSpec {
    kind: TaskKind::Rows(RowsForm::Unary { x: 0, y: 1 }),
    ..task("gelu", &[axis("i", &[4, 16]), axis("j", &[1024])], &[tensor("x", Access::Read, TILED), tensor("y", Access::Write, TILED)])
};
static OWN: TaskSpec = TaskSpec {
    kind: TaskKind::Rows(RowsForm::Unary { x: 1, y: 0 }),
    params: &[tensor("y", Access::Write, TILED), Param::Scalar { name: "by", ty: ScalarType::F32 }, tensor("x", Access::Read, TILED)],
    ..MAP
};
/// It reads a second tensor.
static TWO: TaskSpec =
    TaskSpec { params: &[tensor("x", Access::Read, TILED), tensor("r", Access::Read, TILED), tensor("y", Access::Write, TILED)], ..MAP };
/// Its body does more.
static MORE: TaskSpec = TaskSpec { kind: TaskKind::Tiles, ..RMSNORM };
/// Writes weights.
static BELOW: TaskSpec = task("below", &[axis("i", &[64])], &[tensor("y", Access::Write, &[Index::Tile(0)])]);

/// Tensors of [`layer`].
const WEIGHT: u32 = 2;
const DOWN: u32 = 3;
const WIDE: u32 = 4;
const NORMAL: u32 = 5;
const A: u32 = 6;

/// x → wide → norm → a, b; sum = .. + wide.
fn layer([m, n, k]: [u64; 3], normed: &'static TaskSpec) -> Build {
    let mut build = Build::default();
    let (x, up, weight, down) =
        (build.input("x", &[m, k]), build.input("up", &[n, k]), build.input("weight", &[n]), build.input("down", &[k, n]));
    let (wide, normal, a) = (build.temp("wide", &[m, n]), build.temp("normal", &[m, n]), build.temp("a", &[m, k]));
    let (b, sum) = (build.tensor("b", TensorKind::Out, &[m, k]), build.tensor("sum", TensorKind::Out, &[m, n]));
    assert_eq!([weight, down, wide, normal, a], [WEIGHT, DOWN, WIDE, NORMAL, A]);
    build.call(&GEMV, &[x, up, wide]);
    build.call(normed, &[wide, weight, normal]);
    build.0.calls[1].scalars = vec![ScalarSource::Literal(1)];
    build.call(&GEMV, &[normal, down, a]);
    build.call(&WITH, &[normal, down, b, a]);
    build.call(&WITH, &[a, up, sum, wide]);
    build
}

fn planned(graph: Graph, options: &Options) -> Plan {
    let plan = plan(graph, options).unwrap();
    assert_eq!(oracle::conflict(&plan), None);
    assert_eq!(plan.verify(), Ok(()));
    plan
}

/// The calls that the norm is fused into.
fn fused_into_gemvs(build: Build) -> Vec<u32> {
    planned(build.0, &Options::new(3)).fused_into(1)
}

const SHAPE: [u64; 3] = [2, 64, 24];

#[test]
fn rmsnorm_is_fused_into_the_gemvs_that_read_it() {
    for shape in [SHAPE, [1, 8, 8], [1, 13_056, 8], [8, 1600, 8], [16, 768, 8], [17, 64, 16], [33, 96, 8]] {
        let plan = planned(layer(shape, &RMSNORM).0, &Options::new(3));
        assert_eq!(plan.fused_into(1), [2, 3], "{shape:?}");
        assert_eq!(plan.calls.iter().map(|call| call.prologue).collect::<Vec<_>>(), [None, None, Some(1), Some(1), None]);
        // They read the input of the norm with in-band flags. No call waits for the norm, which has no task.
        assert!(plan.calls[1].tasks.is_empty() && plan.calls[1].grid == [0]);
        for call in [2, 3] {
            let comes = plan.in_band_input(call).unwrap();
            assert_eq!((comes.producer, comes.tensor), (0, WIDE));
            assert_eq!(plan.graph.calls[call as usize].operands[0], plan.graph.calls[1].operands[0]);
        }
        assert!(plan.relations.iter().all(|relation| relation.producer != 1 && relation.consumer != 1));
        // The residual waits for counters.
        assert!(plan.relations.iter().any(|relation| (relation.tensor, relation.consumer, relation.in_band) == (WIDE, 4, false)));
        let text = plan.to_string();
        assert!(text.contains("fused into #2, #3") && text.matches("prologue #1").count() == 2, "{text}");
        assert!(plan.json().contains("\"prologue\": 1") && plan.dot().contains("fused into #2, #3") && plan.dot().contains("prologue #1"));
        let apart = planned(layer(shape, &RMSNORM).0, &Options { fuse_prologues: false, ..Options::new(3) });
        assert_eq!(apart.fused_into(1), [0; 0]);
        let tiles = |plan: &Plan| plan.calls.iter().map(|call| call.tile.clone()).collect::<Vec<_>>();
        assert_eq!(tiles(&plan), tiles(&apart));
        assert_eq!(plan.tasks.len() + apart.calls[1].tasks.len(), apart.tasks.len());
    }
}

#[test]
fn options_and_schedulers_disable_rmsnorm_fusion() {
    let with = |options: Options| planned(layer(SHAPE, &RMSNORM).0, &options).fused_into(1);
    assert_eq!(with(Options { schedule: Schedule::Tickets, ..Options::new(3) }), [2, 3]);
    assert_eq!(with(Options { fuse_prologues: false, ..Options::new(3) }), [0; 0]);
    assert_eq!(with(Options { in_band_flags: false, ..Options::new(3) }), [0; 0]);
    assert_eq!(with(Options { fuse_elementwise: false, ..Options::new(3) }), [2, 3]);
    for schedule in [Schedule::Schedulers(1), Schedule::SpareWarps(1)] {
        assert_eq!(with(Options { schedule, ..Options::new(3) }), [0; 0]);
    }
}

/// Rows that fit shared memory, but not with their norms, are not fused.
#[test]
fn fusion_needs_shared_memory() {
    for shape in [[1, 13_120, 8], [8, 1664, 8], [1, 60, 8]] {
        assert_eq!(fused_into_gemvs(layer(shape, &RMSNORM)), [0; 0], "{shape:?}");
    }
    // It depends on the tile.
    for (tile, n, expected) in [(8, 832, &[2, 3][..]), (16, 832, &[]), (16, 768, &[2, 3])] {
        let mut build = layer([16, n, 8], &RMSNORM);
        build.0.calls[3].tile = Some(vec![tile, 8]);
        assert_eq!(fused_into_gemvs(build), expected, "{n} columns, {tile} rows");
    }
}

#[test]
fn other_producers_and_consumers_prevent_fusion() {
    assert_eq!(fused_into_gemvs(layer(SHAPE, &MORE)), [0; 0]);
    // The input of the norm is a parameter, or written by a task that is no GEMV.
    let mut build = layer(SHAPE, &RMSNORM);
    build.0.calls[0].task = &GEMM;
    assert_eq!(fused_into_gemvs(build), [0; 0]);
    let mut build = layer(SHAPE, &RMSNORM);
    build.0.calls[1].operands[0].tensor = build.input("given", &[2, 64]);
    assert_eq!(fused_into_gemvs(build), [0; 0]);
}

#[test]
fn a_norm_with_other_readers_is_not_fused() {
    let mut build = layer(SHAPE, &RMSNORM);
    let sum = build.tensor("sums", TensorKind::Out, &[2, 64]);
    build.call(&ADD, &[NORMAL, NORMAL, sum]);
    assert_eq!(fused_into_gemvs(build), [0; 0]);
    // As operand B, or as a residual.
    let mut build = layer(SHAPE, &RMSNORM);
    let square = build.tensor("square", TensorKind::Out, &[24, 2]);
    build.call(&GEMV, &[DOWN, NORMAL, square]);
    assert_eq!(fused_into_gemvs(build), [0; 0]);
    let mut build = layer(SHAPE, &RMSNORM);
    build.0.calls[4].operands[3].tensor = NORMAL;
    assert_eq!(fused_into_gemvs(build), [0; 0]);
    // Part of each row, or part of the rows.
    for (axis, extents) in [(1, [2, 32]), (0, [1, 64])] {
        let mut build = layer([2, 64, 24], &RMSNORM);
        let (part, half) = (build.input("part", &[8, extents[1]]), build.tensor("half", TensorKind::Out, &[extents[0], 8]));
        build.call(&GEMV, &[NORMAL, part, half]);
        build.0.calls[5].operands[0] = build.slice(NORMAL, axis, 0, extents[axis]);
        assert_eq!(fused_into_gemvs(build), [0; 0], "axis {axis}");
    }
    // The caller does.
    for kind in [TensorKind::Out, TensorKind::InOut] {
        let mut build = layer(SHAPE, &RMSNORM);
        build.0.tensors[NORMAL as usize].kind = kind;
        assert_eq!(fused_into_gemvs(build), [0; 0], "{kind:?}");
    }
}

#[test]
fn a_norm_of_tensors_written_twice_is_not_fused() {
    for tensor in [NORMAL, WIDE] {
        let mut build = layer(SHAPE, &RMSNORM);
        build.call(&SCALE, &[tensor]);
        assert_eq!(fused_into_gemvs(build), [0; 0], "{tensor}");
    }
    // Weights that a task writes.
    let mut build = layer(SHAPE, &RMSNORM);
    build.0.tensors[WEIGHT as usize].kind = TensorKind::State;
    assert_eq!(fused_into_gemvs(layer(SHAPE, &RMSNORM)), [2, 3]);
    build.call(&BELOW, &[WEIGHT]);
    assert_eq!(fused_into_gemvs(build), [0; 0]);
}

#[test]
fn a_norm_with_strided_weights_is_not_fused() {
    // A row of a matrix, or a column.
    for (axis, shape, expected) in [(1, [3, 64], &[2, 3][..]), (0, [64, 3], &[])] {
        let mut build = layer(SHAPE, &RMSNORM);
        let weights = build.input("weights", &shape);
        let mut view = build.whole(weights);
        view.axes.retain(|along| usize::from(along.axis) == axis);
        build.0.calls[1].operands[1] = view;
        assert_eq!(fused_into_gemvs(build), expected, "axis {axis}");
    }
    let mut build = layer(SHAPE, &RMSNORM);
    build.0.tensors[WEIGHT as usize].element = Element::F16;
    assert_eq!(fused_into_gemvs(build), [0; 0]);
}

#[test]
fn epilogue_operands_count_towards_the_operand_limit() {
    // The epilogue may read any tensor but the input of the norm, which would be read twice.
    for (operand, expected) in [(None, &[2, 3, 5][..]), (Some(WIDE), &[]), (Some(NORMAL), &[])] {
        let mut build = layer(SHAPE, &RMSNORM);
        let [m, n, _] = SHAPE;
        let (given, square) = (build.input("given", &[m, n]), build.input("square", &[n, n]));
        let result = build.tensor("result", TensorKind::Out, &[m, n]);
        build.call(&WITH, &[NORMAL, square, result, operand.unwrap_or(given)]);
        assert_eq!(fused_into_gemvs(build), expected);
    }
    // The norm's weights count among the six operands.
    for (task, more, expected) in [(&WITH_TWO, 1, &[2, 3][..]), (&WITH_THREE, 2, &[])] {
        let mut build = layer(SHAPE, &RMSNORM);
        let call = &mut build.0.calls[3];
        call.task = task;
        let operand = call.operands[3].clone();
        call.operands.extend(vec![operand; more]);
        assert_eq!(fused_into_gemvs(build), expected);
    }
}

/// Of several norms one does not fit shared memory; the others are fused.
#[test]
fn norms_are_fused_independently() {
    let mut build = layer(SHAPE, &RMSNORM);
    let [m, n, k] = SHAPE;
    let (other, large) = (build.temp("other", &[m, n]), 60);
    let (up, weight, down) = (build.input("up", &[large, k]), build.input("weight", &[large]), build.input("down", &[k, large]));
    let (wide, normal) = (build.temp("wide", &[m, large]), build.temp("normal", &[m, large]));
    let [c, d] = ["c", "d"].map(|name| build.tensor(name, TensorKind::Out, &[m, k]));
    build.call(&GEMV, &[A, up, wide]);
    build.call(&RMSNORM, &[wide, weight, normal]);
    build.call(&GEMV, &[normal, down, c]);
    build.call(&RMSNORM, &[WIDE, WEIGHT, other]);
    build.call(&GEMV, &[other, DOWN, d]);
    for call in [6, 8] {
        build.0.calls[call].scalars = vec![ScalarSource::Literal(0)];
    }
    let plan = planned(build.0, &Options::new(3));
    assert_eq!([1, 6, 8].map(|norm| plan.fused_into(norm)), [vec![2, 3], vec![], vec![9]]);
}

#[test]
fn invalid_prologues_are_defects() {
    let good = planned(layer(SHAPE, &RMSNORM).0, &Options::new(3));
    let defect = |change: &dyn Fn(&mut Plan)| {
        let mut plan = good.clone();
        change(&mut plan);
        plan.verify()
    };
    let wrong = |call| Err(Defect::Prologue { call });
    assert_eq!(defect(&|plan| plan.calls[2].prologue = Some(0)), wrong(2));
    assert_eq!(defect(&|plan| plan.calls[2].prologue = Some(99)), wrong(2));
    assert_eq!(defect(&|plan| plan.calls[4].prologue = Some(1)), wrong(4));
    assert_eq!(defect(&|plan| plan.graph.calls[1].operands[0].tensor = A), wrong(2));
    assert_eq!(defect(&|plan| plan.graph.calls[1].operands[1].tensor = A), wrong(2));
    let by_flags = |plan: &mut Plan| plan.relations.iter_mut().for_each(|relation| relation.in_band &= relation.consumer != 3);
    assert_eq!(defect(&by_flags), wrong(3));
    let apart = planned(layer(SHAPE, &RMSNORM).0, &Options { fuse_prologues: false, ..Options::new(3) });
    let mut both = apart;
    both.calls[2].prologue = Some(1);
    assert_eq!(both.verify(), wrong(2));
}

/// [`layer`] with a unary call instead of the norm.
fn unary_layer([m, n, k]: [u64; 3], map: &'static TaskSpec) -> Build {
    let mut build = layer([m, n, k], &RMSNORM);
    let call = &mut build.0.calls[1];
    call.task = map;
    call.scalars.clear();
    call.operands.remove(1);
    match map {
        map if *map == OWN => {
            call.operands.reverse();
            call.scalars = vec![ScalarSource::Literal(1)];
        }
        map if *map == TWO => call.operands.insert(1, call.operands[0].clone()),
        _ => {}
    }
    build
}

#[test]
fn a_unary_call_is_fused_into_the_gemvs_that_read_it() {
    for map in [&MAP, &OWN] {
        for shape in [SHAPE, [1, 8, 8], [1, 16_192, 8], [8, 1984, 8], [16, 864, 8], [17, 64, 16]] {
            let plan = planned(unary_layer(shape, map).0, &Options::new(3));
            assert_eq!(plan.fused_into(1), [2, 3], "{shape:?}");
            assert_eq!(plan.calls.iter().map(|call| call.prologue).collect::<Vec<_>>(), [None, None, Some(1), Some(1), None]);
            assert!(plan.calls[1].tasks.is_empty() && plan.calls[1].grid[0] == 0);
            for call in [2, 3] {
                assert_eq!(plan.in_band_input(call).unwrap().tensor, WIDE);
            }
            assert!(plan.relations.iter().all(|relation| relation.producer != 1 && relation.consumer != 1));
            let text = plan.to_string();
            assert!(text.contains("fused into #2, #3") && text.matches("prologue #1").count() == 2, "{text}");
            let apart = planned(unary_layer(shape, map).0, &Options { fuse_prologues: false, ..Options::new(3) });
            assert_eq!(apart.fused_into(1), [0; 0]);
            assert_eq!(plan.tasks.len() + apart.calls[1].tasks.len(), apart.tasks.len());
        }
    }
    // Of two tensors the second one would have to be waited for.
    assert_eq!(fused_into_gemvs(unary_layer(SHAPE, &TWO)), [0; 0]);
    for shape in [[1, 60, 8], [1, 16_384, 8], [8, 2048, 8]] {
        assert_eq!(fused_into_gemvs(unary_layer(shape, &MAP)), [0; 0], "{shape:?}");
    }
}

#[test]
fn a_unary_call_with_other_readers_is_not_fused() {
    for kind in [TensorKind::Out, TensorKind::InOut] {
        let mut build = unary_layer(SHAPE, &MAP);
        build.0.tensors[NORMAL as usize].kind = kind;
        assert_eq!(fused_into_gemvs(build), [0; 0], "{kind:?}");
    }
    let mut build = unary_layer(SHAPE, &MAP);
    let sum = build.tensor("sums", TensorKind::Out, &[2, 64]);
    build.call(&ADD, &[NORMAL, NORMAL, sum]);
    assert_eq!(fused_into_gemvs(build), [0; 0]);
    // As a residual of the GEMV that multiplies it.
    let mut build = unary_layer(SHAPE, &MAP);
    build.0.calls[3].operands[0].tensor = WIDE;
    build.0.calls[4].operands[3].tensor = NORMAL;
    assert_eq!(fused_into_gemvs(build), [0; 0]);
    // What it reads is given, or written by who does not hand it on so.
    let mut build = unary_layer(SHAPE, &MAP);
    build.0.calls[0].task = &GEMM;
    assert_eq!(fused_into_gemvs(build), [0; 0]);
    for options in [Options { in_band_flags: false, ..Options::new(3) }, Options { schedule: Schedule::Schedulers(1), ..Options::new(3) }] {
        assert_eq!(planned(unary_layer(SHAPE, &MAP).0, &options).fused_into(1), [0; 0]);
    }
}
