//! Memory-bound tasks, against a copy of as many bytes and against PyTorch.

use std::path::{Path, PathBuf};

use benches::matrix::sets;
use benches::operations::{COLUMNS, Operands, Operation, moved, operations};
use benches::peer::{DeviceCopy, Driver};
use benches::pytorch::{self, PyTorch};
use benches::rows::{Row, Run, Work, summary};
use benches::timing::{Clock, Measured, System};
use clap::Parser;
use maco::{CudaGraph, Device};

/// Measures the library's memory-bound tasks, in bf16 with rows of 4096, each in a launch of its own.
///
/// `copy` is a device copy that moves as many bytes as the task's arguments have, half of them read, half written. `pytorch` is the same
/// operation in PyTorch (`benches/peers/memory.py`, a child process), in a CUDA graph; where PyTorch takes several kernels, what
/// `torch.compile` makes of it counts if it is faster. Operands take turns and are together five times the second-level cache. Blocks of
/// rounds of MACO and copy, and of PyTorch, take turns after two seconds of warm-up; medians of all rounds.
#[derive(Parser)]
struct Options {
    /// Only cases whose name holds this, such as `softmax` or `256 MiB`.
    #[arg(long)]
    case: Option<String>,
    /// MiB that are moved; 1024 is worth a look too.
    #[arg(long, value_delimiter = ',', default_values_t = [64, 256])]
    sizes: Vec<u64>,
    /// The Python that has PyTorch.
    #[arg(long, default_value = "python3")]
    python: String,
    /// Write the rows here as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Rounds per case.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// GPU.
    #[arg(long, default_value_t = 0)]
    gpu: u32,
    /// Write what every worker of MACO did into this folder, too: two traces per case, by itself and behind other launches, for `maco-trace` and
    /// ui.perfetto.dev. Needs a build with MACO_PROFILE=1.
    #[arg(long)]
    traces: Option<PathBuf>,
}

/// Blocks of rounds in which MACO and the copy, and PyTorch, take turns.
const BLOCKS: usize = 5;
const METRIC: &str = "time";

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let device = Device::gpu(options.gpu)?;
    println!("{device}");
    let torch = PyTorch::found(&options.python, pytorch::MEMORY, options.gpu);
    let asked = |operation: &Operation, size: u64| options.case.as_ref().is_none_or(|part| name(operation, size).contains(part.as_str()));
    let cases: Vec<(Operation, u64)> = options
        .sizes
        .iter()
        .flat_map(|&size| operations().map(move |operation| (operation, size)))
        .filter(|(operation, size)| asked(operation, *size))
        .collect();
    let driver = Driver::new(options.gpu)?;
    let mut bench = Bench { clock: Clock::new(&device, options.rounds)?, device, torch, _driver: driver };
    let mut run = Run::new(cases.len(), options.json.as_deref());
    for (operation, size) in &cases {
        run.case(&name(operation, *size), || bench.case(operation, *size, options.traces.as_deref()))?;
    }
    for size in &options.sizes {
        let of_size: Vec<Row> = run.rows.iter().filter(|row| row.case.ends_with(&format!(" {size} MiB"))).cloned().collect();
        for peer in ["copy", "pytorch"] {
            let summaries = summary(&of_size, METRIC, peer);
            run.rows.extend(summaries.into_iter().map(|row| Row { case: format!("{size} MiB: {}", row.case), ..row }));
        }
    }
    run.finish()
}

fn name(operation: &Operation, size: u64) -> String {
    format!("{} {size} MiB", operation.name)
}

struct Bench {
    clock: Clock,
    device: Device,
    torch: Option<PyTorch>,
    /// Makes the context current for the copies.
    _driver: Driver,
}

impl Bench {
    fn case(&mut self, operation: &Operation, size: u64, traces: Option<&Path>) -> anyhow::Result<Vec<Row>> {
        operation.check(&self.device)?;
        let stream = &self.clock.stream;
        let rows = operation.rows(size << 20)?;
        let plan = operation.plan(&self.device, rows, COLUMNS)?;
        let bytes = moved(&plan);
        let sets = sets(bytes);
        let mut operands =
            (0..sets as u64).map(|set| Operands::random(&self.device, &plan, set + 1)).collect::<anyhow::Result<Vec<_>>>()?;
        let bound = operands.iter_mut().map(|operands| plan.bind(operands.arguments())).collect::<Result<Vec<_>, _>>()?;
        // As PyTorch's: every set has its turn.
        let ours = CudaGraph::capture(stream, |stream| bound.iter().try_for_each(|bound| bound.launch_on(stream)))?;
        let mut copies = (0..sets).map(|_| DeviceCopy::new(&self.device, bytes / 2)).collect::<anyhow::Result<Vec<_>>>()?;
        let mut systems: [System<'_>; 2] =
            [Box::new(|| Ok(ours.launch(stream)?)), Box::new(|| copies.iter_mut().try_for_each(|copy| copy.launch(stream)))];
        let launches = self.clock.warm_up(&mut systems)?;
        let rounds = self.clock.rounds().div_ceil(BLOCKS);
        let request = pytorch::Operation { operation: operation.name, rows, columns: COLUMNS, sets };
        let (mut times, mut theirs) = ([Vec::new(), Vec::new()], Vec::new());
        for _ in 0..BLOCKS {
            for (all, block) in times.iter_mut().zip(self.clock.sample(&mut systems, rounds, launches)?) {
                all.extend(block.into_iter().map(|time| time / sets as f64));
            }
            match self.torch.as_mut().map(|torch| torch.measure(&request, rounds)) {
                Some(Ok(block)) => theirs.extend(block),
                Some(Err(error)) => {
                    eprintln!("{}: {error:#}", operation.name);
                    theirs.clear();
                    break;
                }
                None => {}
            }
        }
        drop(systems);
        plan.check()?;
        if let Some(folder) = traces {
            drop((ours, bound));
            plan.profile(true)?;
            let bound = operands.iter_mut().map(|operands| plan.bind(operands.arguments())).collect::<Result<Vec<_>, _>>()?;
            let mut bounds = bound.iter().cycle();
            let launch = || Ok(bounds.next().map_or(Ok(()), |bound| bound.launch_on(stream))?);
            benches::write_traces(&plan, stream, folder, &name(operation, size), launch)?;
        }
        let [ours, copy] = times.map(|times| Measured::of(&times));
        let mut rows = vec![Row::against("memory", name(operation, size), METRIC, ours, "copy", copy)];
        if !theirs.is_empty() {
            let row = Row::against("memory", name(operation, size), METRIC, ours, "pytorch", Measured::of(&theirs));
            rows.push(row.of(Work::moving(bytes)));
        }
        Ok(rows)
    }
}
