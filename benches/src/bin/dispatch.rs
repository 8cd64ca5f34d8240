//! The cost of a task and of a dependency, as slopes, so that launching costs nothing here.

use std::path::PathBuf;

use benches::dispatch;
use benches::rows::{Row, publish};
use clap::Parser;
use maco::{Device, Plan, PlanOptions, Schedule, Tensor};

/// Measures the dispatch of tasks without work and of chains, as slopes between short and long lists.
#[derive(Parser)]
struct Options {
    /// Write the rows here as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Launches per case.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// GPU.
    #[arg(long, default_value_t = 0)]
    gpu: u32,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let device = Device::gpu(options.gpu)?;
    let workers = device.workers() as u64;
    let mut rows = Vec::new();
    for (name, schedule) in [("static", Schedule::Static), ("tickets", Schedule::Dynamic)] {
        let with = |workers: u32| PlanOptions::new().workers(workers).schedule(schedule);
        let mut times = Vec::new();
        for per_worker in [1000, 4000] {
            let n = workers * per_worker;
            let plan = dispatch::empties::plan_with(&device, dispatch::empties::Dims { N: n }, &with(workers as u32))?;
            times.push(median(&device, n, options.rounds, &plan)?);
        }
        rows.push(row(format!("empty task {name}"), (times[1] - times[0]) / 3000.0));
        for (case, workers) in [("worker chain", 1), ("hop", 2)] {
            let short = dispatch::empty_chain_500::plan_with(&device, dispatch::empty_chain_500::Dims { N: 1 }, &with(workers))?;
            let long = dispatch::empty_chain_1500::plan_with(&device, dispatch::empty_chain_1500::Dims { N: 1 }, &with(workers))?;
            let slope = median(&device, 1, options.rounds, &long)? - median(&device, 1, options.rounds, &short)?;
            rows.push(row(format!("{case} {name} empty"), slope / 1000.0));
            let short = dispatch::chain_500::plan_with(&device, dispatch::chain_500::Dims { N: 1 }, &with(workers))?;
            let long = dispatch::chain_1500::plan_with(&device, dispatch::chain_1500::Dims { N: 1 }, &with(workers))?;
            let slope = median(&device, 1, options.rounds, &long)? - median(&device, 1, options.rounds, &short)?;
            rows.push(row(format!("{case} {name} payload"), slope / 1000.0));
        }
    }
    publish(&rows, options.json.as_deref())
}

/// Median microseconds of a launch.
fn median(device: &Device, n: u64, rounds: usize, plan: &Plan) -> anyhow::Result<f64> {
    let mut x: Tensor<u32> = device.zeros([n])?;
    let mut times = Vec::new();
    for _ in 0..rounds.max(1) {
        times.push(plan.run(maco::Arguments::new().tensor_mut(&mut x))?.elapsed.as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

fn row(case: String, value: f64) -> Row {
    Row { bench: "dispatch", case, metric: "per task", unit: "us", value, peer: "", peer_value: None, ratio: None, spread: None }
}
