//! A warp task: one warp waits for its inputs, runs it, and signals its end. Which warp runs which task does not belong here: see `worker/warp_tasks.rs`.
//!
//! The warp has the task's descriptor in registers. Shared memory has no room for the tasks that eight warps run.

use core::mem::offset_of;

use crate::hardware::{fence, gpu_scope, memory, special, warp};
use crate::machine::{self, Ahead, Alone};
use crate::profile::warp_task::{Ended, WarpTaskTimer};
use crate::protocol::{self, Counters, Names, Outcome, Poller, Run, Until};
use crate::shared_memory::{RUNNING, SharedMemory, WAITING};
use maco_abi::{
    CounterIndex, Descriptor, Flags, Indirect, Launch, NO_COUNTER, NO_SIGNAL, Naming, READ_BY_TMA, Signal, Slot, UNREADY, View, Wait,
};

const SIGNAL: usize = offset_of!(Descriptor, signal);

/// Looks at counters before the deadline counts: how long ago the first one was is not asked before.
const LOOKS: u32 = 256;

/// Not known to be ready.
const SHUT: u32 = 0;
/// Its inputs are there.
const OPEN: u32 = 1;
/// It must not begin: the launch is aborted.
const STOPPED: u32 = 2;
/// It has ended, and has signalled it.
const ENDED: u32 = 3;

/// A descriptor, the same in every lane: words that are broadcast when they are asked for cost more than registers.
#[derive(Clone, Copy)]
pub struct Words([[u32; 4]; 4]);

const _: () = assert!(size_of::<Descriptor>() == 64);

impl Words {
    /// Of no task.
    pub const NONE: Words = Words([[0; 4]; 4]);

    /// Those of `descriptor`.
    ///
    /// # Safety
    /// It is one of a live launch.
    #[inline(always)]
    pub unsafe fn load(descriptor: *const Descriptor) -> Words {
        let at = descriptor.cast::<u32>();
        // SAFETY: passed on from the caller; descriptors lie at 64-byte boundaries.
        unsafe {
            Words([
                memory::load4(at),
                memory::load4(at.wrapping_add(4)),
                memory::load4(at.wrapping_add(8)),
                memory::load4(at.wrapping_add(12)),
            ])
        }
    }

    /// Those of the descriptor in a slot.
    ///
    /// # Safety
    /// The slot holds a task.
    #[inline(always)]
    pub unsafe fn read(slot: u32) -> Words {
        // SAFETY: passed on from the caller; slots lie at 256-byte boundaries.
        unsafe {
            Words([
                memory::read_shared4(slot),
                memory::read_shared4(slot + 16),
                memory::read_shared4(slot + 32),
                memory::read_shared4(slot + 48),
            ])
        }
    }

    /// The word at byte `byte` of the descriptor.
    #[inline(always)]
    const fn at(&self, byte: usize) -> u32 {
        self.0[byte / 16][byte / 4 % 4]
    }

    /// Extra waits, and extra signals.
    #[inline(always)]
    fn extra(&self) -> [u32; 2] {
        const { assert!(offset_of!(Descriptor, extra_signals) == offset_of!(Descriptor, extra_waits) + 2) };
        let word = self.at(offset_of!(Descriptor, extra_waits));
        [word & 0xffff, word >> 16]
    }

    /// Waits that data names.
    #[inline(always)]
    fn indirect(&self) -> u32 {
        self.at(offset_of!(Descriptor, indirect)) & 0xffff
    }

    /// The wait of lane `lane`, if the task has no others than those in the descriptor.
    #[inline(always)]
    fn inline(&self, lane: u32) -> Wait {
        const WAIT: usize = offset_of!(Descriptor, wait);
        // Choices, no branches: lanes that go apart meet late.
        let of = |first: u32, second: u32| if lane == 0 { first } else { second };
        let counter = CounterIndex(of(self.at(WAIT), self.at(WAIT + 8)));
        Wait { counter: if lane < 2 { counter } else { NO_COUNTER }, need: of(self.at(WAIT + 4), self.at(WAIT + 12)) }
    }

    /// Whether it has none.
    #[inline(always)]
    fn is_brief(&self) -> bool {
        self.extra()[0] | self.indirect() == 0
    }
}

/// A task that a warp runs by itself.
pub struct WarpTask {
    launch: *const Launch,
    counters: *mut u32,
    lane: u32,
    /// Among the consumers.
    warp: u32,
    /// The slot in which the views of its call are.
    slot: u32,
    /// Its place among all descriptors.
    index: u32,
    words: Words,
    /// What an early look of this lane has seen of its wait, and whether there was one.
    seen: u32,
    looked: bool,
    /// Its end takes no more than a release and at most one signal.
    brief: bool,
    /// Where its first signal goes.
    to: *mut u32,
    /// [`SHUT`], [`OPEN`], [`STOPPED`] or [`ENDED`].
    state: u32,
    /// What the warp notes of it.
    timer: WarpTaskTimer,
}

impl WarpTask {
    /// The task whose descriptor is the one at `index`, `words`; `slot` is where the views of its call are. If it is of a `run`, nobody else waits for its inputs, and
    /// signals its end; else it waits only if it was pushed [`UNREADY`]. `seen` is what [`WarpTask::end`] of the task before has seen of it.
    /// `timer` is what the warp notes of it.
    ///
    /// # Safety
    /// A whole consumer warp calls, of a live launch; the slot stays valid while the value is used.
    #[inline(always)]
    pub unsafe fn new(
        launch: *const Launch,
        slot: u32,
        index: u32,
        words: Words,
        run: bool,
        (seen, looked): (u32, bool),
        warp: u32,
        timer: WarpTaskTimer,
    ) -> WarpTask {
        let flags = words.at(offset_of!(Descriptor, flags));
        let state = if run || flags & UNREADY.mask() != 0 { SHUT } else { OPEN };
        let brief = run && flags & READ_BY_TMA.mask() == 0 && words.at(SIGNAL + 4) == NO_SIGNAL;
        let counters = smem().counters();
        let to = special::same_pointer(counter(counters, words.at(SIGNAL)));
        WarpTask { launch, counters, to, lane: warp::lane_again(), warp, slot, index, words, seen, looked, brief, state, timer }
    }

    /// Its number in the plan.
    #[inline(always)]
    pub fn task(&self) -> u32 {
        self.words.at(offset_of!(Descriptor, task))
    }

    /// Whether it has a flag.
    #[inline(always)]
    pub fn has(&self, flag: Flags) -> bool {
        self.words.at(offset_of!(Descriptor, flags)) & flag.mask() != 0
    }

    /// Whether it has not begun, and never will, since the launch is aborted.
    #[inline(always)]
    pub fn stopped(&self) -> bool {
        self.state == STOPPED
    }

    /// Waits until the task may run; once it has, returns at once. False if the launch is aborted before.
    ///
    /// # Safety
    /// The whole warp calls, and runs the task.
    #[inline(always)]
    pub unsafe fn pass(&mut self) -> bool {
        if self.state == SHUT {
            // SAFETY: passed on from the caller.
            self.state = if unsafe { self.wait() } { OPEN } else { STOPPED };
            self.timer.waited();
        }
        self.state != STOPPED
    }

    /// The body has been run until now.
    #[inline(always)]
    pub fn ran(&self) -> Ended {
        self.timer.ran()
    }

    /// Says what the warp does with a task of a run: see [`crate::shared_memory::SharedMemory::said`].
    #[inline(always)]
    unsafe fn say(&self, does: u32) {
        if self.lane == 0 {
            let said = smem().said(smem().number(self.slot), self.warp);
            // SAFETY: a word of shared memory that this warp alone writes; what waits is of a run.
            unsafe { memory::store_relaxed_shared(said, self.task() | does) };
        }
    }

    /// This lane's wait, and whether those of all lanes are all that there are, and known.
    #[inline(always)]
    unsafe fn waits(&self) -> (Wait, bool) {
        let (mut wait, lane) = (self.words.inline(self.lane), self.lane);
        if self.has(UNREADY) {
            return (if lane == 0 { wait } else { Wait::NONE }, true);
        }
        if self.words.is_brief() {
            return (wait.counted(), true);
        }
        let [extra, signals] = self.words.extra();
        let inline = warp::ballot(wait.counter != NO_COUNTER).count_ones();
        let listed = inline + extra;
        let mut known = listed <= warp::LANES;
        // SAFETY: the caller promises a live launch; the plan wrote the overflow.
        unsafe {
            let overflow = ((*self.launch).overflow as *const u32).wrapping_add(self.words.at(offset_of!(Descriptor, overflow)) as usize);
            if lane >= inline && lane < listed {
                let at = overflow.wrapping_add(2 * (lane - inline) as usize);
                wait = Wait::decode([memory::load(at), memory::load(at.wrapping_add(1))]);
            }
            if self.words.indirect() != 0 {
                let record = overflow.wrapping_add((2 * extra + signals) as usize).cast::<Indirect>();
                let Indirect { naming, axis, rows, .. } = *record;
                const COORD: usize = offset_of!(Descriptor, coord);
                let coord = [self.words.at(COORD), self.words.at(COORD + 4), self.words.at(COORD + 8)];
                let along = |axis| {
                    if axis == 0 {
                        coord[0]
                    } else if axis == 1 {
                        coord[1]
                    } else {
                        coord[2]
                    }
                };
                let names = Names::of([naming, axis, rows], along, |operand| views(self.slot).add(operand).read());
                // Names that a task writes are not there yet.
                known &= self.words.indirect() == 1 && Naming::decode(naming).known && listed + names.count() <= warp::LANES;
                if known && lane >= listed {
                    wait = names.wait(record, lane - listed, |at| memory::load(at));
                }
            }
        }
        (wait.counted(), known)
    }

    #[inline(always)]
    unsafe fn wait(&self) -> bool {
        // SAFETY: passed on from the caller; the plan keeps every counter inside the bank.
        unsafe {
            let (wait, known) = self.waits();
            if known {
                let waiting = warp::ballot(wait.counter != NO_COUNTER);
                if waiting == 0 {
                    // Nothing to acquire.
                    return true;
                }
                // Lanes without a wait look where another one does, so that a look is one instruction, without a branch.
                let common = CounterIndex(warp::broadcast(wait.counter.0, waiting.trailing_zeros()));
                let waits = wait.counter != NO_COUNTER;
                let wait = if waits { wait } else { Wait::new(common, 0) };
                let at = Counters::at(self.counters).address(wait.counter);
                let look = || Alone.load(at);
                let (mut seen, mut looks) = (if self.looked { if waits { self.seen } else { 0 } } else { look() }, 0);
                // One look at a time: the release behind a short body would wait for another one that is under way.
                while looks < LOOKS {
                    if protocol::opens(&Alone, wait.has_arrived(seen)) {
                        return true;
                    }
                    seen = look();
                    looks += 1;
                }
            }
            let run = Run::new(&machine::WarpTask, &*self.launch, special::block());
            if self.has(UNREADY) {
                let Wait { counter, need } = self.words.inline(0);
                Until::of(counter, need).wait_for_end(&machine::WarpTask, &run) == Outcome::Ready
            } else {
                let descriptor = ((*self.launch).descriptors as *const Descriptor).wrapping_add(self.index as usize);
                self.say(WAITING);
                // There is something: else nothing was looked at above.
                let outcome = protocol::wait_for_all(&machine::WarpTask, &run, descriptor, views(self.slot));
                self.say(RUNNING);
                outcome == Outcome::Ready
            }
        }
    }

    /// Its tile coordinate along one grid axis.
    #[inline(always)]
    pub fn coord(&self, axis: usize) -> i32 {
        // A literal below 3 in generated code.
        self.words.at(offset_of!(Descriptor, coord) + if axis < 3 { axis * 4 } else { 0 }) as i32
    }

    /// The body of a task that began early has ended: waits for what the task waits for, if the body has not, and signals the end if that is brief. Here, and
    /// not where all tasks end: whoever begins early is waited for.
    ///
    /// # Safety
    /// The whole warp calls, and runs the task.
    #[inline(always)]
    pub unsafe fn end_early(&mut self) {
        // SAFETY: passed on from the caller. The body may have ended without having waited.
        if unsafe { self.pass() } && self.brief {
            warp::sync();
            let signal = self.words.at(SIGNAL);
            if signal != NO_SIGNAL && self.lane == 0 {
                // SAFETY: one signal, as for all.
                unsafe { gpu_scope::signal(self.to, signal & Signal::SINGLE_PRODUCER) };
            }
            self.state = ENDED;
        }
    }

    /// The body of what is in a slot alone has ended: the store warp signals it.
    #[inline(always)]
    pub fn hand_over(&self) {
        if self.has(READ_BY_TMA) {
            fence::proxy_async_global();
        }
    }

    /// The body has ended: signals it, and looks meanwhile for what the task behind it waits for, if there is a `next` one. Whether it has run, and what has
    /// been seen.
    ///
    /// # Safety
    /// The whole warp calls, once; the task is one that signals its end itself.
    #[inline(always)]
    pub unsafe fn end(&mut self, next: Option<&Words>) -> (bool, (u32, bool)) {
        let mut seen = (0, false);
        if self.state == STOPPED {
            return (false, seen);
        }
        if self.has(READ_BY_TMA) {
            fence::proxy_async_global();
        }
        warp::sync();
        if let Some(next) = next
            && next.is_brief()
        {
            // SAFETY: the plan keeps every counter inside the bank of the live launch that the caller promises.
            let found = unsafe { Counters::at(self.counters).look(&Ahead, next.inline(self.lane).counted()) };
            seen = (found, true);
        }
        let [signal, second] = [self.words.at(SIGNAL), self.words.at(SIGNAL + 4)];
        // One lane: a second addition would count twice.
        if self.state != ENDED && signal != NO_SIGNAL && self.lane == 0 {
            // SAFETY: passed on from the caller; the plan wrote the overflow.
            unsafe {
                gpu_scope::signal(self.to, signal & Signal::SINGLE_PRODUCER);
                if second != NO_SIGNAL {
                    send(self.counters, second);
                    let [waits, signals] = self.words.extra();
                    let first = self.words.at(offset_of!(Descriptor, overflow)) + 2 * waits;
                    let mut n = 0;
                    while n < signals {
                        send(self.counters, ((*self.launch).overflow as *const u32).wrapping_add((first + n) as usize).read());
                        n += 1;
                    }
                }
            }
        }
        (true, seen)
    }
}

/// The word of a signal.
#[inline(always)]
fn counter(counters: *mut u32, signal: u32) -> *mut u32 {
    counters.wrapping_add(Signal::decode(signal).counter.0 as usize)
}

/// Sends one signal, behind a release fence.
#[inline(always)]
unsafe fn send(counters: *mut u32, signal: u32) {
    // SAFETY: the plan keeps every counter inside the bank of the live launch that the caller promises.
    unsafe {
        let counter = counter(counters, signal);
        if Signal::decode(signal).single_producer { gpu_scope::store_relaxed(counter, 1) } else { gpu_scope::add_relaxed(counter, 1) }
    }
}

#[inline(always)]
fn smem() -> SharedMemory {
    SharedMemory(special::shared_base())
}

#[inline(always)]
fn views(slot: u32) -> *const View {
    let slot = special::generic(slot) as *const Slot;
    // SAFETY: only an address.
    unsafe { (&raw const (*slot).views).cast() }
}
