//! The examples, run as a user's projects would be.

use crate::command::{cargo, run};
use crate::failure::Failure;
use crate::packages::example;
use crate::setup;

/// What the demo passes on.
#[derive(clap::Args)]
pub struct Options {
    /// One example instead of all: digits or mlp
    #[arg(long)]
    only: Option<String>,
    /// Arguments of the examples, after `--`
    #[arg(last = true)]
    arguments: Vec<String>,
}

const EXAMPLES: [&str; 2] = ["digits", "mlp"];

/// Runs the examples one after the other; the first that fails ends it.
pub fn demo(options: &Options) -> Result<(), Failure> {
    if let Err(failure) = setup::setup(false) {
        // The demo is still worth seeing.
        eprintln!("warning: {failure}\nOnly the CPU will be used.");
    }
    let wanted: Vec<&str> = match &options.only {
        Some(name) => vec![name],
        None => EXAMPLES.to_vec(),
    };
    for name in wanted {
        let manifest = example(name);
        if !manifest.is_file() {
            return Err(Failure::Text(format!("there is no example `{name}`; there are: {}", EXAMPLES.join(", "))));
        }
        let mut command = cargo(&["run", "--release", "--manifest-path"]);
        command.arg(manifest).arg("--").args(&options.arguments);
        run(&mut command)?;
    }
    Ok(())
}
