//! What it costs that ranks exchange tiles inside of a megakernel, and tensors outside of one, beside NCCL.

use std::path::PathBuf;

use anyhow::ensure;
use benches::exchanges::{STEPS, alone, alone_narrow, normed, rows_alone, summed, summed_narrow};
use benches::gates;
use benches::nccl::Nccl;
use benches::outside::Outside;
use benches::rank_clock::RankClock;
use benches::rows::{Row, publish};
use benches::way;
use clap::{Parser, ValueEnum};
use maco::{Arguments, Communicator, CudaGraph, Device, Plan, PlanOptions, Stream, bf16};

/// Measures collectives of ranks: threads of this process, each with a GPU.
///
/// `inside`: a chain of 100 times a tile, its all-reduce, the next tile, in one launch, less the chain without all-reduces, for one step. `NCCL`: the period of
/// 100 all-reduces of NCCL in a CUDA graph. `outside`: the period of collectives outside of a megakernel in a CUDA graph, 200 or as many as have 256 MiB together, and
/// of as many of NCCL. `gates`: the period of chunks that NCCL exchanges beside a megakernel, less that of NCCL alone. Times are the greatest of all ranks in each round, medians of the rounds. Results are checked, outside those of both systems bit by bit.
/// NCCL runs without multicast: NCCL_NVLS_ENABLE=0.
#[derive(Parser)]
struct Options {
    /// Ranks; by default as many as there are GPUs
    #[arg(long)]
    ranks: Option<u32>,
    /// Write the rows here as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Rounds.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// KiB of the tensor that is summed inside, each a case
    #[arg(long, value_delimiter = ',', default_values_t = [8, 64, 256])]
    kib: Vec<u64>,
    /// KiB of the tensors that are summed outside, each a case
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 32, 128, 512, 2 << 10, 8 << 10, 32 << 10])]
    outside: Vec<u64>,
    /// MiB of the largest tensors outside: an all-reduce, an all-gather and a reduce-scatter; 0 for none
    #[arg(long, default_value_t = 1 << 10)]
    largest: u64,
    /// Multiprocessors that NCCL has beside a megakernel, each a case
    #[arg(long, value_delimiter = ',', default_values_t = [4, 8, 16])]
    comm_sms: Vec<u32>,
    /// What to measure. Outside it has never ended on two H200s, for a reason that is not known: so it is not measured unless it is asked for
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::Inside, Part::Gates])]
    only: Vec<Part>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Inside of megakernels
    Inside,
    /// Outside of them
    Outside,
    /// Gates of NCCL beside them
    Gates,
}

const ROWS: u64 = 8;

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let gpus = (0..).take_while(|&index| Device::gpu(index).is_ok()).count() as u32;
    let ranks = options.ranks.unwrap_or(gpus);
    ensure!(ranks >= 2 && ranks <= gpus, "{ranks} ranks, of which each needs a GPU, and there are {gpus}; two are the least");
    let results = Communicator::threads(ranks, |communicator| {
        // The others may wait for this rank for long.
        measure(&communicator, &options).inspect_err(|error| eprintln!("rank {}: {error:#}", communicator.rank()))
    })?;
    let mut rows = results.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    // All ranks have the same.
    publish(&rows.swap_remove(0), options.json.as_deref())
}

/// One rank.
fn measure(communicator: &Communicator, options: &Options) -> anyhow::Result<Vec<Row>> {
    let device = Device::gpu(communicator.local_rank())?;
    let stream = Stream::new(&device)?;
    let clock = RankClock::new(communicator, &device, &stream, options.rounds)?;
    let nccl = Nccl::new(communicator)?;
    if communicator.rank() == 0 {
        eprintln!("{}", nccl.version());
    }
    let mut rows = Vec::new();
    if options.only.contains(&Part::Inside) {
        rows.extend(inside(communicator, options, &device, &stream, &clock, &nccl)?);
    }
    if options.only.contains(&Part::Outside) {
        let outside = Outside { communicator, device: &device, stream: &stream, clock: &clock, nccl: &nccl };
        rows.extend(outside.sizes(&options.outside)?);
        if options.largest > 0 {
            rows.extend(outside.largest(options.largest << 20)?);
        }
    }
    if options.only.contains(&Part::Gates) {
        for &multiprocessors in &options.comm_sms {
            rows.extend(gates::measure(communicator, &device, &stream, &clock, multiprocessors)?);
        }
    }
    Ok(rows)
}

/// Chains in megakernels.
fn inside(
    communicator: &Communicator,
    options: &Options,
    device: &Device,
    stream: &Stream,
    clock: &RankClock<'_>,
    nccl: &Nccl,
) -> anyhow::Result<Vec<Row>> {
    // Room for the messages of all steps: from every rank and twice, and of small tiles packets, half of which are flags.
    let most = options.kib.iter().max().copied().unwrap_or(0) << 10;
    communicator.set_message_memory(((most + (64 << 10)) * 5 * u64::from(communicator.ranks()) * STEPS as u64) as usize)?;
    let mut rows = Vec::new();
    for &kib in &options.kib {
        let columns = (kib << 10) / 2 / ROWS;
        let case = format!("{kib} KiB, {} ranks", communicator.ranks());
        let own = bf16::from_f32(communicator.rank() as f32 + 1.0);
        let x = device.upload(&vec![own; (ROWS * columns) as usize], [ROWS, columns])?;
        let [mut y, mut apart] = [device.zeros::<bf16>([ROWS, columns])?, device.zeros::<bf16>([ROWS, columns])?];
        macro_rules! measure {
            ($summed:ident, $alone:ident, $columns:literal) => {{
                let case = format!("{case}, tiles of 8 x {}", $columns);
                let asked = PlanOptions::new().communicator(communicator.clone());
                let dims = $summed::Dims { M: ROWS, N: columns };
                // The mean stays what it is after the first step.
                let by = 1.0 / communicator.ranks() as f32;
                let chain = $summed::plan_with(device, dims, &asked)?;
                say_way(communicator, &case, &chain);
                let bound = chain.bind(Arguments::new().tensor(&x).scalar(by).tensor_mut(&mut y))?;
                let without = $alone::plan_with(device, $alone::Dims { M: ROWS, N: columns }, &asked)?;
                let bound_without = without.bind(Arguments::new().tensor(&x).scalar(1.0f32).tensor_mut(&mut apart))?;
                let mut theirs = device.zeros::<bf16>([ROWS, columns])?;
                // The first call sets up what a capture does not allow.
                nccl.all_reduce(stream, &x, &mut theirs)?;
                stream.synchronize()?;
                let graph = CudaGraph::capture(stream, |stream| (0..STEPS).try_for_each(|_| nccl.all_reduce(stream, &x, &mut theirs)))?;
                let times = clock.measure(&mut [
                    &mut || Ok(bound.launch_on(stream)?),
                    &mut || Ok(bound_without.launch_on(stream)?),
                    &mut || Ok(graph.launch(stream)?),
                ])?;
                chain.check()?;
                without.check()?;
                let mean = (communicator.ranks() + 1) as f32 / 2.0;
                ensure!(
                    y.download()?.iter().all(|value| (value.to_f32() / mean - 1.0).abs() < 0.02),
                    "the chain computed something else than a mean"
                );
                let sum = mean * communicator.ranks() as f32;
                ensure!(theirs.download()?.iter().all(|value| value.to_f32() == sum), "NCCL computed something else than the sum");
                let inside = times[1].slope(times[0], STEPS as f64);
                rows.push(Row::against(
                    "comm",
                    format!("all-reduce {case}"),
                    "inside",
                    inside,
                    "NCCL",
                    times[2].map(|time| time / STEPS as f64),
                ));
                rows.push(Row::without_peer("comm", format!("tile {case}"), "step", times[1].map(|time| time / STEPS as f64)));
            }};
        }
        measure!(summed, alone, 256);
        measure!(summed_narrow, alone_narrow, 64);
    }
    rows.extend(norms(communicator, device, stream, clock)?);
    Ok(rows)
}

/// Once, on standard error: cases keep their names whatever was chosen.
fn say_way(communicator: &Communicator, case: &str, plan: &Plan) {
    if communicator.rank() == 0 {
        eprintln!("{case}: {}", way(plan));
    }
}

/// All-reduce, residual and RMSNorm of 6 rows of 6144, as a layer of a decoder has them.
fn norms(communicator: &Communicator, device: &Device, stream: &Stream, clock: &RankClock<'_>) -> anyhow::Result<[Row; 1]> {
    let [m, n] = [6, 6144];
    let asked = PlanOptions::new().communicator(communicator.clone());
    let ones = device.upload(&vec![bf16::ONE; (m * n) as usize], [m, n])?;
    let weight = device.upload(&vec![bf16::ONE; n as usize], [n])?;
    let (mut sums, mut y, mut apart) = (device.zeros::<bf16>([m, n])?, device.zeros::<bf16>([m, n])?, device.zeros::<bf16>([m, n])?);
    let plan = normed::plan_with(device, normed::Dims { M: m, N: n }, &asked)?;
    let arguments = Arguments::new().tensor(&ones).tensor(&ones).tensor(&weight).tensor_mut(&mut sums).tensor_mut(&mut y);
    let bound = plan.bind(arguments.scalar(1.0f32))?;
    say_way(communicator, "all-reduce, residual and RMSNorm", &plan);
    let without = rows_alone::plan_with(device, rows_alone::Dims { M: m, N: n }, &asked)?;
    let bound_without = without.bind(Arguments::new().tensor(&ones).scalar(1.0f32).tensor_mut(&mut apart))?;
    let times = clock.measure(&mut [&mut || Ok(bound.launch_on(stream)?), &mut || Ok(bound_without.launch_on(stream)?)])?;
    plan.check()?;
    without.check()?;
    // Each step adds one of each rank to the residual, and a row of equal elements is normed to ones.
    let sum = 1.0 + (STEPS as u32 * communicator.ranks()) as f32;
    ensure!(sums.download()?.iter().all(|value| (value.to_f32() / sum - 1.0).abs() < 0.02), "the chain computed other sums");
    ensure!(y.download()?.iter().all(|value| (value.to_f32() - 1.0).abs() < 0.01), "the chain computed something else than ones");
    let case = format!("all-reduce, residual and RMSNorm {m} x {n}, {} ranks", communicator.ranks());
    Ok([Row::without_peer("comm", case, "inside", times[1].slope(times[0], STEPS as f64))])
}
