//! Task bodies and megakernels as text, from numbers: what a user might write, right or with one rule broken.
//!
//! A right body has a sequential reference beside it, on whole tensors. A wrong one says which code must appear, and on which line.
//! The rules are stated here a second time, in plain Rust, and not taken from MACO: where both differ, one of them is wrong.
#![allow(dead_code, reason = "the build script writes right bodies, the test of refusals wrong ones")]

mod body;
mod element;
mod fault;
mod gemm;
mod helper;
mod indexed;
mod kernel;
mod operations;
mod rows;
mod signature;
mod view;

pub use fault::{FAULTS, Wrong};

/// Which seeds: `MACO_BODIES=first..last`, or those of CI.
pub const SEEDS: &str = "MACO_BODIES";

/// Megakernels of right bodies to a seed.
const KERNELS: usize = 1;
/// Bodies that break a rule to a seed: more than there are right ones.
const WRONG: usize = 16;

/// The seeds to make, `usual` if nobody says.
pub fn seeds(usual: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var(SEEDS) else { return usual };
    let range = text.split_once("..").and_then(|(first, last)| Some(first.parse().ok()?..last.parse().ok()?));
    range.unwrap_or_else(|| panic!("{SEEDS} is `first..last`, not `{text}`"))
}

/// What one seed makes.
pub struct Made {
    /// Tasks and megakernels, for host and device.
    pub kernels: String,
    /// References and a function that runs each megakernel.
    pub checks: String,
    /// The names of those functions.
    pub names: Vec<String>,
    /// Number of right bodies.
    pub right: usize,
    /// Those that read outside their region, which shows when they run.
    pub outside: usize,
    /// Those that break a rule.
    pub wrong: Vec<Wrong>,
}

/// Everything of a seed.
pub fn make(seed: u64) -> Made {
    let mut made = Made { kernels: String::new(), checks: String::new(), names: Vec::new(), right: 0, outside: 0, wrong: Vec::new() };
    for number in 0..KERNELS {
        kernel::right(&mut Rng::new(seed, number as u64), seed, &format!("seed{seed}_{number}"), &mut made);
    }
    kernel::outside(&mut Rng::new(seed, 100), &format!("seed{seed}_outside"), &mut made);
    for number in 0..WRONG {
        // Each fault in turn, so that a few seeds have all of them.
        let fault = FAULTS[(seed as usize * WRONG + number) % FAULTS.len()];
        made.wrong.push(fault::wrong(&mut Rng::new(seed, 1000 + number as u64), fault, seed, number));
    }
    made
}

/// What the texts of all seeds begin with: helper functions that bodies call.
pub const HELPERS: &str = "
/// v less the nearest multiple of 16: sums of such are exact.
fn small(v: f32) -> f32 {
    // The sum has no bits for a fraction.
    const ROUND: f32 = 12_582_912.0;
    v - 16.0 * ((v * 0.0625 + ROUND) - ROUND)
}

/// The larger one.
fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}
";

/// SplitMix64 (Steele et al., 2014).
#[derive(Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64, stream: u64) -> Rng {
        let mut rng = Rng(seed.wrapping_mul(0x0001_0000_0001).wrapping_add(stream));
        rng.next();
        rng
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// One time of `n`.
    pub fn one_of(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }
}
