//! An all-to-all of one's own on several ranks, over a memory channel and over a port channel, checked against one rank with everything.
mod kernels;

use std::process::ExitCode;
use std::thread::available_parallelism;
use std::time::Duration;

use clap::Parser;
use maco::{Communicator, Device, PlanOptions, Tensor, bf16};

/// Ranks exchange planes inside of one megakernel by tasks of this program, checked against one rank.
///
/// Ranks are threads of this process: `all_to_all --ranks 4`, or processes: `maco launch -n 4 -- all_to_all`.
/// Each has a GPU if there are as many, else a part of the CPU.
#[derive(Parser)]
#[command(after_help = "Example: all_to_all --ranks 4 --cpu -m 100 -n 300")]
struct Options {
    /// How many ranks, as threads. A rank that was launched does not look at it.
    #[arg(long, default_value_t = 2)]
    ranks: u32,
    /// Run on the CPU even if there are GPUs.
    #[arg(long)]
    cpu: bool,
    /// Rows that each rank has for each rank. Default: 4096 on GPUs, 64 on the CPU.
    #[arg(short)]
    m: Option<u64>,
    /// Columns. Default: 4096 on GPUs, 512 on the CPU.
    #[arg(short)]
    n: Option<u64>,
    /// How many runs are checked and timed.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..))]
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

/// What one rank does.
fn rank(ranks: &Communicator, options: &Options) -> anyhow::Result<bool> {
    let device = device(ranks, options.cpu)?;
    let default = if device.is_gpu() { (4096, 4096) } else { (64, 512) };
    let (m, n, count) = (options.m.unwrap_or(default.0), options.n.unwrap_or(default.1), u64::from(ranks.ranks()));
    // Two slots for each tile, in whole tiles; a proxy copies from two more.
    ranks.set_message_memory((MIB + 2 * 6 * m.next_multiple_of(64) * n.next_multiple_of(256) * count) as usize)?;
    let plan_options = PlanOptions::new().communicator(ranks.clone());
    let mut pass = true;
    let mut lines = Vec::new();

    let dims = kernels::by_memory::Dims { R: count, M: m, N: n };
    let plan = kernels::by_memory::plan_with(&device, dims, &plan_options)?;
    let (right, time) = exchanged(ranks, &device, [m, n], options.runs, |x, y| Ok(plan.run(x, y)?.elapsed))?;
    pass &= right;
    lines.push(said("over a memory channel", right, time));

    let dims = kernels::by_proxy::Dims { R: count, M: m, N: n };
    let plan = kernels::by_proxy::plan_with(&device, dims, &plan_options)?;
    let (right, time) = exchanged(ranks, &device, [m, n], options.runs, |x, y| Ok(plan.run(x, y)?.elapsed))?;
    pass &= right;
    lines.push(said("over a port channel", right, time));
    let pass = ranks.all_gather_bytes(&[u8::from(pass)])?.concat().iter().all(|&pass| pass == 1);
    if ranks.rank() == 0 {
        println!("all_to_all M {m} N {n}, {count} × {}", if device.is_gpu() { device.model() } else { device.to_string() });
        lines.iter().for_each(|line| println!("{line}"));
        println!("{}", if pass { "PASS" } else { "FAIL" });
    }
    Ok(pass)
}

fn said(how: &str, right: bool, time: Duration) -> String {
    let what = if right { "the same bits as one rank" } else { "OTHER bits than one rank" };
    format!("  {how}: {what}, {:.3} ms, the median", time.as_secs_f64() * 1e3)
}

/// Runs an exchange several times, each with other numbers: whether the result is right, and the median of the times.
fn exchanged(
    ranks: &Communicator,
    device: &Device,
    [m, n]: [u64; 2],
    runs: u32,
    mut run: impl FnMut(&Tensor<bf16>, &mut Tensor<bf16>) -> anyhow::Result<Duration>,
) -> anyhow::Result<(bool, Duration)> {
    let (count, rank, plane) = (u64::from(ranks.ranks()), ranks.rank() as usize, (m * n) as usize);
    // One rank with the planes of all below one another.
    let alone = PlanOptions::new().communicator(Communicator::single());
    let whole = kernels::by_memory::plan_with(device, kernels::by_memory::Dims { R: 1, M: count * count * m, N: n }, &alone)?;
    let shape = [count, m, n];
    let mut y = device.zeros::<bf16>(shape)?;
    let mut made = device.zeros::<bf16>([1, count * count * m, n])?;
    let (mut right, mut times) = (true, Vec::new());
    for number in 0..runs {
        let all = Random(1 + u64::from(number)).planes(count * count * m * n);
        let own = &all[rank * count as usize * plane..][..count as usize * plane];
        let x = device.upload(own, shape)?;
        ranks.barrier()?;
        times.push(run(&x, &mut y)?);
        whole.run(&device.upload(&all, [1, count * count * m, n])?, &mut made)?;
        // Plane r is what rank r has for this one.
        let (found, made) = (y.download()?, made.download()?);
        for (r, found) in found.chunks_exact(plane.max(1)).enumerate() {
            let expected = &made[(r * count as usize + rank) * plane..][..plane];
            right &= found.iter().map(|value| value.to_bits()).eq(expected.iter().map(|value| value.to_bits()));
        }
    }
    times.sort_unstable();
    Ok((right, times[times.len() / 2]))
}

/// A GPU for each rank of this host if there are as many and the program has code for them, else a part of the CPU.
fn device(ranks: &Communicator, cpu: bool) -> Result<Device, maco::Error> {
    if !cpu && Device::best()?.is_gpu() && Device::gpu(ranks.local_ranks() - 1).is_ok() {
        return Device::gpu(ranks.local_rank());
    }
    let threads = available_parallelism().map_or(1, |threads| threads.get() as u32);
    Ok(Device::cpu_with((threads / ranks.local_ranks()).max(1)))
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

    fn planes(&mut self, elements: u64) -> Vec<bf16> {
        (0..elements).map(|_| bf16::from_f32(self.next())).collect()
    }
}
