//! The protocol's machine on a GPU, and that of channels: a warp whose lanes vote, or a single lane.

mod system;

use crate::protocol::{Machine, Poller};
use crate::ptx::{cta_scope, fence, gpu_scope, shared, special, sys_scope, warp};
use maco_abi::BlackBox;

/// A whole warp: lanes vote. All of them call together.
pub struct Warp;
/// A whole warp whose own words are in shared memory, named by 32-bit shared addresses.
pub(crate) struct SharedWarp;
/// A whole warp that runs a task by itself.
pub(crate) struct WarpTask;
/// One lane of a warp, alone.
pub struct Lane;

macro_rules! machine {
    (warp $ty:ident, $own:ident, $load:ident, $roomy:literal, $give_up:expr) => {
        machine!(
            $ty,
            $own,
            $load,
            $roomy,
            special::thread() % 32,
            32,
            |condition| warp::ballot(condition),
            |value, from| warp::broadcast(value, from),
            warp::sync(),
            $give_up
        );
    };
    ($ty:ident, $own:ident, $load:ident, $roomy:literal, $lane:expr, $lanes:literal, |$condition:ident| $vote:expr, |$value:ident, $from:ident| $broadcast:expr, $converge:expr, $give_up:expr) => {
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
            fn all(&self, condition: bool) -> bool {
                self.vote(!condition) == 0
            }
            #[inline(always)]
            fn vote(&self, $condition: bool) -> u32 {
                $vote
            }
            #[inline(always)]
            fn broadcast(&self, $value: u32, $from: u32) -> u32 {
                $broadcast
            }
            #[inline(always)]
            fn roomy(&self) -> bool {
                $roomy
            }
            #[inline(always)]
            fn converge(&self) {
                $converge
            }
            #[inline(always)]
            fn give_up(&self) {
                $give_up
            }
            #[inline(always)]
            unsafe fn own_load(&self, at: *const u32) -> u32 {
                // SAFETY: passed on from the caller.
                unsafe { $own::load(at) }
            }
            #[inline(always)]
            unsafe fn own_store(&self, at: *mut u32, value: u32) {
                // SAFETY: passed on from the caller.
                unsafe { $own::store(at, value) }
            }
            #[inline(always)]
            unsafe fn own_add(&self, at: *mut u32, value: u32) -> u32 {
                // SAFETY: passed on from the caller.
                unsafe { $own::fetch_add(at, value) }
            }
            #[inline(always)]
            unsafe fn own_or(&self, at: *mut u32, value: u32) {
                // SAFETY: passed on from the caller.
                unsafe { $own::or(at, value) }
            }
            #[inline(always)]
            unsafe fn load(&self, at: *const u32) -> u32 {
                // SAFETY: passed on from the caller.
                unsafe { gpu_scope::$load(at) }
            }
            #[inline(always)]
            unsafe fn store(&self, at: *mut u32, value: u32) {
                // SAFETY: passed on from the caller.
                unsafe { gpu_scope::store_relaxed(at, value) }
            }
            #[inline(always)]
            unsafe fn add(&self, at: *mut u32, value: u32) {
                // SAFETY: passed on from the caller.
                unsafe { gpu_scope::add_relaxed(at, value) }
            }
            #[inline(always)]
            unsafe fn claim(&self, at: *mut u32, value: u32) -> u32 {
                // SAFETY: passed on from the caller.
                unsafe { gpu_scope::fetch_add_relaxed(at, value) }
            }
            #[inline(always)]
            unsafe fn compare_exchange(&self, at: *mut u32, expected: u32, new: u32) -> u32 {
                // SAFETY: passed on from the caller.
                unsafe { gpu_scope::compare_exchange(at, expected, new) }
            }
            #[inline(always)]
            fn acquire(&self) {
                fence::acquire_gpu();
                $converge;
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
            fn multiprocessor(&self) -> u32 {
                special::multiprocessor()
            }
            #[inline(always)]
            unsafe fn report(&self, at: *mut BlackBox, report: BlackBox) {
                let words = at.cast::<u32>();
                // SAFETY: passed on from the caller; the box is pinned host memory mapped for this GPU.
                unsafe {
                    sys_scope::store_relaxed(words.add(1), report.worker);
                    sys_scope::store_relaxed(words.add(2), report.sm);
                    sys_scope::store_relaxed(words.add(3), report.task);
                    sys_scope::store_relaxed(words.add(4), report.counter);
                    sys_scope::store_relaxed(words.add(5), report.expected);
                    sys_scope::store_relaxed(words.add(6), report.seen);
                    sys_scope::store_relaxed(words.add(7), report.polls);
                    sys_scope::store_relaxed(words.add(8), report.elapsed_ns as u32);
                    sys_scope::store_relaxed(words.add(9), (report.elapsed_ns >> 32) as u32);
                    sys_scope::store_release(words, report.report);
                }
            }
        }
    };
}
machine!(warp Warp, cta_scope, load_relaxed, false, ());
machine!(warp WarpTask, cta_scope, load_alone, false, warp::give_up());
machine!(warp SharedWarp, shared, load_relaxed, true, ());
machine!(Lane, cta_scope, load_relaxed, false, 0, 1, |condition| condition as u32, |value, _from| value, (), ());

/// A whole warp that polls for what a task waits for which it runs by itself.
pub(crate) struct Alone;
/// The same before the warp turns to the task: what has been seen is acquired where [`Alone`] looks at it.
pub(crate) struct Ahead;

macro_rules! poller {
    ($ty:ident, $load:ident) => {
        // SAFETY: as of the machines.
        unsafe impl Poller for $ty {
            #[inline(always)]
            unsafe fn load(&self, at: *const u32) -> u32 {
                // SAFETY: passed on from the caller.
                unsafe { gpu_scope::$load(at) }
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
    };
}
poller!(Alone, load_alone);
poller!(Ahead, load_ahead);

const _: () = assert!(core::mem::offset_of!(BlackBox, elapsed_ns) == 32);
