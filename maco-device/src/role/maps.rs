//! The launch's tensor maps, each fenced by a thread before its first use.

use crate::hardware::fence;

/// The table of tensor maps as one thread sees it.
pub struct Maps {
    table: u64,
    /// Bit per map below 32: already fenced.
    fenced: u32,
}

impl Maps {
    #[inline(always)]
    pub fn new(table: u64) -> Maps {
        Maps { table, fenced: 0 }
    }

    /// Address of map `index`. The host wrote it before the launch, and kernel start does not acquire the tensor-map proxy.
    #[inline(always)]
    pub fn get(&mut self, index: u32) -> u64 {
        let map = self.table + index as u64 * 128;
        if index >= 32 || self.fenced >> index & 1 == 0 {
            // SAFETY: the plan put as many maps into the table as its views name.
            unsafe { fence::tensormap_acquire(map) };
            self.fenced |= 1 << (index & 31);
        }
        map
    }
}
