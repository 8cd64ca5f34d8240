//! Rules and registers of every package's PTX.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use maco_build::ptx::{Rules, lint, ptxas};

use crate::failure::Failure;
use crate::fetch;
use crate::packages::Package;

/// What the PTX of a package costs and breaks.
struct Outcome {
    lines: Vec<String>,
    faults: Vec<String>,
}

/// Lints and assembles the PTX of each package that has kernels, and prints what each entry costs.
pub fn check(packages: &[Package]) -> Result<(), Failure> {
    let assembler = fetch::ptxas()?;
    let packages: Vec<&Package> = packages.iter().filter(|package| package.has_kernels()).collect();
    // The assembler has one thread, and takes minutes for all.
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(package) = packages.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = one(package, &assembler);
                    outcomes.lock().unwrap_or_else(PoisonError::into_inner).push((package.name.as_str(), outcome));
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcomes.sort_by_key(|(name, _)| *name);
    println!("{:<52} {:>9} {:>6} {:>6}", "entry", "registers", "stack", "spills");
    let mut faults = Vec::new();
    for (name, outcome) in outcomes {
        let outcome = outcome?;
        outcome.lines.iter().for_each(|line| println!("{line}"));
        faults.extend(outcome.faults.iter().map(|fault| format!("{name}: {fault}")));
    }
    faults.iter().for_each(|fault| eprintln!("error: {fault}"));
    if faults.is_empty() { Ok(()) } else { Err(Failure::Text(format!("{} broken rules of PTX", faults.len()))) }
}

fn one(package: &Package, assembler: &Path) -> Result<Outcome, Failure> {
    let file = package.ptx();
    let ptx = fs::read_to_string(&file).map_err(Failure::io("read", &file))?;
    let rules = Rules::of(&ptx);
    let mut findings = lint::check(&ptx, &rules);
    let verdict = ptxas::check(assembler, &file, &rules)?.ok_or_else(|| {
        Failure::Text(format!("{} is too old for this PTX; set MACO_PTXAS to one of CUDA 12.6 or newer", assembler.display()))
    })?;
    // Panic functions are functions too; only entries have registers.
    let entries = verdict.usage.iter().filter(|usage| usage.registers > 0);
    let lines =
        entries.map(|usage| format!("{:<52} {:>9} {:>6} {:>6}", usage.function, usage.registers, usage.stack, usage.spills)).collect();
    findings.extend(verdict.findings);
    Ok(Outcome { lines, faults: findings.iter().map(ToString::to_string).collect() })
}
