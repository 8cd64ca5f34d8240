//! `linear` and the MLP beside cuBLAS, interleaved in one process.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use benches::cublas::Cublas;
use benches::kernels;
use benches::matrix::{self, agree};
use benches::rows::{Row, publish};
use benches::timing::median;
use clap::Parser;
use maco::{CudaGraph, Device, Event, Stream, Tensor, bf16};

/// Measures `linear` and the MLP beside cuBLAS and CUDA graphs of cuBLAS.
///
/// Systems take turns in one process; after two seconds of warm-up every figure is the median of the rounds.
#[derive(Parser)]
struct Options {
    /// Write the rows here as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Rounds per case.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// GPU.
    #[arg(long, default_value_t = 0)]
    gpu: u32,
}

/// Relative error by which two orders of summation may differ.
const ROUNDED: f64 = 5e-3;

/// Sizes of the MLPs: M, H, K.
const MLPS: [(u64, u64, u64); 5] = [(4096, 12288, 4096), (2048, 8192, 4096), (1024, 8192, 2048), (512, 8192, 2048), (256, 4096, 2048)];

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let device = Device::gpu(options.gpu)?;
    println!("{device}");
    let bench = Bench { stream: Stream::new(&device)?, device, rounds: options.rounds };
    let mut rows = vec![bench.linear(8192, 8192, 8192)?];
    for (m, h, k) in MLPS {
        rows.extend(bench.mlp(m, h, k)?);
    }
    publish(&rows, options.json.as_deref())
}

struct Bench {
    device: Device,
    stream: Stream,
    rounds: usize,
}

type System<'a> = Box<dyn FnMut() -> anyhow::Result<()> + 'a>;

impl Bench {
    /// Median milliseconds of each system, taking turns.
    fn compare(&self, systems: &mut [System<'_>]) -> anyhow::Result<Vec<f64>> {
        const CALLS: u32 = 4;
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(2) {
            for system in systems.iter_mut() {
                system()?;
            }
            self.stream.synchronize()?;
        }
        let (start, end) = (Event::new(&self.device)?, Event::new(&self.device)?);
        let mut times = vec![Vec::new(); systems.len()];
        for _ in 0..self.rounds {
            for (system, times) in systems.iter_mut().zip(&mut times) {
                start.record(&self.stream)?;
                for _ in 0..CALLS {
                    system()?;
                }
                end.record(&self.stream)?;
                end.synchronize()?;
                times.push(end.since(&start)?.as_secs_f64() * 1e3 / CALLS as f64);
            }
        }
        Ok(times.into_iter().map(median).collect())
    }

    fn matrix(&self, rows: u64, cols: u64, scale: f32) -> anyhow::Result<Tensor<bf16>> {
        matrix::random(&self.device, rows, cols, rows ^ cols << 32, scale)
    }

    fn linear(&self, m: u64, n: u64, k: u64) -> anyhow::Result<Row> {
        eprintln!("linear {m} × {n} × {k}");
        let (x, w) = (self.matrix(m, k, 1.0)?, self.matrix(n, k, 0.02)?);
        let (mut ours, mut theirs) = (self.device.zeros::<bf16>([m, n])?, self.device.zeros::<bf16>([m, n])?);
        let plan = kernels::product::plan(&self.device, kernels::product::Dims { M: m, K: k, N: n })?;
        let cublas = Cublas::new(&self.device, &self.stream)?;
        // The first call loads the library's kernels, which a capture does not allow.
        cublas.linear(&x, &w, &mut theirs)?;
        self.stream.synchronize()?;
        let peer = CudaGraph::capture(&self.stream, |_| cublas.linear(&x, &w, &mut theirs))?;
        let bound = plan.bind(maco::__private::Arguments::new().tensor(&x).tensor(&w).tensor_mut(&mut ours))?;
        let times = self.compare(&mut [
            Box::new(|| Ok(bound.launch_on(&self.stream)?)),
            Box::new(|| Ok(peer.launch(&self.stream)?)),
            Box::new(|| Ok(peer.launch(&self.stream)?)),
        ])?;
        drop(bound);
        agree(&ours, &theirs, ROUNDED)?;
        Ok(row(format!("linear {m}"), &times, "cublas"))
    }

    fn mlp(&self, m: u64, h: u64, k: u64) -> anyhow::Result<[Row; 2]> {
        eprintln!("mlp M {m} H {h} K {k}");
        let (x, up, down) = (self.matrix(m, k, 1.0)?, self.matrix(h, k, 0.02)?, self.matrix(k, h, 0.02)?);
        let (mut hidden, mut theirs) = (self.device.zeros::<bf16>([m, h])?, self.device.zeros::<bf16>([m, k])?);
        let (mut ours, mut with_gelu) = (self.device.zeros::<bf16>([m, k])?, self.device.zeros::<bf16>([m, k])?);
        let chain = kernels::chain::plan(&self.device, kernels::chain::Dims { M: m, K: k, H: h })?;
        let mlp = kernels::mlp::plan(&self.device, kernels::mlp::Dims { M: m, K: k, H: h })?;
        let cublas = Cublas::new(&self.device, &self.stream)?;
        cublas.linear(&x, &up, &mut hidden)?;
        cublas.linear(&hidden, &down, &mut theirs)?;
        self.stream.synchronize()?;
        let peer = CudaGraph::capture(&self.stream, |_| {
            cublas.linear(&x, &up, &mut hidden)?;
            cublas.linear(&hidden, &down, &mut theirs)
        })?;
        let arguments = || maco::__private::Arguments::new().tensor(&x).tensor(&up).tensor(&down);
        let chain = chain.bind(arguments().tensor_mut(&mut ours))?;
        let mlp = mlp.bind(arguments().tensor_mut(&mut with_gelu))?;
        let times = self.compare(&mut [
            Box::new(|| Ok(chain.launch_on(&self.stream)?)),
            Box::new(|| Ok(peer.launch(&self.stream)?)),
            Box::new(|| Ok(peer.launch(&self.stream)?)),
            Box::new(|| Ok(mlp.launch_on(&self.stream)?)),
        ])?;
        drop((chain, mlp));
        agree(&ours, &theirs, ROUNDED)?;
        let gelu = [times[3], times[1], times[2]];
        Ok([row(format!("mlp M{m}"), &times, "graph"), row(format!("mlp M{m} with gelu, peer without"), &gelu, "graph")])
    }
}

fn row(case: String, times: &[f64], peer: &'static str) -> Row {
    Row {
        bench: "linear",
        case,
        metric: "time",
        unit: "ms",
        value: times[0],
        peer,
        peer_value: Some(times[1]),
        ratio: Some(times[1] / times[0]),
        spread: Some(times[2] / times[1]),
    }
}
