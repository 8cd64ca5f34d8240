//! Chains of GEMVs and of GEMMs with few rows, against CUDA graphs of cuBLAS, and against a copy of as many bytes.

use std::path::PathBuf;

use benches::cublas::Cublas;
use benches::decode::{PAIRS, gemv};
use benches::matrix::{agree, random};
use benches::peer::{DeviceCopy, Driver};
use benches::rows::{Row, Run, Work};
use benches::timing::{Clock, System};
use clap::Parser;
use maco::{CudaGraph, Device, Tensor, bf16};

/// Measures chains of 16 GEMVs of one row with cold weights, in one launch, beside a CUDA graph of cuBLAS and a copy.
///
/// Times are per GEMV. `copy` is the time in which a device copy moves as many bytes as the weights of one GEMV have: half of them
/// read, half written. Systems take turns.
#[derive(Parser)]
struct Options {
    /// Write the rows here as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Launches of each system.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// GPU.
    #[arg(long, default_value_t = 0)]
    gpu: u32,
    /// Tasks wait for counters, also where their data could carry flags.
    #[arg(long)]
    counters: bool,
    /// Rows of x.
    #[arg(long, default_value_t = 1)]
    rows: u64,
    /// Only GEMVs whose weights have at most so many MiB.
    #[arg(long, default_value_t = 128)]
    most: u64,
    /// Write what every worker of MACO did into this folder, too: two traces per GEMV, by itself and behind other launches, for `maco-trace` and ui.perfetto.dev. Needs a build
    /// with MACO_PROFILE=1.
    #[arg(long)]
    traces: Option<PathBuf>,
}

/// Rows and columns of the weights.
const SHAPES: [(u64, u64); 5] = [(2048, 2048), (4096, 2048), (4096, 4096), (8192, 4096), (8192, 8192)];

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let device = Device::gpu(options.gpu)?;
    println!("{device}");
    // The library and the copies work in the context that is current.
    let _driver = Driver::new(options.gpu)?;
    let clock = Clock::new(&device, options.rounds)?;
    let shapes: Vec<_> = SHAPES.into_iter().filter(|(n, k)| (n * k * 2) >> 20 <= options.most).collect();
    let mut run = Run::new(shapes.len(), options.json.as_deref());
    for (n, k) in shapes {
        run.case(&format!("M{} N{n} K{k}", options.rows), || chain(&device, &clock, &options, n, k))?;
    }
    run.finish()
}

fn chain(device: &Device, clock: &Clock, options: &Options, n: u64, k: u64) -> anyhow::Result<[Row; 2]> {
    let m = options.rows;
    let calls = 2.0 * PAIRS as f64;
    let weights = |rows: u64, cols: u64, seed: u64| -> anyhow::Result<[Tensor<bf16>; PAIRS]> {
        // So small that a chain neither grows nor dies.
        let scale = (3.0 / cols as f32).sqrt();
        let made: Result<Vec<_>, _> = (0..PAIRS as u64).map(|n| random(device, rows, cols, seed + n, scale)).collect();
        Ok(made?.try_into().unwrap_or_else(|_| unreachable!("as many as asked for")))
    };
    let (up, down) = (weights(n, k, 1)?, weights(k, n, 100)?);
    let x = random(device, m, k, 1000, 1.0)?;
    let (mut ours, mut theirs) = (device.zeros::<bf16>([m, k])?, device.zeros::<bf16>([m, k])?);
    let plan = gemv::plan_with(device, gemv::Dims { M: m, N: n, K: k }, &benches::options().in_band_flags(!options.counters))?;
    plan.run(&x, &up, &down, &mut ours)?;
    let cublas = Cublas::new(device, &clock.stream)?;
    let (mut wide, mut narrow) = (device.zeros::<bf16>([m, n])?, device.zeros::<bf16>([m, k])?);
    let mut peer = || -> anyhow::Result<()> {
        for pair in 0..PAIRS {
            cublas.linear(if pair == 0 { &x } else { &narrow }, &up[pair], &mut wide)?;
            cublas.linear(&wide, &down[pair], if pair + 1 < PAIRS { &mut narrow } else { &mut theirs })?;
        }
        Ok(())
    };
    // The first calls load the library's kernels, which a capture does not allow.
    peer()?;
    clock.stream.synchronize()?;
    let graph = CudaGraph::capture(&clock.stream, |_| peer())?;
    let bytes = n * k * 2;
    // As much as all weights of the chain, so that nothing of it stays in the second-level cache.
    let mut copy = DeviceCopy::new(device, bytes * PAIRS as u64)?;
    let mut arguments = maco::__private::Arguments::new().tensor(&x);
    for w in up.iter().chain(&down) {
        arguments = arguments.tensor(w);
    }
    let bound = plan.bind(arguments.tensor_mut(&mut ours))?;
    let times = {
        let mut systems: [System<'_>; 3] = [
            Box::new(|| Ok(bound.launch_on(&clock.stream)?)),
            Box::new(|| Ok(graph.launch(&clock.stream)?)),
            Box::new(|| copy.launch(&clock.stream)),
        ];
        clock.measure(&mut systems)?
    };
    drop(bound);
    agree(&ours, &theirs, 3e-2)?;
    if let Some(folder) = &options.traces {
        plan.profile(true)?;
        let mut arguments = maco::__private::Arguments::new().tensor(&x);
        for w in up.iter().chain(&down) {
            arguments = arguments.tensor(w);
        }
        let bound = plan.bind(arguments.tensor_mut(&mut ours))?;
        benches::write_traces(&plan, &clock.stream, folder, &format!("M{m} N{n} K{k}"), || Ok(bound.launch_on(&clock.stream)?))?;
    }
    let [ours, graph, copy] = [times[0], times[1], times[2]].map(|time| time.map(|us| us / calls));
    let (case, work) = (format!("M{m} N{n} K{k}"), Work::gemm(m, n, k));
    Ok([
        Row::against("gemv", case.clone(), "per product", ours, "graph", graph).of(work),
        Row::against("gemv", case, "per product", ours, "copy", copy),
    ])
}
