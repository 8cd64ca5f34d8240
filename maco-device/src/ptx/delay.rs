//! Delays before waits, loads, stores and signals, for tests that look for orders which happen once in a million launches.
//!
//! Without the feature `delays` there is nothing here. With it, each primitive that another role or CTA can see asks a hash of the
//! launch's seed, the warp and the clock whether to sleep (PTX ISA §9.7.19.7 `nanosleep`).

/// Sets the CTA's seed; 0 for no delays. Called by all threads before the CTA's first barrier, or before they [`meet`].
#[inline(always)]
pub fn seed(_seed: u32) {
    #[cfg(feature = "delays")]
    if super::special::thread() == 0 {
        // SAFETY: the last word of shared memory is nobody else's, and nobody reads it before the barrier.
        unsafe { super::memory::store_shared(super::special::shared_base() + crate::abi::SEED, _seed) }
    }
}

/// All threads have the seed, of a CTA that has no other barrier before the first delay: a scheduler's.
#[inline(always)]
pub fn meet() {
    #[cfg(feature = "delays")]
    super::barrier::sync_cta();
}

/// Sleeps up to two microseconds, one time in eight.
#[inline(always)]
pub fn delay() {
    #[cfg(feature = "delays")]
    {
        use core::arch::asm;

        // SAFETY: as above.
        let seed = unsafe { super::memory::load_shared(super::special::shared_base() + crate::abi::SEED) };
        if seed != 0 {
            let clock: u32;
            // SAFETY: reads a special register.
            unsafe { asm!("mov.u32 {0}, %clock;", out(reg32) clock, options(nostack, nomem)) };
            // Anew: whoever waits has no registers for it.
            let warp = super::special::thread_again() / 32 + super::special::place_again().0 * 12;
            let mut hash = (seed ^ clock.rotate_left(16)).wrapping_mul(0x9e37_79b1) ^ warp.wrapping_mul(0x85eb_ca77);
            hash = (hash ^ hash >> 15).wrapping_mul(0x2c1b_3c6d);
            hash ^= hash >> 12;
            if hash & 7 == 0 {
                let nanoseconds = hash >> 21;
                // SAFETY: suspends this thread only.
                unsafe { asm!("nanosleep.u32 {0};", in(reg32) nanoseconds, options(nostack, nomem)) };
            }
        }
    }
}
