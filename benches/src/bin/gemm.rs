//! GEMMs against cuBLASLt, sixteen back to back and one by one.

use std::path::PathBuf;

use anyhow::Context;
use benches::branches::Branches;
use benches::candidates::{GEMV_TILES, MAX_GEMV_ROWS, PARTS, TILES, WAVES};
use benches::cublaslt::{CublasLt, Epilogue, Gemm, Workspace};
use benches::forced_shapes::{self, Forced};
use benches::kernels::{self, CALLS};
use benches::matrix::{ROUNDED, agree, random, sets};
use benches::peer::Driver;
use benches::rows::{Row, Run, Work, summary};
use benches::shapes::{self, SHAPES, SMALL, Shape, name};
use benches::timing::{Clock, Measured, System};
use clap::Parser;
use maco::{Arguments, CallShape, CudaGraph, Device, Plan, Tensor, bf16};

/// Measures bf16 GEMMs y = x · wᵀ beside cuBLASLt.
///
/// `16 calls, each`: sixteen independent GEMMs in one megakernel, a sixteenth of the time, beside a CUDA graph of sixteen calls one
/// behind the other. With `--branches` `16 calls beside branches, each`: the same beside a graph with a branch for each call, which may
/// run side by side. `single calls`: sixteen CUDA graphs of a launch of a plan of one GEMM beside sixteen of one call; `plain launches`: ours without
/// graphs. All sides take the same random operands in turn, together five times the second-level cache, and the peer has the fastest of
/// up to 32 algorithms that cuBLASLt proposes, each timed here. Systems take turns after two seconds of warm-up; medians of the rounds.
/// Ours is `linear`, with the form, tiles and parts that the planner chooses or that are forced: `--case M256 --tile 128x128 --split 2`.
#[derive(Parser)]
struct Options {
    /// Only cases whose name holds this, such as `M256` or `K4096`.
    #[arg(long)]
    case: Option<String>,
    /// Instead of the published shapes: M, N and K of GEMMs, such as `256x8192x4096`.
    #[arg(long, value_delimiter = ',', value_parser = shapes::parse)]
    shape: Vec<Shape>,
    #[command(flatten)]
    forced: Forced,
    /// Instead: every tile of `linear` in several numbers of parts, for GEMMs of up to 1024 rows, or those of `--shape`.
    #[arg(long, conflicts_with_all = ["tile", "split"])]
    sweep: bool,
    /// Instead: beside graphs with a branch for each call. A process of their own: whatever runs in one that has launched such a graph is slower
    #[arg(long, conflicts_with = "sweep")]
    branches: bool,
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

const METRIC: &str = "16 calls, each";
/// The same, measured in turn with the branches.
const ASIDE: &str = "16 calls beside branches, each";
const PEER: &str = "cublaslt graph";
const BRANCHES: &str = "cublaslt branches";

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let device = Device::gpu(options.gpu)?;
    println!("{device}");
    // The library works in the context that is current.
    let _driver = Driver::new(options.gpu)?;
    let shapes = if options.shape.is_empty() { SHAPES.to_vec() } else { options.shape.clone() };
    let asked = |shape: &Shape| options.case.as_ref().is_none_or(|part| name(*shape).contains(part.as_str()));
    let most = if options.shape.is_empty() { SMALL } else { u64::MAX };
    let swept = |shape: &Shape| !options.sweep || shape.0 <= most;
    let shapes: Vec<Shape> = shapes.into_iter().filter(|shape| asked(shape) && swept(shape)).collect();
    let bench = Bench { clock: Clock::new(&device, options.rounds)?, library: CublasLt::new(&device)?, device };
    let mut run = Run::new(shapes.len(), options.json.as_deref());
    for shape in shapes {
        run.case(&name(shape), || match (options.sweep, options.branches) {
            (true, _) => bench.sweep(shape),
            (_, true) => bench.beside_branches(shape, &options.forced),
            _ => bench.case(shape, &options.forced),
        })?;
    }
    if !options.sweep {
        run.rows.extend([(METRIC, PEER), (ASIDE, BRANCHES)].map(|(metric, peer)| summary(&run.rows, metric, peer)).into_iter().flatten());
    }
    run.finish()
}

fn work((m, n, k): Shape) -> Work {
    Work::gemm(m, n, k)
}

struct Bench {
    clock: Clock,
    library: CublasLt,
    device: Device,
}

/// Operands that the calls take in turn, and a result for each call.
struct Operands {
    x: Vec<Tensor<bf16>>,
    w: Vec<Tensor<bf16>>,
    ours: Vec<Tensor<bf16>>,
    theirs: Vec<Tensor<bf16>>,
}

impl Operands {
    fn new(device: &Device, (m, n, k): Shape) -> anyhow::Result<Operands> {
        let sets = sets((m + n) * k * 2).min(CALLS);
        let some = |rows: u64, scale: f32| -> anyhow::Result<Vec<Tensor<bf16>>> {
            (0..sets).map(|set| random(device, rows, k, rows ^ k << 24 ^ (set as u64) << 48, scale)).collect()
        };
        let results = || (0..CALLS).map(|_| device.zeros::<bf16>([m, n])).collect::<Result<Vec<_>, _>>();
        Ok(Operands { x: some(m, 1.0)?, w: some(n, 0.02)?, ours: results()?, theirs: results()? })
    }

    /// What call number `call` takes.
    fn of(&self, call: usize) -> (&Tensor<bf16>, &Tensor<bf16>) {
        (&self.x[call % self.x.len()], &self.w[call % self.w.len()])
    }

    /// Of a plan of all calls.
    fn all(&mut self) -> Arguments<'_> {
        let turns = |tensors: &'_ [Tensor<bf16>]| (0..CALLS).map(|call| call % tensors.len()).collect::<Vec<_>>();
        let x = turns(&self.x).into_iter().fold(Arguments::new(), |arguments, set| arguments.tensor(&self.x[set]));
        let w = turns(&self.w).into_iter().fold(x, |arguments, set| arguments.tensor(&self.w[set]));
        w.tensors_mut(&mut self.ours)
    }

    /// The last results are alike. Ours is cleared: whoever runs next has to write it.
    fn agree(&mut self) -> anyhow::Result<()> {
        let (ours, theirs) = (&mut self.ours[CALLS - 1], &self.theirs[CALLS - 1]);
        agree(ours, theirs, ROUNDED)?;
        Ok(ours.upload_from(&vec![bf16::ZERO; ours.len()])?)
    }

    /// Of a plan of one call.
    fn one(&mut self, call: usize) -> Arguments<'_> {
        let set = call % self.x.len();
        Arguments::new().tensor(&self.x[set]).tensor(&self.w[set]).tensor_mut(&mut self.ours[call])
    }
}

impl Bench {
    /// The plan of one GEMM or of all.
    fn plan(&self, (m, n, k): Shape, calls: usize, shapes: Vec<CallShape>) -> anyhow::Result<Plan> {
        let options = benches::options().shapes(shapes);
        macro_rules! plan {
            ($kernel:ident) => {
                kernels::$kernel::plan_with(&self.device, kernels::$kernel::Dims { M: m, N: n, K: k }, &options).map(|plan| (*plan).clone())
            };
        }
        Ok(if calls == 1 { plan!(gemm)? } else { plan!(gemms)? })
    }

    /// The fastest algorithm for the calls.
    fn peer(&self, operands: &mut Operands) -> anyhow::Result<Gemm<'_>> {
        let mut theirs = std::mem::take(&mut operands.theirs);
        let (x, w) = operands.of(0);
        let mut peer = Gemm::new(&self.library, x, w, &theirs[0], Epilogue::None)?;
        let stream = &self.clock.stream;
        let timed = peer.choose(stream, |peer| {
            theirs.iter_mut().enumerate().try_for_each(|(call, y)| {
                let (x, w) = operands.of(call);
                peer.launch(stream, x, w, y)
            })
        })?;
        operands.theirs = theirs;
        eprintln!("cublaslt: {timed} algorithms timed");
        Ok(peer)
    }

    /// The peer's calls as CUDA graphs of `calls` calls each.
    fn graphs(&self, peer: &Gemm<'_>, operands: &mut Operands, calls: usize) -> anyhow::Result<Vec<CudaGraph>> {
        let (stream, mut theirs) = (&self.clock.stream, std::mem::take(&mut operands.theirs));
        let mut first = 0;
        let graphs = theirs.chunks_mut(calls).map(|results| {
            let graph = CudaGraph::capture(stream, |_| {
                results.iter_mut().enumerate().try_for_each(|(n, y)| {
                    let (x, w) = operands.of(first + n);
                    peer.launch(stream, x, w, y)
                })
            });
            first += calls;
            graph
        });
        let graphs = graphs.collect::<anyhow::Result<Vec<_>>>();
        operands.theirs = theirs;
        graphs
    }

    /// The peer's calls as one CUDA graph with a branch for each: none waits for another. Returned with what the graph uses.
    fn branched(&self, peer: &Gemm<'_>, operands: &mut Operands) -> anyhow::Result<(CudaGraph, Vec<Workspace>)> {
        let branches = Branches::new(&self.device, CALLS)?;
        let workspaces = (0..CALLS).map(|_| Workspace::new(&self.device)).collect::<Result<Vec<_>, _>>()?;
        let mut theirs = std::mem::take(&mut operands.theirs);
        let graph = CudaGraph::capture(&self.clock.stream, |stream| {
            branches.queue(stream, |call, stream| {
                let (x, w) = operands.of(call);
                peer.launch_in(&workspaces[call], stream, x, w, &mut theirs[call])
            })
        });
        operands.theirs = theirs;
        Ok((graph?, workspaces))
    }

    fn case(&self, shape: Shape, forced: &Forced) -> anyhow::Result<Vec<Row>> {
        let (clock, stream) = (&self.clock, &self.clock.stream);
        let plan = self.plan(shape, CALLS, forced.shapes(CALLS))?;
        let single = self.plan(shape, 1, forced.shapes(1))?;
        eprintln!("{}: {}; alone {}", name(shape), forced_shapes::describe(plan.graph()), forced_shapes::describe(single.graph()));
        let mut operands = Operands::new(&self.device, shape)?;
        let peer = self.peer(&mut operands)?;
        let graph = self.graphs(&peer, &mut operands, CALLS)?;
        let graphs = self.graphs(&peer, &mut operands, 1)?;
        let bound = plan.bind(operands.all())?;
        let singles = (0..CALLS).map(|call| single.bind(operands.one(call))).collect::<Result<Vec<_>, _>>()?;
        let captured: Vec<CudaGraph> =
            singles.iter().map(|bound| CudaGraph::capture(stream, |stream| bound.launch_on(stream))).collect::<Result<_, _>>()?;
        let mut systems: [System<'_>; 5] = [
            Box::new(|| Ok(bound.launch_on(stream)?)),
            Box::new(|| Ok(graph[0].launch(stream)?)),
            Box::new(|| Ok(captured.iter().try_for_each(|graph| graph.launch(stream))?)),
            Box::new(|| Ok(graphs.iter().try_for_each(|graph| graph.launch(stream))?)),
            Box::new(|| Ok(singles.iter().try_for_each(|bound| bound.launch_on(stream))?)),
        ];
        for pair in [[0, 1], [2, 3], [4, 3]] {
            pair.into_iter().try_for_each(|system| systems[system]())?;
            stream.synchronize()?;
            operands.agree()?;
        }
        let times = clock.measure(&mut systems)?;
        plan.check()?;
        single.check()?;
        let each = |time: Measured| time.map(|time| time / CALLS as f64);
        let [ours, graph, singles, graphs, plain] = [0, 1, 2, 3, 4].map(|n| each(times[n]));
        Ok(vec![
            Row::against("gemm", name(shape), METRIC, ours, PEER, graph).of(work(shape)),
            Row::against("gemm", name(shape), "single calls", singles, PEER, graphs).of(work(shape)),
            Row::against("gemm", name(shape), "plain launches", plain, PEER, graphs).of(work(shape)),
        ])
    }

    /// Sixteen calls in turn with a graph of as many branches. What comes behind branches is slower than anything else, by up to a seventh (M64 N10240 K8192,
    /// H200): hence the calls one behind the other are between them and ours; nobody asks for their time here.
    fn beside_branches(&self, shape: Shape, forced: &Forced) -> anyhow::Result<Vec<Row>> {
        let (clock, stream) = (&self.clock, &self.clock.stream);
        let plan = self.plan(shape, CALLS, forced.shapes(CALLS))?;
        let mut operands = Operands::new(&self.device, shape)?;
        let peer = self.peer(&mut operands)?;
        let graph = self.graphs(&peer, &mut operands, CALLS)?;
        let (branched, _workspaces) = self.branched(&peer, &mut operands)?;
        let bound = plan.bind(operands.all())?;
        let mut systems: [System<'_>; 3] = [
            Box::new(|| Ok(bound.launch_on(stream)?)),
            Box::new(|| Ok(branched.launch(stream)?)),
            Box::new(|| Ok(graph[0].launch(stream)?)),
        ];
        systems[..2].iter_mut().try_for_each(|system| system())?;
        stream.synchronize()?;
        operands.agree()?;
        let times = clock.measure(&mut systems)?;
        plan.check()?;
        let each = |time: Measured| time.map(|time| time / CALLS as f64);
        // Its work is that of the calls one behind the other, and a point of the roofline once.
        Ok(vec![Row::against("gemm", name(shape), ASIDE, each(times[0]), BRANCHES, each(times[1]))])
    }

    /// The GEMMs of a shape in all tiles and parts.
    fn sweep(&self, shape: Shape) -> anyhow::Result<Vec<Row>> {
        let stream = &self.clock.stream;
        let mut operands = Operands::new(&self.device, shape)?;
        let peer = self.peer(&mut operands)?;
        let graph = self.graphs(&peer, &mut operands, CALLS)?;
        graph[0].launch(stream)?;
        let preferred = self.plan(shape, CALLS, Vec::new())?;
        let preferred = forced_shapes::chosen(&preferred.graph().calls[0]);
        let mut swept = Vec::new();
        let gemv = GEMV_TILES.into_iter().filter(|_| shape.0 <= MAX_GEMV_ROWS).map(|tile| (tile, 1));
        let many = TILES.into_iter().flat_map(|tile| PARTS.into_iter().map(move |parts| (tile, parts)));
        for (tile, parts) in gemv.chain(many) {
            let plan = self.plan(shape, CALLS, forced_shapes::for_all_calls(CALLS, tile, parts))?;
            if !GEMV_TILES.contains(&tile) && plan.tasks() > WAVES as usize * CALLS * plan.workers() as usize {
                continue;
            }
            let bound = plan.bind(operands.all())?;
            bound.launch_on(stream)?;
            stream.synchronize()?;
            let found = plan.graph().calls[0].clone();
            agree(&operands.ours[0], &operands.theirs[0], ROUNDED).with_context(|| forced_shapes::chosen(&found))?;
            swept.push((found, bound));
        }
        let mut systems: Vec<System<'_>> = vec![Box::new(|| Ok(graph[0].launch(stream)?))];
        systems.extend(swept.iter().map(|(_, bound)| -> System<'_> { Box::new(|| Ok(bound.launch_on(stream)?)) }));
        let times: Vec<_> = self.clock.measure(&mut systems)?.into_iter().map(|time| time.map(|time| time / CALLS as f64)).collect();
        let rows = swept.iter().zip(&times[1..]).map(|((found, _), &time)| {
            let found = forced_shapes::chosen(found);
            let mark = if found == preferred { ", the planner's" } else { "" };
            Row::against("gemm", format!("{}, {found}{mark}", name(shape)), METRIC, time, PEER, times[0])
        });
        Ok(rows.collect())
    }
}
