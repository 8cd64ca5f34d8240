//! How long a plan takes: tiles, dependencies, lists and verification, and then the whole of `plan` on the CPU device.

use std::path::PathBuf;
use std::time::Instant;

use benches::kernels::updates;
use benches::rows::{Row, publish};
use clap::Parser;
use maco::{Device, PlanOptions};
use maco_graph::ir;
use maco_graph::plan::{Options as Planning, plan};

/// Measures how long it takes to plan 10⁴ and 10⁵ tasks for 132 workers.
///
/// `planner` is the graph to a verified plan; `plan` is all of it on the CPU device, with checks and descriptors. Medians.
#[derive(Parser)]
struct Options {
    /// Write the rows here as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Rounds per case.
    #[arg(long, default_value_t = 21)]
    rounds: usize,
}

const WORKERS: u32 = 132;

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let device = Device::cpu_with(WORKERS);
    let mut rows = Vec::new();
    for (name, layers, m) in [("10^4", 2, 9984), ("10^5", 20, 9984)] {
        let graph = mlps(layers, m);
        let mut tasks = 0;
        let times = rounds(options.rounds, || {
            tasks = plan(graph.clone(), &Planning::new(WORKERS))?.tasks.len();
            Ok(())
        })?;
        rows.push(row(format!("{name}: {layers} MLPs, {tasks} tasks"), "planner", times));
    }
    for (name, m, n) in [("10^4", 1280, 1280), ("10^5", 2048, 8192)] {
        let mut tasks = 0;
        let times = rounds(options.rounds, || {
            let plan = updates::plan_with(&device, updates::Dims { M: m, N: n }, &PlanOptions::new().workers(WORKERS))?;
            tasks = plan.tasks();
            Ok(())
        })?;
        rows.push(row(format!("{name}: 100 updates in place, {tasks} tasks"), "plan", times));
    }
    publish(&rows, options.json.as_deref())
}

/// y = down · (up · x), again and again, at transformer size.
fn mlps(layers: u32, m: u64) -> ir::Graph {
    let (k, h) = (4096, 12288);
    let tensor = |name: String, kind, shape: [u64; 2]| ir::Tensor {
        name,
        kind,
        element: maco_graph::spec::Element::Bf16,
        shape: shape.into(),
        placement: maco_graph::spec::Placement::Replicated,
    };
    let mut graph = ir::Graph { name: "mlps".into(), ..ir::Graph::default() };
    graph.tensors.push(tensor("x".into(), ir::TensorKind::In, [m, k]));
    graph.tensors.push(tensor("up".into(), ir::TensorKind::In, [h, k]));
    graph.tensors.push(tensor("down".into(), ir::TensorKind::In, [k, h]));
    let mut x = 0;
    for layer in 0..layers {
        let (hidden, y) = (graph.tensors.len() as u32, graph.tensors.len() as u32 + 1);
        graph.tensors.push(tensor(format!("h{layer}"), ir::TensorKind::Temp, [m, h]));
        graph.tensors.push(tensor(format!("y{layer}"), ir::TensorKind::Temp, [m, k]));
        for operands in [[x, 1, hidden], [hidden, 2, y]] {
            graph.calls.push(ir::Call::new(
                &maco::tasks::linear::SPEC,
                operands.iter().map(|&n| ir::View::whole(n, &graph.tensors[n as usize])).collect(),
            ));
        }
        x = y;
    }
    graph
}

/// Median, smallest and largest milliseconds.
fn rounds(rounds: usize, mut work: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<[f64; 3]> {
    let mut times = Vec::new();
    for _ in 0..rounds.max(1) {
        let start = Instant::now();
        work()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok([times[times.len() / 2], times[0], times[times.len() - 1]])
}

fn row(case: String, metric: &'static str, [median, least, most]: [f64; 3]) -> Row {
    Row {
        bench: "plan",
        case,
        metric,
        unit: "ms",
        value: median,
        peer: "",
        peer_value: None,
        ratio: None,
        spread: Some(most / least),
        work: None,
    }
}
