//! y = x · wᵀ on several ranks, each of which has a part of K, checked against one rank with all of it.
mod kernels;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::ExitCode;
use std::thread::available_parallelism;

use anyhow::ensure;
use clap::Parser;
use maco::{Communicator, Device, PlanOptions, bf16};

/// A row-parallel linear layer as one megakernel on several ranks, checked against one rank.
///
/// Ranks are threads of this process: `tp_linear --ranks 4`, or processes: `maco launch -n 4 -- tp_linear`.
/// Each has a GPU if there are as many, else a part of the CPU.
#[derive(Parser)]
#[command(after_help = "Example: tp_linear --ranks 4 --cpu -m 64 -k 512")]
struct Options {
    /// How many ranks, as threads. A rank that was launched does not look at it.
    #[arg(long, default_value_t = 2)]
    ranks: u32,
    /// Run on the CPU even if there are GPUs.
    #[arg(long)]
    cpu: bool,
    /// Rows of x (tokens). Default: 4096 on GPUs, 64 on the CPU.
    #[arg(short)]
    m: Option<u64>,
    /// Rows of w. Default: 4096 on GPUs, 192 on the CPU.
    #[arg(short)]
    n: Option<u64>,
    /// Columns of x and w, which are divided among the ranks. Default: 12288 on GPUs, 768 on the CPU.
    #[arg(short)]
    k: Option<u64>,
    /// How many runs are timed.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
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
    let default = if device.is_gpu() { (4096, 4096, 12288) } else { (64, 192, 768) };
    let (m, n, k) = (options.m.unwrap_or(default.0), options.n.unwrap_or(default.1), options.k.unwrap_or(default.2));
    let count = u64::from(ranks.ranks());
    ensure!(k % count == 0, "K {k} cannot be divided among {count} ranks");
    let (shard, from) = (k / count, k / count * u64::from(ranks.rank()));

    let mut random = Random(1);
    let (x, w) = (random.matrix(m * k, 1.0), random.matrix(n * k, (k as f32).powf(-0.5)));
    // Messages of the summands, in whole tiles: from every rank and twice, and as packets, half of which are flags, if they are small.
    ranks.set_message_memory((MIB + 8 * m.next_multiple_of(64) * n.next_multiple_of(256) * count) as usize)?;
    let dims = kernels::row_parallel::Dims { M: m, N: n, K: shard };
    let plan = kernels::row_parallel::plan_with(&device, dims, &PlanOptions::new().communicator(ranks.clone()))?;
    let (dx, dw) = (device.upload(&columns(&x, k, from, shard), [m, shard])?, device.upload(&columns(&w, k, from, shard), [n, shard])?);
    let mut dy = device.zeros::<bf16>([m, n])?;
    plan.run(&dx, &dw, &mut dy)?; // the first run is not timed
    let mut times = Vec::new();
    for _ in 0..options.runs {
        ranks.barrier()?;
        times.push(plan.run(&dx, &dw, &mut dy)?.elapsed);
    }
    times.sort_unstable();
    let y = dy.download()?;

    let one = PlanOptions::new().communicator(Communicator::single());
    let one = kernels::row_parallel::plan_with(&device, kernels::row_parallel::Dims { M: m, N: n, K: k }, &one)?;
    let mut whole = device.zeros::<bf16>([m, n])?;
    one.run(&device.upload(&x, [m, k])?, &device.upload(&w, [n, k])?, &mut whole)?;

    let (most, error) = compare(&y, &whole.download()?);
    // Rounding to bf16 changes a number by 2⁻⁸ of it at most. It is done to the summands of R ranks, of which each has about 1/√R of the sum's norm, √R
    // together; to their sum; and to the sum of one rank.
    let tolerance = ((count as f64).sqrt() + 2.0) / 256.0;
    let (same, pass) = agree(ranks, &y, error <= tolerance)?;
    if ranks.rank() == 0 {
        println!("tp_linear M {m} N {n} K {k}, {count} × {}", if device.is_gpu() { device.model() } else { device.to_string() });
        println!("  {} tasks, {} edges, {} waves on each rank", plan.tasks(), plan.edges(), plan.waves());
        println!("  all ranks have {}", if same { "the same bits" } else { "DIFFERENT bits" });
        println!("  against one rank: largest difference {most:.1e}, relative error {error:.1e} (at most {tolerance:.1e})");
        println!("  {:.3} ms, the median of {} runs", times[times.len() / 2].as_secs_f64() * 1e3, times.len());
        println!("{}", if pass { "PASS" } else { "FAIL" });
    }
    Ok(pass)
}

/// A GPU for each rank of this host if there are as many and the program has code for them, else a part of the CPU.
fn device(ranks: &Communicator, cpu: bool) -> Result<Device, maco::Error> {
    if !cpu && Device::best()?.is_gpu() && Device::gpu(ranks.local_ranks() - 1).is_ok() {
        return Device::gpu(ranks.local_rank());
    }
    let threads = available_parallelism().map_or(1, |threads| threads.get() as u32);
    Ok(Device::cpu_with(threads / ranks.local_ranks()))
}

/// Columns `from..from + count` of a matrix with `columns` columns.
fn columns(matrix: &[bf16], columns: u64, from: u64, count: u64) -> Vec<bf16> {
    matrix.chunks_exact(columns as usize).flat_map(|row| &row[from as usize..][..count as usize]).copied().collect()
}

/// The largest difference of two elements, and the difference in the Frobenius norm, relative to `expected`.
fn compare(found: &[bf16], expected: &[bf16]) -> (f64, f64) {
    let (mut most, mut difference, mut norm) = (0f64, 0f64, 0f64);
    for (found, expected) in found.iter().zip(expected).map(|(a, b)| (a.to_f64(), b.to_f64())) {
        most = most.max((found - expected).abs());
        difference += (found - expected).powi(2);
        norm += expected * expected;
    }
    // NaN compares false and fails.
    (most, if norm > 0.0 { (difference / norm).sqrt() } else { f64::NAN })
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

/// xorshift64*: the same numbers everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn matrix(&mut self, len: u64, scale: f32) -> Vec<bf16> {
        (0..len).map(|_| bf16::from_f32(self.next() * scale)).collect()
    }
}
