//! Rules and registers of every package's PTX.

use std::fs;

use maco_build::ptx::{Rules, lint, ptxas};

use crate::failure::Failure;
use crate::fetch;
use crate::packages::Package;

/// Lints and assembles the PTX of each package that has kernels, and prints what each entry costs.
pub fn check(packages: &[Package]) -> Result<(), Failure> {
    let assembler = fetch::ptxas()?;
    let mut faults = Vec::new();
    println!("{:<52} {:>9} {:>6} {:>6}", "entry", "registers", "stack", "spills");
    for package in packages.iter().filter(|package| package.has_kernels()) {
        let file = package.ptx();
        let ptx = fs::read_to_string(&file).map_err(Failure::io("read", &file))?;
        let rules = Rules::of(&ptx);
        let mut findings = lint::check(&ptx, &rules);
        let verdict = ptxas::check(&assembler, &file, &rules)?.ok_or_else(|| {
            Failure::Text(format!("{} is too old for this PTX; set MACO_PTXAS to one of CUDA 12.6 or newer", assembler.display()))
        })?;
        // Panic functions are functions too; only entries have registers.
        for usage in verdict.usage.iter().filter(|usage| usage.registers > 0) {
            println!("{:<52} {:>9} {:>6} {:>6}", usage.function, usage.registers, usage.stack, usage.spills);
        }
        findings.extend(verdict.findings);
        faults.extend(findings.iter().map(|finding| format!("{}: {finding}", package.name)));
    }
    faults.iter().for_each(|fault| eprintln!("error: {fault}"));
    if faults.is_empty() { Ok(()) } else { Err(Failure::Text(format!("{} broken rules of PTX", faults.len()))) }
}
