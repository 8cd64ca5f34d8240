//! The protocol's machine in a CTA of [`crate::cta`]: a warp, or one lane alone.

use maco_abi::BlackBox;
use maco_device::protocol::Machine;

use crate::hardware::{current, fence, gpu_scope, warp};
use crate::lanes;

/// A whole warp: lanes vote.
pub struct Warp;
/// One lane of a warp, alone.
pub struct Lane;

macro_rules! machine {
    ($ty:ident { $($lanes:item)* }) => {
        // SAFETY: `loom` orders its atomics by fences as Rust does; where something is left out, a model must notice.
        unsafe impl Machine for $ty {
            const LOOK: u32 = 1;
            $($lanes)*
            unsafe fn load(&self, at: *const u32) -> u32 {
                // SAFETY: (of all) passed on from the caller.
                unsafe { gpu_scope::load_relaxed(at) }
            }
            unsafe fn store(&self, at: *mut u32, value: u32) {
                // SAFETY: as above.
                unsafe { gpu_scope::store_relaxed(at, value) }
            }
            unsafe fn add(&self, at: *mut u32, value: u32) {
                // SAFETY: as above.
                unsafe { gpu_scope::fetch_add_relaxed(at, value) };
            }
            unsafe fn claim(&self, at: *mut u32, value: u32) -> u32 {
                // SAFETY: as above.
                unsafe { gpu_scope::fetch_add_relaxed(at, value) }
            }
            unsafe fn compare_exchange(&self, at: *mut u32, expected: u32, new: u32) -> u32 {
                // SAFETY: as above.
                unsafe { gpu_scope::compare_exchange(at, expected, new) }
            }
            fn acquire(&self) {
                fence::acquire_gpu();
                self.converge();
            }
            fn release(&self) {
                fence::release_gpu();
            }
            fn now(&self) -> u64 {
                let this = current();
                // No address of a word.
                lanes::once(usize::MAX, || {
                    this.clock.set(this.clock.get() + this.cta.tick);
                    this.clock.get()
                })
            }
            fn pause(&self, polls: u32) {
                // Straight on to the second look, as in `model.rs`.
                if polls > 1 && lanes::lane() == 0 {
                    current().pause();
                }
            }
            fn multiprocessor(&self) -> u32 {
                0
            }
            unsafe fn report(&self, _: *mut BlackBox, report: BlackBox) {
                current().cta.reports.borrow_mut().push(report.report);
            }
        }
    };
}

machine!(Warp {
    fn lane(&self) -> u32 {
        lanes::lane()
    }
    fn lanes(&self) -> u32 {
        lanes::lanes()
    }
    fn vote(&self, condition: bool) -> u32 {
        lanes::vote(condition)
    }
    fn broadcast(&self, value: u32, lane: u32) -> u32 {
        lanes::broadcast(value, lane)
    }
    fn converge(&self) {
        warp::sync();
    }
});
machine!(Lane {});
