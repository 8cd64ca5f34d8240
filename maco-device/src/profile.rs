//! What a worker notes of its launch: when it waited, ran, copied and signalled; and in [`served`] what a scheduler does. What becomes of it does
//! not belong here.
//!
//! Device code notes only when it is built with `--cfg maco_profile` (`MACO_PROFILE=1`, see `maco-build`); else every function here is
//! empty, and the PTX is the same as without the calls. On the host the code is always there, and a launch without [`Launch::profile`]
//! notes nothing.
//!
//! One thread of a role notes, in records of that role alone; but warps that run tasks by themselves note each for itself ([`warp_task`]), in those of the
//! consumers, where places are claimed by an addition. What is needed between two notes lies in shared memory, since a register across a task is worth
//! more than a load.

pub mod served;
pub mod warp_task;
pub mod words;

#[cfg(not(target_arch = "nvptx64"))]
pub use host::Recorder;

use crate::hardware::{memory, special, warp};
use crate::shared_memory::{SharedMemory, place};
use maco_abi::{
    Descriptor, KIND_LOAD, KIND_RUN, KIND_STORE, KIND_WAIT, Launch, Profile, ROLE_CONSUME, ROLE_LOAD, ROLE_STORE, ROLES, Record,
};
pub use words::ON;
use words::{ADDRESS, CAPACITY, ROLE_BYTES, ROLE_WORDS, SERVED, START};

/// Byte of a slot: the task's number.
const TASK: u32 = core::mem::offset_of!(Descriptor, task) as u32;

/// The first thread that consumes notes for all of them.
const CONSUMER: u32 = 128;

/// A launch begins: one thread calls in CTA `block`, before any other notes something, behind [`SharedMemory::init`], which clears the words.
///
/// # Safety
/// `launch` is live, and nobody uses shared memory yet.
#[inline(always)]
pub unsafe fn init(smem: SharedMemory, launch: *const Launch, block: u32) {
    if !ON {
        return;
    }
    // SAFETY: words of shared memory; the host made room for the records of every worker and scheduler.
    unsafe {
        let scheduler = scheduler(&*launch, block);
        if scheduler < (*launch).schedulers {
            served::init(smem.profile() + SERVED, &*launch, scheduler);
        }
        let worker = block;
        if worker >= (*launch).workers {
            return;
        }
        let (table, records) = ((*launch).profile, (*launch).records);
        let first = table + size_of::<Profile>() as u64 * ((*launch).workers + (*launch).schedulers) as u64;
        let own = first + size_of::<Record>() as u64 * ROLES as u64 * records as u64 * worker as u64;
        let at = smem.profile();
        store_long(at + ADDRESS, own);
        memory::store_shared(at + CAPACITY, if table == 0 { 0 } else { records });
    }
}

/// The scheduler in CTA `block`, if there is one of such a number: the CTA itself, or the spare warp of a worker.
#[inline(always)]
fn scheduler(launch: &Launch, block: u32) -> u32 {
    if launch.spare != 0 { block } else { block.wrapping_sub(launch.workers) }
}

/// Notes when the CTA's two clocks show the same moment. One thread calls, which has nothing better to do.
///
/// # Safety
/// `launch` is live.
#[inline(always)]
pub unsafe fn stamp(launch: *const Launch) {
    // SAFETY: a live launch; the host made room for a profile of every worker and scheduler.
    unsafe {
        if ON && special::thread_again().is_multiple_of(32) && (*launch).profile != 0 {
            let stamp = special::stamp();
            let (ticks, nanoseconds) = (stamp.ticks, stamp.nanoseconds);
            let (block, _) = special::place_again();
            let scheduler = scheduler(&*launch, block);
            let words = [ticks as u32, (ticks >> 32) as u32, nanoseconds as u32, (nanoseconds >> 32) as u32];
            if scheduler < (*launch).schedulers {
                memory::store4(of(launch, (*launch).workers + scheduler), words);
            }
            if block < (*launch).workers {
                memory::store4(of(launch, block), words);
            }
        }
    }
}
const _: () = assert!(core::mem::offset_of!(Profile, begin) == 0);

/// The profile of an executor.
#[inline(always)]
unsafe fn of(launch: *const Launch, executor: u32) -> *mut u32 {
    // SAFETY: the caller promises a live launch.
    unsafe { ((*launch).profile + size_of::<Profile>() as u64 * executor as u64) as *mut u32 }
}

/// A launch ends: one thread calls, behind all that others have noted.
///
/// # Safety
/// `launch` is live; [`stamp`] and everything that was noted happened before.
#[inline(always)]
pub unsafe fn finish(launch: *const Launch) {
    if !ON {
        return;
    }
    // Anew: registers that live through a whole launch are worth more.
    let (block, base) = special::place_again();
    let smem = SharedMemory(base);
    // SAFETY: words of shared memory.
    unsafe {
        if (*launch).profile == 0 {
            return;
        }
        let scheduler = scheduler(&*launch, block);
        if scheduler < (*launch).schedulers {
            leave(launch, (*launch).workers + scheduler, [served::made(smem.profile() + SERVED, &*launch), 0, 0]);
        }
        if block < (*launch).workers {
            let made = |role: u32| memory::load_shared(smem.profile() + ROLE_WORDS + role * ROLE_BYTES);
            leave(launch, block, [made(ROLE_CONSUME), made(ROLE_LOAD), made(ROLE_STORE)]);
        }
    }
}

/// Writes the rest of the profile of `executor`, which is in this CTA.
#[inline(always)]
unsafe fn leave(launch: *const Launch, executor: u32, made: [u32; ROLES as usize]) {
    // SAFETY: the host made room for a profile of every worker and scheduler.
    unsafe {
        let to = of(launch, executor);
        let (ticks, nanoseconds) = (special::clock(), special::wall());
        memory::store4(to.add(4), [ticks as u32, (ticks >> 32) as u32, nanoseconds as u32, (nanoseconds >> 32) as u32]);
        memory::store4(to.add(8), [made[0], made[1], made[2], special::multiprocessor()]);
        memory::store4(to.add(12), [1, 0, 0, 0]);
    }
}
const _: () = assert!(ROLES == 3 && core::mem::offset_of!(Profile, made) == 32 && core::mem::offset_of!(Profile, written) == 48);

/// The consumers are done with a task, and turn to the next one; or have met before it, until when others ran what came before.
///
/// # Safety
/// Called by consumers, behind [`init`].
#[inline(always)]
pub unsafe fn turn(smem: SharedMemory) {
    if ON && special::thread_again() == CONSUMER {
        // SAFETY: passed on from the caller.
        unsafe { mark(smem, ROLE_CONSUME) }
    }
}

/// The consumers have waited until task `n` might run.
///
/// # Safety
/// Called by consumers, behind [`turn`]; the slot holds the task.
#[inline(always)]
pub unsafe fn waited(smem: SharedMemory, n: u32) {
    if ON && special::thread_again() == CONSUMER {
        // SAFETY: passed on from the caller.
        unsafe { Span::new(smem, ROLE_CONSUME, KIND_WAIT, n).write(smem) }
    }
}

/// The same, if they had not known that it might.
///
/// # Safety
/// As [`waited`].
#[inline(always)]
pub unsafe fn waited_unless(smem: SharedMemory, n: u32, known: bool) {
    if ON && !known {
        // SAFETY: passed on from the caller.
        unsafe { waited(smem, n) }
    }
}

/// The consumers have run task `n`. What comes of it is written when nobody waits for the task any more.
///
/// # Safety
/// Called by consumers, behind [`turn`]; the slot holds the task.
#[inline(always)]
pub unsafe fn ran(smem: SharedMemory, n: u32) -> Ran {
    if !(ON && special::thread_again() == CONSUMER) {
        return Ran::NOTHING;
    }
    // SAFETY: passed on from the caller.
    Ran { noting: true, span: unsafe { Span::new(smem, ROLE_CONSUME, KIND_RUN, n) } }
}

/// The same, unless it was `noted`.
///
/// # Safety
/// As [`ran`].
#[inline(always)]
pub unsafe fn ran_unless(smem: SharedMemory, n: u32, noted: bool) -> Ran {
    // SAFETY: passed on from the caller.
    if ON && !noted { unsafe { ran(smem, n) } } else { Ran::NOTHING }
}

/// See [`ran`]. Not an option: of what is undefined when nothing is noted, ptxas keeps the registers through the next task
/// (docs/internals/gemm.md).
pub struct Ran {
    noting: bool,
    span: Span,
}

impl Ran {
    const NOTHING: Ran = Ran { noting: false, span: Span { role: ROLE_CONSUME, now: 0, kind: KIND_RUN, task: 0 } };

    /// Writes it down.
    ///
    /// # Safety
    /// Behind [`init`].
    #[inline(always)]
    pub unsafe fn note(self, smem: SharedMemory) {
        if ON && self.noting {
            // SAFETY: passed on from the caller.
            unsafe { self.span.write(smem) }
        }
    }
}

/// The loader begins with a task.
///
/// # Safety
/// Called by the loader, behind [`init`].
#[inline(always)]
pub unsafe fn load(smem: SharedMemory) {
    if ON {
        // SAFETY: passed on from the caller.
        unsafe { mark(smem, ROLE_LOAD) }
    }
}

/// The loader has ended task `n`.
///
/// # Safety
/// Called by the loader, behind [`load`]; the slot holds the task.
#[inline(always)]
pub unsafe fn loaded(smem: SharedMemory, n: u32) {
    if ON {
        // SAFETY: passed on from the caller.
        unsafe { Span::new(smem, ROLE_LOAD, KIND_LOAD, n).write(smem) }
    }
}

/// The store warp begins with a task.
///
/// # Safety
/// Called by the store warp, behind [`init`].
#[inline(always)]
pub unsafe fn store(smem: SharedMemory) {
    if ON && special::thread_again().is_multiple_of(32) {
        // SAFETY: passed on from the caller.
        unsafe { mark(smem, ROLE_STORE) }
    }
}

/// The task that the store warp looks at has ended. If it was not `staged`, nothing but the signal is the store warp's work.
///
/// # Safety
/// As [`store`].
#[inline(always)]
pub unsafe fn stored(smem: SharedMemory, staged: bool) {
    if ON && !staged {
        // SAFETY: passed on from the caller.
        unsafe { store(smem) }
    }
}

/// Tasks whose end the store warp signals, one per lane.
pub struct Ending {
    task: u32,
    count: u32,
}

/// The store warp is about to signal the ends of `count` tasks from `n` on.
///
/// # Safety
/// Called by the whole store warp, converged; the slots hold the tasks.
#[inline(always)]
pub unsafe fn ending(smem: SharedMemory, n: u32, count: u32) -> Ending {
    let lane = special::thread_again() % 32;
    // SAFETY: the caller promises that the slots hold the tasks.
    let task = if ON && lane < count { unsafe { memory::load_shared(smem.slot(place(n + lane).0) + TASK) } } else { 0 };
    Ending { task, count }
}

impl Ending {
    /// It has. Only now is anything written: the signal's release fence would wait for it.
    ///
    /// # Safety
    /// Called by the whole store warp, converged, behind [`store`].
    #[inline(always)]
    pub unsafe fn note(self, smem: SharedMemory) {
        if !ON {
            return;
        }
        let (lane, now) = (special::thread_again() % 32, special::clock() as u32);
        let at = smem.profile();
        let own = at + ROLE_WORDS + ROLE_STORE * ROLE_BYTES;
        // SAFETY: words of shared memory that this warp alone uses; below the capacity there is room for the record.
        unsafe {
            let (made, start, capacity) = (memory::load_shared(own), memory::load_shared(own + START), memory::load_shared(at + CAPACITY));
            // Those behind the first have ended with it.
            let start = if lane == 0 { start } else { now };
            if lane < self.count && made + lane < capacity {
                let record = load_long(at + ADDRESS) + size_of::<Record>() as u64 * (ROLE_STORE * capacity + made + lane) as u64;
                memory::store4(record as *mut u32, [start, now.wrapping_sub(start), KIND_STORE, self.task]);
            }
            warp::sync();
            if lane == 0 {
                memory::store_shared(own, made + self.count);
                memory::store_shared(own + START, now);
            }
            warp::sync();
        }
    }
}

/// What comes next for a role begins now.
#[inline(always)]
unsafe fn mark(smem: SharedMemory, role: u32) {
    // SAFETY: a word of shared memory that this thread alone uses.
    unsafe { memory::store_shared(smem.profile() + ROLE_WORDS + role * ROLE_BYTES + START, special::clock() as u32) }
}

/// Something that has ended.
struct Span {
    role: u32,
    now: u32,
    kind: u32,
    task: u32,
}

impl Span {
    /// Ends now, with task `n`.
    #[inline(always)]
    unsafe fn new(smem: SharedMemory, role: u32, kind: u32, n: u32) -> Span {
        let now = special::clock() as u32;
        // SAFETY: the caller promises that the slot holds the task.
        Span { role, now, kind, task: unsafe { memory::load_shared(smem.slot(place(n).0) + TASK) } }
    }

    /// Writes it, if there is room; the role's next one begins where it ended.
    #[inline(always)]
    unsafe fn write(self, smem: SharedMemory) {
        let own = smem.profile() + ROLE_WORDS + self.role * ROLE_BYTES;
        // SAFETY: words of shared memory that this thread alone uses, but that of the consumers' records, which others add to.
        unsafe {
            let start = memory::load_shared(own + START);
            let made = if self.role == ROLE_CONSUME {
                claim(smem, 1)
            } else {
                let made = memory::load_shared(own);
                memory::store_shared(own, made + 1);
                made
            };
            put(smem, self.role, made, [start, self.now.wrapping_sub(start), self.kind, self.task]);
            memory::store_shared(own + START, self.now);
        }
    }
}

/// Claims places among the consumers' records; the first of them.
#[inline(always)]
unsafe fn claim(smem: SharedMemory, count: u32) -> u32 {
    // SAFETY: a word of shared memory, which several warps add to.
    unsafe { memory::fetch_add_shared(smem.profile() + ROLE_WORDS + ROLE_CONSUME * ROLE_BYTES, count) }
}

/// Writes a record of a role at its place, if there is room.
#[inline(always)]
unsafe fn put(smem: SharedMemory, role: u32, place: u32, record: [u32; 4]) {
    let at = smem.profile();
    // SAFETY: words of shared memory; below the capacity there is room for the record, and the place is the caller's own.
    unsafe {
        let capacity = memory::load_shared(at + CAPACITY);
        if place < capacity {
            let to = load_long(at + ADDRESS) + size_of::<Record>() as u64 * (role * capacity + place) as u64;
            memory::store4(to as *mut u32, record);
        }
    }
}

#[inline(always)]
unsafe fn store_long(at: u32, value: u64) {
    // SAFETY: the caller promises two words of shared memory.
    unsafe {
        memory::store_shared(at, value as u32);
        memory::store_shared(at + 4, (value >> 32) as u32);
    }
}

#[inline(always)]
unsafe fn load_long(at: u32) -> u64 {
    // SAFETY: the caller promises two words of shared memory.
    unsafe { memory::load_shared(at) as u64 | (memory::load_shared(at + 4) as u64) << 32 }
}

/// A CPU thread that is a whole worker.
#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use super::*;
    use maco_abi::Stamp;

    /// What a worker that plays all roles notes, span after span without a gap.
    pub struct Recorder {
        /// 0: nothing is noted.
        table: u64,
        records: *mut Record,
        capacity: u32,
        worker: u32,
        begin: Stamp,
        made: [u32; ROLES as usize],
        start: u64,
    }

    impl Recorder {
        /// Worker `worker` of a launch begins.
        pub fn new(launch: &Launch, worker: u32) -> Recorder {
            let table = launch.profile;
            let (begin, made) = (if table == 0 { Stamp::default() } else { special::stamp() }, [0; ROLES as usize]);
            let first = (table as *mut Profile).wrapping_add((launch.workers + launch.schedulers) as usize).cast::<Record>();
            let records = first.wrapping_add(ROLES as usize * launch.records as usize * worker as usize);
            Recorder { table, records, capacity: launch.records, worker, begin, made, start: begin.ticks }
        }

        /// What has lasted since the last call was this.
        ///
        /// # Safety
        /// The launch is live, with room for the records that it says.
        pub unsafe fn note(&mut self, role: u32, kind: u32, task: u32) {
            if self.table == 0 {
                return;
            }
            let now = special::clock();
            let made = &mut self.made[role as usize];
            if *made < self.capacity {
                let at = self.records.wrapping_add((role * self.capacity + *made) as usize);
                let ticks = (now - self.start).min(u64::from(u32::MAX)) as u32;
                // SAFETY: the caller promises the room, which is this worker's own.
                unsafe { at.write(Record { start: self.start as u32, ticks, kind, task }) };
            }
            *made += 1;
            self.start = now;
        }

        /// The worker ends.
        ///
        /// # Safety
        /// As [`Recorder::note`].
        pub unsafe fn finish(self) {
            if self.table != 0 {
                let profile = Profile { begin: self.begin, end: special::stamp(), made: self.made, written: 1, ..Profile::default() };
                // SAFETY: the caller promises a profile per worker.
                unsafe { (self.table as *mut Profile).add(self.worker as usize).write(profile) };
            }
        }
    }
}
