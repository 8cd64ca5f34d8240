//! A tensor-parallel layer of a transformer on several ranks, checked against one rank with all weights and against `f64`.
mod kernels;
mod layer;
mod reference;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::ExitCode;
use std::thread::available_parallelism;
use std::time::Duration;

use clap::Parser;
use layer::{Layer, Sizes, angles, causal};
use maco::{Communicator, Device, PlanOptions, Tensor, bf16};

/// A transformer's layer, spread over several ranks, as one megakernel.
///
/// RMSNorm, projections, rotary embedding, causal attention, and a gated feed-forward layer, with their residuals: y = x₁ + down · (silu(gate · h₂) · (up · h₂)),
/// where h₂ = rmsnorm(x₁), x₁ = x + out · attention(rmsnorm(x)).
/// Each rank has a part of the heads and a part of the feed-forward layer's columns; two all-reduces inside the kernel add up what they make.
///
/// Ranks are threads of this process: `transformer_layer --ranks 4`, or processes: `maco launch -n 4 -- transformer_layer`, `torchrun`, `mpirun`, `srun`.
/// Each has a GPU if there are as many, else a part of the CPU. Sizes that are not given are those of a model with 7 · 10⁹ weights on GPUs, and small on the CPU.
#[derive(Parser)]
#[command(after_help = "Examples:
  transformer_layer --check                                        two ranks, checked against one and against f64
  transformer_layer --ranks 4 --cpu --tokens 64 --plan             which calls there are, and how the sums go to other ranks
  maco launch -n 4 -- transformer_layer --check --time 50          4 GPUs: 16 sequences of 512 tokens, 4096 wide")]
struct Options {
    /// How many ranks, as threads. A rank that was launched does not look at it.
    #[arg(long, default_value_t = 2)]
    ranks: u32,
    /// Run on the CPU even if there are GPUs.
    #[arg(long)]
    cpu: bool,
    /// Sequences. Default: 16 on GPUs, 3 on the CPU.
    #[arg(long)]
    batch: Option<u64>,
    /// Tokens of a sequence. Default: 512 on GPUs, 24 on the CPU.
    #[arg(long)]
    tokens: Option<u64>,
    /// Heads, which are divided among the ranks. Default: 32 on GPUs, 4 on the CPU.
    #[arg(long)]
    heads: Option<u64>,
    /// Elements of a head, an even number. Default: 128 on GPUs, 16 on the CPU.
    #[arg(long)]
    head_dim: Option<u64>,
    /// Columns of x (model width). Default: 4096 on GPUs, 96 on the CPU.
    #[arg(long)]
    hidden: Option<u64>,
    /// Columns of the feed-forward layer, which are divided among the ranks. Default: 11008 on GPUs, 160 on the CPU.
    #[arg(long)]
    ffn: Option<u64>,
    /// Compare the result with that of one rank that has all weights, and the first tokens of each sequence with a reference in f64.
    #[arg(long)]
    check: bool,
    /// Time so many launches, behind one that is not timed.
    #[arg(long, value_name = "RUNS", value_parser = clap::value_parser!(u32).range(1..))]
    time: Option<u32>,
    /// Print all calls of the plan and what they wait for.
    #[arg(long)]
    plan: bool,
}

impl Options {
    fn sizes(&self, gpu: bool) -> Sizes {
        let default = |given: Option<u64>, of_gpu, of_cpu| given.unwrap_or(if gpu { of_gpu } else { of_cpu });
        Sizes {
            batch: default(self.batch, 16, 3),
            tokens: default(self.tokens, 512, 24),
            heads: default(self.heads, 32, 4),
            head_dim: default(self.head_dim, 128, 16),
            hidden: default(self.hidden, 4096, 96),
            ffn: default(self.ffn, 11008, 160),
        }
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    // Launchers start processes; without one the ranks are threads of this one.
    let results = if Communicator::is_launched() {
        vec![rank(&Communicator::from_env()?, &options)]
    } else {
        Communicator::threads(options.ranks, |ranks| rank(&ranks, &options))?
    };
    let pass = results.into_iter().collect::<anyhow::Result<Vec<bool>>>()?.into_iter().all(|pass| pass);
    Ok(if pass { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

const MIB: u64 = 1 << 20;

/// What one rank does. All have the same numbers and take their part of them.
fn rank(ranks: &Communicator, options: &Options) -> anyhow::Result<bool> {
    let device = device(ranks, options.cpu)?;
    let (sizes, count) = (options.sizes(device.is_gpu()), u64::from(ranks.ranks()));
    sizes.check(count)?;
    let layer = Layer::random(sizes);
    // Messages of the two sums, in whole tiles: from every rank and twice, and as packets, half of which are flags, if they are small.
    let elements = sizes.rows().next_multiple_of(64) * sizes.hidden.next_multiple_of(256);
    ranks.set_message_memory((MIB + 2 * 8 * elements * count) as usize)?;
    let prepared = Prepared::new(&device, &layer, ranks)?;
    let (y, times) = prepared.run(ranks, options.time)?;

    let checks = if options.check {
        let one = Communicator::single();
        let (whole, _) = Prepared::new(&device, &layer, &one)?.run(&one, None)?;
        Some(check(&layer, &y, &whole, ranks))
    } else {
        None
    };
    let (same, pass) = agree(ranks, &y, checks.as_ref().is_none_or(|checks| checks.iter().all(Check::passes)))?;
    if ranks.rank() == 0 {
        let Sizes { batch, tokens, heads, head_dim, hidden, ffn } = sizes;
        let name = if device.is_gpu() { device.model() } else { device.to_string() };
        println!("transformer_layer {batch} × {tokens} tokens, {heads} heads of {head_dim}, hidden {hidden}, ffn {ffn}, {count} × {name}");
        let (plan, all) = (&prepared.plan, prepared.plan.graph().to_string());
        println!("  {} tasks, {} edges, {} waves on each rank", plan.tasks(), plan.edges(), plan.waves());
        all.lines().filter(|line| options.plan || line.contains("all_reduce") && !line.contains('→')).for_each(|line| println!("{line}"));
        println!("  all ranks have {}", if same { "the same bits" } else { "DIFFERENT bits" });
        checks.iter().flatten().for_each(|check| println!("  {check}"));
        if let Some(median) = times.get(times.len() / 2) {
            println!("  {:.3} ms, the median of {} launches", median.as_secs_f64() * 1e3, times.len());
        }
        println!("{}", if pass { "PASS" } else { "FAIL" });
    }
    Ok(pass)
}

/// A plan, and the tensors that it runs with.
struct Prepared {
    plan: kernels::layer::Plan,
    device: Device,
    sizes: Sizes,
    x: Tensor<bf16>,
    positions: Tensor<u32>,
    turns: [Tensor<f32>; 2],
    mask: Tensor<bf16>,
    norms: [Tensor<bf16>; 2],
    qkv: [Tensor<bf16>; 3],
    out: Tensor<bf16>,
    gate: Tensor<bf16>,
    up: Tensor<bf16>,
    down: Tensor<bf16>,
}

impl Prepared {
    /// With this rank's part of the weights.
    fn new(device: &Device, layer: &Layer, ranks: &Communicator) -> anyhow::Result<Prepared> {
        let count = u64::from(ranks.ranks());
        let (sizes, shard) = (layer.sizes, layer.shard(ranks.rank().into(), count));
        let Sizes { batch, tokens, heads, head_dim, hidden, ffn } = sizes;
        let (heads, ffn) = (heads / count, ffn / count);
        let plan = kernels::layer::plan_with(device, sizes.dims(count), &PlanOptions::new().communicator(ranks.clone()))?;
        let up = |matrix: &[bf16], rows, columns| device.upload(matrix, [rows, columns]);
        let positions: Vec<u32> = (0..batch).flat_map(|_| 0..tokens as u32).collect();
        let turn = |of: fn(f64) -> f64| {
            let table: Vec<f32> = angles(sizes).into_iter().map(|angle| of(angle) as f32).collect();
            device.upload(&table, [tokens, head_dim / 2])
        };
        let qkv = |of: usize| device.upload(&shard.qkv[of], [heads, head_dim, hidden]);
        Ok(Prepared {
            plan,
            device: device.clone(),
            sizes,
            x: up(&layer.x, sizes.rows(), hidden)?,
            positions: device.upload(&positions, [batch, tokens])?,
            turns: [turn(f64::cos)?, turn(f64::sin)?],
            mask: up(&causal(tokens), tokens, tokens)?,
            norms: [device.upload(&layer.norms[0], [hidden])?, device.upload(&layer.norms[1], [hidden])?],
            qkv: [qkv(0)?, qkv(1)?, qkv(2)?],
            out: up(&shard.out, hidden, heads * head_dim)?,
            gate: up(&shard.gate, ffn, hidden)?,
            up: up(&shard.up, ffn, hidden)?,
            down: up(&shard.down, hidden, ffn)?,
        })
    }

    /// The result, and how long `timed` launches took, sorted.
    fn run(&self, ranks: &Communicator, timed: Option<u32>) -> anyhow::Result<(Vec<bf16>, Vec<Duration>)> {
        let Prepared { plan, sizes, x, positions, turns: [cos, sin], mask, norms, qkv, out, gate, up, down, .. } = self;
        let mut y = self.device.zeros::<bf16>([sizes.rows(), sizes.hidden])?;
        let by = (sizes.head_dim as f32).powf(-0.5);
        let mut launch = || plan.run(x, positions, cos, sin, mask, norms, qkv, out, gate, up, down, by, &mut y);
        launch()?;
        let mut times = Vec::new();
        for _ in 0..timed.unwrap_or(0) {
            ranks.barrier()?;
            times.push(launch()?.elapsed);
        }
        times.sort_unstable();
        Ok((y.download()?, times))
    }
}

/// A comparison: what with, the largest difference of two elements, and that in the Frobenius norm, relative to what is expected.
struct Check {
    with: String,
    most: f64,
    error: f64,
    tolerance: f64,
}

impl Check {
    fn new(with: String, tolerance: f64, found: impl Iterator<Item = f64>, expected: impl Iterator<Item = f64>) -> Check {
        let (mut most, mut difference, mut norm) = (0f64, 0f64, 0f64);
        for (found, expected) in found.zip(expected) {
            most = most.max((found - expected).abs());
            difference += (found - expected).powi(2);
            norm += expected * expected;
        }
        // NaN compares false and fails.
        Check { with, most, error: if norm > 0.0 { (difference / norm).sqrt() } else { f64::NAN }, tolerance }
    }

    fn passes(&self) -> bool {
        self.error <= self.tolerance
    }
}

impl std::fmt::Display for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Check { with, most, error, tolerance } = self;
        write!(f, "against {with}: largest difference {most:.1e}, relative error {error:.1e} (at most {tolerance:.1e})")
    }
}

/// Against one rank, and on rank 0, against `f64`.
fn check(layer: &Layer, y: &[bf16], whole: &[bf16], ranks: &Communicator) -> Vec<Check> {
    // Rounding to bf16 changes a number by 2⁻⁹ of it at most, and here by twice that, for norms and gates make errors larger. Errors of different roundings are
    // independent: their squares add up. From x to y there are 12: of two norms, projection, rotation, scores, softmax, attention, its sum and that with the
    // residual, the gate, and the last two sums. Summands of R ranks are rounded each, but have 1/√R of the sum's norm: as one rounding, twice.
    let roundings = 12.0 + 2.0f64;
    let numbers = |y: &[bf16]| y.iter().map(|value| value.to_f64()).collect::<Vec<_>>();
    let y = numbers(y);
    // Both sides are rounded.
    let both = (2.0 * roundings).sqrt() / 256.0;
    let mut checks = vec![Check::new("one rank".to_owned(), both, y.iter().copied(), numbers(whole).into_iter())];
    if ranks.rank() == 0 {
        let Sizes { batch, tokens, hidden, .. } = layer.sizes;
        let count = reference::tokens(layer);
        let of_first = y.chunks_exact((tokens * hidden) as usize).flat_map(|rows| &rows[..(count * hidden) as usize]).copied();
        let with = format!("f64, {count} tokens of each of {batch} sequences");
        checks.push(Check::new(with, (roundings).sqrt() / 256.0, of_first, reference::layer(layer, count).into_iter()));
    }
    checks
}

/// A GPU for each rank of this host if there are as many and the program has code for them, else a part of the CPU.
fn device(ranks: &Communicator, cpu: bool) -> Result<Device, maco::Error> {
    if !cpu && Device::best()?.is_gpu() && Device::gpu(ranks.local_ranks() - 1).is_ok() {
        return Device::gpu(ranks.local_rank());
    }
    let threads = available_parallelism().map_or(1, |threads| threads.get() as u32);
    Ok(Device::cpu_with(threads / ranks.local_ranks()))
}

/// Whether all ranks have the same bits and all say `pass`.
fn agree(ranks: &Communicator, y: &[bf16], pass: bool) -> Result<(bool, bool), maco::Error> {
    let mut hasher = DefaultHasher::new();
    y.iter().for_each(|value| value.to_bits().hash(&mut hasher));
    let mut said = hasher.finish().to_le_bytes().to_vec();
    let same = ranks.all_gather_bytes(&said)?.iter().all(|other| *other == said);
    said.push(u8::from(pass && same));
    Ok((same, ranks.all_gather_bytes(&said)?.iter().all(|other| other.last() == Some(&1))))
}
