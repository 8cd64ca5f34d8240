//! When consumers begin with a task.
//!
//! They take up a task as soon as it is posted: the jump to its code, its tiles and scalars, and what an early body loads, are not behind
//! the wait. The wait is the task's gate. The controller opens gates well ahead of the consumers, by `ready`. If it has not, the consumers
//! have nothing else to do, and each of their warps looks at the counters itself: that spares a hand-over by mbarrier between the arrival of the last signal and the first access.
//!
//! All warps must agree on which tasks run, or those that do would wait at a barrier for those that do not. So when a CTA stops, it first
//! closes: each warp says at its gate whether it still looks ([`LOOKS`]), has gone through ([`BEGUN`]), or was closed out; whoever stops
//! the CTA waits until none looks, and then publishes what any warp has begun. A warp announces that it looks before it reads the halt
//! word, and whoever stops writes the halt word before reading what was announced, with a sequentially consistent fence on both sides: one
//! of the two sees the other (Dekker's argument; PTX ISA §8.10).

use super::ring::{Arena, CLOSE, WARPS, place};
use crate::abi::{Descriptor, NO_COUNTER, Wait};
use crate::hardware::{barrier, fence, local, mbarrier, memory, warp};
use crate::profile;

/// Of the word of a warp, below twice two bits of the task: it looks at counters.
const LOOKS: u32 = 1;
/// Of the word of a warp: it has begun, or will without looking again.
const BEGUN: u32 = 2;

/// Arrivals up to which consumers look themselves: where a counter counts more, whole CTAs wait for it, and their looks would delay
/// the signals.
const FEW: u32 = 8;

const WAITS: u32 = core::mem::offset_of!(Descriptor, wait) as u32;
const EXTRAS: u32 = core::mem::offset_of!(Descriptor, extra_waits) as u32;
const INDIRECT: u32 = core::mem::offset_of!(Descriptor, indirect) as u32;
const _: () = assert!(WAITS.is_multiple_of(16) && size_of::<[Wait; 2]>() == 16);

/// The gate of a task.
#[derive(Clone, Copy)]
pub struct Gate {
    arena: Arena,
    /// The task, by its place in the worker's list.
    n: u32,
    /// It comes after the worker's own task so many places before; 0 for none.
    after: u32,
    shut: bool,
}

impl Gate {
    /// The gate of task `n`, which comes after task `n - after` of the same worker unless that is 0; `shut` unless it is known to be
    /// published.
    #[inline(always)]
    pub fn of(arena: Arena, n: u32, after: u32, shut: bool) -> Gate {
        Gate { arena, n, after, shut }
    }

    /// A gate that nobody waits at.
    #[inline(always)]
    pub fn open(arena: Arena) -> Gate {
        Gate { arena, n: 0, after: 0, shut: false }
    }

    /// Waits until the task may run; once it has, returns at once. False if the CTA stops before: the task must not begin, and no warp
    /// begins it.
    ///
    /// # Safety
    /// Called by whole consumer warps, by all of them for every task that this returns true for. The slot holds the task.
    #[inline(always)]
    pub unsafe fn pass(&mut self) -> bool {
        if self.shut {
            // SAFETY: passed on from the caller.
            if !unsafe { self.wait() } {
                return false;
            }
            self.shut = false;
            // SAFETY: as above; the slot holds the task.
            unsafe { profile::waited(self.arena, self.n) };
        }
        if self.after != 0 {
            // All warps have ended every task before this one.
            barrier::sync_consumers();
            self.after = 0;
        }
        true
    }

    #[inline(always)]
    unsafe fn wait(&self) -> bool {
        let (at, parity) = place(self.n);
        let (slot, ready) = (self.arena.slot(at), self.arena.ready(at));
        // SAFETY: initialised barriers and words of the arena; the slot holds the task.
        unsafe {
            let [first, need, second, other] = memory::read_shared4(slot + WAITS);
            let few = memory::read_shared(slot + EXTRAS) as u16 == 0
                && memory::read_shared(slot + INDIRECT) as u16 == 0
                && (first == NO_COUNTER || need <= FEW)
                && (second == NO_COUNTER || other <= FEW);
            let (own, lane) = (self.arena.begun(warp::consumer()), warp::lane_again());
            if warp::all(few) {
                if lane == 0 {
                    memory::store_shared(own, self.n << 2 | LOOKS);
                }
                warp::sync();
                fence::sequential_cta();
                let counters = self.arena.counters();
                loop {
                    // Asked before the look that it is about: who begins has found the gates open after it said that it looks.
                    let closed = self.arena.halted() >= CLOSE;
                    let mut arrived = true;
                    if first != NO_COUNTER {
                        arrived = local::load_relaxed(counters.add(first as usize)) >= need;
                    }
                    if second != NO_COUNTER {
                        arrived &= local::load_relaxed(counters.add(second as usize)) >= other;
                    }
                    let open = warp::all(arrived || mbarrier::test(ready, parity));
                    if warp::any(closed) {
                        break;
                    }
                    if open {
                        fence::acquire_gpu();
                        warp::sync();
                        if lane == 0 {
                            memory::store_shared(own, self.n << 2 | BEGUN);
                        }
                        return true;
                    }
                }
                if lane == 0 {
                    memory::store_shared(own, self.n << 2);
                }
            }
            self.arena.wait_unless_stopped(ready, parity)
        }
    }
}

/// Closes all gates of a CTA that stops: afterwards no warp goes through one that is not published. How many tasks must be published so
/// that all warps agree, `published` at least.
///
/// # Safety
/// Called by the warp that publishes tasks.
#[inline(always)]
pub unsafe fn close(arena: Arena, published: u32) -> u32 {
    arena.halt(CLOSE);
    fence::sequential_cta();
    let mut begun = published;
    let mut at = 0;
    while at < WARPS {
        // SAFETY: a word of the arena.
        let mut word = unsafe { memory::load_shared(arena.begun(at)) };
        while word & 3 == LOOKS {
            // SAFETY: as above. A warp that looks sees the halt word soon.
            word = unsafe { memory::load_shared(arena.begun(at)) };
        }
        // Who stands at the gate of a task has begun all before it.
        begun = begun.max((word >> 2) + (word & 3) / BEGUN);
        at += 1;
    }
    begun
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::*;
    use crate::abi::SLOTS;
    use crate::model::{Modelled, Shared, Surroundings, special};
    use crate::role::ring::STOP;

    struct Nobody;

    impl Surroundings for Nobody {
        fn now(&self) -> u64 {
            1
        }
        fn working(&self, _: bool) {}
    }

    /// Both warpgroups go through the gates of tasks without waits, which nobody publishes, while the CTA stops: they begin the same tasks.
    #[test]
    fn all_warps_agree_on_what_has_begun() {
        let mut some = 0;
        for seed in 1..=2000 {
            let shared = Shared::new();
            let part = |number, warps, body: &dyn Fn(Arena) -> u32| {
                Modelled::new(&shared, &Nobody, 0, number, warps, seed).enter(|| body(Arena(special::shared_base())))
            };
            part(0, 1, &|arena| {
                // SAFETY: nobody else uses the arena yet; slots are inside it.
                unsafe {
                    arena.init();
                    (0..SLOTS).for_each(|at| (special::generic(arena.slot(at)) as *mut Descriptor).write(Descriptor::END));
                    arena.set_counters(std::ptr::null_mut());
                }
                0
            });
            let consumer = |arena: Arena| {
                // SAFETY: the slots hold tasks; both consumers come here.
                let passes = |n: &u32| unsafe { Gate::of(arena, *n, 0, true).pass() };
                let passed = (0..SLOTS).take_while(passes).inspect(|_| (0..special::choose(32)).for_each(|_| std::thread::yield_now()));
                passed.count() as u32
            };
            let stop = |arena: Arena| {
                // SAFETY: initialised barriers, words of the arena; nobody else publishes.
                unsafe {
                    let (warp, n) = (4 * special::choose(2), special::choose(SLOTS));
                    while memory::load_shared(arena.begun(warp)) >> 2 < n {
                        std::thread::yield_now();
                    }
                    let begun = close(arena, 0);
                    (0..begun).for_each(|n| mbarrier::arrive(arena.ready(n)));
                    arena.halt(STOP);
                    begun
                }
            };
            let [first, second, begun] = std::thread::scope(|scope| {
                let threads =
                    [scope.spawn(|| part(128, 4, &consumer)), scope.spawn(|| part(256, 4, &consumer)), scope.spawn(|| part(32, 1, &stop))];
                threads.map(|thread| thread.join().unwrap())
            });
            assert_eq!((first, second), (begun, begun), "seed {seed}");
            some += u32::from(begun > 0 && begun < SLOTS);
        }
        assert!(some > 0, "no CTA stopped in the midst");
    }
}
