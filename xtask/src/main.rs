//! The one door of the repository: `cargo xtask --help`.
//!
//! What MACO does does not belong here, only how a person or CI gets it built, tried, checked and measured.

mod archive;
mod bench;
mod bundle;
mod command;
mod compare;
mod demo;
mod emulated;
mod failure;
mod fetch;
mod gpu;
mod lint;
mod packages;
mod plot;
mod progress;
mod results;
mod sanitize;
mod setup;
mod tally;
mod test;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Builds, tries, checks and measures MACO. Start with `cargo xtask demo`.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", after_help = "Every command sets up what it needs. Without a GPU everything runs on the CPU.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Finds or installs a compiler that makes PTX, and builds `core` for it
    ///
    /// Tries in order: what is there; rust-src of rustup's nightly; Debian's rustc-web with rust-web-src (installed as root, otherwise
    /// unpacked into the cache); the sources of a compiler that is there from other Debian suites. Says in one line what it chose. Does
    /// nothing when there is nothing to do.
    Setup {
        /// Forget what was found before and look again
        #[arg(long)]
        again: bool,
    },
    /// Runs the examples: digits recognised, an MLP, and an MLP on several ranks, each as one kernel
    ///
    /// Ranks have a GPU each where there are several, else a part of the CPU each.
    Demo(demo::Options),
    /// Runs every test: the workspace, the examples, the packages in tests/; those of GPUs where there is one
    Test(test::Options),
    /// Checks formatting, clippy, documentation, every package's PTX, registers and spills, licences
    Lint,
    /// Measures: GEMMs, MLPs, memory-bound tasks and decoder layers beside their peers, dispatch, plans, or the `build` itself
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Measures what this GPU costs (rates of memory, cache and tensor cores; step, tile, part, hop, launch), or with `tiles` which tiles of GEMMs are
    /// the fastest, and keeps it in a file for `MACO_TUNING` and `PlanOptions::tuning`
    Tune(bench::Tune),
    /// Publishes measurements and test runs: tables in docs/results/ and the main rows in README.md, from the JSON of `bench` and from logs
    /// of `dist/run.sh`
    Results(results::Options),
    /// Packs test, bench and example programs and a script into dist/, for a GPU machine without Rust
    Bundle {
        /// Device code for compute-sanitizer, and so for `dist/run.sh sanitize`
        #[arg(long)]
        sanitize: bool,
    },
    /// Measures two bundles in turn on one GPU, row by row: is NEW slower than OLD anywhere? In a bundle: `dist/run.sh compare OLD NEW`
    ///
    /// In a round each bench runs once for each bundle, as a process of its own. OLD and NEW take turns, and who is first changes from round
    /// to round, so that a GPU that gets warmer favours neither. A round goes through all benches before the next one begins.
    ///
    /// Of each row the median of a bundle's rounds counts. `ratio` is OLD / NEW: above 1, NEW is faster. `spread` is OLD against itself: the
    /// medians of its odd and of its even rounds, the larger / the smaller; it needs two rounds. A row is marked as slower if its ratio is below
    /// 0.98 less the spread, as far as that is above 1. Any marked row, and any bench that fails, makes the exit code 1.
    ///
    /// Only MACO's own times are compared, by case and metric. Peers are measured as always, but for PyTorch, which is not started.
    Compare(compare::Options),
    /// Runs GPU tests under compute-sanitizer's memcheck and racecheck; in a `bundle --sanitize`: `dist/run.sh sanitize`
    Sanitize,
    /// Assembles the PTX that is there, for `lint`
    #[command(hide = true)]
    Assemble,
    /// Takes programs out of a bundle, as `dist/run.sh` does
    #[command(hide = true)]
    Unpack {
        /// What `bundle` packed
        archive: PathBuf,
        /// Where to put them
        folder: PathBuf,
        /// Which ones
        names: Vec<String>,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Setup { again } => setup::setup(again),
        Command::Demo(options) => demo::demo(&options),
        Command::Test(options) => test::test(&options),
        Command::Lint => lint::lint(),
        Command::Bench(bench) => bench::bench(&bench),
        Command::Tune(options) => bench::tune(&options),
        Command::Results(options) => results::results(&options),
        Command::Bundle { sanitize } => bundle::bundle(sanitize),
        Command::Compare(options) => compare::compare(&options),
        Command::Sanitize => sanitize::sanitize(),
        Command::Assemble => packages::suites().and_then(|suites| lint::ptx::assemble(&suites)),
        Command::Unpack { archive, folder, names } => archive::unpack(&archive, &folder, &names),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.code()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Arguments::command().debug_assert();
    }
}
