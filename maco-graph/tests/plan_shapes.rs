//! Plans of known graphs: tiles, relations, counters, order and text.

mod plan_graphs;

use maco_graph::ir::{Graph, TensorKind};
use maco_graph::plan::{Hazard, Options, Plan, Schedule, oracle, plan};
use maco_graph::spec::TaskSpec;
use plan_graphs::*;

fn planned(build: Build) -> Plan {
    plan(build.0, &Options::new(132)).unwrap()
}

/// (producer, consumer, hazard, counters, waits, edges) of every relation.
fn relations(plan: &Plan) -> Vec<(u32, u32, Hazard, u32, u32, u64)> {
    let row = |r: &maco_graph::plan::Relation| (r.producer, r.consumer, r.hazard, r.counters.end - r.counters.start, r.waits, r.edges);
    plan.relations.iter().map(row).collect()
}

fn gemm(m: u64, n: u64, k: u64) -> Graph {
    let mut build = Build::default();
    let (x, w) = (build.input("x", &[m, k]), build.input("w", &[n, k]));
    let y = build.tensor("y", TensorKind::Out, &[m, n]);
    build.call(&GEMM, &[x, w, y]);
    build.0
}

fn tile(m: u64, n: u64, k: u64) -> Vec<u32> {
    plan(gemm(m, n, k), &Options::new(132)).unwrap().calls[0].tile.clone()
}

#[test]
fn large_gemms_use_the_largest_tile() {
    let shapes = [
        (8192, 8192, 8192),
        (2048, 8192, 4096),
        (2048, 4096, 8192),
        (2048, 14336, 4096),
        (2048, 4096, 14336),
        (4096, 12288, 4096),
        (4096, 4096, 12288),
        (4096, 14336, 4096),
        (8192, 28672, 2048),
        (16384, 4096, 8192),
    ];
    for (m, n, k) in shapes {
        assert_eq!(tile(m, n, k), [128, 256], "{m} {n} {k}");
    }
}

#[test]
fn small_gemms_use_tiles_that_fill_the_machine() {
    assert_eq!(tile(64, 4096, 4096), [64, 128]);
    assert_eq!(tile(64, 14336, 4096), [64, 128]);
    assert_eq!(tile(128, 4096, 4096), [64, 128]);
    assert_eq!(tile(128, 14336, 4096), [128, 128]);
    assert_eq!(tile(512, 4096, 4096), [128, 128]);
    for m in [64, 128, 256, 512] {
        for n in [4096, 8192, 12288, 14336] {
            let plan = plan(gemm(m, n, 4096), &Options::new(132)).unwrap();
            let whole = (m as u32).div_ceil(128) * (n as u32).div_ceil(256);
            // With most of the machine idle on the largest tile, a smaller one is better.
            assert!(2 * whole > 132 || plan.tasks.len() as u32 > whole, "{m} {n}: {plan}");
        }
    }
}

#[test]
fn few_workers_use_large_tiles() {
    let plan = plan(gemm(512, 4096, 4096), &Options::new(2)).unwrap();
    assert_eq!(plan.calls[0].tile, [128, 256]);
}

#[test]
fn a_forced_tile_chooses_the_instance() {
    static TYPED: TaskSpec = TaskSpec { elements: &[maco_graph::spec::Element::Bf16, maco_graph::spec::Element::F16], ..GEMM_COPY };
    const GEMM_COPY: TaskSpec = task(
        "linear",
        &[axis("i", &[64, 128]), axis("j", &[128, 256])],
        &[tensor("y", maco_graph::spec::Access::Write, &[maco_graph::spec::Index::Tile(0), maco_graph::spec::Index::Tile(1)])],
    );
    let mut build = Build::default();
    let y = build.temp("y", &[256, 512]);
    let call = build.call(&TYPED, &[y]);
    (call.slot, call.element, call.tile) = (10, 1, Some(vec![128, 128]));
    let plan = planned(build);
    assert_eq!(plan.calls[0].tile, [128, 128]);
    assert_eq!(plan.calls[0].grid, [2, 4]);
    assert_eq!(plan.calls[0].op, 10 + 4 + 2); // element 1 of 2, then variant (1, 0) of 2 × 2
}

/// Two layers with the larger tile first: rows of tiles, no more.
#[test]
fn a_layer_waits_for_the_rows_it_reads() {
    let mut build = Build::default();
    let (x, u, d) = (build.input("x", &[1024, 512]), build.input("u", &[2048, 512]), build.input("d", &[512, 2048]));
    let (h, y) = (build.temp("h", &[1024, 2048]), build.tensor("y", TensorKind::Out, &[1024, 512]));
    build.call(&GEMM, &[x, u, h]).tile = Some(vec![128, 256]);
    build.call(&GEMM, &[h, d, y]).tile = Some(vec![64, 128]);
    let plan = planned(build);
    // 8 rows of 8 tiles; 16 × 4 consumers, each waits for one row.
    assert_eq!(relations(&plan), [(0, 1, Hazard::Raw, 8, 64, 64 * 8)]);
    assert_eq!((plan.counters, plan.waves, plan.edges), (8, 2, 512));
    for task in plan.calls[1].tasks.clone() {
        assert_eq!(plan.waits_of(task).len(), 1);
        assert_eq!(plan.waits_of(task)[0].need, 8);
    }
    assert!(plan.calls[0].tasks.clone().all(|task| plan.signals_of(task).len() == 1));
}

#[test]
fn a_larger_consumer_tile_waits_once() {
    let mut build = Build::default();
    let (x, u, d) = (build.input("x", &[1000, 512]), build.input("u", &[2000, 512]), build.input("d", &[512, 2000]));
    let (h, y) = (build.temp("h", &[1000, 2000]), build.tensor("y", TensorKind::Out, &[1000, 512]));
    build.call(&GEMM, &[x, u, h]).tile = Some(vec![64, 128]);
    build.call(&GEMM, &[h, d, y]).tile = Some(vec![128, 256]);
    let plan = planned(build);
    // 16 × 16 producers, two rows to a counter; 8 × 2 consumers.
    assert_eq!(relations(&plan), [(0, 1, Hazard::Raw, 8, 16, 16 * 32)]);
}

#[test]
fn updates_in_place_follow_tile_by_tile() {
    let mut build = Build::default();
    let (x, w) = (build.input("x", &[256, 64]), build.input("w", &[512, 64]));
    let h = build.temp("h", &[256, 512]);
    build.call(&GEMM, &[x, w, h]).tile = Some(vec![64, 128]);
    build.call(&SCALE64, &[h]);
    build.call(&SCALE64, &[h]);
    let plan = planned(build);
    let tiles = 4 * 8;
    // Each half of a 64 × 128 tile waits for the whole of it; then 64 × 64 to 64 × 64.
    assert_eq!(relations(&plan), [(0, 1, Hazard::Raw, 16, tiles, 32), (1, 2, Hazard::Raw, tiles, tiles, 32)]);
    assert_eq!(plan.waves, 3);
}

/// Query, key and value are slices of one projection: each reader waits for the tiles of its slice, and no signal is without a wait.
#[test]
fn slices_wait_for_their_own_tiles() {
    let mut build = Build::default();
    let (x, w) = (build.input("x", &[128, 64]), build.input("w", &[1536, 64]));
    let qkv = build.temp("qkv", &[128, 1536]);
    let (q, k) = (build.temp("q", &[128, 1024]), build.temp("k", &[128, 256]));
    build.call(&GEMM, &[x, w, qkv]).tile = Some(vec![64, 128]);
    let whole = build.whole(q);
    let slice = build.slice(qkv, 1, 0, 1024);
    build.call_on(&NORM, vec![slice, whole]).tile = Some(vec![1]);
    let whole = build.whole(k);
    let slice = build.slice(qkv, 1, 1024, 1280);
    build.call_on(&NORM, vec![slice, whole]).tile = Some(vec![1]);
    let plan = planned(build);
    // Rows of one read through tiles of 64: 2 counters each, for 8 and 2 tiles; the last 2 columns of tiles signal nobody.
    assert_eq!(relations(&plan), [(0, 1, Hazard::Raw, 2, 128, 128 * 8), (0, 2, Hazard::Raw, 2, 128, 128 * 2)]);
    let silent = plan.calls[0].tasks.clone().filter(|&task| plan.signals_of(task).is_empty());
    assert!(silent.clone().all(|task| plan.tasks[task as usize].coord[1] >= 10));
    assert_eq!(silent.count(), 4);
}

#[test]
fn consumers_with_equal_tiles_share_counters() {
    let mut build = Build::default();
    let h = build.temp("h", &[12, 12]);
    let (a, b, c) = (build.temp("a", &[12, 12]), build.temp("b", &[12, 12]), build.temp("c", &[12, 12]));
    build.call(&FILL, &[h]);
    build.call(&NORM, &[h, a]).tile = Some(vec![3]);
    build.call(&NORM, &[h, b]).tile = Some(vec![3]);
    build.call(&LINEAR, &[h, h, c]).tile = Some(vec![2, 3]);
    let plan = planned(build);
    assert_eq!(plan.relations[0].counters, plan.relations[1].counters);
    assert!(oracle::conflict(&plan).is_none());
    // `h` twice with the same region would be one relation; rows by `i` and by `j` are two.
    assert_eq!(plan.relations.len(), 4);
}

#[test]
fn one_argument_taken_twice_is_waited_for_once() {
    let mut build = Build::default();
    let (h, c) = (build.temp("h", &[6, 10]), build.temp("c", &[6, 10]));
    build.call(&FILL, &[h]);
    build.call(&ADD, &[h, h, c]);
    assert_eq!(planned(build).relations.len(), 1);
}

#[test]
fn a_write_over_a_read_waits_for_the_reader_alone() {
    let mut build = Build::default();
    let (h, y) = (build.temp("h", &[6, 8]), build.temp("y", &[6, 8]));
    build.call(&FILL, &[h]).tile = Some(vec![3, 4]);
    build.call(&NORM, &[h, y]).tile = Some(vec![3]);
    build.call(&FILL, &[h]).tile = Some(vec![3, 2]);
    build.call(&FILL, &[h]).tile = Some(vec![3, 4]);
    let plan = planned(build);
    let found: Vec<_> = plan.relations.iter().map(|r| (r.producer, r.consumer, r.hazard)).collect();
    assert_eq!(found, [(0, 1, Hazard::Raw), (1, 2, Hazard::War), (2, 3, Hazard::Waw)]);
}

#[test]
fn a_partial_read_does_not_hide_the_write_before_it() {
    let mut build = Build::default();
    let (h, y) = (build.temp("h", &[6, 8]), build.temp("y", &[6, 4]));
    build.call(&FILL, &[h]);
    let views = vec![build.slice(h, 1, 0, 4), build.whole(y)];
    build.call_on(&NORM, views);
    build.call(&FILL, &[h]);
    let plan = planned(build);
    let found: Vec<_> = plan.relations.iter().map(|r| (r.producer, r.consumer, r.hazard)).collect();
    assert_eq!(found, [(0, 1, Hazard::Raw), (0, 2, Hazard::Waw), (1, 2, Hazard::War)]);
    assert!(oracle::conflict(&plan).is_none());
}

#[test]
fn disjoint_halves_of_every_head_do_not_wait_for_each_other() {
    let mut build = Build::default();
    let (x, y) = (build.temp("x", &[6, 16]), build.temp("y", &[6, 4, 2]));
    // x as 2 heads of 8: write the lower half of each, read the upper half. The task reads transposed.
    let mut low = build.split(x, 2);
    low.axes[2].extent = 4;
    let mut high = low.clone();
    high.offset[1] = 4;
    let whole = build.whole(y);
    build.call_on(&CUBE, vec![whole.clone(), low]);
    build.call_on(&CUBE, vec![high, whole]);
    let plan = planned(build);
    let found: Vec<_> = plan.relations.iter().map(|r| (plan.graph.tensors[r.tensor as usize].name.as_str(), r.hazard)).collect();
    assert_eq!(found, [("y", Hazard::War)]);
    assert!(oracle::conflict(&plan).is_none());
}

#[test]
fn a_write_with_gaps_hides_nothing() {
    let mut build = Build::default();
    let (x, y, z) = (build.temp("x", &[6, 16]), build.temp("y", &[6, 4, 2]), build.temp("z", &[6, 16]));
    let mut low = build.split(x, 2);
    low.axes[2].extent = 4;
    let upper = build.slice(x, 1, 4, 8);
    let (y, z) = (build.whole(y), build.slice(z, 1, 0, 4));
    build.call_on(&FILL, vec![upper.clone()]);
    build.call_on(&CUBE, vec![y, low]); // around the upper half of the first head, but not over it
    build.call_on(&NORM, vec![upper, z]);
    let plan = planned(build);
    let found: Vec<_> = plan.relations.iter().map(|r| (r.producer, r.consumer, r.hazard)).collect();
    assert_eq!(found, [(0, 2, Hazard::Raw)]);
    assert!(oracle::conflict(&plan).is_none());
}

#[test]
fn grouped_heads_count_every_query_head() {
    let mut build = Build::default();
    let (q, k, o) = (build.temp("q", &[4, 8, 2]), build.temp("k", &[6, 4, 2]), build.temp("o", &[4, 8, 2]));
    build.call(&HEADS, &[q, k, o]).tile = Some(vec![1, 2]);
    let plan = planned(build);
    assert_eq!(plan.calls[0].grid, [8, 2]);
    let fourth = plan.tasks.iter().position(|task| task.coord == [7, 1, 0]).unwrap() as u32;
    assert_eq!(oracle::footprints(&plan, fourth)[1].elements[..4], [6, 7, 14, 15]); // key head 7 / 2
}

#[test]
fn empty_grids_have_no_tasks_and_no_relations() {
    let mut build = Build::default();
    let (h, y, z) = (build.temp("h", &[0, 8]), build.temp("y", &[0, 8]), build.temp("z", &[6, 8]));
    build.call(&FILL, &[h]);
    build.call(&NORM, &[h, y]);
    build.call(&FILL, &[z]);
    let plan = planned(build);
    assert!(plan.calls[0].tasks.is_empty() && plan.calls[1].tasks.is_empty());
    assert_eq!(plan.calls[1].grid, [0]);
    assert!(plan.relations.is_empty() && plan.waves == 1);
    assert_eq!(plan.lists.starts.len(), 133);
    let nothing = planned(Build::default());
    assert_eq!((nothing.tasks.len(), nothing.waves, nothing.edges), (0, 0, 0));
}

#[test]
fn a_gemm_with_k_0_keeps_its_tasks() {
    let mut build = Build::default();
    let (x, w, y) = (build.temp("x", &[4, 0]), build.temp("w", &[6, 0]), build.temp("y", &[4, 6]));
    build.call(&LINEAR, &[x, w, y]);
    assert!(!planned(build).tasks.is_empty());
}

#[test]
fn weights_and_inputs_cost_no_relation() {
    let mut build = Build::default();
    let w = build.input("w", &[8, 8]);
    let temps: Vec<u32> = (0..50).map(|n| build.temp(&format!("t{n}"), &[8, 8])).collect();
    for &temp in &temps {
        build.call(&NORM, &[w, temp]);
    }
    assert!(planned(build).relations.is_empty());
}

#[test]
fn lists_and_tickets_follow_the_global_order() {
    let graph = gemm(1024, 2048, 64);
    let fixed = plan(graph.clone(), &Options::new(7)).unwrap();
    for worker in 0..7 {
        let expected: Vec<u32> = (worker..fixed.tasks.len() as u32).step_by(7).collect();
        assert_eq!(fixed.lists.of(worker as usize), expected);
    }
    let dynamic = plan(graph, &Options { schedule: Schedule::Tickets, ..Options::new(7) }).unwrap();
    assert!(dynamic.lists.order.iter().copied().eq(0..dynamic.tasks.len() as u32));
    assert_eq!(dynamic.lists.starts, [0, dynamic.tasks.len() as u32]);
}

#[test]
fn priority_moves_a_call_before_others_that_it_does_not_need() {
    let mut build = Build::default();
    let (a, b, c, d) = (build.temp("a", &[6, 8]), build.temp("b", &[6, 8]), build.temp("c", &[6, 8]), build.temp("d", &[6, 8]));
    build.call(&FILL, &[a]); // 0
    build.call(&FILL, &[b]); // 1
    build.call(&NORM, &[a, c]); // 2
    build.call(&NORM, &[b, d]).priority = 5; // 3: after 1, before 0 is allowed but 0 comes first as soon as it may
    build.0.calls[2].priority = -1;
    let plan = planned(build);
    let mut calls: Vec<u32> = (0..4).collect();
    calls.sort_by_key(|&call| plan.calls[call as usize].tasks.start);
    assert_eq!(calls, [0, 1, 3, 2]);
    assert!(oracle::conflict(&plan).is_none());
}

fn mlp() -> Plan {
    let mut build = Build::default();
    build.0.name = "mlp".into();
    let (x, u, d) = (build.input("x", &[256, 512]), build.input("up[0]", &[1024, 512]), build.input("\"down\"", &[512, 1024]));
    let (h, y) = (build.temp("h", &[256, 1024]), build.tensor("y", TensorKind::Out, &[256, 512]));
    let call = build.call(&GEMM, &[x, u, h]);
    (call.fused, call.tile) = (vec!["gelu".into()], Some(vec![128, 256]));
    build.call(&GEMM, &[h, d, y]).tile = Some(vec![64, 128]);
    let views = vec![build.slice(y, 1, 0, 256)];
    build.call_on(&SCALE64, views).drain = true;
    planned(build)
}

#[test]
fn text_names_calls_tensors_and_relations() {
    let text = mlp().to_string();
    let expected = "\
mlp: 3 calls, 40 tasks in 3 waves on 132 workers (static lists), 2 relations, 80 edges through 10 counters
  device model: default (assumed): copy 18.0, L2 40.0 B/ns, tensor cores 3088 FLOP/ns per multiprocessor; \
step 60 ns and 48.0 B/ns, GEMM tile 1500, part 3400, hop 1580, launch 12500 ns
  #0   linear.gelu  tile 128×256   grid 2×4            8 tasks  wave 0  (x, up[0], h)
  #1   linear       tile 64×128    grid 4×4           16 tasks  wave 1  (h, \"down\", y)
  #2   scale        tile 64×64     grid 4×4           16 tasks  wave 2  drained  (y[0..256, 0..256])
  #0 → #1  read after write  `h`: 16 waits, 64 edges, counters 0..2
  #1 → #2  read after write  `y`: 16 waits, 16 edges, counters 2..10
";
    assert_eq!(text, expected);
}

#[test]
fn dot_has_a_box_per_call_and_an_arrow_per_relation() {
    let dot = mlp().dot();
    assert!(dot.starts_with("digraph \"mlp\" {\n") && dot.ends_with("}\n"));
    assert!(dot.contains("c0 [label=\"#0 linear.gelu\\n2×4 tiles of 128×256\\nx, up[0], h\"];"), "{dot}");
    assert!(dot.contains("\\\"down\\\""), "{dot}");
    assert!(dot.contains("c0 -> c1 [style=solid, label=\"h\\nread after write\\n64 edges\"];"), "{dot}");
    assert_eq!(dot.matches(" -> ").count(), 2);
}

#[test]
fn json_is_complete() {
    let json: serde_json::Value = serde_json::from_str(&mlp().json()).unwrap();
    assert_eq!(json["name"], "mlp");
    assert_eq!(json["tasks"], 40);
    assert_eq!(json["wave_widths"], serde_json::json!([8, 16, 16]));
    assert_eq!(json["calls"][0]["then"][0], "gelu");
    assert_eq!((&json["calls"][1]["drain"], &json["calls"][2]["drain"]), (&false.into(), &true.into()));
    assert_eq!(json["calls"][2]["operands"][0]["view"], "y[0..256, 0..256]");
    assert_eq!(json["calls"][2]["operands"][0]["access"], "update");
    assert_eq!(json["relations"][0]["producer_param"], "y");
    assert_eq!(json["relations"][0]["consumer_param"], "x");
    assert_eq!(json["tensors"][4]["shape"], serde_json::json!([256, 512]));
}

#[test]
fn a_counter_leads_back_to_the_relation() {
    let plan = mlp();
    let relation = plan.relation(5, 2).unwrap();
    assert_eq!((relation.producer, plan.graph.tensors[relation.tensor as usize].name.as_str()), (1, "y"));
    assert!(plan.relation(5, 1).is_none());
}
