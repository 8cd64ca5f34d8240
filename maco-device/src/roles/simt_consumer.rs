//! The role of a consumer thread in the body of a task without tensor cores, which is a function of its own.

use crate::operations::simt_consumer::{SimtConsumer, consumers_memory};
use crate::role::Role;
use crate::sync::ring::Ring;

impl Role for SimtConsumer {
    type Accumulator<const I: usize, const J: usize> = ();

    #[inline(always)]
    fn zeros<const I: usize, const J: usize>(&mut self) {}

    #[inline(always)]
    fn simt_consumer(&self) -> Option<SimtConsumer> {
        Some(*self)
    }

    #[inline(always)]
    fn ring(&self) -> u64 {
        self.ring.packed()
    }

    #[inline(always)]
    fn set_ring(&mut self, packed: u64) {
        self.ring = Ring::unpack(consumers_memory(), packed);
    }
}
