//! Every test of the repository, and an honest count of those that did not run.

use std::process::Command;

use crate::command::{capture, cargo, run, shown};
use crate::failure::Failure;
use crate::packages::{Suite, suites};
use crate::{emulated, gpu, lint, setup};

/// What to leave out.
#[derive(clap::Args)]
pub struct Options {
    /// Only the tests that need a GPU
    #[arg(long)]
    gpu_only: bool,
}

/// Runs the tests of every suite; goes on after a failure, and fails at the end.
pub fn test(options: &Options) -> Result<(), Failure> {
    setup::setup(false)?;
    let gpu = gpu::count();
    let mut failed = Vec::new();
    let mut left_out = 0;
    let suites = suites()?;
    // Where there is no GPU, what `lint` needs is made beside the tests, by processes that give way to them.
    let mut assembling = None;
    for suite in &suites {
        let mut check = |command: &mut Command| {
            if run(command).is_err() {
                failed.push(format!("`{}`", shown(command)));
            }
        };
        if gpu.is_err() && !options.gpu_only && suite.name == KERNELS {
            // A suite that does not build fails below.
            if run(cargo_test(suite, false).arg("--no-run")).is_ok() {
                assembling = lint::ptx::begin_to_assemble().ok();
            }
        }
        if !options.gpu_only {
            check(cargo_test(suite, gpu.is_ok()).arg("--no-fail-fast"));
        }
        match gpu {
            Ok(_) => check(cargo_test(suite, true).args(["--no-fail-fast", "--", "--ignored", "gpu"])),
            // A suite that does not build has failed above.
            Err(_) => left_out += capture(cargo_test(suite, false).args(["--", "--list", "--ignored"])).map_or(0, |list| gpu_tests(&list)),
        }
    }
    match gpu {
        Ok(count) => println!("GPU tests ran on a machine with {count} GPU(s)"),
        Err(why) => {
            let (count, emulated) = emulated::run_chosen(&suites)?;
            failed.extend(emulated);
            println!("GPU tests on an emulated GPU: {count}; left out: {} ({why})", left_out - count.min(left_out));
        }
    }
    if let Some(mut assembling) = assembling {
        let _ = assembling.wait(); // it has said nothing
    }
    if failed.is_empty() { Ok(()) } else { Err(Failure::Checks(failed)) }
}

/// The suite with the most kernels; those before it are built by then.
const KERNELS: &str = "tests";

fn cargo_test(suite: &Suite, gpu: bool) -> Command {
    let mut command = cargo(&["test"]);
    command.args(suite.arguments());
    command.env("MACO_GPU_TESTS", if gpu { "1" } else { "0" });
    command
}

/// Tests with `gpu` in their path in the output of `--list --ignored`: `gpu::linear: test`, `plan::gpu_mlp: test`.
pub fn gpu_tests(list: &str) -> usize {
    list.lines().filter_map(|line| line.strip_suffix(": test")).filter(|name| name.contains("gpu")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tests_with_a_gpu_in_their_name_are_counted() {
        let list = "gpu_linear: test\nplan::slow: test\ngpu::gemm: test\n\n3 tests, 0 benchmarks\n";
        assert_eq!(gpu_tests(list), 2);
    }
}
