//! The worker CTA: which warp plays which role, and the way of a task through them.
//!
//! controller (warp 1) → slot, `ready` → loader (warp 0) and consumers (warps 4–11) → `done` → store and signals (warp 2) → counters.
//! Warp 3 zeroes the idle counter bank and is otherwise spare. Only the controller waits on global memory, so only it times out; an
//! abort ends the list at a task border, and everything published before it completes as usual.

use crate::abi::{BlackBox, Descriptor, Launch, OP_END, OPERANDS, REPORT_BUSY, SLOTS};
use crate::protocol::{self, Machine, Outcome, Queue, Run};
use crate::ptx::{barrier, fence, local, mbarrier, memory, special, system, warp};
use crate::role::consumer::Consumer;
use crate::role::loader::Loader;
use crate::role::ring::Arena;
use crate::role::store::Store;
use crate::task::{Callable, Filter, Identity, Slot, Task};

/// A whole warp: lanes vote.
struct Warp;
/// One lane of a warp, alone.
struct Lane;

macro_rules! machine {
    ($ty:ident, $lane:expr, $lanes:literal, |$condition:ident| $all:expr, $acquire:expr) => {
        // SAFETY: relaxed `.gpu` accesses with `.gpu` fences (PTX ISA §8.8, release and acquire patterns); a warp's lanes meet at a
        // warp barrier after the fence.
        unsafe impl Machine for $ty {
            #[inline(always)]
            fn lane(&self) -> u32 {
                $lane
            }
            #[inline(always)]
            fn lanes(&self) -> u32 {
                $lanes
            }
            #[inline(always)]
            fn all(&self, $condition: bool) -> bool {
                $all
            }
            #[inline(always)]
            unsafe fn load(&self, at: *const u32) -> u32 {
                // SAFETY: passed on from the caller.
                unsafe { local::load_relaxed(at) }
            }
            #[inline(always)]
            unsafe fn store(&self, at: *mut u32, value: u32) {
                // SAFETY: passed on from the caller.
                unsafe { local::store_relaxed(at, value) }
            }
            #[inline(always)]
            unsafe fn add(&self, at: *mut u32, value: u32) {
                // SAFETY: passed on from the caller.
                unsafe { local::add_relaxed(at, value) }
            }
            #[inline(always)]
            unsafe fn claim(&self, at: *mut u32, value: u32) -> u32 {
                // SAFETY: passed on from the caller.
                unsafe { local::fetch_add_relaxed(at, value) }
            }
            #[inline(always)]
            unsafe fn fetch_add(&self, at: *mut u32, value: u32) -> u32 {
                // SAFETY: passed on from the caller.
                unsafe { local::fetch_add(at, value) }
            }
            #[inline(always)]
            unsafe fn compare_exchange(&self, at: *mut u32, expected: u32, new: u32) -> u32 {
                // SAFETY: passed on from the caller.
                unsafe { local::compare_exchange(at, expected, new) }
            }
            #[inline(always)]
            fn acquire(&self) {
                $acquire
            }
            #[inline(always)]
            fn release(&self) {
                fence::release_gpu();
            }
            #[inline(always)]
            fn now(&self) -> u64 {
                special::global_timer()
            }
            #[inline(always)]
            fn pause(&self, _: u32) {}
            #[inline(always)]
            fn place(&self) -> u32 {
                special::multiprocessor()
            }
            #[inline(always)]
            unsafe fn report(&self, at: *mut BlackBox, report: BlackBox) {
                let words = at.cast::<u32>();
                // SAFETY: passed on from the caller; the box is pinned host memory mapped for this GPU.
                unsafe {
                    system::store_relaxed(words.add(1), report.worker);
                    system::store_relaxed(words.add(2), report.sm);
                    system::store_relaxed(words.add(3), report.task);
                    system::store_relaxed(words.add(4), report.counter);
                    system::store_relaxed(words.add(5), report.expected);
                    system::store_relaxed(words.add(6), report.seen);
                    system::store_relaxed(words.add(7), report.polls);
                    system::store_relaxed(words.add(8), report.elapsed_ns as u32);
                    system::store_relaxed(words.add(9), (report.elapsed_ns >> 32) as u32);
                    system::store_release(words, report.report);
                }
            }
        }
    };
}
machine!(Warp, special::thread() % 32, 32, |condition| warp::ballot(condition) == u32::MAX, {
    fence::acquire_gpu();
    warp::sync();
});
machine!(Lane, 0, 1, |condition| condition, fence::acquire_gpu());

const _: () = assert!(core::mem::offset_of!(BlackBox, elapsed_ns) == 32);

/// Runs a worker CTA: the body of every device entry.
///
/// # Safety
/// Launched with [`crate::abi::THREADS`] threads, [`crate::abi::SHARED_BYTES`] of dynamic shared memory and one CTA per worker, all
/// resident; `launch` and everything it names is live device memory that the plan filled for `C`.
#[inline(always)]
pub unsafe fn megakernel<C: Callable, F: Filter>(launch: *const Launch) {
    let arena = Arena(special::shared_base());
    let thread = special::thread();
    if thread == 0 {
        // SAFETY: the first thread, before the barrier below.
        unsafe { arena.init() };
    }
    barrier::sync_cta();
    // SAFETY: the caller promises a live launch; every role gets the thread or threads it is for.
    unsafe {
        if thread < 128 {
            special::registers_decrease();
            match thread / 32 {
                0 => load::<C, F>(arena, launch),
                1 => control(arena, launch),
                2 => store::<C, F>(arena, launch),
                _ => {
                    let run = Run::new(&Warp, &*launch, special::block());
                    run.clear_idle(&Warp, special::block(), special::blocks());
                }
            }
        } else {
            special::registers_increase();
            consume::<C, F>(arena, launch);
        }
        warp::sync();
        barrier::sync_cta();
        if thread == 0 {
            protocol::leave(&Lane, (*launch).state as *mut _, special::blocks());
        }
    }
}

/// Slot and parity of a worker's `n`-th task.
#[inline(always)]
fn place(n: u32) -> (u32, u32) {
    (n % SLOTS, n / SLOTS & 1)
}

/// Waits for the `n`-th task; `None` at the end of the list.
#[inline(always)]
unsafe fn next(arena: Arena, launch: *const Launch, n: u32) -> Option<(*const Slot, Task, u32)> {
    let (slot, parity) = place(n);
    // SAFETY: an initialised barrier; the slot is valid from `ready` to `vacant`.
    unsafe {
        mbarrier::wait(arena.ready(slot), parity);
        let slot = special::generic(arena.slot(slot)) as *const Slot;
        let op = (&raw const (*slot).descriptor.op).read();
        if op == OP_END { None } else { Some((slot, Task::new(slot, (*launch).scalars as *const u32), op as u32)) }
    }
}

#[inline(always)]
unsafe fn load<C: Callable, F: Filter>(arena: Arena, launch: *const Launch) {
    if special::thread() != 0 {
        return;
    }
    // SAFETY: the loader thread.
    unsafe {
        let mut role = Loader::new(arena, (*launch).maps);
        let mut n = 0;
        while let Some((_, task, op)) = next(arena, launch, n) {
            // The controller acquired the operands' counters; the copies go through another proxy.
            fence::proxy_async_global();
            C::dispatch::<Loader, Identity, F>(&mut role, task, op);
            mbarrier::arrive(arena.vacant(n % SLOTS));
            n += 1;
        }
    }
}

#[inline(always)]
unsafe fn consume<C: Callable, F: Filter>(arena: Arena, launch: *const Launch) {
    let thread = special::thread() - 128;
    // SAFETY: the 256 consumer threads.
    unsafe {
        let mut role = Consumer::new(arena, thread);
        let mut n = 0;
        loop {
            let (slot, parity) = place(n);
            // Finish the last tile behind the next one's multiplications; without a next one, now: others may wait for it.
            if role.owes() && warp::ballot(mbarrier::test(arena.ready(slot), parity)) != u32::MAX {
                role.settle();
            }
            let Some((_, task, op)) = next(arena, launch, n) else { break };
            C::dispatch::<Consumer, Identity, F>(&mut role, task, op);
            // A reader may fetch by TMA what these threads stored.
            fence::proxy_async_global();
            warp::sync();
            if thread % 32 == 0 {
                mbarrier::arrive(arena.done(n % SLOTS));
            }
            n += 1;
        }
        role.settle();
    }
}

#[inline(always)]
unsafe fn store<C: Callable, F: Filter>(arena: Arena, launch: *const Launch) {
    if special::thread() != 64 {
        return;
    }
    // SAFETY: the store thread.
    unsafe {
        let run = Run::new(&Lane, &*launch, special::block());
        let mut role = Store::new(arena, (*launch).maps);
        let mut n = 0;
        while let Some((slot, task, op)) = next(arena, launch, n) {
            C::dispatch::<Store, Identity, F>(&mut role, task, op);
            let (at, parity) = place(n);
            mbarrier::wait(arena.done(at), parity);
            fence::proxy_async_global();
            protocol::signal(&Lane, &run, &raw const (*slot).descriptor);
            mbarrier::arrive(arena.vacant(at));
            n += 1;
        }
    }
}

/// Words of a descriptor and of the views beside it.
const DESCRIPTOR_WORDS: u32 = 16;
const VIEW_WORDS: u32 = 8 * OPERANDS as u32;

/// Prefetched words of one task: a lane holds word `lane` of the descriptor, and words `lane` and `lane + 32` of the views.
#[derive(Clone, Copy)]
struct Prefetched {
    descriptor: u32,
    views: [u32; 2],
}

#[inline(always)]
unsafe fn fetch_descriptor(launch: &Launch, index: u32, lane: u32) -> u32 {
    let words = (launch.descriptors as *const Descriptor).wrapping_add(index as usize).cast::<u32>();
    // SAFETY: the array ends with two entries more than any list has.
    if lane < DESCRIPTOR_WORDS { unsafe { memory::load(words.add(lane as usize)) } } else { 0 }
}

#[inline(always)]
unsafe fn fetch_views(launch: &Launch, descriptor: u32, lane: u32) -> [u32; 2] {
    const FIRST: u32 = core::mem::offset_of!(Descriptor, operand) as u32 / 4;
    let fetch = |word: u32| {
        let operand = word / 8;
        let pair = warp::broadcast(descriptor, FIRST + if operand < OPERANDS as u32 { operand / 2 } else { 0 });
        let view = if operand % 2 == 0 { pair & 0xFFFF } else { pair >> 16 };
        // SAFETY: the plan wrote every view that an operand names; unused operands name view 0, which exists.
        if word < VIEW_WORDS {
            unsafe { memory::load((launch.views as *const u32).wrapping_add((view * 8 + word % 8) as usize)) }
        } else {
            0
        }
    };
    [fetch(lane), fetch(lane + 32)]
}

#[inline(always)]
unsafe fn control(arena: Arena, launch: *const Launch) {
    let lane = special::thread() % 32;
    let worker = special::block();
    // SAFETY: the controller warp of a live launch; `launch` does not change while it runs.
    unsafe {
        let launch = &*launch;
        let run = Run::new(&Warp, launch, worker);
        let mut queue = Queue::new(launch, worker);
        let mut aborted = run.aborted(&Warp);
        if worker == 0 && lane == 0 && local::compare_exchange(&raw mut (*run.state).busy, 0, 1) != 0 {
            local::compare_exchange(&raw mut (*run.state).abort, 0, REPORT_BUSY);
            Lane.report(run.black_box, BlackBox { report: REPORT_BUSY, ..BlackBox::EMPTY });
            aborted = true;
        }
        aborted = !Warp.all(!aborted);

        // A task's way through this warp takes three turns: its ticket, its descriptor, its views. So no turn waits for its own loads.
        let mut ticket = 0;
        let mut index = || {
            let index = queue.index(warp::broadcast(ticket, 0));
            if lane == 0 {
                ticket = queue.ask(&Lane, &run);
            }
            index
        };
        index();
        let first = fetch_descriptor(launch, index(), lane);
        let second = fetch_descriptor(launch, index(), lane);
        let mut third = fetch_descriptor(launch, index(), lane);
        let mut now = Prefetched { descriptor: first, views: fetch_views(launch, first, lane) };
        let mut then = Prefetched { descriptor: second, views: fetch_views(launch, second, lane) };
        let mut n = 0;
        loop {
            let (slot, parity) = place(n);
            mbarrier::wait(arena.vacant(slot), parity ^ 1);
            let words = arena.slot(slot);
            if lane < DESCRIPTOR_WORDS {
                memory::store_shared(words + lane * 4, now.descriptor);
            }
            memory::store_shared(words + 64 + lane * 4, now.views[0]);
            if lane + 32 < VIEW_WORDS {
                memory::store_shared(words + 64 + 128 + lane * 4, now.views[1]);
            }
            warp::sync();

            let mut end = aborted || warp::broadcast(now.descriptor, 0) as u16 == OP_END;
            if !end {
                now = then;
                then = Prefetched { descriptor: third, views: fetch_views(launch, third, lane) };
                third = fetch_descriptor(launch, index(), lane);
                let descriptor = special::generic(words) as *const Descriptor;
                end = protocol::wait(&Warp, &run, descriptor) == Outcome::Abort;
            }
            if end && lane == 0 {
                memory::store_shared(words, OP_END as u32);
            }
            warp::sync();
            if lane == 0 {
                mbarrier::arrive(arena.ready(slot));
            }
            if end {
                break;
            }
            n += 1;
        }
    }
}
