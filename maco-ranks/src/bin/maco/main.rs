//! `maco launch -n 4 -- program`: starts the ranks of a job on this host.

mod launch;
mod output;

use clap::{Parser, Subcommand};

/// Starts programs that use MACO.
#[derive(Parser)]
#[command(name = "maco", version, about, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Launch(launch::Launch),
}

fn main() {
    let Command::Launch(launch) = Arguments::parse().command;
    std::process::exit(launch.run());
}
