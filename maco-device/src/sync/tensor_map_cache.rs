//! Tensor-map cache: a thread fences each tensor map of the launch before its first use, once.

use crate::hardware::{fence, special};
use maco_abi::MapIndex;

/// The table of tensor maps as one thread sees it.
///
/// A fence is not cheap, and neither is to find out that there has been one (docs/internals/gemm.md): a step of a GEMM copies boxes of two or
/// three maps, and the thread has hundreds of cycles for it. So it remembers the last map of each operand of a GEMM, for one comparison; and
/// of the first 32 whether it has fenced them, for bodies whose steps have several products.
pub struct TensorMapCache {
    table: u64,
    /// Bit per map below 32: already fenced.
    fenced: u32,
    /// By operand.
    last: [u32; 3],
}

/// No map.
const NONE: u32 = u32::MAX;

impl TensorMapCache {
    #[inline(always)]
    pub fn new(table: u64) -> TensorMapCache {
        TensorMapCache { table, fenced: 0, last: [NONE; 3] }
    }

    /// Address of a map, of operand `N` of a GEMM. The host wrote it before the launch, and kernel start does not acquire the
    /// tensor-map proxy.
    #[inline(always)]
    pub fn get<const N: usize>(&mut self, map: MapIndex) -> u64 {
        let index = map.index();
        let map = self.table + index as u64 * 128;
        // Of nearly all steps this comparison is everything; opaque, so that the rest of the question stays behind it.
        if self.last[N] != index && !self.knows(special::opaque(index)) {
            // SAFETY: the plan put as many maps into the table as its views name.
            unsafe { fence::tensormap_acquire(map) };
        }
        // On either way: so the compiler sees that the steps of a contraction, whose maps were asked for before, need not ask.
        self.last[N] = index;
        map
    }

    /// Whether this thread has fenced map `index`; if not, it is about to.
    #[inline(always)]
    fn knows(&mut self, index: u32) -> bool {
        let known = index < 32 && self.fenced >> index & 1 != 0;
        if index < 32 {
            self.fenced |= 1 << index;
        }
        known
    }
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::TensorMapCache;

    struct Asked(TensorMapCache);

    impl Asked {
        fn knows<const N: usize>(&mut self, index: u32) -> bool {
            let known = self.0.last[N] == index || self.0.knows(index);
            self.0.last[N] = index;
            known
        }
    }

    #[test]
    fn a_task_fences_each_of_its_maps_once() {
        let mut tensor_maps = Asked(TensorMapCache::new(0));
        // Calls of three maps each, step after step.
        for first in [0, 3, 27, 33, 1000, 65_000] {
            for step in 0..5 {
                let known = [tensor_maps.knows::<0>(first), tensor_maps.knows::<1>(first + 1), tensor_maps.knows::<2>(first + 2)];
                assert_eq!(known, [step > 0; 3], "maps from {first} on, step {step}");
            }
        }
        // The first ones are remembered for good, of the others the last one of each operand.
        assert_eq!([0, 29, 27, 28, 29].map(|index| tensor_maps.knows::<0>(index)), [true; 5]);
        assert_eq!([65_000, 65_000, 33, 65_000].map(|index| tensor_maps.knows::<0>(index)), [false, true, false, false]);
        assert_eq!([65_001, 65_001].map(|index| tensor_maps.knows::<1>(index)), [true; 2]);
    }
}
