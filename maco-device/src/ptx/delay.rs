//! Delays before waits, loads, stores and signals, for tests that look for orders which happen once in a million launches.
//!
//! Only in a `delayed` build of maco-build: there each primitive that another role or CTA can see asks a hash of the launch's seed, the warp and
//! how often that has asked before whether to sleep (PTX ISA §9.7.19.7 `nanosleep`): as on a CPU, by no clock.

#[cfg(all(maco_delays, maco_profile))]
compile_error!("code that records has no room in shared memory for delays: build without MACO_PROFILE");

/// Sets the CTA's seed; 0 for no delays. Called by all threads before the CTA's first barrier, or before they [`meet`].
#[inline(always)]
pub fn seed(_seed: u32) {
    #[cfg(maco_delays)]
    if super::special::thread() == 0 {
        // SAFETY: the last words of shared memory are nobody else's, and nobody reads them before the barrier.
        unsafe {
            super::words::store_shared(super::special::shared_base() + maco_abi::DELAY_SEED, _seed);
            let mut warp = 0;
            while warp < maco_abi::THREADS / 32 {
                super::words::store_shared(super::special::shared_base() + maco_abi::DELAY_COUNTS + warp * 4, 0);
                warp += 1;
            }
        }
    }
}

/// All threads have the seed, of a CTA that has no other barrier before the first delay: a scheduler's.
#[inline(always)]
pub fn meet() {
    #[cfg(maco_delays)]
    super::barrier::sync_cta();
}

/// Sleeps up to two microseconds, one time in eight.
#[inline(always)]
pub fn delay() {
    #[cfg(maco_delays)]
    {
        use core::arch::asm;

        // SAFETY: as above.
        let seed = unsafe { super::words::load_shared(super::special::shared_base() + maco_abi::DELAY_SEED) };
        if seed != 0 {
            // Few registers, and all of them anew: whoever waits has none.
            let own = super::special::thread_again() / 32;
            // SAFETY: the warp's own word, which its lanes add to.
            let before = unsafe { super::words::fetch_add_shared(super::special::shared_base() + maco_abi::DELAY_COUNTS + own * 4, 1) };
            let active: u32;
            // SAFETY: reads which lanes are here.
            unsafe { asm!("activemask.b32 {0};", out(reg32) active, options(nostack, nomem)) };
            // Lanes that ask together get numbers side by side: they draw the same, or two in turn.
            let drawn = before >> (31 - active.count_ones().leading_zeros());
            let mut hash = (seed ^ drawn.rotate_left(16)).wrapping_mul(0x9e37_79b1);
            hash ^= (super::special::thread_again() / 32 + super::special::place_again().0 * 12).wrapping_mul(0x85eb_ca77);
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
