//! Delays of host threads, by a seed: before waits, loads, stores and signals, as those of `ptx/delay.rs`.
//!
//! A number that a thread draws depends on the seed, on who the thread is, and on how many it has drawn before; on no clock. Without a seed
//! nothing is drawn.

use std::cell::Cell;
use std::ptr::null;
use std::time::Duration;

/// What a thread is delayed by, and chooses by.
pub struct Delays {
    /// 0 for none.
    seed: u32,
    slow: bool,
    state: Cell<u64>,
}

thread_local! {
    static CURRENT: Cell<*const Delays> = const { Cell::new(null()) };
}

impl Delays {
    /// Of the thread that plays hardware thread `number` of CTA `block`, the schedulers' behind those of workers; none if `seed` is 0.
    pub fn new(seed: u32, block: u32, number: u32) -> Delays {
        let state = (u64::from(seed) << 32 | u64::from(block * maco_abi::THREADS + number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Delays { seed, slow: seed != 0 && state >> 40 & 1 == 1, state: Cell::new(state) }
    }

    /// Runs `body` as the thread that this delays.
    pub fn enter<T>(&self, body: impl FnOnce() -> T) -> T {
        struct Reset(*const Delays);
        impl Drop for Reset {
            fn drop(&mut self) {
                CURRENT.set(self.0);
            }
        }
        let _reset = Reset(CURRENT.replace(if self.seed == 0 { null() } else { self }));
        body()
    }

    /// A number below `end`; 0 without a seed.
    pub(super) fn choose(&self, end: u32) -> u32 {
        if self.seed == 0 {
            return 0;
        }
        // splitmix64
        let state = self.state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.state.set(state);
        let mut hash = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((hash >> 33) % u64::from(end)) as u32
    }

    /// Lets others go first, now and then; some threads often, so that what they should have done long ago is still to come.
    #[cold]
    fn delay(&self) {
        if self.slow && self.choose(16) == 1 {
            std::thread::sleep(Duration::from_micros(self.choose(100).into()));
        }
        match self.choose(64) {
            1..=4 => std::thread::yield_now(),
            5 => std::thread::sleep(Duration::from_micros(self.choose(30).into())),
            _ => {}
        }
    }
}

/// Delays the thread, if it is one of a launch with a seed.
#[inline]
pub fn delay() {
    let current = CURRENT.get();
    if !current.is_null() {
        // SAFETY: `enter` keeps the value borrowed while it is current.
        unsafe { (*current).delay() };
    }
}

#[cfg(test)]
mod tests {
    use super::super::{fence, gpu_scope};
    use super::*;
    use crate::protocol::{Machine, Thread};

    /// Whether `what` is delayed by a seed.
    fn is_delayed(what: impl Fn()) -> bool {
        let delays = Delays::new(1, 0, 0);
        let before = delays.state.get();
        delays.enter(&what);
        let after = delays.state.get();
        what();
        assert_eq!(delays.state.get(), after, "a thread that has ended is delayed");
        before != after
    }

    /// Every access to what executors share, and every fence: of counters, tickets, queues, mailboxes, and of signals.
    #[test]
    fn every_access_is_delayed() {
        let mut words = [0u32; 4];
        let (at, machine) = (words.as_mut_ptr(), Thread::new());
        // SAFETY: words of this thread.
        let accesses: [(&str, &dyn Fn()); 16] = unsafe {
            [
                ("load", &|| _ = machine.load(at)),
                ("store", &|| machine.store(at, 1)),
                ("add", &|| machine.add(at, 1)),
                ("claim", &|| _ = machine.claim(at, 1)),
                ("compare_exchange", &|| _ = machine.compare_exchange(at, 0, 1)),
                ("acquire", &|| machine.acquire()),
                ("release", &|| machine.release()),
                ("load_relaxed", &|| _ = gpu_scope::load_relaxed(at)),
                ("store_relaxed", &|| gpu_scope::store_relaxed(at, 1)),
                ("arrive", &|| _ = gpu_scope::arrive(at, 1)),
                ("leave", &|| _ = gpu_scope::leave(at, 1)),
                ("clear", &|| gpu_scope::clear(at, 1)),
                ("poll4_if", &|| gpu_scope::poll4_if(true, at, &mut [0; 4])),
                ("acquire_gpu", &fence::acquire_gpu),
                ("release_gpu", &fence::release_gpu),
                ("sequential_cta", &fence::sequential_cta),
            ]
        };
        for (name, access) in accesses {
            assert!(is_delayed(access), "{name} is not delayed");
        }
    }

    /// The same seed and thread, the same delays; other ones, others.
    #[test]
    fn delays_depend_on_seed_thread_and_count() {
        let drawn = |delays: Delays| (0..100).map(|_| delays.choose(64)).collect::<Vec<_>>();
        let all: Vec<_> =
            [(1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 32)].map(|(seed, block, number)| drawn(Delays::new(seed, block, number))).into();
        assert_eq!(all[0], drawn(Delays::new(1, 0, 0)));
        assert!((1..4).all(|n| all[..n].iter().all(|other| *other != all[n])));
        assert!(drawn(Delays::new(0, 0, 0)).iter().all(|&number| number == 0));
    }
}
