//! What only the assembler knows: registers, spills, tensor-core instructions that it serialises.

use std::path::Path;

use maco_build::parallel;
use maco_build::ptx::split::Entry;
use maco_build::ptx::{Rules, ptxas};

use super::{device_code, left_out};

/// Assembles every entry under `out`, a build script's directory.
pub fn few_words_spill(out: &str) {
    let entries = device_code(out, "registers and spills");
    // target/release/build/kernels-0123/out
    let target = Path::new(out).ancestors().nth(4).unwrap_or(Path::new("."));
    let Some(program) = ptxas::find(&target.join("maco")) else {
        return left_out("registers and spills", "no ptxas; set MACO_PTXAS, or run `cargo xtask lint`");
    };
    // The builds' own, whose machine code is taken if it is there.
    let folder = target.join("maco/sass");
    let entries: Vec<Entry> = entries.into_iter().map(|entry| Entry { name: entry.symbol, ptx: entry.text }).collect();
    let assemble = |entry: &Entry| ptxas::assemble(&program, entry, &Rules::default(), &folder);
    for (entry, assembled) in entries.iter().zip(parallel::each(&entries, |entry| entry.ptx.len(), assemble)) {
        let Some(assembled) = assembled.unwrap_or_else(|error| panic!("`{}`: {error}", entry.name)) else {
            return left_out("registers and spills", "this ptxas is too old for the PTX");
        };
        assert_eq!(assembled.findings, [], "`{}`", entry.name);
        for usage in &assembled.usage {
            // 384 threads and 65,536 registers, handed out by eights.
            assert!(usage.registers <= 168, "`{}` uses {} registers", entry.name, usage.registers);
        }
    }
}
