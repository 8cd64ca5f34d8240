//! Layers of a mixture of experts, routed on the device, against PyTorch.

use std::path::{Path, PathBuf};

use benches::mixture::{Mixture, Popularity, Sizes, scores};
use benches::operations::moved;
use benches::pytorch::{self, PyTorch};
use benches::rows::{Row, Run, Work};
use benches::timing::{Clock, Measured, System};
use clap::Parser;
use clap::builder::TypedValueParser;
use maco::Device;

/// Measures a layer of a mixture of experts, 8 of 64 for each of 4096 tokens, in one launch.
///
/// From the tokens' scores on: softmax, the eight highest, gather, gate · up, silu, down, weighted sum. Which rows an expert gets is known on
/// the device only. PyTorch runs the same scores (`benches/peers/moe.py`, a child process) in three ways: `grouped`, one grouped GEMM
/// for all experts in a CUDA graph; `padded`, as many rows for every expert as the one with most has, in a CUDA graph; `per-expert`, where
/// the host asks for the numbers of rows. Each expert's weights are read once: they are larger than the second-level cache. Blocks of rounds
/// of MACO and of PyTorch take turns after two seconds of warm-up; medians of all rounds.
#[derive(Parser)]
struct Options {
    /// Only cases whose name holds this, such as `H4096` or `zipf`.
    #[arg(long)]
    case: Option<String>,
    /// Rows of a group, of which an expert fills whole ones: 128 or 64.
    #[arg(long, default_value_t = 128, value_parser = clap::builder::PossibleValuesParser::new(["64", "128"]).try_map(|rows| rows.parse::<u64>()))]
    group: u64,
    /// The Python that has PyTorch.
    #[arg(long, default_value = "python3")]
    python: String,
    /// Write the rows here as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Rounds per case.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Write what a launch did here, by itself and behind others, two files for each case: `maco-trace` reads them. For a build with MACO_PROFILE=1.
    #[arg(long)]
    traces: Option<PathBuf>,
    /// GPU.
    #[arg(long, default_value_t = 0)]
    gpu: u32,
}

/// Hidden and inner sizes.
const SHAPES: [(u64, u64); 2] = [(2048, 1024), (4096, 1536)];
const PEERS: [&str; 3] = ["grouped", "padded", "per-expert"];
/// Blocks of rounds in which MACO and PyTorch take turns.
const BLOCKS: usize = 4;

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let device = Device::gpu(options.gpu)?;
    println!("{device}");
    let mut torch = PyTorch::found(&options.python, pytorch::MOE, options.gpu);
    let clock = Clock::new(&device, options.rounds)?;
    let cases = SHAPES.into_iter().flat_map(|shape| [Popularity::Balanced, Popularity::Zipf].map(|popularity| (shape, popularity)));
    let named = cases.map(|((hidden, inner), popularity)| {
        let name = format!("H{hidden} I{inner} {}", if popularity == Popularity::Zipf { "zipf" } else { "balanced" });
        (name, Sizes { tokens: 4096, experts: 64, chosen: 8, hidden, inner, group: options.group }, popularity)
    });
    let cases: Vec<_> = named.filter(|(name, ..)| options.case.as_ref().is_none_or(|part| name.contains(part.as_str()))).collect();
    let mut run = Run::new(cases.len(), options.json.as_deref());
    for (name, sizes, popularity) in &cases {
        run.case(name, || case(&device, &clock, torch.as_mut(), options.traces.as_deref(), (name, *sizes, *popularity)))?;
    }
    run.finish()
}

fn case(
    device: &Device,
    clock: &Clock,
    mut torch: Option<&mut PyTorch>,
    traces: Option<&Path>,
    (name, sizes, popularity): (&str, Sizes, Popularity),
) -> anyhow::Result<Vec<Row>> {
    let scores = scores(sizes, popularity, 7);
    let file = std::env::temp_dir().join(format!("maco-scores-{}", std::process::id()));
    std::fs::write(&file, scores.iter().flat_map(|score| score.to_le_bytes()).collect::<Vec<u8>>())?;
    let mut mixture = Mixture::new(device, sizes, &scores)?;
    let plan = mixture.plan(device, &benches::options())?;
    let bound = plan.bind(mixture.arguments())?;
    // The experts' GEMMs, and all that the layer has as arguments: x, the weights of every expert, y, and where rows go.
    let work = Work { flops: sizes.operations(), bytes: moved(&plan) };
    let mut systems: [System<'_>; 1] = [Box::new(|| Ok(bound.launch_on(&clock.stream)?))];
    let launches = clock.warm_up(&mut systems)?;
    let rounds = clock.rounds().div_ceil(BLOCKS);
    let (mut ours, mut theirs) = (Vec::new(), PEERS.map(|_| Vec::new()));
    let Sizes { tokens, experts, chosen, hidden, inner, .. } = sizes;
    for (how, times) in PEERS.into_iter().zip(&mut theirs) {
        let request = pytorch::Layer { how, tokens, experts, chosen, hidden, inner, scores: &file };
        for _ in 0..BLOCKS {
            ours.extend(clock.sample(&mut systems, rounds, launches)?.remove(0));
            match torch.as_deref_mut().map(|torch| torch.measure(&request, rounds)) {
                Some(Ok(block)) => times.extend(block),
                Some(Err(error)) => {
                    eprintln!("{name}, {how}: {error:#}");
                    times.clear();
                    break;
                }
                None => {}
            }
        }
    }
    drop(systems);
    plan.check()?;
    drop(bound);
    if let Some(folder) = traces {
        plan.profile(true)?;
        let bound = plan.bind(mixture.arguments())?;
        benches::write_traces(&plan, &clock.stream, folder, name, || Ok(bound.launch_on(&clock.stream)?))?;
    }
    mixture.check()?;
    // What cannot be removed is left to the system.
    let _ = std::fs::remove_file(&file);
    let ours = Measured::of(&ours);
    eprintln!("{name}: {:.0} TFLOP/s of GEMMs", sizes.operations() as f64 / ours.value / 1e6);
    let beside = PEERS.into_iter().zip(&theirs).filter(|(_, times)| !times.is_empty());
    let row = |(peer, times): (&'static str, &Vec<f64>)| Row::against("moe", name, "time", ours, peer, Measured::of(times)).of(work);
    let mut rows: Vec<Row> = beside.map(row).collect();
    if rows.is_empty() {
        rows.push(Row::without_peer("moe", name, "time", ours));
    }
    Ok(rows)
}
