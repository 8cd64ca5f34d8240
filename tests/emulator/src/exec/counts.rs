//! How often the warps of CTA 0 came to each instruction (`EMU_COUNTS`): what a role's way through the code costs in instructions.

use std::env;
use std::fs::{OpenOptions, write};
use std::io::Write;

use super::Launch;

/// By warp and place in the program; nothing where nobody asks.
#[derive(Default)]
pub(super) struct Counts {
    file: Option<String>,
    warps: Vec<Vec<u64>>,
}

impl Counts {
    pub fn new() -> Counts {
        Counts { file: env::var("EMU_COUNTS").ok(), warps: Vec::new() }
    }

    #[inline(always)]
    pub fn on(&self) -> bool {
        self.file.is_some()
    }

    #[cold]
    pub fn note(&mut self, warp: u32, pc: u32, instructions: usize) {
        let warp = warp as usize;
        if self.warps.len() <= warp {
            self.warps.resize(warp + 1, Vec::new());
        }
        let counts = &mut self.warps[warp];
        if counts.is_empty() {
            counts.resize(instructions, 0);
        }
        counts[pc as usize] += 1;
    }
}

/// The text whose lines are counted, beside the file: a program's own, not that of the module which it was cut out of.
pub fn keep_text(text: &str) {
    if let Ok(file) = env::var("EMU_COUNTS")
        && let Err(error) = write(format!("{file}.ptx"), text)
    {
        eprintln!("[emu] cannot write `{file}.ptx` (EMU_COUNTS): {error}");
    }
}

impl Launch {
    /// A line for each launch, then one for each warp and line of the PTX text that it came to: `warp line count`.
    pub(super) fn tell_counts(&self) {
        let Some(file) = &self.counts.file else { return };
        let mut text = format!("launch {}\n", self.program.name);
        for (warp, counts) in self.counts.warps.iter().enumerate() {
            for (inst, &count) in self.program.code.iter().zip(counts).filter(|&(_, &count)| count > 0) {
                text += &format!("{warp} {} {count}\n", inst.line);
            }
        }
        let written = OpenOptions::new().create(true).append(true).open(file).and_then(|mut file| file.write_all(text.as_bytes()));
        if let Err(error) = written {
            eprintln!("[emu] cannot write `{file}` (EMU_COUNTS): {error}");
        }
    }
}
