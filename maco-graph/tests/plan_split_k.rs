//! Split-K: when it is chosen, in how many parts, and that every dependency is kept.
mod plan_graphs;

use maco_graph::ir::{Graph, TensorKind};
use maco_graph::plan::{CallShape, Defect, Options, Plan, PlanError, Schedule, oracle, plan};
use maco_graph::spec::{Access, Element, ElementSpec, Index, Param, TaskSpec, TensorParam};
use plan_graphs::random::Draw;
use plan_graphs::{ADD, Build, SCALE, STAGED_GEMM, axis, simulate, tensor};
use proptest::prelude::*;

/// [`STAGED_GEMM`] with tiles so small that small tensors have many.
static SMALL: TaskSpec = TaskSpec { axes: &[axis("i", &[2, 4]), axis("j", &[40, 80])], ..STAGED_GEMM };

const fn f32(param: Param) -> Param {
    match param {
        Param::Tensor(tensor) => Param::Tensor(TensorParam { element: ElementSpec::Fixed(Element::F32), staged: true, ..tensor }),
        other => other,
    }
}

/// [`STAGED_GEMM`] of `f32`.
static TF32: TaskSpec = TaskSpec {
    params: &[
        f32(tensor("x", Access::Read, &[Index::Tile(0), Index::All])),
        f32(tensor("w", Access::Read, &[Index::Tile(1), Index::All])),
        f32(tensor("y", Access::Write, &[Index::Tile(0), Index::Tile(1)])),
    ],
    ..STAGED_GEMM
};

/// y = down · (up · x)
fn mlp(m: u64, h: u64, k: u64) -> Graph {
    let mut build = Build::default();
    let (x, up, down) = (build.input("x", &[m, k]), build.input("up", &[h, k]), build.input("down", &[k, h]));
    let (hidden, y) = (build.temp("h", &[m, h]), build.tensor("y", TensorKind::Out, &[m, k]));
    build.call(&STAGED_GEMM, &[x, up, hidden]);
    build.call(&STAGED_GEMM, &[hidden, down, y]);
    build.0
}

/// Tile and split-K parts of each call.
fn tiles_and_parts(plan: &Plan) -> Vec<(&[u32], u32)> {
    plan.calls.iter().map(|call| (&call.tile[..], call.parts)).collect()
}

#[test]
fn large_gemms_are_not_split() {
    for (m, h, k) in [(4096, 12288, 4096), (2048, 8192, 4096)] {
        let plan = plan(mlp(m, h, k), &Options::new(132)).unwrap();
        assert_eq!(tiles_and_parts(&plan), [(&[128, 256][..], 1), (&[128, 256], 1)], "M {m}");
    }
}

/// Tiles of 128 × 256: of 2048 tiles 68 are left for the last of 16 waves, of 148 tiles 16 for the second.
#[test]
fn tiles_of_the_last_wave_are_split() {
    for (shape, whole, split) in [((8192, 8192, 8192), 15 * 132, 3), ((256, 18944, 3584), 132, 8), ((2048, 5120, 27648), 2 * 132, 2)] {
        let (m, h, k) = shape;
        let plan = plan(mlp(m, h, k), &Options::new(132)).unwrap();
        let call = &plan.calls[0];
        assert_eq!((&call.tile[..], call.whole, call.parts), (&[128, 256][..], whole, split), "{shape:?}");
        let tiles = call.grid.iter().product::<u32>();
        assert_eq!(call.tasks.len() as u32, whole + (tiles - whole) * split);
        assert_eq!(
            [0, whole - 1, whole, whole + split].map(|n| call.tile_of(n)),
            [(0, 1), (whole - 1, 1), (whole, split), (whole + 1, split)]
        );
        assert!(plan.to_string().contains(&format!("behind {whole} tiles split in {split}")), "{plan}");
    }
}

/// Sixteen independent GEMMs fill each other's last wave; those of a chain do not.
#[test]
fn concurrent_calls_fill_the_last_wave() {
    let build = |chained: bool| {
        let mut build = Build::default();
        let mut x = build.input("x", &[256, 18944]);
        for n in 0..16 {
            let w = build.input(&format!("w{n}"), &[18944, 18944]);
            let y = build.tensor(&format!("y{n}"), TensorKind::Out, &[256, 18944]);
            build.call(&STAGED_GEMM, &[x, w, y]);
            x = if chained { y } else { x };
        }
        plan(build.0, &Options::new(132)).unwrap()
    };
    assert!(build(false).calls.iter().all(|call| (call.parts, &call.tile[..]) == (1, &[128, 256][..])));
    assert!(build(true).calls.iter().all(|call| call.parts > 1));
}

/// The table of docs/internals/gemm.md.
#[test]
fn few_rows_get_large_split_tiles() {
    for ((m, h, k), call, whole, parts) in [
        ((1024, 8192, 2048), 1, [128, 128], ([128, 128], 1)),
        ((512, 8192, 2048), 1, [64, 128], ([128, 256], 4)),
        ((256, 4096, 2048), 0, [64, 128], ([64, 128], 1)),
        ((256, 4096, 2048), 1, [64, 128], ([128, 128], 4)),
    ] {
        let choice = |split_k| {
            let plan = plan(mlp(m, h, k), &Options { split_k, ..Options::new(132) }).unwrap();
            (plan.calls[call].tile.clone(), plan.calls[call].parts)
        };
        assert_eq!((choice(false), choice(true)), ((whole.to_vec(), 1), (parts.0.to_vec(), parts.1)), "M {m}, call {call}");
    }
}

#[test]
fn small_gemms_are_split_over_all_workers() {
    for (m, h, k) in [(1024, 8192, 2048), (512, 8192, 2048), (256, 4096, 2048), (128, 4096, 4096)] {
        let plan = plan(mlp(m, h, k), &Options::new(132)).unwrap();
        assert!((100..=132).contains(&plan.calls[1].tasks.len()), "M {m}: {:?}", tiles_and_parts(&plan));
    }
    // Not for one worker, nor where nobody asked and nobody may choose.
    for options in [Options::new(1), Options { split_k: false, ..Options::new(132) }] {
        assert!(plan(mlp(256, 4096, 2048), &options).unwrap().calls.iter().all(|call| call.parts == 1));
    }
}

#[test]
fn forced_tiles_and_split_k_have_precedence() {
    let mut graph = mlp(256, 640, 128);
    graph.calls[0].split = Some(2);
    let force = |call, tile: Option<[u32; 2]>, split| CallShape { call, tile: tile.map(Vec::from), split, whole: 0 };
    let shapes_of =
        |shapes| plan(graph.clone(), &Options { shapes, ..Options::new(8) }).map(|plan| format!("{:?}", tiles_and_parts(&plan)));
    let shaped = shapes_of(vec![force(0, Some([64, 256]), Some(1)), force(1, Some([128, 128]), Some(3))]).unwrap();
    // The graph's own option counts more.
    assert_eq!(shaped, "[([64, 256], 2), ([128, 128], 3)]");
    // There are two steps of 64, and ten.
    let shaped = shapes_of(vec![force(1, Some([64, 128]), Some(64))]).unwrap();
    assert!(shaped.ends_with(", ([64, 128], 10)]"), "{shaped}");
    // Four tiles by one task each.
    for (whole, split, expected) in [(3, 5, (3, 5)), (4, 5, (0, 5)), (3, 1, (0, 1))] {
        let shape = CallShape { whole, ..force(1, Some([64, 128]), Some(split)) };
        let plan = plan(graph.clone(), &Options { shapes: vec![shape], ..Options::new(8) }).unwrap();
        assert_eq!((plan.calls[1].whole, plan.calls[1].parts), expected);
    }
    assert_eq!(shapes_of(vec![force(1, None, Some(65))]).unwrap_err().code(), 18);
    assert_eq!(shapes_of(vec![force(1, None, Some(0))]).unwrap_err().code(), 18);
    assert_eq!(shapes_of(vec![force(2, None, None)]).unwrap_err(), PlanError::ShapeCall { call: 2, calls: 2 });
    let mut build = Build::default();
    let x = build.tensor("x", TensorKind::InOut, &[8, 8]);
    build.call(&SCALE, &[x]).split = Some(2);
    assert!(matches!(plan(build.0, &Options::new(8)), Err(PlanError::Split { found: 2, max: 1, .. })));
}

/// A K step of `f32` has half the elements, and the text of a plan says tf32.
#[test]
fn gemms_of_f32_use_tf32() {
    let of = |task| {
        let mut build = Build::default();
        let (x, w, y) = (build.input("x", &[128, 200]), build.input("w", &[256, 200]), build.tensor("y", TensorKind::Out, &[128, 256]));
        for tensor in &mut build.0.tensors {
            tensor.element = Element::F32;
        }
        build.call(task, &[x, w, y]).split = Some(64);
        plan(build.0, &Options::new(8)).unwrap()
    };
    assert_eq!((of(&STAGED_GEMM).calls[0].parts, of(&TF32).calls[0].parts), (4, 7));
    assert!(of(&TF32).to_string().contains("split in 7  in tf32"), "{}", of(&TF32));
    assert!(!of(&STAGED_GEMM).to_string().contains("tf32"));
}

#[test]
fn split_k_parts_are_verified() {
    let mut graph = mlp(256, 640, 128);
    graph.calls[1].split = Some(3);
    let plan = plan(graph, &Options::new(8)).unwrap();
    let first = plan.calls[1].tasks.start as usize;
    assert_eq!(plan.tasks[first..first + 4].iter().map(|task| task.part).collect::<Vec<_>>(), [0, 1, 2, 0]);
    let tampered = |tamper: fn(&mut Plan, usize)| {
        let mut plan = plan.clone();
        tamper(&mut plan, first);
        plan.verify().unwrap_err()
    };
    assert_eq!(tampered(|plan, first| plan.tasks[first + 1].part = 0), Defect::Grid { call: 1 });
    assert_eq!(tampered(|plan, first| plan.tasks[first + 2].part = 3), Defect::Grid { call: 1 });
    assert_eq!(tampered(|plan, _| plan.calls[1].parts = 2), Defect::Grid { call: 1 });
    assert_eq!(tampered(|plan, _| plan.calls[1].whole = 1), Defect::Grid { call: 1 });
}

/// An unsplit tile has one task, beside split tiles.
#[test]
fn unsplit_tiles_are_verified() {
    let shape = CallShape { call: 1, tile: Some(vec![64, 128]), split: Some(2), whole: 1 };
    let plan = plan(mlp(256, 640, 128), &Options { shapes: vec![shape], ..Options::new(8) }).unwrap();
    let first = plan.calls[1].tasks.start as usize;
    assert_eq!(plan.tasks[first..first + 3].iter().map(|task| (task.coord[0], task.part)).collect::<Vec<_>>(), [(0, 0), (1, 0), (1, 1)]);
    let tampered = |tamper: fn(&mut Plan, usize)| {
        let mut plan = plan.clone();
        tamper(&mut plan, first);
        plan.verify().unwrap_err()
    };
    assert_eq!(tampered(|plan, first| plan.tasks[first].part = 1), Defect::Grid { call: 1 });
    assert_eq!(tampered(|plan, first| plan.tasks[first + 1].coord = plan.tasks[first].coord), Defect::Grid { call: 1 });
    assert_eq!(tampered(|plan, first| plan.tasks[first + 2].part = 0), Defect::Grid { call: 1 });
}

#[test]
fn readers_wait_for_all_parts() {
    let mut graph = mlp(256, 640, 128);
    graph.calls[0].split = Some(2);
    let mut plan = plan(graph, &Options::new(8)).unwrap();
    // For one part of each tile only.
    plan.waits[0].need /= 2;
    assert!(matches!(plan.verify(), Err(Defect::Need { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Chains of split GEMMs, with a temp that is written again: ordered by counters alone, and correct in any legal run.
    #[test]
    fn split_k_parts_keep_every_dependency(
        (m, h, k) in (1u64..9, 65u64..150, 65u64..150),
        splits in [1u32..4, 1u32..4, 1u32..4],
        whole in [0u32..6, 0u32..6, 0u32..6],
        workers in 1u32..7,
        dice in proptest::collection::vec(any::<u16>(), 64),
    ) {
        let mut build = Build::default();
        let (x, up, down) = (build.input("x", &[m, k]), build.input("up", &[h, k]), build.input("down", &[k, h]));
        let (hidden, z) = (build.temp("h", &[m, h]), build.temp("z", &[m, k]));
        let y = build.tensor("y", TensorKind::Out, &[m, h]);
        for operands in [[x, up, hidden], [hidden, down, z], [z, up, hidden]] {
            build.call(&SMALL, &operands);
        }
        let shape = |(call, (split, whole))| CallShape { call, tile: None, split: Some(split), whole };
        let shapes: Vec<_> = (0..).zip(splits.into_iter().zip(whole)).map(shape).collect();
        build.call(&SCALE, &[hidden]);
        build.call(&ADD, &[hidden, hidden, y]);
        for schedule in [Schedule::Static, Schedule::Tickets] {
            let plan = plan(build.0.clone(), &Options { schedule, shapes: shapes.clone(), ..Options::new(workers) }).unwrap();
            prop_assert_eq!(plan.calls[0].parts, splits[0].min(k.div_ceil(64) as u32));
            prop_assert_eq!(oracle::conflict(&plan), None);
            simulate::agree(&plan, &mut Draw::endless(&dice), 2).map_err(TestCaseError::fail)?;
        }
    }
}
