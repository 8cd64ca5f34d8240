//! Two GEMMs with a GELU between, against CUDA graphs of cuBLASLt with the GELU in its epilogue.

use std::path::PathBuf;

use benches::cublaslt::{CublasLt, Epilogue, Gemm};
use benches::forced_shapes::{self, Forced};
use benches::kernels::mlp;
use benches::matrix::{agree, random, sets};
use benches::peer::Driver;
use benches::rows::{Row, Run, Work, summary};
use benches::timing::{Clock, System};
use clap::Parser;
use maco::{Arguments, CudaGraph, Device, Tensor, bf16};

/// Measures the MLP down · gelu(up · x) in one launch, beside CUDA graphs of cuBLASLt with the GELU in the first GEMM's epilogue.
///
/// Both sides replay CUDA graphs; `plain launches`, reported beside, are ours without one. The peer has, for each GEMM, the fastest of
/// up to 32 algorithms that cuBLASLt proposes, each timed here. Launches take random operands in turn, together five times the
/// second-level cache. Systems take turns after two seconds of warm-up; medians of the rounds. Tiles and parts are what the planner
/// chooses, or what is forced: `--case M256 --tile 128x128 --split 2,4`.
#[derive(Parser)]
struct Options {
    /// Only cases whose name holds this, such as `M256` or `H14336`.
    #[arg(long)]
    case: Option<String>,
    #[command(flatten)]
    forced: Forced,
    /// Write the rows here as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Rounds per case.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Write what a launch did here, by itself and behind others, two files for each case: `maco-trace` reads them. For a build with MACO_PROFILE=1.
    #[arg(long)]
    traces: Option<PathBuf>,
    /// Ask for all CTAs at once: `PlanOptions::cooperative(true)`, the default of plans.
    #[arg(long)]
    cooperative: bool,
    /// GPU.
    #[arg(long, default_value_t = 0)]
    gpu: u32,
}

/// M, H, K.
type Shape = (u64, u64, u64);

const SHAPES: [Shape; 11] = [
    // Llama-3-8B's sizes.
    (128, 14336, 4096),
    (256, 14336, 4096),
    (512, 14336, 4096),
    (1024, 14336, 4096),
    (2048, 14336, 4096),
    (4096, 14336, 4096),
    // Those that the first measurements of MACO used.
    (4096, 12288, 4096),
    (2048, 8192, 4096),
    (1024, 8192, 2048),
    (512, 8192, 2048),
    (256, 4096, 2048),
];

/// Relative error by which the systems may differ: orders of summation, and two ways to compute a hyperbolic tangent.
const ROUNDED: f64 = 1e-2;

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let device = Device::gpu(options.gpu)?;
    println!("{device}");
    // The library works in the context that is current.
    let _driver = Driver::new(options.gpu)?;
    let asked = |shape: &Shape| options.case.as_ref().is_none_or(|part| name(*shape).contains(part.as_str()));
    let shapes: Vec<Shape> = SHAPES.into_iter().filter(asked).collect();
    let bench = Bench { clock: Clock::new(&device, options.rounds)?, library: CublasLt::new(&device)?, device };
    let mut run = Run::new(shapes.len(), options.json.as_deref());
    for shape in shapes {
        run.case(&name(shape), || bench.case(shape, &options))?;
    }
    run.rows.extend(summary(&run.rows, METRIC, PEER));
    run.finish()
}

const METRIC: &str = "time";
const PEER: &str = "graph";

fn name((m, h, k): Shape) -> String {
    format!("M{m} H{h} K{k}")
}

struct Bench {
    clock: Clock,
    library: CublasLt,
    device: Device,
}

/// Operands and results of one launch.
struct Set {
    x: Tensor<bf16>,
    up: Tensor<bf16>,
    down: Tensor<bf16>,
    ours: Tensor<bf16>,
    theirs: Tensor<bf16>,
}

impl Set {
    fn new(device: &Device, (m, h, k): Shape, seed: u64) -> anyhow::Result<Set> {
        Ok(Set {
            x: random(device, m, k, 3 * seed + 1, 1.0)?,
            up: random(device, h, k, 3 * seed + 2, 0.02)?,
            down: random(device, k, h, 3 * seed + 3, 0.02)?,
            ours: device.zeros([m, k])?,
            theirs: device.zeros([m, k])?,
        })
    }
}

impl Bench {
    fn case(&self, (m, h, k): Shape, options: &Options) -> anyhow::Result<[Row; 2]> {
        let stream = &self.clock.stream;
        let planned = benches::options().shapes(options.forced.shapes(2)).cooperative(options.cooperative);
        let plan = mlp::plan_with(&self.device, mlp::Dims { M: m, K: k, H: h }, &planned)?;
        eprintln!("{}: {}", name((m, h, k)), forced_shapes::describe(plan.graph()));
        let mut sets = (0..sets(4 * h * k) as u64).map(|n| Set::new(&self.device, (m, h, k), n)).collect::<anyhow::Result<Vec<_>>>()?;
        let mut hidden = self.device.zeros::<bf16>([m, h])?;
        let mut up = Gemm::new(&self.library, &sets[0].x, &sets[0].up, &hidden, Epilogue::Gelu)?;
        let mut down = Gemm::new(&self.library, &hidden, &sets[0].down, &sets[0].theirs, Epilogue::None)?;
        let timed = [
            up.choose(stream, |up| sets.iter().try_for_each(|set| up.launch(stream, &set.x, &set.up, &mut hidden)))?,
            down.choose(stream, |down| sets.iter_mut().try_for_each(|set| down.launch(stream, &hidden, &set.down, &mut set.theirs)))?,
        ];
        eprintln!("cublaslt: {} and {} algorithms timed", timed[0], timed[1]);
        let (mut bound, mut graphs) = (Vec::new(), Vec::new());
        for set in &mut sets {
            bound.push(plan.bind(Arguments::new().tensor(&set.x).tensor(&set.up).tensor(&set.down).tensor_mut(&mut set.ours))?);
            graphs.push(CudaGraph::capture(stream, |_| {
                up.launch(stream, &set.x, &set.up, &mut hidden)?;
                down.launch(stream, &hidden, &set.down, &mut set.theirs)
            })?);
        }
        let captured: Vec<CudaGraph> =
            bound.iter().map(|bound| CudaGraph::capture(stream, |stream| bound.launch_on(stream))).collect::<Result<_, _>>()?;
        let (mut ours, mut bounds, mut replays) = (captured.iter().cycle(), bound.iter().cycle(), graphs.iter().cycle());
        let mut systems: [System<'_>; 3] = [
            Box::new(|| Ok(ours.next().map_or(Ok(()), |graph| graph.launch(stream))?)),
            Box::new(|| Ok(bounds.next().map_or(Ok(()), |bound| bound.launch_on(stream))?)),
            Box::new(|| Ok(replays.next().map_or(Ok(()), |graph| graph.launch(stream))?)),
        ];
        let times = self.clock.measure(&mut systems)?;
        plan.check()?;
        for set in &sets {
            agree(&set.ours, &set.theirs, ROUNDED)?;
        }
        if let Some(folder) = &options.traces {
            plan.profile(true)?;
            let mut bound = Vec::new();
            for set in &mut sets {
                bound.push(plan.bind(Arguments::new().tensor(&set.x).tensor(&set.up).tensor(&set.down).tensor_mut(&mut set.ours))?);
            }
            let mut bounds = bound.iter().cycle();
            benches::write_traces(&plan, stream, folder, &name((m, h, k)), || {
                Ok(bounds.next().map_or(Ok(()), |bound| bound.launch_on(stream))?)
            })?;
        }
        // What lies between the GEMMs need not be in memory.
        let work = Work { flops: 4 * m * h * k, bytes: 2 * (2 * m * k + 2 * h * k) };
        let row = |metric, ours| Row::against("mlp", name((m, h, k)), metric, ours, PEER, times[2]).of(work);
        Ok([row(METRIC, times[0]), row("plain launches", times[1])])
    }
}
