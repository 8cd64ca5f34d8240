//! Tasks with a GEMV form: which calls get it, what forces it, and which instances it has.
mod plan_graphs;

use maco_graph::ir::{Call, Graph, TensorKind};
use maco_graph::plan::{CallShape, Options, Plan, PlanError, Schedule, oracle, plan};
use maco_graph::spec::{
    Access, Argument, Axis, CallOptions, DimSpec, Element, ElementSpec, Index, Kind, Owned, Param, Placement, TaskKind, TaskSpec,
    TensorParam, check_gemv_form,
};
use plan_graphs::random::Draw;
use plan_graphs::{Build, GEMM, SCALE, STAGED_GEMM, axis, simulate, task, tensor};
use proptest::prelude::*;

const GEMV_AXES: &[Axis] = &[axis("i", &[8, 16]), axis("j", &[8, 16])];
const ELEMENTS: &[Element] = &[Element::Bf16, Element::F16];

/// `linear` of the library: both forms with their tiles.
static GEMV: TaskSpec = TaskSpec { kind: TaskKind::Gemv { operand_b: 1, operand_a: Some(0) }, axes: GEMV_AXES, elements: ELEMENTS, ..GEMM };
static LINEAR: TaskSpec = TaskSpec { gemv: Some(&GEMV), elements: ELEMENTS, ..STAGED_GEMM };

fn gemm(m: u64, n: u64, k: u64) -> Graph {
    let mut build = Build::default();
    let (x, w) = (build.input("x", &[m, k]), build.input("w", &[n, k]));
    let y = build.tensor("y", TensorKind::Out, &[m, n]);
    build.call(&LINEAR, &[x, w, y]);
    build.0
}

fn chosen(m: u64, n: u64, k: u64, workers: u32) -> Plan {
    plan(gemm(m, n, k), &Options::new(workers)).unwrap()
}

fn streams(plan: &Plan) -> bool {
    plan.graph.calls[0].task.kind == GEMV.kind
}

/// Weights of published models: Llama 3.2 1B, Llama 3.1 8B and 70B.
const WEIGHTS: [(u64, u64); 11] = [
    (2048, 2048),
    (3072, 2048),
    (8192, 2048),
    (2048, 8192),
    (128_256, 2048),
    (6144, 4096),
    (4096, 4096),
    (14336, 4096),
    (4096, 14336),
    (28672, 8192),
    (8192, 28672),
];

/// With eight rows a GEMV is as fast as memory delivers operand B. With sixteen it is bound by arithmetic, so the GEMM is faster where it has
/// tiles for most multiprocessors.
#[test]
fn up_to_eight_rows_use_the_gemv_form() {
    for (n, k) in WEIGHTS {
        for m in 1..=64 {
            let plan = chosen(m, n, k, 132);
            let call = &plan.calls[0];
            if streams(&plan) {
                let rows = if m <= 8 { 8 } else { 16 };
                assert!(m <= 16 && call.tile[0] == rows && call.grid[0] == 1, "{m} × {n} × {k}: {call:?}");
            } else {
                assert!(m > 8 && call.tile[0] == 64, "{m} × {n} × {k}: {call:?}");
            }
        }
    }
    assert!(!streams(&chosen(16, 28672, 4096, 132)) && streams(&chosen(16, 2048, 2048, 132)));
}

/// So few columns that a GEMV would leave most multiprocessors idle, but K is long enough for split-K over all of them.
#[test]
fn long_k_with_few_columns_uses_split_k() {
    for (n, k) in [(8, 1 << 18), (64, 1 << 16), (100, 1 << 17)] {
        let plan = chosen(16, n, k, 132);
        assert!(!streams(&plan) && plan.calls[0].parts == 16, "{n} × {k}: {:?}", plan.calls[0]);
        // Where nothing is split, streaming is what is left.
        let plan = self::plan(gemm(16, n, k), &Options { split_k: false, ..Options::new(132) }).unwrap();
        assert!(streams(&plan), "{n} × {k}: {:?}", plan.calls[0]);
    }
}

#[test]
fn empty_calls_are_planned() {
    for (m, n, k) in [(0, 512, 64), (7, 0, 64), (7, 512, 0)] {
        for workers in [1, 132] {
            chosen(m, n, k, workers);
        }
    }
}

/// A GEMV reads operand B again for each row of tiles: the planner never chooses that.
#[test]
fn operand_b_is_read_once() {
    for workers in [1, 2, 132] {
        for m in 17..=48 {
            assert!(!streams(&chosen(m, 8, 4096, workers)), "{m} rows, {workers} workers");
        }
    }
}

#[test]
fn a_tile_forces_its_form_and_gemv_instances_follow_those_of_the_gemm() {
    for (tile, streamed, op) in [
        ([64, 128], false, 10 + 4),
        ([128, 256], false, 10 + 4 + 3),
        // Two elements with four tiles, then the other form's.
        ([8, 8], true, 10 + 8 + 4),
        ([16, 8], true, 10 + 8 + 4 + 2),
    ] {
        for m in [5, 40] {
            let mut by_source = gemm(m, 300, 200);
            (by_source.calls[0].slot, by_source.calls[0].element) = (10, 1);
            let mut by_caller = by_source.clone();
            by_source.calls[0].tile = Some(tile.to_vec());
            let shape = CallShape { call: 0, tile: Some(tile.to_vec()), split: None, whole: 0 };
            for plan in [
                plan(by_source, &Options::new(4)).unwrap(),
                plan(by_caller.clone(), &Options { shapes: vec![shape.clone()], ..Options::new(4) }).unwrap(),
            ] {
                assert_eq!((streams(&plan), plan.calls[0].op, &plan.calls[0].tile[..]), (streamed, op, &tile[..]), "{m} rows");
            }
            // What the source says counts more.
            by_caller.calls[0].tile = Some(vec![128, 128]);
            let plan = plan(by_caller, &Options { shapes: vec![shape], ..Options::new(4) }).unwrap();
            assert_eq!(plan.calls[0].tile, [128, 128]);
        }
    }
}

#[test]
fn split_k_forces_the_gemm_form() {
    let split = |parts, tile: Option<[u32; 2]>| {
        let mut graph = gemm(4, 300, 2000);
        (graph.calls[0].split, graph.calls[0].tile) = (Some(parts), tile.map(Vec::from));
        plan(graph, &Options::new(4)).map(|plan| (streams(&plan), plan.calls[0].parts))
    };
    assert_eq!(split(3, None), Ok((false, 3)));
    assert_eq!(split(1, None), Ok((true, 1)));
    assert_eq!(split(1, Some([16, 16])), Ok((true, 1)));
    assert!(matches!(split(2, Some([16, 16])), Err(PlanError::Split { found: 2, max: 1, .. })));
    assert!(matches!(split(65, None), Err(PlanError::Split { found: 65, max: 64, .. })));
}

#[test]
fn a_tile_of_neither_form_is_refused_with_all_tiles() {
    for tile in [[16, 128], [64, 8], [32, 32]] {
        let mut graph = gemm(4, 300, 2000);
        graph.calls[0].tile = Some(tile.to_vec());
        let error = plan(graph, &Options::new(4)).unwrap_err();
        assert_eq!(error.code(), 17);
        let expected = format!(
            "MACO0017: `linear` (call #0) has no tile of {} × {}\n  \
             = help: allowed are (64 or 128) × (128 or 256), and as a GEMV (8 or 16) × (8 or 16)",
            tile[0], tile[1]
        );
        assert_eq!(error.to_string(), expected);
    }
}

/// [`GEMV`] of the first element alone.
static FIRST: TaskSpec = TaskSpec { elements: &[Element::Bf16], ..GEMV };

/// A GEMV form with fewer elements is for these alone: calls with other elements have none of its tiles, chosen or forced.
#[test]
fn an_element_without_gemv_form_uses_the_gemm() {
    static SOME: TaskSpec = TaskSpec { gemv: Some(&FIRST), ..LINEAR };
    let of = |element: u32, tile: Option<Vec<u32>>| {
        let mut graph = gemm(4, 4096, 4096);
        graph.calls[0] = Call { task: &SOME, element, tile, ..graph.calls[0].clone() };
        plan(graph, &Options::new(132))
    };
    assert!(streams(&of(0, None).unwrap()) && streams(&of(0, Some(vec![8, 8])).unwrap()));
    assert!(!streams(&of(1, None).unwrap()));
    let error = of(1, Some(vec![8, 8])).unwrap_err();
    assert!(matches!(error, PlanError::TileVariant { found: 8, allowed: &[64, 128], .. }), "{error}");
}

/// The message of `check_gemv_form`, if it fails.
fn wrong(own: &'static TaskSpec, gemv: &'static TaskSpec) -> Option<String> {
    let panic = std::panic::catch_unwind(|| check_gemv_form(own, gemv)).err()?;
    panic.downcast_ref::<&str>().map(|text| (*text).to_owned())
}

#[test]
fn gemv_forms_must_have_the_same_signature() {
    static SHARED: TaskSpec = TaskSpec { axes: &[axis("i", &[8, 64]), axis("j", &[8, 256])], ..GEMV };
    static OTHER_NAMES: TaskSpec = TaskSpec { axes: &[axis("i", &[8]), axis("k", &[8])], ..GEMV };
    static ONE_AXIS: TaskSpec = TaskSpec { axes: &[axis("i", &[8])], ..GEMV };
    static OTHER_ELEMENTS: TaskSpec = TaskSpec { elements: &[Element::F16], ..GEMV };
    static MORE_ELEMENTS: TaskSpec = TaskSpec { elements: &[Element::Bf16, Element::F16, Element::F32], ..GEMV };
    static EQUAL: TaskSpec = TaskSpec { equal: &[(0, 1)], ..GEMV };
    static SWAPPED: TaskSpec = TaskSpec {
        params: &[
            tensor("x", Access::Read, &[Index::Tile(1), Index::All]),
            tensor("w", Access::Read, &[Index::Tile(0), Index::All]),
            tensor("y", Access::Write, &[Index::Tile(0), Index::Tile(1)]),
        ],
        ..GEMV
    };
    static STAGED: TaskSpec = TaskSpec { axes: GEMV_AXES, ..STAGED_GEMM };
    static THROUGH: TaskSpec = TaskSpec { gemv: Some(&GEMV), ..GEMV };
    static UNSTORED: TaskSpec = TaskSpec { kind: TaskKind::Tiles, elements: ELEMENTS, ..GEMM };
    assert_eq!(wrong(&LINEAR, &GEMV), None);
    assert_eq!(wrong(&LINEAR, &FIRST), None);
    for (own, gemv, what) in [
        (&LINEAR, &SHARED, "cannot be told apart"),
        (&UNSTORED, &GEMV, "cannot be told apart"),
        (&LINEAR, &OTHER_NAMES, "has another signature"),
        (&LINEAR, &OTHER_ELEMENTS, "has another signature"),
        (&LINEAR, &MORE_ELEMENTS, "has another signature"),
        (&LINEAR, &EQUAL, "has another signature"),
        (&LINEAR, &SWAPPED, "has another signature"),
        (&LINEAR, &STAGED, "streams no weights"),
        (&LINEAR, &ONE_AXIS, "streams no weights"),
        (&LINEAR, &THROUGH, "streams no weights"),
    ] {
        let text = wrong(own, gemv).unwrap_or_default();
        assert!(text.starts_with("MACO0012") && text.contains(what), "{what}: {text}");
    }
    // Nor does the planner take one that nobody has looked at.
    static UNSEEN: TaskSpec = TaskSpec { gemv: Some(&SWAPPED), ..LINEAR };
    let mut graph = gemm(4, 300, 200);
    graph.calls[0].task = &UNSEEN;
    assert!(matches!(plan(graph, &Options::new(4)), Err(PlanError::Malformed { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Chains in which calls of both forms wait for each other, and one reads as operand B what another one writes.
    #[test]
    fn gemm_and_gemv_calls_wait_for_each_other(
        (m, k) in (1u64..20, 1u64..40),
        tiles in proptest::collection::vec(0usize..3, 4),
        workers in 1u32..7,
        dice in proptest::collection::vec(any::<u16>(), 64),
    ) {
        let mut build = Build::default();
        let (x, w) = (build.input("x", &[m, k]), build.input("w", &[k, k]));
        let (a, b, c) = (build.temp("a", &[m, k]), build.temp("b", &[m, k]), build.temp("c", &[m, m]));
        let y = build.tensor("y", TensorKind::Out, &[m, k]);
        for (operands, tile) in [[x, w, a], [a, w, b], [a, b, c], [b, w, y]].iter().zip(tiles) {
            build.call(&LINEAR, operands).tile = [None, Some(vec![8, 8]), Some(vec![64, 128])][tile].clone();
        }
        build.call(&SCALE, &[c]);
        for schedule in [Schedule::Static, Schedule::Tickets] {
            let plan = plan(build.0.clone(), &Options { schedule, ..Options::new(workers) }).unwrap();
            prop_assert_eq!(oracle::conflict(&plan), None);
            simulate::agree(&plan, &mut Draw::endless(&dice), 2).map_err(TestCaseError::fail)?;
        }
    }
}

/// What one call links: a bit for each instance that its plan may use.
fn linked(tile: Option<&[u32]>, split: Option<u32>) -> u128 {
    let mut graph = Owned::new();
    let mut tensor =
        |name, kind, shape: &[u64]| Argument::Tensor(graph.tensor(name, kind, Element::F16, shape, Placement::Replicated).unwrap());
    let arguments = [tensor("x", Kind::In, &[5, 64]), tensor("w", Kind::In, &[40, 64]), tensor("y", Kind::Out, &[5, 40])];
    graph.call(&LINKED, 3, &arguments, CallOptions { tile, split, ..CallOptions::default() }).unwrap();
    graph.finish().unwrap().mask()
}

const fn generic(name: &'static str, access: Access, dims: &'static [DimSpec], region: &'static [Index]) -> Param {
    Param::Tensor(TensorParam { name, access, element: ElementSpec::Generic, dims, region, staged: false })
}

const M: DimSpec = DimSpec::Symbol(0);
const N: DimSpec = DimSpec::Symbol(1);
const K: DimSpec = DimSpec::Symbol(2);
const GENERIC: &[Param] = &[
    generic("x", Access::Read, &[M, K], &[Index::Tile(0), Index::All]),
    generic("w", Access::Read, &[N, K], &[Index::Tile(1), Index::All]),
    generic("y", Access::Write, &[M, N], &[Index::Tile(0), Index::Tile(1)]),
];
/// [`LINEAR`] with generic elements.
static LINKED: TaskSpec = TaskSpec { params: GENERIC, gemv: Some(&TaskSpec { params: GENERIC, ..GEMV }), ..LINEAR };

#[test]
fn a_call_links_the_instances_that_its_plan_may_use() {
    // The second element: from slot 3, four tiles behind four of the first element's, then the same again for the other form.
    assert_eq!(linked(None, None), 0xf << (3 + 4) | 0xf << (3 + 8 + 4));
    assert_eq!(linked(None, Some(1)), linked(None, None));
    assert_eq!(linked(None, Some(2)), 0xf << (3 + 4));
    assert_eq!(linked(Some(&[128, 128]), None), 1 << (3 + 4 + 2));
    assert_eq!(linked(Some(&[8, 16]), None), 1 << (3 + 8 + 4 + 1));
}

/// A task without one has none.
#[test]
fn slots_are_those_of_both_forms() {
    static PLAIN: TaskSpec = task("plain", GEMV_AXES, &[tensor("y", Access::Write, &[Index::Tile(0), Index::Tile(1)])]);
    assert_eq!((LINEAR.instances(), LINEAR.slots(), PLAIN.slots()), (8, 16, 4));
}
