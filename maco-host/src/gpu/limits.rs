//! What a GPU can do at most, by its own clocks and NVIDIA's data sheets: for percentages, and for device models of GPUs that nobody measured.

use super::Context;
use crate::device_model::Reported;
use crate::profile::Roofline;

/// What the driver says of a GPU; 0 where it does not say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// All that there are.
    pub(super) multiprocessors: u32,
    /// Highest clocks of multiprocessors and memory, and bits of the memory's bus.
    pub(super) clock_khz: u32,
    pub(super) memory_khz: u32,
    pub(super) memory_bits: u32,
}

impl Limits {
    /// Both edges of the memory clock carry a bit.
    fn bytes_per_second(self) -> f64 {
        2.0 * f64::from(self.memory_khz) * 1e3 * f64::from(self.memory_bits) / 8.0
    }
}

impl Context {
    /// What a device model is derived from.
    pub(crate) fn reported(&self) -> Reported {
        let limits = self.limits();
        Reported { multiprocessors: limits.multiprocessors, memory: limits.bytes_per_second() / 1e9 }
    }

    /// What this GPU can do at most; none of an architecture that is not listed.
    pub(super) fn roofline(&self) -> Option<Roofline> {
        // Operations of the tensor cores of one multiprocessor per cycle, 16-bit and dense: what the data sheets' 989 TFLOP/s (H100, H200:
        // 132 multiprocessors at 1.83 GHz) and 2250 TFLOP/s (B200: 148 at 1.85 GHz) come to.
        let flops_per_cycle = match self.capability() {
            (9, _) => 4096.0,
            (10, _) => 8192.0,
            _ => return None,
        };
        // The highest clock: long multiplication makes the GPU run below it.
        let hertz = f64::from(self.limits().clock_khz) * 1e3;
        let bytes_per_second = self.limits().bytes_per_second();
        (hertz > 0.0 && bytes_per_second > 0.0).then(|| Roofline {
            bytes_per_second,
            flops_per_second: flops_per_cycle * hertz * f64::from(self.multiprocessors()),
            multiprocessors: self.multiprocessors(),
        })
    }
}
