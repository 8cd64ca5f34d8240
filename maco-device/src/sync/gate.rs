//! When consumers begin with a task.
//!
//! They take up a task as soon as it is posted: the jump to its code, its tiles and scalars, and what an early body loads, are not behind
//! the wait. The wait is the task's gate. The dependency poller opens gates well ahead of the consumers, by `ready`. If it has not, the consumers
//! have nothing else to do, and of a light task each of their warps looks at the counters itself: that spares a hand-over by mbarrier
//! between the arrival of the last signal and the first access.
//!
//! All warps must agree on which tasks run, or those that do would wait at a barrier for those that do not. So when a CTA stops, it first
//! closes: each warp says at its gate whether it still looks ([`LOOKS`]), has gone through ([`BEGUN`]), or was closed out; whoever stops
//! the CTA waits until none looks, and then publishes what any warp has begun. A warp announces that it looks before it reads the halt
//! word, and whoever stops writes the halt word before reading what was announced, with a sequentially consistent fence on both sides: one
//! of the two sees the other (Dekker's argument; PTX ISA §8.10). What was announced is relaxed: a release there would be on the way of every
//! task that a warp looks for itself, so whoever stops acquires the inputs of what has begun once more ([`confirm`]).

use crate::hardware::{barrier, fence, gpu_scope, mbarrier, memory, special, warp};
use crate::profile;
use crate::protocol::{self, Counters, Machine};
use crate::shared_memory::{ARRIVALS, CLOSE, SharedMemory, WARPS, place};
use crate::sync::ready_mailbox::{self, Notice};
use crate::sync::waits::Waits;
use maco_abi::{CONSUMERS_POLL, Descriptor, Flags, IDEMPOTENT_SIGNAL, MOST_TASKS, SLOTS, Signal};

/// Of the word of a warp, below twice two bits of the task: it looks at counters.
const LOOKS: u32 = 1;
/// Of the word of a warp: it has begun, or will without looking again.
const BEGUN: u32 = 2;

/// Arrivals up to which consumers look themselves: where a counter counts more, whole CTAs wait for it, and their looks would delay
/// the signals.
const FEW: u32 = 8;

const SIGNALS: u32 = core::mem::offset_of!(Descriptor, signal) as u32;
const FLAGS: u32 = core::mem::offset_of!(Descriptor, flags) as u32;
/// Of a gate's word, below: the task, by its place in the worker's list.
const NUMBER: u32 = MOST_TASKS - 1;
/// From here on, three bits: places to the worker's own task that this one comes after; 0 for none.
const AFTER: u32 = NUMBER.count_ones();
/// The bits of these places.
const AFTERS: u32 = 7 << AFTER;
/// The task is not known to be published.
const SHUT: u32 = 1 << 27;
/// Somebody may wait for the task's one signal: it comes before anything else.
const FIRST: u32 = 1 << 28;
/// The task has been ended so.
const ENDED: u32 = 1 << 29;
/// The CTA stops: the task has not begun, and never will.
const STOPPED: u32 = 1 << 30;
/// The task is more than a body, see [`crate::sync::ready_mailbox`], or is ended first.
const SPECIAL: u32 = 1 << 31;
const _: () = assert!(FLAGS.is_multiple_of(4) && SLOTS <= 8 && MOST_TASKS.is_power_of_two() && AFTERS < SHUT);

/// Whole consumer warps, each of which looks for itself.
struct Consumers;

// SAFETY: a relaxed load of scope gpu that saw an arrival, and a fence of the same scope behind it, behind which the warp's lanes meet (PTX ISA §8.8, release and
// acquire patterns).
unsafe impl protocol::Poller for Consumers {
    #[inline(always)]
    unsafe fn load(&self, at: *const u32) -> u32 {
        // SAFETY: passed on from the caller.
        unsafe { gpu_scope::load_relaxed(at) }
    }
    #[inline(always)]
    fn all(&self, condition: bool) -> bool {
        warp::all(condition)
    }
    #[inline(always)]
    fn acquire(&self) {
        fence::acquire_gpu();
        warp::sync();
    }
}

/// The gate of a task, and what consumers have to remember of the task until it has ended: in one word, since it is in a register while
/// the body runs, and functions that bodies call leave few.
#[derive(Clone, Copy)]
pub struct Gate {
    smem: SharedMemory,
    word: u32,
}

impl Gate {
    /// The gate of task `n`, which comes after task `n - after` of the same worker unless that is 0.
    #[inline(always)]
    pub fn of(smem: SharedMemory, n: u32, flags: Flags, after: u32, published: bool) -> Gate {
        let special = ready_mailbox::special(flags.mask());
        // The worker has to wait for it, so somebody may wait for the worker.
        let first = !published && !special && flags.has(IDEMPOTENT_SIGNAL);
        let bit = |condition: bool, bit: u32| if condition { bit } else { 0 };
        Gate { smem, word: n | after << AFTER | bit(!published, SHUT) | bit(first, FIRST) | bit(special || first, SPECIAL) }
    }

    /// A gate that nobody waits at, of task `n`, which is nothing but a body.
    #[inline(always)]
    pub fn open(smem: SharedMemory, n: u32) -> Gate {
        Gate { smem, word: n }
    }

    /// The task, by its place in the worker's list.
    #[inline(always)]
    pub fn number(&self) -> u32 {
        self.word & NUMBER
    }

    /// Behind the body: hides from the compiler that the number is the one of before, which it would keep in a register of its own, and has one register
    /// for all that is asked from here on.
    #[inline(always)]
    pub fn again(&mut self) {
        self.word = special::opaque(self.word);
    }

    /// The slot that holds the task.
    #[inline(always)]
    pub fn slot(&self) -> u32 {
        self.word % SLOTS
    }

    /// A gate that nobody waits at, of the next task, which is nothing but a body.
    #[inline(always)]
    pub fn next(&self) -> Gate {
        Gate { smem: self.smem, word: (self.word + 1) & NUMBER }
    }

    /// What has been announced of the next task.
    ///
    /// # Safety
    /// Consumers have ended all tasks in its slot before.
    #[inline(always)]
    pub unsafe fn take_next(&self) -> Notice {
        const { assert!(NUMBER >= ready_mailbox::LAPS * SLOTS - 1, "what stands above the number is of no lap") };
        // SAFETY: passed on from the caller.
        unsafe { ready_mailbox::take(self.smem, self.word.wrapping_add(1)) }
    }

    /// Whether the task is nothing but a body, and ends as usual.
    #[inline(always)]
    pub fn is_plain(&self) -> bool {
        self.word & SPECIAL == 0
    }

    /// The task's end is looked at: a test injects a fault into it ([`maco_abi::LOST_ARRIVE`]).
    #[inline(always)]
    pub fn end_last(&mut self) {
        self.word = self.word & !FIRST | SPECIAL;
    }

    /// Whether the task has a flag.
    ///
    /// # Safety
    /// The slot holds the task.
    #[inline(always)]
    pub unsafe fn has(&self, flag: Flags) -> bool {
        // SAFETY: passed on from the caller.
        let word = unsafe { memory::read_shared(self.smem.slot(place(self.number()).0) + FLAGS) };
        word & flag.mask() != 0
    }

    /// Whether [`Gate::end_first`] ends the task.
    #[inline(always)]
    pub fn ends_first(&self) -> bool {
        self.word & (FIRST | ENDED) != 0
    }

    /// Whether the task was not begun, since the CTA stops.
    #[inline(always)]
    pub fn stopped(&self) -> bool {
        self.word & STOPPED != 0
    }

    /// Waits until the task may run; once it has, returns at once. False if the CTA stops before: the task must not begin, and no warp
    /// begins it. `warp` is this one's number among the consumers.
    ///
    /// # Safety
    /// Called by whole consumer warps, by all of them for every task that this returns true for. The slot holds the task.
    #[inline(always)]
    pub unsafe fn pass(&mut self, warp: u32) -> bool {
        if self.word & (SHUT | STOPPED) != 0 {
            // SAFETY: passed on from the caller.
            if self.stopped() || !unsafe { self.wait(warp) } {
                self.word |= STOPPED;
                return false;
            }
            self.word &= !SHUT;
            // SAFETY: as above; the slot holds the task.
            unsafe { profile::waited(self.smem, self.number()) };
        }
        if self.word & AFTERS != 0 {
            // All warps have ended every task before this one.
            barrier::sync_consumers();
            // SAFETY: a consumer.
            unsafe { profile::turn(self.smem) };
            self.word &= !AFTERS;
        }
        true
    }

    /// If the task is one to be ended first, and not ended yet: this warp has ended it, and the last warp sends its signal itself. The store
    /// warp will too, but it takes a while to hear of the end. Whether the task is ended so.
    ///
    /// # Safety
    /// Called by whole warps that have run the task; its slot has one signal.
    #[inline(always)]
    pub unsafe fn end_first(&mut self) -> bool {
        if self.word & FIRST != 0 {
            self.word = self.word & !FIRST | ENDED;
            warp::sync();
            let n = self.number();
            let (at, parity) = place(n);
            // SAFETY: a consumer; once all have arrived, the slot may hold another task.
            let ran = unsafe { profile::ran(self.smem, n) };
            if ARRIVALS > 1 || warp::lane_again() == 0 {
                // SAFETY: initialised barriers; the slot stays until all warps have ended the task.
                unsafe {
                    let signal = Signal::decode(memory::read_shared(self.smem.slot(at) + SIGNALS));
                    let done = self.smem.done(at);
                    mbarrier::arrive(done);
                    if mbarrier::test(done, parity) {
                        fence::release_gpu();
                        gpu_scope::store_relaxed(self.smem.counters().add(signal.counter.0 as usize), 1);
                    }
                }
            }
            // SAFETY: as above.
            unsafe { ran.note(self.smem) };
        }
        self.word & ENDED != 0
    }

    #[inline(always)]
    unsafe fn wait(&self, warp: u32) -> bool {
        let n = self.number();
        let (at, parity) = place(n);
        let ready = self.smem.ready(at);
        // SAFETY: initialised barriers and words of shared memory; the slot holds the task.
        unsafe {
            let (own, lane) = (self.smem.begun(warp), warp::lane_again());
            // Eight warps that look take from the memory system what tasks that move much need. Where tasks are pushed, none is light: messages to
            // schedulers have the place of what it waits for.
            if !self.has(CONSUMERS_POLL) {
                return self.smem.wait_unless_stopped(ready, parity);
            }
            let waits = Waits::of(self.smem, at, lane);
            let counters = Counters::at(self.smem.counters());
            if warp::all(waits.are_few(FEW)) {
                if lane == 0 {
                    memory::store_relaxed_shared(own, n << 2 | LOOKS);
                }
                warp::sync();
                fence::sequential_cta();
                // All warps of the CTA must see the signal, so what counts is the time between two looks of the slowest. Hence there are
                // always two under way, the second one issued behind the questions to shared memory that the first one does not need.
                let mut former = waits.look(&Consumers, counters);
                loop {
                    // Whoever begins has found the gates open after it said that it looks: any time after that will do.
                    let closed = self.smem.halted() >= CLOSE;
                    let ready = mbarrier::test(ready, parity);
                    let (closed, ready) = (warp::any(closed), warp::any(ready));
                    let latter = waits.look(&Consumers, counters);
                    let mut open = warp::all(waits.arrived(former));
                    if !open {
                        former = waits.look(&Consumers, counters);
                        open = warp::all(waits.arrived(latter)) || ready;
                    }
                    if closed {
                        break;
                    }
                    if open {
                        protocol::Poller::acquire(&Consumers);
                        if lane == 0 {
                            memory::store_relaxed_shared(own, n << 2 | BEGUN);
                        }
                        return true;
                    }
                }
                if lane == 0 {
                    memory::store_relaxed_shared(own, n << 2);
                }
            }
            self.smem.wait_unless_stopped(ready, parity)
        }
    }
}

/// Closes all gates of a CTA that stops: afterwards no warp goes through one that is not published. How many tasks must be published so
/// that all warps agree, `published` at least.
///
/// # Safety
/// Called by the warp that publishes tasks.
#[inline(always)]
pub unsafe fn close(smem: SharedMemory, published: u32) -> u32 {
    smem.halt(CLOSE);
    fence::sequential_cta();
    let mut begun = published;
    let mut at = 0;
    while at < WARPS {
        // SAFETY: a word of shared memory.
        let mut word = unsafe { memory::load_relaxed_shared(smem.begun(at)) };
        while word & 3 == LOOKS {
            // SAFETY: as above. A warp that looks sees the halt word soon.
            word = unsafe { memory::load_relaxed_shared(smem.begun(at)) };
        }
        // Who stands at the gate of a task has begun all before it.
        begun = begun.max((word >> 2) + (word & 3) / BEGUN);
        at += 1;
    }
    begun
}

/// Acquires what task `n` waits for, which a warp has begun by its own looks and others are to begin by `ready`. All its signals have come.
///
/// # Safety
/// All lanes of the warp that publishes tasks call together, behind [`close`] and before they publish the task.
#[inline(always)]
pub unsafe fn confirm<M: Machine>(warp: &M, smem: SharedMemory, n: u32) {
    // SAFETY: the slot holds a task that a warp has begun, of a live launch; a warp looks only if the waits beside the slot are all.
    unsafe {
        let waits = Waits::of(smem, place(n).0, warp.lane());
        let counters = Counters::at(smem.counters());
        while !protocol::opens(warp, waits.arrived(waits.look(warp, counters))) {}
    }
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::*;
    use crate::model::{Modelled, Nobody, Shared, special};
    use crate::shared_memory::STOP;
    use crate::shared_memory::WAITS;
    use maco_abi::Wait;

    /// Both warpgroups go through the gates of tasks without waits, which nobody publishes, while the CTA stops: they begin the same tasks.
    #[test]
    fn all_warps_agree_on_what_has_begun() {
        let mut some = 0;
        for seed in 1..=2000 {
            let shared = Shared::new();
            let part = |number, warps, body: &dyn Fn(SharedMemory) -> u32| {
                Modelled::new(&shared, &Nobody, 0, number, warps, seed).enter(|| body(SharedMemory(special::shared_base())))
            };
            part(0, 1, &|smem| {
                // SAFETY: nobody else uses shared memory yet; slots are inside it.
                unsafe {
                    smem.init(0, 1);
                    let none = Wait::NONE.encode();
                    (0..SLOTS * WAITS).for_each(|n| memory::store_shared2(smem.waits(0) + n * 8, none));
                    (0..SLOTS).for_each(|n| memory::store_shared(smem.slot(n) + FLAGS, CONSUMERS_POLL.mask()));
                    // Nobody looks at one.
                    smem.set_counters(std::ptr::dangling_mut());
                }
                0
            });
            let consumer = |smem: SharedMemory| {
                // SAFETY: the slots hold tasks; both consumers come here.
                let passes = |n: &u32| unsafe { Gate::of(smem, *n, CONSUMERS_POLL, 0, false).pass(warp::consumer()) };
                let passed = (0..SLOTS).take_while(passes).inspect(|_| (0..special::choose(32)).for_each(|_| std::thread::yield_now()));
                passed.count() as u32
            };
            let stop = |smem: SharedMemory| {
                // SAFETY: initialised barriers, words of shared memory; nobody else publishes.
                unsafe {
                    let (warp, n) = (4 * special::choose(2), special::choose(SLOTS));
                    while memory::load_relaxed_shared(smem.begun(warp)) >> 2 < n {
                        std::thread::yield_now();
                    }
                    let begun = close(smem, 0);
                    (0..begun).for_each(|n| mbarrier::arrive(smem.ready(n)));
                    smem.halt(STOP);
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
