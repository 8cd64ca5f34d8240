//! Reads the traces that `Profile::write_chrome` writes, of one rank or of several on one timeline. Recording them does not belong here (`maco-host`).

mod compare;
mod draw;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use maco_host::profile::{FileError, Profile, RankProfiles, write_costs};

/// Says what a recorded launch of a MACO megakernel did with its time.
///
/// Record one: `plan.profile(true)?; plan.run(..)?; plan.profile_report()?.write_chrome("trace.json")?`, on a GPU in a program that was
/// built with MACO_PROFILE=1. The same file opens in ui.perfetto.dev. Of several ranks each writes its own file, and `merge` makes one timeline of them.
#[derive(Parser)]
#[command(version, arg_required_else_help = true, max_term_width = 120)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// One row per operation: tasks, time, % of roofline, wait %, overlap %, multiprocessors or CPU workers; and how busy schedulers were
    #[command(after_help = "Start here. A high wait % of an operation asks for `critical-path`: what came before it, and how late.\n\
                      Of several ranks: how far their clocks agree, each operation on all of them, and the total. The overlap % of a collective \
                      is what of it is hidden.\n\n\
                      Example: maco-trace summary trace.json")]
    Summary {
        /// The trace
        trace: PathBuf,
    },
    /// The chain of tasks that made the launch last as long as it did
    #[command(
        after_help = "Only what is on this chain can make the launch shorter. A large gap after a dependency is the way of a signal, or \
                      an operand on its way; after the worker's own task it is what the worker does between two tasks.\n\n\
                      Example: maco-trace critical-path trace.json"
    )]
    CriticalPath {
        /// The trace
        trace: PathBuf,
    },
    /// Two traces side by side, operation by operation
    #[command(
        after_help = "Operations are matched by the name of their task, the first call with the first, so that tiles may differ.\n\n\
                      Example: maco-trace compare before.json after.json"
    )]
    Compare {
        /// What it was
        before: PathBuf,
        /// What it is
        after: PathBuf,
    },
    /// The timeline as a picture: a row per worker, with a line for each role, and one per scheduler; ranks one below another
    #[command(
        after_help = "Colours are operations, light grey is waiting; --critical-path joins the tasks of the longest chain of a rank.\n\n\
                      Example: maco-trace draw trace.json -o timeline.svg --critical-path"
    )]
    Draw {
        /// The trace
        trace: PathBuf,
        /// The picture: `.svg` or `.png`
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Width of the picture in pixels
        #[arg(long, default_value_t = 1600, value_parser = clap::value_parser!(u32).range(300..=20_000))]
        width: u32,
        /// Also draw the critical path
        #[arg(long)]
        critical_path: bool,
    },
    /// One timeline of the traces of all ranks, on the clock of their host
    #[command(
        after_help = "Each rank has written its trace behind the same run. `summary`, `draw` and ui.perfetto.dev read what is made of them; \
                      the other commands read the trace of one rank.\n\n\
                      Example: maco-trace merge trace.rank0.json trace.rank1.json -o all.json"
    )]
    Merge {
        /// The traces, one of each rank
        #[arg(required = true)]
        traces: Vec<PathBuf>,
        /// The trace of all ranks
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
    /// What each task cost, as a file that plans can be made by
    #[command(after_help = "Read it with `maco_host::profile::read_costs` and pass it to `PlanOptions::costs`.\n\n\
                      Example: maco-trace costs trace.json -o costs.json")]
    Costs {
        /// The trace
        trace: PathBuf,
        /// The file of costs
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
}

/// Why the command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Trace(#[from] FileError),
    #[error(transparent)]
    Draw(#[from] draw::DrawError),
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Summary { trace } => {
            let read = RankProfiles::read_chrome(trace)?;
            match read.ranks() {
                [profile] => print!("{}", profile.summary()),
                _ => print!("{}", read.summary()),
            }
        }
        Command::CriticalPath { trace } => print!("{}", Profile::read_chrome(trace)?.critical_path()),
        Command::Compare { before, after } => print!("{}", compare::table(&Profile::read_chrome(before)?, &Profile::read_chrome(after)?)),
        Command::Draw { trace, output, width, critical_path } => {
            let format = draw::Format::of(&output)?;
            draw::write(&RankProfiles::read_chrome(trace)?, &output, format, width, critical_path)?;
        }
        Command::Merge { traces, output } => RankProfiles::merge_chrome(&traces)?.write_chrome(output)?,
        Command::Costs { trace, output } => write_costs(&Profile::read_chrome(trace)?.costs(), output)?,
    }
    Ok(())
}
