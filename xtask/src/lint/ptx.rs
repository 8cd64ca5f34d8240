//! Rules and registers of every package's PTX.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use maco_build::is_only_checked;
use maco_build::parallel;
use maco_build::ptx::ptxas::Usage;
use maco_build::ptx::split::{Entry, entries};
use maco_build::ptx::{Rules, lint, ptxas};

use crate::failure::Failure;
use crate::fetch;
use crate::packages::{Suite, target};

/// An entry of a package.
struct Work<'a> {
    package: &'a str,
    rules: Rules,
    entry: Entry,
}

/// Where machine code is kept, by its text.
fn folder() -> PathBuf {
    target().join("maco/sass")
}

/// Assembles what is built so far in a process of the least priority, so that [`check`] finds it: tests leave a core idle now and then.
pub fn begin_to_assemble() -> Result<Child, Failure> {
    let this = env::current_exe().map_err(|source| Failure::Start { program: "cargo xtask assemble".into(), source })?;
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(this).arg("assemble").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map_err(|source| Failure::Start { program: "nice -n 19 cargo xtask assemble".into(), source })
}

/// Assembles the PTX of each package, and says nothing: what is wrong with it, [`check`] says.
pub fn assemble(suites: &[Suite]) -> Result<(), Failure> {
    let assembler = fetch::ptxas()?;
    let mut work = Vec::new();
    for package in suites.iter().flat_map(|suite| &suite.packages).filter(|package| package.has_kernels()) {
        for file in package.ptx().into_iter().filter(|_| !is_only_checked(&package.name)) {
            let Ok(ptx) = fs::read_to_string(&file) else { continue }; // not built yet
            let rules = Rules::of(&ptx);
            work.extend(entries(&ptx)?.into_iter().map(|entry| (rules.clone(), entry)));
        }
    }
    parallel::each(&work, |(_, entry)| entry.ptx.len(), |(rules, entry)| ptxas::assemble(&assembler, entry, rules, &folder()).is_ok());
    Ok(())
}

/// Lints and assembles the PTX of each package that has kernels, and prints what each entry costs.
pub fn check(suites: &[Suite]) -> Result<(), Failure> {
    let assembler = fetch::ptxas()?;
    let mut sources = Vec::new();
    for package in suites.iter().flat_map(|suite| &suite.packages).filter(|package| package.has_kernels()) {
        if is_only_checked(&package.name) {
            println!("registers and spills of {}: left out by MACO_ONLY_CHECK", package.name);
            continue;
        }
        for file in package.ptx() {
            let ptx = fs::read_to_string(&file).map_err(Failure::io("read", &file))?;
            sources.push((package, ptx));
        }
    }
    let linted = parallel::each(&sources, |(_, ptx)| ptx.len(), |(_, ptx)| lint::check(ptx, &Rules::of(ptx)));
    let (mut work, mut faults) = (Vec::new(), Vec::new());
    for ((package, ptx), findings) in sources.iter().zip(linted) {
        faults.extend(findings.iter().map(|finding| format!("{}: {finding}", package.name)));
        let rules = Rules::of(ptx);
        work.extend(entries(ptx)?.into_iter().map(|entry| Work { package: &package.name, rules: rules.clone(), entry }));
    }
    let folder = folder();
    ptxas::sweep(&folder)?;
    let assemble = |work: &Work<'_>| ptxas::assemble(&assembler, &work.entry, &work.rules, &folder);
    let assembled = parallel::each(&work, |work| work.entry.ptx.len(), assemble);
    println!("{:<52} {:>9} {:>6} {:>6} {:>8}", "entry", "registers", "stack", "spills", "ptxas, s");
    for (Work { package, .. }, assembled) in work.iter().zip(assembled) {
        let assembled = assembled?.ok_or_else(|| {
            Failure::Text(format!("{} is too old for this PTX; set MACO_PTXAS to one of CUDA 12.6 or newer", assembler.display()))
        })?;
        // Panic functions are functions too; only entries have registers.
        for usage in assembled.usage.iter().filter(|usage| usage.registers > 0) {
            let Usage { function, registers, stack, spills } = usage;
            println!("{function:<52} {registers:>9} {stack:>6} {spills:>6} {:>8.1}", assembled.seconds);
        }
        faults.extend(assembled.findings.iter().map(|finding| format!("{package}: {finding}")));
    }
    faults.iter().for_each(|fault| eprintln!("error: {fault}"));
    if faults.is_empty() { Ok(()) } else { Err(Failure::Text(format!("{} broken rules of PTX", faults.len()))) }
}
