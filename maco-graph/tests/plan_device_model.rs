//! Device models: what is chosen by the default one, that only ratios count, and that a plan says by which it was made.
mod plan_graphs;

use maco_graph::ir::{Graph, TensorKind};
use maco_graph::plan::{DeviceModel, Options, Origin, Plan, plan};
use plan_graphs::{Build, NORM, SCALE64, STAGED_GEMM};

/// So many independent GEMMs of m, n and k.
fn gemms(calls: usize, [m, n, k]: [u64; 3]) -> Graph {
    let mut build = Build::default();
    for call in 0..calls {
        let (x, w) = (build.input(&format!("x{call}"), &[m, k]), build.input(&format!("w{call}"), &[n, k]));
        let y = build.tensor(&format!("y{call}"), TensorKind::Out, &[m, n]);
        build.call(&STAGED_GEMM, &[x, w, y]);
    }
    build.0
}

/// A chain of two GEMMs, of bytes that are moved, and of GEMMs again.
fn mixed(rows: u64) -> Graph {
    let mut build = Build::default();
    let (x, up, down) = (build.input("x", &[rows, 1024]), build.input("up", &[4096, 1024]), build.input("down", &[1024, 4096]));
    let (h, next, n) = (build.temp("h", &[rows, 4096]), build.temp("next", &[rows, 1024]), build.temp("n", &[rows, 1024]));
    let y = build.tensor("y", TensorKind::Out, &[rows, 4096]);
    build.call(&STAGED_GEMM, &[x, up, h]);
    build.call(&STAGED_GEMM, &[h, down, next]);
    build.call(&SCALE64, &[next]);
    build.call(&NORM, &[next, n]);
    build.call(&STAGED_GEMM, &[n, up, y]);
    build.0
}

fn chosen(plan: &Plan) -> String {
    let call = &plan.calls[0];
    format!("{}×{} {}/{}", call.tile[0], call.tile[1], call.whole, call.parts)
}

/// The shapes that `bench gemm` measures: tile, tiles that are not split, parts; of one GEMM and of sixteen, for 132, 114 and 8 workers. As they were when the
/// numbers of the model were constants of the planner.
#[test]
fn choices_are_those_from_before_there_were_models() {
    let expected: [([u64; 3], &str); 17] = [
        ([8192, 8192, 8192], "128×256 1980/3, 128×256 0/1; 128×256 0/1, 128×256 0/1; 128×256 0/1, 128×256 0/1"),
        ([16384, 4096, 8192], "128×256 1980/3, 128×256 0/1; 128×256 0/1, 128×256 0/1; 128×256 0/1, 128×256 0/1"),
        ([4096, 4096, 4096], "128×256 0/1, 128×256 0/1; 128×256 456/2, 128×256 0/1; 128×256 0/1, 128×256 0/1"),
        ([4096, 12288, 4096], "128×256 0/1, 128×256 0/1; 128×256 1482/2, 128×256 0/1; 128×256 0/1, 128×256 0/1"),
        ([8192, 28672, 2048], "128×256 7128/3, 128×256 0/1; 128×256 0/1, 128×256 0/1; 128×256 0/1, 128×256 0/1"),
        ([16, 6144, 4096], "64×256 0/5, 64×256 0/1; 64×256 0/4, 64×256 0/1; 64×256 0/1, 64×256 0/1"),
        ([16, 28672, 4096], "64×256 0/1, 64×256 0/1; 64×256 0/1, 64×256 0/1; 64×256 0/1, 64×256 0/1"),
        ([32, 4096, 14336], "64×256 0/8, 64×256 0/1; 64×256 0/7, 64×256 0/2; 64×256 0/1, 64×256 0/1"),
        ([64, 10240, 8192], "64×256 0/3, 64×256 0/1; 64×256 0/2, 64×256 0/1; 64×256 0/1, 64×256 0/1"),
        ([128, 8192, 28672], "128×256 0/4, 128×256 0/1; 128×256 0/3, 128×256 0/2; 128×256 0/1, 128×256 0/1"),
        ([256, 18944, 3584], "128×256 132/8, 128×256 0/1; 128×256 114/3, 128×256 0/1; 128×256 144/2, 128×256 0/1"),
        ([512, 3584, 18944], "128×256 0/2, 128×256 0/1; 128×256 0/2, 128×256 0/1; 128×256 0/1, 128×256 0/1"),
        ([1024, 14336, 4096], "128×256 396/2, 128×256 0/1; 128×256 0/1, 128×256 0/1; 128×256 0/1, 128×256 0/1"),
        ([2048, 5120, 27648], "128×256 264/2, 128×256 0/1; 128×256 0/1, 128×256 0/1; 128×256 0/1, 128×256 0/1"),
        ([4096, 12288, 12288], "128×256 1452/3, 128×256 0/1; 128×256 1482/2, 128×256 0/1; 128×256 0/1, 128×256 0/1"),
        ([8192, 10240, 8192], "128×256 2508/2, 128×256 0/1; 128×256 2508/2, 128×256 0/1; 128×256 0/1, 128×256 0/1"),
        ([16384, 14336, 4096], "128×256 7128/3, 128×256 0/1; 128×256 0/1, 128×256 0/1; 128×256 0/1, 128×256 0/1"),
    ];
    for (shape, expected) in expected {
        let found = [132, 114, 8]
            .map(|workers| [1, 16].map(|calls| chosen(&plan(gemms(calls, shape), &Options::new(workers)).unwrap())).join(", "));
        assert_eq!(found.join("; "), expected, "{shape:?}");
    }
}

/// Twice the clock halves every time, and no choice is another one: tiles, parts, buffers of temps, lists.
#[test]
fn only_ratios_count() {
    let default = DeviceModel::DEFAULT;
    let faster = DeviceModel {
        copy: default.copy * 2.0,
        l2: default.l2 * 2.0,
        tensor: default.tensor * 2.0,
        gemv: default.gemv * 2.0,
        step: default.step / 2.0,
        step_rate: default.step_rate * 2.0,
        gemm_tile: default.gemm_tile / 2.0,
        gemm_element: default.gemm_element / 2.0,
        tile: default.tile / 2.0,
        ring_tile: default.ring_tile / 2.0,
        least_tile: default.least_tile / 2.0,
        part: default.part / 2.0,
        part_rate: default.part_rate * 2.0,
        ticket: default.ticket / 2.0,
        hop: default.hop / 2.0,
        launch: default.launch / 2.0,
        ..default
    };
    let graphs = [gemms(1, [256, 18944, 3584]), gemms(16, [100, 1000, 5000]), mixed(64), mixed(1000), mixed(4096)];
    for graph in graphs {
        for workers in [132, 114, 8] {
            let of = |model: &DeviceModel| plan(graph.clone(), &Options { model: model.clone(), ..Options::new(workers) }).unwrap();
            let (one, other) = (of(&DeviceModel::DEFAULT), of(&faster));
            assert_eq!(one.calls, other.calls);
            assert_eq!((one.lists, one.waits, one.temps), (other.lists, other.waits, other.temps));
        }
    }
}

/// Where steps cost more than tiles, tiles are large; where parts cost nothing, tiles are split.
#[test]
fn costs_decide() {
    let with = |model: DeviceModel| chosen(&plan(gemms(1, [256, 512, 4096]), &Options { model, ..Options::new(132) }).unwrap());
    let default = with(DeviceModel::DEFAULT);
    let dear_parts = with(DeviceModel { part: 1e9, ..DeviceModel::DEFAULT });
    let dear_tiles = with(DeviceModel { part: 1e9, gemm_tile: 1e9, ..DeviceModel::DEFAULT });
    assert!(!default.ends_with("/1"), "{default}");
    assert_eq!(dear_parts, "64×128 0/1");
    assert!(dear_tiles.ends_with(" 0/1"), "{dear_tiles}");
    let little_cache = with(DeviceModel { partial_sums: 0, ..DeviceModel::DEFAULT });
    assert_eq!(little_cache, dear_parts, "no room for partial sums");
}

#[test]
fn a_plan_says_by_which_model_it_was_made() {
    let model = DeviceModel { name: "a GPU".into(), origin: Origin::Measured, ..DeviceModel::DEFAULT };
    let plan = plan(mixed(64), &Options { model: model.clone(), ..Options::new(8) }).unwrap();
    assert_eq!(plan.model, model);
    let text = plan.to_string();
    assert_eq!(text.lines().nth(1), Some(&*format!("  device model: {model}")));
    let json: serde_json::Value = serde_json::from_str(&plan.json()).unwrap();
    assert_eq!(json["device_model"]["name"], "a GPU");
    assert_eq!(json["device_model"]["origin"], "measured");
    assert_eq!(json["device_model"]["hop_nanoseconds"], 1580.0);
}
