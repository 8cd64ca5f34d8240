//! GPU tests without a GPU: device code runs on the emulator of `tests/emulator`, a driver library whose GPU is this machine's processor.
//!
//! A choice of what takes at most a minute there: instructions are interpreted, some millions a second. What sets real time against the device's, and what takes many multiprocessors, stays with real GPUs.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;
use std::{env, fs};

use maco_build::parallel;

use crate::bundle::executables;
use crate::command::{capture, cargo, run, shown};
use crate::failure::Failure;
use crate::packages::{Suite, target};

/// The package that is the driver library.
pub const EMULATOR: &str = "emulator";

/// Package, test program, and what is in the names of the tests that run.
const PROGRAMS: [(&str, &str, &str); 45] = [
    ("maco-host", "captures", "gpu"),
    ("maco-host", "channels", "gpu::"),
    ("maco-host", "gpu", "gpu_a_launch_without_progress"),
    ("maco-host", "gpu", "gpu_a_task_that_does_not_end"),
    ("maco-host", "gpu", "gpu_captured"),
    ("maco-host", "gpu", "gpu_the_best_device"),
    ("maco-host", "lean", "gpu::every_operation"),
    ("maco-host", "lean", "gpu::two_communicators"),
    ("maco-host", "watchdog", "gpu"),
    ("kernels", "captures", "gpu"),
    ("kernels", "dense", "gpu"),
    ("kernels", "endless", "gpu"),
    ("kernels", "inputs", "gpu_no_device_code"),
    ("kernels", "launches", "gpu_ten_thousand"),
    ("kernels", "operations", "gpu"),
    ("kernels", "readme", "gpu"),
    ("kernels", "regions", "gpu"),
    ("kernels", "schedules", "gpu::balanced"),
    ("kernels", "split", "gpu::chain"),
    ("kernels", "split", "gpu::plain"),
    ("kernels", "split", "gpu::same_bits"),
    ("blocks", "boxes", "gpu::"),
    ("bodies", "bodies", "gpu"),
    ("gemms", "gemms", "gpu::sorts"),
    ("gemms", "gemms", "gpu::layers"),
    ("delays", "delays", "gpu"),
    ("profiled", "profile", "gpu_schedulers"),
    ("profiled", "profile", "gpu_warps"),
    ("ranks", "collectives", "gpu::chains"),
    ("ranks", "collectives", "gpu::large"),
    ("ranks", "collectives", "gpu::norms"),
    ("ranks", "collectives", "gpu::one_way"),
    ("ranks", "collectives", "gpu::of_bf16"),
    ("ranks", "emulated_nccl", "gpu_nccl_is_chosen"),
    ("ranks", "emulated_nccl", "gpu_sums"),
    ("ranks", "failures", "gpu_each_rank"),
    ("ranks", "pushed", "gpu::halves"),
    ("ranks", "symmetric", "gpu::whole"),
    ("skinny", "elementwise_prologue", "gpu::half_rows"),
    ("skinny", "skinny", "gpu"),
    ("tasks", "elements", "gpu::"),
    ("tasks", "lookups", "gpu::"),
    ("tasks", "norms", "gpu::"),
    ("tasks", "plain", "gpu::"),
    ("tasks", "rows", "gpu::"),
];

/// What they are told: see `tests/emulator/README.md`. Deadlines of the host are in real time.
const SETTINGS: [(&str, &str); 7] = [
    ("MACO_GPU_TESTS", "1"),
    ("MACO_TESTS", "short"),
    ("MACO_DEADLINE_SCALE", "1000"),
    ("EMU_SMS", "24"),
    ("EMU_TICK", "100"),
    ("EMU_PROXY", "2"),
    ("EMU_RACES", "2"),
];

/// Programs whose tests are of several GPUs, and how many there are for them. Others have one: races between GPUs take time to look for.
const SEVERAL: [(&str, &str); 6] =
    [("channels", "4"), ("collectives", "3"), ("emulated_nccl", "2"), ("lean", "3"), ("pushed", "3"), ("symmetric", "3")];

/// Runs the chosen tests, programs side by side: a launch is one thread's work, and many have but one test. How many there were, and commands that
/// failed.
pub fn run_chosen(suites: &[Suite]) -> Result<(usize, Vec<String>), Failure> {
    let library = library(suites)?;
    let suites = [find(suites, "maco")?, find(suites, "tests")?];
    // Not by `cargo test` each: cargo would look at all packages every time, and only one of its commands can do that at a time.
    let mut built = Vec::new();
    for suite in suites {
        built.extend(executables(&capture(cargo(&["test", "--no-run", "--message-format=json"]).args(suite.arguments()))?));
    }
    let one = |&(package, program, tests): &(&str, &str, &str)| {
        let missing = || Failure::Text(format!("no test program `{program}` in a package `{package}`"));
        let wanted = Some((package.to_owned(), program.to_owned()));
        let found = built.iter().find(|built| built.integration_test == wanted).ok_or_else(missing)?;
        let mut command = Command::new(&found.program);
        command
            .args(["--ignored", tests])
            .current_dir(&suites.iter().find_map(|suite| suite.package(package)).ok_or_else(missing)?.directory);
        let gpus = SEVERAL.iter().find(|(of, _)| *of == program).map_or("1", |(_, gpus)| gpus);
        command.envs(SETTINGS).env("EMU_GPUS", gpus).env("LD_LIBRARY_PATH", &library);
        let begin = Instant::now();
        let output = command.output().map_err(|source| Failure::Start { program: shown(&command), source })?;
        let [text, errors] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        // In one piece, whatever ends meanwhile.
        eprintln!("$ {}, {} s\n{errors}{text}", shown(&command), begin.elapsed().as_secs());
        let failed = (!output.status.success()).then(|| format!("`{}` on the emulated GPU", shown(&command)));
        Ok::<_, Failure>((running(&text), failed))
    };
    let (mut count, mut failed) = (0, Vec::new());
    for ran in parallel::each(&PROGRAMS, |_| 0, one) {
        let (tests, failure) = ran?;
        count += tests;
        failed.extend(failure);
    }
    Ok((count, failed))
}

/// The number in `running 3 tests`; of a program that does not build, none.
fn running(output: &str) -> usize {
    output.lines().filter_map(|line| line.strip_prefix("running ")?.split_once(" test")?.0.parse::<usize>().ok()).sum()
}

fn find<'a>(suites: &'a [Suite], name: &str) -> Result<&'a Suite, Failure> {
    suites.iter().find(|suite| suite.name == name).ok_or_else(|| Failure::Text(format!("no package or workspace `{name}`")))
}

/// A directory in which the emulator has the driver's name, and its NCCL that one's. Nobody else looks there.
fn library(suites: &[Suite]) -> Result<PathBuf, Failure> {
    let emulator = find(suites, EMULATOR)?;
    let mut build = cargo(&["build", "--workspace", "--manifest-path"]);
    // Vectors as long as the machine's: it runs where it was built.
    let flags = format!("{} -Ctarget-cpu=native", env::var("RUSTFLAGS").unwrap_or_default());
    let folder = target().join(EMULATOR);
    run(build.arg(&emulator.manifest).arg("--target-dir").arg(&folder).env("RUSTFLAGS", flags))?;
    let driver = folder.join("driver");
    fs::create_dir_all(&driver).map_err(Failure::io("create", &driver))?;
    let nccl = ("libnccl.so.2", "libmaco_emulated_nccl.so");
    for (name, built) in [("libcuda.so", "libmaco_emulator.so"), ("libcuda.so.1", "libmaco_emulator.so"), nccl] {
        let link = driver.join(name);
        let _ = fs::remove_file(&link); // of the last time
        symlink(folder.join("debug").join(built), &link).map_err(Failure::io("link", &link))?;
    }
    Ok(driver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_ran_are_counted() {
        assert_eq!(running("\nrunning 3 tests\ntest gpu::a ... ok\n\ntest result: ok.\n\nrunning 1 test\n"), 4);
        assert_eq!(running("error: could not compile\n"), 0);
    }
}
