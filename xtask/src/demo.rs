//! The examples, run as a user's projects would be.

use crate::command::{cargo, run};
use crate::failure::Failure;
use crate::gpu;
use crate::packages::example;
use crate::setup;

/// What the demo passes on.
#[derive(clap::Args)]
pub struct Options {
    /// One example instead of all: digits, mlp or tp_mlp
    #[arg(long)]
    only: Option<String>,
    /// Arguments of the examples, after `--`
    #[arg(last = true)]
    arguments: Vec<String>,
}

const EXAMPLES: [&str; 3] = ["digits", "mlp", "tp_mlp"];

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
        if name == "tp_mlp" && options.arguments.is_empty() {
            command.args(["--ranks", &ranks(gpu::count().unwrap_or(0)).to_string()]);
        }
        run(&mut command)?;
    }
    Ok(())
}

/// How many ranks the demo has on so many GPUs: a power of two, which divides the sizes, and on one GPU or none two ranks of the CPU.
fn ranks(gpus: i32) -> u32 {
    1 << gpus.max(2).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_a_power_of_two() {
        assert_eq!([0, 1, 2, 3, 4, 7, 8].map(ranks), [2, 2, 2, 2, 4, 4, 8]);
    }
}
