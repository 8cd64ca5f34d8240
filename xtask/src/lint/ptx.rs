//! Rules and registers of every package's PTX.

use std::fs;
use std::path::PathBuf;

use maco_build::parallel;
use maco_build::ptx::split::{Entry, entries};
use maco_build::ptx::{Rules, lint, ptxas};

use crate::failure::Failure;
use crate::fetch;
use crate::packages::Package;

/// An entry of a package.
struct Work<'a> {
    package: &'a str,
    rules: Rules,
    folder: PathBuf,
    entry: Entry,
}

/// Lints and assembles the PTX of each package that has kernels, and prints what each entry costs.
pub fn check(packages: &[Package]) -> Result<(), Failure> {
    let assembler = fetch::ptxas()?;
    let mut sources = Vec::new();
    for package in packages.iter().filter(|package| package.has_kernels()) {
        if package.is_only_checked() {
            println!("registers and spills of {}: left out by MACO_ONLY_CHECK", package.name);
            continue;
        }
        let recording = Some(package.recording_ptx()).filter(|file| file.is_file());
        for file in std::iter::once(package.ptx()).chain(recording) {
            let ptx = fs::read_to_string(&file).map_err(Failure::io("read", &file))?;
            sources.push((package, file, ptx));
        }
    }
    let linted = parallel::each(&sources, |(_, _, ptx)| ptx.len(), |(_, _, ptx)| lint::check(ptx, &Rules::of(ptx)));
    let (mut work, mut faults) = (Vec::new(), Vec::new());
    for ((package, file, ptx), findings) in sources.iter().zip(linted) {
        faults.extend(findings.iter().map(|finding| format!("{}: {finding}", package.name)));
        let (rules, folder, entries) = (Rules::of(ptx), file.with_file_name("sass"), entries(ptx));
        ptxas::sweep(&folder, &entries)?;
        work.extend(entries.into_iter().map(|entry| Work { package: &package.name, rules: rules.clone(), folder: folder.clone(), entry }));
    }
    let assemble = |work: &Work<'_>| ptxas::assemble(&assembler, &work.entry, &work.rules, &work.folder);
    let assembled = parallel::each(&work, |work| work.entry.ptx.len(), assemble);
    println!("{:<52} {:>9} {:>6} {:>6}", "entry", "registers", "stack", "spills");
    for (Work { package, .. }, assembled) in work.iter().zip(assembled) {
        let assembled = assembled?.ok_or_else(|| {
            Failure::Text(format!("{} is too old for this PTX; set MACO_PTXAS to one of CUDA 12.6 or newer", assembler.display()))
        })?;
        // Panic functions are functions too; only entries have registers.
        for usage in assembled.usage.iter().filter(|usage| usage.registers > 0) {
            println!("{:<52} {:>9} {:>6} {:>6}", usage.function, usage.registers, usage.stack, usage.spills);
        }
        faults.extend(assembled.findings.iter().map(|finding| format!("{package}: {finding}")));
    }
    faults.iter().for_each(|fault| eprintln!("error: {fault}"));
    if faults.is_empty() { Ok(()) } else { Err(Failure::Text(format!("{} broken rules of PTX", faults.len()))) }
}
