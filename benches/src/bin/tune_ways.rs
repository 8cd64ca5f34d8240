//! Measures which way of a collective is the fastest on this machine's GPUs, and writes the table of them to a file.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use benches::exchanges::{gathered, reduced, scattered, swapped};
use benches::rank_clock::{RankClock, System};
use benches::tuning_file;
use benches::ways::{Timed, lines};
use clap::{Parser, ValueEnum};
use comfy_table::Table;
use maco::{Arguments, Communicator, CudaGraph, Device, Plan, PlanOptions, Stream, Tuning, Via, WayLine, bf16};

/// Measures every way that a collective inside a megakernel can go: as packets, in one step, in two, and by NCCL beside the kernel.
///
/// Ranks are threads of this process, each with a GPU. A launch has one collective, of a tensor that a copy makes, in a CUDA graph; ways take turns. Times are the greatest of all
/// ranks in each round, medians of the rounds, behind 20 that do not count; results are checked. For each collective and number of ranks the fastest way of each range of
/// bytes becomes a line of the file: where it changes, the limit is the geometric mean of two sizes. NCCL must be 2 % faster than the kernel. What a GEMM hides of
/// its all-reduce is not measured. NCCL runs without multicast: NCCL_NVLS_ENABLE=0. Nothing else should run on the GPUs.
#[derive(Parser)]
struct Options {
    /// The tuning file: lines of the same collectives and number of ranks are replaced, all else stays
    #[arg(long, default_value = "tuning.json")]
    tuning: PathBuf,
    /// Ranks; by default as many as there are GPUs
    #[arg(long)]
    ranks: Option<u32>,
    /// Rounds
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// KiB of the largest tensor of a call on a rank
    #[arg(long, value_delimiter = ',', default_values_t = [8, 64, 256, 1024, 4096, 16384, 65536])]
    kib: Vec<u64>,
    /// Collectives; without, all of these
    #[arg(long, value_delimiter = ',')]
    only: Vec<Measured>,
    /// Multiprocessors that NCCL has: plans by these lines are to have as many
    #[arg(long, default_value_t = 8)]
    comm_sms: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Measured {
    AllReduce,
    AllGather,
    ReduceScatter,
    AllToAll,
}

/// Columns of all tensors.
const COLUMNS: u64 = 512;

impl Measured {
    /// As tables have it.
    fn name(self) -> &'static str {
        match self {
            Measured::AllReduce => "all_reduce",
            Measured::AllGather => "all_gather",
            Measured::ReduceScatter => "reduce_scatter",
            Measured::AllToAll => "all_to_all",
        }
    }

    /// Whether what it reads, and what it writes, has a plane for each rank.
    fn planes(self) -> [bool; 2] {
        match self {
            Measured::AllReduce => [false; 2],
            Measured::AllGather => [false, true],
            Measured::ReduceScatter => [true, false],
            Measured::AllToAll => [true; 2],
        }
    }

    fn plan(self, device: &Device, [planes, rows]: [u64; 2], options: &PlanOptions) -> Result<Plan, maco::Error> {
        let (r, m, n) = (planes, rows, COLUMNS);
        Ok(match self {
            Measured::AllReduce => (*reduced::plan_with(device, reduced::Dims { M: m, N: n }, options)?).clone(),
            Measured::AllGather => (*gathered::plan_with(device, gathered::Dims { R: r, M: m, N: n }, options)?).clone(),
            Measured::ReduceScatter => (*scattered::plan_with(device, scattered::Dims { R: r, M: m, N: n }, options)?).clone(),
            Measured::AllToAll => (*swapped::plan_with(device, swapped::Dims { R: r, M: m, N: n }, options)?).clone(),
        })
    }

    /// What is in plane `plane` of the result, if rank r has nothing but r + 1.
    fn expected(self, ranks: u64, plane: u64) -> f32 {
        match self {
            Measured::AllReduce | Measured::ReduceScatter => (ranks * (ranks + 1) / 2) as f32,
            Measured::AllGather | Measured::AllToAll => (plane + 1) as f32,
        }
    }
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let gpus = (0..).take_while(|&index| Device::gpu(index).is_ok()).count() as u32;
    let ranks = options.ranks.unwrap_or(gpus);
    ensure!(ranks >= 2 && ranks <= gpus, "{ranks} ranks, of which each needs a GPU, and there are {gpus}; two are the least");
    let device = Device::gpu(0)?;
    println!("{ranks} × {device}");
    let mut tuning = tuning_file::opened(Some(&options.tuning), &device)?;
    let all = Communicator::threads(ranks, |communicator| {
        // The others may wait for this rank for long.
        measure(&communicator, &options).inspect_err(|error| eprintln!("rank {}: {error:#}", communicator.rank()))
    })?;
    let mut all = all.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    // All ranks have the same.
    let timed = all.swap_remove(0);
    println!("{}", table(&timed));
    let ways = lines(&timed);
    ways.iter().for_each(|line| println!("{line}"));
    tuning.replace_ways(ways);
    tuning.write(&options.tuning)?;
    println!("written to {0}; MACO_TUNING={0} for programs without `PlanOptions::tuning`", options.tuning.display());
    Ok(())
}

/// Microseconds of each way, and the fastest.
fn table(timed: &[Timed]) -> Table {
    let mut table = Table::new();
    table.set_header(["", "bytes"].into_iter().chain(Via::ALL.iter().map(|via| via.name())).chain(["chosen"]));
    for timed in timed {
        let time = |via| timed.times.iter().find(|(of, _)| *of == via).map_or_else(String::new, |(_, time)| format!("{time:.1} µs"));
        let names = [timed.collective.to_owned(), timed.bytes.to_string()];
        let chosen = timed.fastest().map_or("", Via::name).to_owned();
        table.add_row(names.into_iter().chain(Via::ALL.map(time)).chain([chosen]));
    }
    table
}

/// One rank.
fn measure(communicator: &Communicator, options: &Options) -> anyhow::Result<Vec<Timed>> {
    let device = Device::gpu(communicator.local_rank())?;
    let stream = Stream::new(&device)?;
    let clock = RankClock::new(communicator, &device, &stream, options.rounds)?;
    let most = options.kib.iter().max().context("`--kib` names no size")? << 10;
    // Room for the messages of one plan each way, from every rank and twice, as packets at most.
    communicator.set_message_memory(((1 << 20) + 4 * 4 * most * u64::from(communicator.ranks())) as usize)?;
    let wanted = |measured: &&Measured| options.only.is_empty() || options.only.contains(measured);
    let mut timed = Vec::new();
    for measured in Measured::value_variants().iter().filter(wanted) {
        for kib in &options.kib {
            timed.push(case(communicator, &device, &stream, &clock, *measured, kib << 10, options.comm_sms)?);
        }
    }
    Ok(timed)
}

/// One collective, of a tensor of about so many bytes, each way.
fn case(
    communicator: &Communicator,
    device: &Device,
    stream: &Stream,
    clock: &RankClock<'_>,
    measured: Measured,
    bytes: u64,
    comm_sms: u32,
) -> anyhow::Result<Timed> {
    // What a rank frees waits for kernels of the others, and those for it.
    communicator.barrier()?;
    let ranks = u64::from(communicator.ranks());
    let planes = if measured.planes().contains(&true) { ranks } else { 1 };
    let rows = (bytes / (planes * COLUMNS * 2)).max(1);
    let shape = |has_planes: bool| if has_planes { vec![ranks, rows, COLUMNS] } else { vec![rows, COLUMNS] };
    let [from, to] = measured.planes().map(shape);
    let own = vec![bf16::from_f32(communicator.rank() as f32 + 1.0); from.iter().product::<u64>() as usize];
    let x = device.upload(&own, &from[..])?;
    let mut plans = Vec::new();
    for via in Via::ALL {
        let line = WayLine { collective: measured.name().into(), ranks: communicator.ranks(), from_bytes: 0, below_bytes: None, via };
        if line.fault().is_some() {
            continue;
        }
        let tuning = Tuning { ways: vec![line], ..Tuning::new(device) };
        let asked = PlanOptions::new().communicator(communicator.clone()).tuning(tuning).comm_sms(comm_sms);
        let plan = measured.plan(device, [ranks, rows], &asked)?;
        // What a table cannot have is not measured.
        if plan.graph().calls.iter().filter_map(|call| call.way).any(|way| way.via == via) {
            plans.push((via, plan, device.zeros::<bf16>(&to[..])?));
        }
    }
    let mut bound = Vec::new();
    for (_, plan, y) in &mut plans {
        bound.push(plan.bind(Arguments::new().tensor(&x).tensor_mut(y))?);
    }
    let graphs = bound.iter().map(|bound| CudaGraph::capture(stream, |stream| bound.launch_on(stream))).collect::<Result<Vec<_>, _>>()?;
    let mut systems: Vec<Box<dyn FnMut() -> anyhow::Result<()> + '_>> = Vec::new();
    for graph in &graphs {
        systems.push(Box::new(|| Ok(graph.launch(stream)?)));
    }
    let times = clock.measure(&mut systems.iter_mut().map(|system| &mut **system as System<'_>).collect::<Vec<_>>())?;
    drop(systems);
    drop(graphs);
    drop(bound);
    for (via, plan, y) in &plans {
        plan.check()?;
        let plane = rows * COLUMNS;
        let is_right = |(at, value): (u64, bf16)| value.to_f32() == measured.expected(ranks, at / plane);
        ensure!((0..).zip(y.download()?).all(is_right), "{} by `{}` computed something else", measured.name(), via.name());
    }
    let times = plans.iter().zip(times).map(|((via, ..), time)| (*via, time.value)).collect();
    communicator.barrier()?;
    Ok(Timed { collective: measured.name(), ranks: communicator.ranks(), bytes: planes * rows * COLUMNS * 2, times })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn help_says_what_is_measured_and_what_becomes_of_it() {
        Options::command().debug_assert();
        let help = Options::command().render_long_help().to_string();
        for word in ["packets", "NCCL", "--kib", "--only", "all-reduce", "tuning.json", "geometric mean"] {
            assert!(help.contains(word), "{word}: {help}");
        }
    }

    #[test]
    fn a_table_has_a_column_for_each_way() {
        let timed = Timed { collective: "all_reduce", ranks: 2, bytes: 8192, times: vec![(Via::Packets, 10.0), (Via::Nccl, 52.25)] };
        let shown = table(&[timed]).to_string();
        assert!(["Packets", "OneShot", "TwoShot", "Nccl", "10.0 µs", "52.2 µs", "8192"].iter().all(|part| shown.contains(part)), "{shown}");
    }
}
