//! Every test of the repository, and an honest count of those that did not run.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::command::{capture, cargo, run, shown};
use crate::failure::Failure;
use crate::packages::{Suite, suites};
use crate::queue::{Queue, Rank};
use crate::{emulated, gpu, programs, queue, setup};

/// What to leave out.
#[derive(clap::Args, Default)]
pub struct Options {
    /// Only the tests that need a GPU
    #[arg(long)]
    gpu_only: bool,
}

/// Runs the tests of every suite; goes on after a failure, and fails at the end.
pub fn test(options: &Options) -> Result<(), Failure> {
    setup::setup(false)?;
    let suites = suites()?;
    let failed = match gpu::count() {
        Ok(count) => {
            let failed = with_gpu(&suites, options);
            println!("GPU tests ran on a machine with {count} GPU(s)");
            failed
        }
        Err(why) => {
            let tally = Tally::default();
            let began = queue::with(|queue| begin(&suites, options, queue, &tally));
            tally.end(began, why)
        }
    };
    if failed.is_empty() { Ok(()) } else { Err(Failure::Checks(failed)) }
}

/// One after another: tests of GPUs have the machine for themselves.
pub fn with_gpu(suites: &[Suite], options: &Options) -> Vec<String> {
    let mut failed = Vec::new();
    for suite in suites {
        let mut check = |command: &mut Command| {
            if run(command).is_err() {
                failed.push(format!("`{}`", shown(command)));
            }
        };
        if !options.gpu_only {
            check(cargo_test(suite).arg("--no-fail-fast"));
        }
        check(cargo_test(suite).args(["--no-fail-fast", "--", "--ignored", "gpu"]));
    }
    failed
}

fn cargo_test(suite: &Suite) -> Command {
    let mut command = cargo(&["test"]);
    command.args(suite.arguments());
    command.env("MACO_GPU_TESTS", "1");
    command
}

/// What has ended where there is no GPU.
#[derive(Default)]
pub struct Tally {
    failed: Mutex<Vec<String>>,
    /// GPU tests that there are.
    gpu: AtomicUsize,
    /// GPU tests that ran on an emulated GPU.
    emulated: AtomicUsize,
}

impl Tally {
    fn fail(&self, what: String) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    /// Says how many GPU tests were left out; what failed.
    pub fn end(self, began: Result<(), Failure>, why: &str) -> Vec<String> {
        let [gpu, emulated] = [self.gpu, self.emulated].map(AtomicUsize::into_inner);
        println!("GPU tests on an emulated GPU: {emulated}; left out: {} ({why})", gpu.saturating_sub(emulated));
        let mut failed = self.failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        failed.extend(began.err().map(|failure| failure.to_string()));
        failed
    }
}

/// Without a GPU: builds suite after suite, and puts what was built into the queue, so that tests run while the next suites are built.
pub fn begin<'a>(suites: &[Suite], options: &Options, queue: &Queue<'a>, tally: &'a Tally) -> Result<(), Failure> {
    let gpu_only = options.gpu_only;
    let libraries = programs::compiler_libraries()?;
    let mut all = Vec::new();
    // The one with the longest tests first: others are built meanwhile.
    let (first, rest): (Vec<&Suite>, Vec<&Suite>) = suites.iter().partition(|suite| suite.is_root() || suite.name == "tests");
    for suite in first.into_iter().chain(rest) {
        let (programs, result) = programs::build(suite);
        if let Err(failure) = result {
            tally.fail(failure.to_string());
        }
        for program in &programs {
            let [mut list, mut command] = [(); 2].map(|()| program.command(&libraries));
            list.args(["--list", "--ignored"]);
            command.env("MACO_GPU_TESTS", "0");
            queue.put(if program.is_long() { Rank::Long } else { Rank::Test }, move || {
                tally.gpu.fetch_add(capture(&mut list).map_or(0, |list| gpu_tests(&list)), Ordering::Relaxed);
                if gpu_only {
                    return;
                }
                match programs::run(&mut command) {
                    Ok(output) if output.status.success() => {}
                    Ok(_) => tally.fail(format!("`{}`", shown(&command))),
                    Err(failure) => tally.fail(failure.to_string()),
                }
            });
        }
        all.extend(programs);
        if !gpu_only && suite.packages.iter().any(|package| package.directory.join("src/lib.rs").is_file()) {
            let mut examples = cargo(&["test", "--doc", "--no-fail-fast"]);
            if run(examples.args(suite.arguments()).env("MACO_GPU_TESTS", "0")).is_err() {
                tally.fail(format!("`{}`", shown(&examples)));
            }
        }
    }
    emulated::put_chosen(suites, &all, &libraries, queue, |tests, failed| {
        tally.emulated.fetch_add(tests, Ordering::Relaxed);
        failed.into_iter().for_each(|what| tally.fail(what));
    })
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
        let list = "gpu_linear: test\nplan::slow: test\ngpu::product: test\n\n3 tests, 0 benchmarks\n";
        assert_eq!(gpu_tests(list), 2);
    }
}
