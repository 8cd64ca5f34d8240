//! How much a test does, which is less where everything is slow, or where something is missing.
#![allow(dead_code, reason = "not every test that includes this file asks everything")]

use std::io::Write;

/// Whether `MACO_TESTS=short` says that everything is slow, as under a sanitizer and on the emulated GPU.
pub fn short() -> bool {
    std::env::var("MACO_TESTS").is_ok_and(|tests| tests == "short")
}

/// How often a test repeats something: `full` times, or a few.
pub fn rounds(full: usize) -> usize {
    if short() { (full / 50).clamp(2, 100) } else { full }
}

/// Seeds of a test's `nth` shape: two one after the other have numbers of different kinds.
pub fn seeds(nth: usize) -> std::ops::Range<u64> {
    let one = nth as u64 % 4;
    if short() { one..one + 1 } else { 0..4 }
}

/// Says what a test does not do here, past the capture of the test harness, on a line of its own: `dist/run.sh` counts these lines.
pub fn left_out(what: &str, why: &str) {
    let _ = writeln!(std::io::stdout(), "\nleft out: {what}: {why}");
}
