//! Measures what this GPU costs, and writes it to a file as the device model that the planner chooses by.

use std::path::PathBuf;

use benches::device_costs::measure::Measure;
use benches::peer::Driver;
use benches::timing::Clock;
use benches::tuning_file;
use clap::Parser;
use comfy_table::Table;
use maco::Device;

/// Measures the rates of memory, L2 cache and tensor cores, and the costs of step, tile, part, ticket, hop and launch.
///
/// Most are slopes between launches of one and of many rounds of the same tasks, so that what a launch takes cancels. Medians of the rounds, after two seconds
/// of warm-up for each. Nothing else should run on the GPU.
#[derive(Parser)]
struct Options {
    /// The tuning file: its model is replaced, its tiles stay
    #[arg(long, default_value = "tuning.json")]
    tuning: PathBuf,
    /// Rounds per case
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// GPU
    #[arg(long, default_value_t = 0)]
    gpu: u32,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let device = Device::gpu(options.gpu)?;
    println!("{device}");
    let mut tuning = tuning_file::opened(Some(&options.tuning), &device)?;
    let before = tuning.model.clone().unwrap_or_else(|| device.device_model());
    let _driver = Driver::new(options.gpu)?;
    let clock = Clock::new(&device, options.rounds)?;
    let model = Measure::new(&device, &clock).all()?.fit(&device.model(), &before)?;
    let mut table = Table::new();
    table.set_header(["", "measured", "before", "", "measured / before"]);
    for ((name, value, unit), (_, other, _)) in model.numbers().into_iter().zip(before.numbers()) {
        table.add_row([name.into(), shown(value), shown(other), unit.into(), format!("{:.2}", value / other)]);
    }
    println!("{table}\nbefore: {}, {}", before.name, before.origin);
    tuning.model = Some(model);
    tuning.write(&options.tuning)?;
    println!("written to {0}; MACO_TUNING={0} for programs without `PlanOptions::tuning`", options.tuning.display());
    Ok(())
}

/// Three digits or more.
fn shown(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}
