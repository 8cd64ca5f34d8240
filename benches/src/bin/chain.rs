//! Sixteen layers of a decoder at batch 1, against a CUDA graph of cuBLAS and fused kernels, and against a copy of as many bytes.

use std::path::PathBuf;

use anyhow::ensure;
use benches::cublas::Cublas;
use benches::decode::{EPSILON, LAYERS, layers};
use benches::layers::{Layers, ROUNDED, Weights, Widths};
use benches::matrix::error;
use benches::peer::{DeviceCopy, Driver, Edge, Grid, Kernel};
use benches::rows::{Row, Work, publish};
use benches::tasks::plain::THREADS;
use benches::tasks::row::{ELEMENTS, Gated, Norm};
use benches::timing::{Clock, System};
use clap::Parser;
use maco::{CudaGraph, Device, Stream, Tensor, bf16};

/// Measures 16 layers of Llama-3.2-1B's shape for one token, without attention, in one launch.
///
/// A layer: queries, keys and values (3072 of 2048); output projection of the queries, plus the layer's input; rmsnorm; gate and up (8192
/// each); silu · up; down, plus what the norm read. 1.95 GB of weights. `graph`: a CUDA graph of four GEMVs by cuBLAS and two plain kernels a
/// layer; sums with what came before are part of the GEMVs. `copy`: the time in which a device copy moves as many bytes as the weights
/// have, half of them read, half written. `temps apart`: the same layers with memory of its own for each temp. All results are checked
/// against sums in f64. Systems take turns after two seconds of warm-up; medians of the rounds.
#[derive(Parser)]
struct Options {
    /// Write the rows here as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Rounds.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// GPU.
    #[arg(long, default_value_t = 0)]
    gpu: u32,
    /// Tasks wait for counters, also where their data could carry flags.
    #[arg(long)]
    counters: bool,
    /// Write what a launch did here, by itself and behind others: `maco-trace` reads both files. For a build with MACO_PROFILE=1.
    #[arg(long)]
    traces: Option<PathBuf>,
    /// Norms are tasks of their own, also where GEMVs could make them.
    #[arg(long)]
    norms: bool,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let device = Device::gpu(options.gpu)?;
    println!("{device}");
    let _driver = Driver::new(options.gpu)?;
    let clock = Clock::new(&device, options.rounds)?;
    let stream = &clock.stream;
    let widths = Widths::LLAMA;
    eprintln!("{:.2} GB of weights", widths.bytes() as f64 / 1e9);
    let weights = Weights::random(widths, 1);
    let given = weights.upload(&device)?;
    let asked = benches::options().in_band_flags(!options.counters).prologues(!options.norms);
    let plan = layers::plan_with(&device, widths.dims(), &asked)?;
    let mut ours = device.zeros::<bf16>([1, widths.hidden])?;
    let bound = plan.bind(given.arguments().tensor_mut(&mut ours))?;
    let apart = layers::plan_with(&device, widths.dims(), &asked.share_temps(false))?;
    let mut theirs = device.zeros::<bf16>([1, widths.hidden])?;
    let bound_apart = apart.bind(given.arguments().tensor_mut(&mut theirs))?;
    let mut peer = Peer::new(&device, stream, &given, widths)?;
    // The first calls load the library's kernels, which a capture does not allow.
    peer.queue(stream)?;
    stream.synchronize()?;
    let graph = CudaGraph::capture(stream, |stream| peer.queue(stream))?;
    let mut copy = DeviceCopy::new(&device, widths.bytes() / 2)?;
    let mut systems: [System<'_>; 4] = [
        Box::new(|| Ok(bound.launch_on(stream)?)),
        Box::new(|| Ok(graph.launch(stream)?)),
        Box::new(|| copy.launch(stream)),
        Box::new(|| Ok(bound_apart.launch_on(stream)?)),
    ];
    let times = clock.measure(&mut systems)?;
    drop(systems);
    plan.check()?;
    apart.check()?;
    let expected = weights.expected();
    for (system, result) in [("MACO", &ours), ("MACO, temps apart", &theirs), ("the graph", &peer.state)] {
        let error = error(&result.download()?, &expected);
        eprintln!("{system}: relative error {error:.1e}");
        ensure!(error < ROUNDED, "{system} computed something else than the host: relative error {error:.1e}");
    }
    if let Some(folder) = &options.traces {
        plan.profile(true)?;
        let bound = plan.bind(given.arguments().tensor_mut(&mut ours))?;
        benches::write_traces(&plan, stream, folder, "layers", || Ok(bound.launch_on(stream)?))?;
    }
    let row = |name, theirs| Row::against("chain", format!("{LAYERS} layers"), "time", times[0], name, theirs);
    // One row: a product and a sum for each weight of two bytes.
    let work = Work { flops: widths.bytes(), bytes: widths.bytes() };
    publish(&[row("graph", times[1]).of(work), row("copy", times[2]), row("temps apart", times[3])], options.json.as_deref())
}

/// The layers by cuBLAS and plain kernels.
struct Peer<'a> {
    cublas: Cublas,
    rmsnorm: Kernel,
    silu_mul: Kernel,
    given: &'a Layers,
    /// What goes from layer to layer, in place.
    state: Tensor<bf16>,
    projected: Tensor<bf16>,
    normal: Tensor<bf16>,
    gate_up: Tensor<bf16>,
    wide: Tensor<bf16>,
}

impl<'a> Peer<'a> {
    fn new(device: &Device, stream: &Stream, given: &'a Layers, widths: Widths) -> anyhow::Result<Peer<'a>> {
        let row = |columns: u64| device.zeros::<bf16>([1, columns]);
        Ok(Peer {
            cublas: Cublas::new(device, stream)?,
            rmsnorm: Kernel::load("peer_rmsnorm")?,
            silu_mul: Kernel::load("peer_silu_mul")?,
            given,
            state: row(widths.hidden)?,
            projected: row(widths.projected)?,
            normal: row(widths.hidden)?,
            gate_up: row(2 * widths.intermediate)?,
            wide: row(widths.intermediate)?,
        })
    }

    /// Queues all layers.
    fn queue(&mut self, stream: &Stream) -> anyhow::Result<()> {
        let given = self.given;
        DeviceCopy::queue(stream, &given.x, &mut self.state)?;
        for n in 0..LAYERS {
            self.cublas.linear(&self.state, &given.projection[n], &mut self.projected)?;
            self.cublas.linear_add(&self.projected, &given.output[n], &mut self.state)?;
            let norm = Norm {
                x: self.state.as_ptr().cast(),
                weight: given.norm[n].as_ptr().cast(),
                y: self.normal.as_mut_ptr().cast(),
                count: self.normal.len() as u32,
                epsilon: EPSILON,
            };
            // SAFETY: the kernel takes this struct, and the tensors live as long as the peer.
            unsafe { self.rmsnorm.launch(stream, grid(norm.count), Edge::Ended, norm)? };
            self.cublas.linear(&self.normal, &given.gate_up[n], &mut self.gate_up)?;
            let gated = Gated { gate_up: self.gate_up.as_ptr().cast(), y: self.wide.as_mut_ptr().cast(), count: self.wide.len() as u32 };
            // SAFETY: as above.
            unsafe { self.silu_mul.launch(stream, grid(gated.count), Edge::Ended, gated)? };
            self.cublas.linear_add(&self.wide, &given.down[n], &mut self.state)?;
        }
        Ok(())
    }
}

/// A thread for every eight elements.
fn grid(elements: u32) -> Grid {
    Grid::new(elements.div_ceil(ELEMENTS), THREADS)
}
