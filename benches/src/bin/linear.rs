//! `linear` and the MLP beside cuBLAS, interleaved in one process.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use benches::cublas::Cublas;
use benches::kernels;
use benches::matrix::{self, agree};
use benches::rows::{Row, publish};
use benches::timing::median;
use clap::Parser;
use maco::{CallShape, CudaGraph, Device, Event, PlanOptions, Stream, Tensor, bf16};
use maco_graph::plan::{Plan, PlannedCall};

/// Measures `linear` and the MLP beside cuBLAS and CUDA graphs of cuBLAS.
///
/// Systems take turns in one process; after two seconds of warm-up every figure is the median of the rounds. Tiles and parts are what the
/// planner chooses, or what is forced: `--case M256 --tile 128x128 --split 2,4`.
#[derive(Parser)]
struct Options {
    /// Only cases whose name holds this, such as `M256`.
    #[arg(long)]
    case: Option<String>,
    /// Tile of each product, or one for all: `64x128`, `auto` for the planner's.
    #[arg(long, value_delimiter = ',', value_parser = tile)]
    tile: Vec<Forced<[u32; 2]>>,
    /// Parts of each product's sums, or one number for all: `2`, `auto` for the planner's.
    #[arg(long, value_delimiter = ',', value_parser = parts)]
    split: Vec<Forced<u32>>,
    /// Instead: every tile in several numbers of parts, for each product of the MLPs with M ≤ 1024, then the MLPs of the fastest ones.
    #[arg(long, conflicts_with_all = ["tile", "split"])]
    sweep: bool,
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

/// M up to which the sweep goes: above, there are more tiles than multiprocessors.
const SMALL: u64 = 1024;
/// The library's tiles, and the numbers of parts that the sweep tries.
const TILES: [[u32; 2]; 4] = [[64, 128], [64, 256], [128, 128], [128, 256]];
const PARTS: [u32; 8] = [1, 2, 3, 4, 5, 6, 8, 12];
/// The sweep leaves out shapes of more tasks than this for each worker.
const WAVES: usize = 4;

/// A value that is forced, if any.
#[derive(Clone, Copy)]
struct Forced<T>(Option<T>);

fn forced<T>(text: &str, parse: impl Fn(&str) -> Option<T>, expected: &str) -> Result<Forced<T>, String> {
    match text {
        "auto" => Ok(Forced(None)),
        _ => parse(text).map(|value| Forced(Some(value))).ok_or_else(|| format!("expected {expected} or `auto`")),
    }
}

fn tile(text: &str) -> Result<Forced<[u32; 2]>, String> {
    forced(text, |text| text.split_once('x').and_then(|(i, j)| Some([i.parse().ok()?, j.parse().ok()?])), "a tile such as `64x128`")
}

fn parts(text: &str) -> Result<Forced<u32>, String> {
    forced(text, |text| text.parse().ok(), "a number of parts")
}

/// What the options force of `calls` calls. One value is for all calls.
fn shapes(options: &Options, calls: u32) -> Vec<CallShape> {
    fn of<T: Copy>(values: &[Forced<T>], call: u32) -> Option<T> {
        values.get(call as usize).or(values.last()).and_then(|value| value.0)
    }
    (0..calls).map(|call| shape(call, of(&options.tile, call), of(&options.split, call))).collect()
}

fn shape(call: u32, tile: Option<[u32; 2]>, split: Option<u32>) -> CallShape {
    CallShape { call, tile: tile.map(Vec::from), split }
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let device = Device::gpu(options.gpu)?;
    println!("{device}");
    let bench = Bench { stream: Stream::new(&device)?, device, rounds: options.rounds };
    let asked = |case: &str| options.case.as_ref().is_none_or(|part| case.contains(part.as_str()));
    let mut rows = Vec::new();
    if options.sweep {
        for (m, h, k) in MLPS.into_iter().filter(|(m, ..)| *m <= SMALL && asked(&format!("mlp M{m}"))) {
            rows.extend(bench.sweep(m, h, k)?);
        }
    } else {
        if asked("linear 8192") {
            rows.push(bench.linear(8192, 8192, 8192, shapes(&options, 1))?);
        }
        for (m, h, k) in MLPS.into_iter().filter(|(m, ..)| asked(&format!("mlp M{m}"))) {
            rows.extend(bench.mlp(m, h, k, shapes(&options, 2))?);
        }
    }
    publish(&rows, options.json.as_deref())
}

struct Bench {
    device: Device,
    stream: Stream,
    rounds: usize,
}

/// The tile and parts of a call: `128×256 in 2 parts`.
fn chosen(call: &PlannedCall) -> String {
    let tile = call.tile.iter().map(u32::to_string).collect::<Vec<_>>().join("×");
    format!("{tile} in {} part{}", call.parts, if call.parts == 1 { "" } else { "s" })
}

/// Says which tile and parts each call of a plan has.
fn tell(case: &str, plan: &Plan) {
    let calls: Vec<String> = plan.calls.iter().map(|call| format!("{}, {} tasks", chosen(call), call.tasks.len())).collect();
    eprintln!("{case}: {}", calls.join("; "));
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

    fn linear(&self, m: u64, n: u64, k: u64, shapes: Vec<CallShape>) -> anyhow::Result<Row> {
        let (x, w) = (self.matrix(m, k, 1.0)?, self.matrix(n, k, 0.02)?);
        let (mut ours, mut theirs) = (self.device.zeros::<bf16>([m, n])?, self.device.zeros::<bf16>([m, n])?);
        let options = PlanOptions::new().shapes(shapes);
        let plan = kernels::product::plan_with(&self.device, kernels::product::Dims { M: m, K: k, N: n }, &options)?;
        tell(&format!("linear {m} × {n} × {k}"), plan.graph());
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

    /// The products of an MLP by themselves, in all shapes; then the MLP in the planner's shapes and in the fastest ones.
    fn sweep(&self, m: u64, h: u64, k: u64) -> anyhow::Result<Vec<Row>> {
        let (mut rows, mut best) = (Vec::new(), Vec::new());
        for (call, (n, k)) in [(h, k), (k, h)].into_iter().enumerate() {
            let (swept, fastest) = self.sweep_product(m, n, k)?;
            rows.extend(swept);
            best.push(CallShape { call: call as u32, tile: Some(fastest.tile), split: Some(fastest.parts) });
        }
        let [planned, _] = self.mlp(m, h, k, Vec::new())?;
        let [fastest, _] = self.mlp(m, h, k, best)?;
        rows.extend([planned, Row { case: format!("{} of the fastest shapes", fastest.case), ..fastest }]);
        Ok(rows)
    }

    /// One product in all shapes beside cuBLAS, and the call of the fastest one.
    fn sweep_product(&self, m: u64, n: u64, k: u64) -> anyhow::Result<(Vec<Row>, PlannedCall)> {
        let (x, w) = (self.matrix(m, k, 1.0)?, self.matrix(n, k, 0.02)?);
        let mut theirs = self.device.zeros::<bf16>([m, n])?;
        let plan = |shapes| {
            let options = PlanOptions::new().shapes(shapes);
            kernels::product::plan_with(&self.device, kernels::product::Dims { M: m, K: k, N: n }, &options)
        };
        let preferred = plan(Vec::new())?.graph().calls[0].clone();
        let mut plans = Vec::new();
        for (tile, parts) in TILES.into_iter().flat_map(|tile| PARTS.into_iter().map(move |parts| (tile, parts))) {
            let plan = plan(vec![shape(0, Some(tile), Some(parts))])?;
            if plan.tasks() <= WAVES * plan.workers() as usize {
                plans.push((plan, self.device.zeros::<bf16>([m, n])?));
            }
        }
        let cublas = Cublas::new(&self.device, &self.stream)?;
        // The first call loads the library's kernels, which a capture does not allow.
        cublas.linear(&x, &w, &mut theirs)?;
        self.stream.synchronize()?;
        let peer = CudaGraph::capture(&self.stream, |_| cublas.linear(&x, &w, &mut theirs))?;
        let arguments = || maco::__private::Arguments::new().tensor(&x).tensor(&w);
        let bound = plans.iter_mut().map(|(plan, y)| plan.bind(arguments().tensor_mut(y))).collect::<Result<Vec<_>, _>>()?;
        let peers = (0..2).map(|_| -> System<'_> { Box::new(|| Ok(peer.launch(&self.stream)?)) });
        let ours = bound.iter().map(|bound| -> System<'_> { Box::new(|| Ok(bound.launch_on(&self.stream)?)) });
        let times = self.compare(&mut peers.chain(ours).collect::<Vec<_>>())?;
        drop(bound);
        let (mut rows, mut best) = (Vec::new(), (f64::INFINITY, &preferred));
        for ((plan, y), &time) in plans.iter().zip(&times[2..]) {
            agree(y, &theirs, ROUNDED)?;
            let call = &plan.graph().calls[0];
            if time < best.0 {
                best = (time, call);
            }
            let mark = if (&call.tile, call.parts) == (&preferred.tile, preferred.parts) { ", the planner's" } else { "" };
            rows.push(row(format!("linear {m} × {n} × {k}, {}{mark}", chosen(call)), &[time, times[0], times[1]], "cublas"));
        }
        Ok((rows, best.1.clone()))
    }

    fn mlp(&self, m: u64, h: u64, k: u64, shapes: Vec<CallShape>) -> anyhow::Result<[Row; 2]> {
        let (x, up, down) = (self.matrix(m, k, 1.0)?, self.matrix(h, k, 0.02)?, self.matrix(k, h, 0.02)?);
        let (mut hidden, mut theirs) = (self.device.zeros::<bf16>([m, h])?, self.device.zeros::<bf16>([m, k])?);
        let (mut ours, mut with_gelu) = (self.device.zeros::<bf16>([m, k])?, self.device.zeros::<bf16>([m, k])?);
        let options = PlanOptions::new().shapes(shapes);
        let chain = kernels::chain::plan_with(&self.device, kernels::chain::Dims { M: m, K: k, H: h }, &options)?;
        let mlp = kernels::mlp::plan_with(&self.device, kernels::mlp::Dims { M: m, K: k, H: h }, &options)?;
        tell(&format!("mlp M {m} H {h} K {k}"), chain.graph());
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
