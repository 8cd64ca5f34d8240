//! The launch's tensor maps, each fenced by a thread before its first use.

use crate::hardware::fence;

/// The table of tensor maps as one thread sees it.
///
/// A fence is not cheap (docs/internals/gemm.md), and a step of a product copies boxes of two or three maps. So the thread
/// remembers which it has fenced: of the first 32 all, of the others the last four.
pub struct Maps {
    table: u64,
    /// Bit per map below 32: already fenced.
    fenced: u32,
    /// Four of the others, 16 bits each, the newest one lowest.
    recent: [u32; 2],
}

/// No map, in 16 bits. Maps from here on are fenced at each use.
const NONE: u32 = 0xffff;

impl Maps {
    #[inline(always)]
    pub fn new(table: u64) -> Maps {
        Maps { table, fenced: 0, recent: [NONE << 16 | NONE; 2] }
    }

    /// Address of map `index`. The host wrote it before the launch, and kernel start does not acquire the tensor-map proxy.
    #[inline(always)]
    pub fn get(&mut self, index: u32) -> u64 {
        let map = self.table + index as u64 * 128;
        if !self.knows(index) {
            // SAFETY: the plan put as many maps into the table as its views name.
            unsafe { fence::tensormap_acquire(map) };
        }
        map
    }

    /// Whether this thread has fenced map `index`; if not, it is about to.
    #[inline(always)]
    fn knows(&mut self, index: u32) -> bool {
        if index < 32 {
            let known = self.fenced >> index & 1 != 0;
            self.fenced |= 1 << index;
            return known;
        }
        let [new, old] = self.recent;
        let known = new & NONE == index || new >> 16 == index || old & NONE == index || old >> 16 == index;
        if !known {
            self.recent = [new << 16 | index & NONE, old << 16 | new >> 16];
        }
        known && index < NONE
    }
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::{Maps, NONE};

    #[test]
    fn a_task_fences_each_of_its_maps_once() {
        let mut maps = Maps::new(0);
        // Calls of three maps each, step after step.
        for first in [0, 3, 27, 33, 1000, 65_000] {
            for step in 0..5 {
                assert_eq!([0, 1, 2].map(|n| maps.knows(first + n)), [step > 0; 3], "maps from {first} on, step {step}");
            }
        }
        // The first ones are remembered for good, of the others four.
        assert_eq!([0, 29, 65_000, 65_001, 65_002, 1002].map(|index| maps.knows(index)), [true; 6]);
        assert_eq!([1001, 1002].map(|index| maps.knows(index)), [false; 2]);
        // What has no place among the four is not mistaken for none.
        assert_eq!([NONE, NONE].map(|index| maps.knows(index)), [false; 2]);
    }
}
