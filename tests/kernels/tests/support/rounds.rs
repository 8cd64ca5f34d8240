//! How much a test does, which is less where everything is slow.

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
