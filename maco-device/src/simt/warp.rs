//! Collectives of SIMT bodies: of a [`Warp`] by shuffles and votes, of all threads through shared memory.
//!
//! Collectives of rows, which only rows can call, do not belong here: see `data/row.rs`.

use core::marker::PhantomData;

use crate::data::exchange::{Exchange, across};
use crate::math;
use crate::simt::Simt;
#[cfg(target_arch = "nvptx64")]
use crate::sync::warp_task::WarpTask;

/// The warp of a thread of a SIMT body: 32 threads on a GPU, the one thread of a reference on a CPU.
///
/// A token of scope: what takes it is done by the whole warp, all of whose threads come to the same call. A body that calls one in a branch that
/// only some threads take is as wrong as one that leaves its regions, and its `unsafe` promises neither.
pub struct Warp<'a> {
    /// This thread, below 32.
    pub lane: u32,
    body: PhantomData<&'a mut Simt<'a>>,
}

/// The same pointer, computed here. What a body reads first is known before its inputs are there, but a compiler computes an address where it is used, which is
/// behind the wait: `let at = maco::prepared(x.pointer(0, 0));` before `cta.wait_for_inputs()` has it ready.
#[inline(always)]
pub fn prepared<T>(pointer: *mut T) -> *mut T {
    crate::hardware::special::same_pointer(pointer)
}

impl Warp<'_> {
    /// Threads of a warp: 32 on a GPU, 1 in a reference.
    pub const LANES: u32 = crate::hardware::warp::LANES;

    /// Of the thread that calls.
    #[inline(always)]
    pub(crate) fn of_thread() -> Self {
        Warp { lane: crate::hardware::warp::lane_again(), body: PhantomData }
    }

    /// `value` of all threads combined, in the order of a butterfly; each gets the result. `combine` must be associative and commutative, and
    /// give the same bits whichever of two comes first (PTX ISA §9.7.9.6 `shfl.sync`).
    #[inline(always)]
    pub fn fold<S: Exchange>(&self, value: S, combine: impl Fn(S, S) -> S) -> S {
        across(value, &combine)
    }

    /// Sum over the warp.
    #[inline(always)]
    pub fn sum(&self, value: f32) -> f32 {
        self.fold(value, |a, b| a + b)
    }

    /// Largest of the warp, NaN if one is.
    #[inline(always)]
    pub fn max(&self, value: f32) -> f32 {
        self.fold(value, math::max)
    }

    /// The value of lane `lane`, below 32 and the same in all threads (PTX ISA §9.7.9.6 `shfl.sync`).
    #[inline(always)]
    pub fn broadcast<S: Exchange>(&self, value: S, lane: u32) -> S {
        #[cfg(target_arch = "nvptx64")]
        return value.at_lane(lane);
        #[cfg(not(target_arch = "nvptx64"))]
        {
            assert_eq!(lane, 0, "a warp on the CPU has one lane");
            value
        }
    }

    /// Whether `condition` holds in any thread (PTX ISA §9.7.13.10 `vote.sync`).
    #[inline(always)]
    pub fn any(&self, condition: bool) -> bool {
        crate::hardware::warp::any(condition)
    }

    /// Whether `condition` holds in all threads (PTX ISA §9.7.13.10 `vote.sync`).
    #[inline(always)]
    pub fn all(&self, condition: bool) -> bool {
        crate::hardware::warp::all(condition)
    }

    /// The threads whose `value` is this one's, lane 0 in bit 0 (PTX ISA §9.7.13.11 `match.sync`).
    #[inline(always)]
    pub fn matching(&self, value: u32) -> u32 {
        crate::hardware::warp::matching(value)
    }

    /// The threads meet: what one has written to memory, all see behind it (PTX ISA §9.7.13.2 `bar.warp.sync`).
    #[inline(always)]
    pub fn sync(&self) {
        crate::hardware::warp::sync();
    }
}

/// The warp that runs the body of a `#[task(simt, warp)]`: what [`Simt`] is to a body of all consumers, and all that a [`Warp`] can do. A worker runs
/// up to eight such tasks at a time, a warp each, which look for their inputs and signal their ends by themselves: for tasks so small, or so many, that
/// what happens between them counts. The warps of a worker share nothing but memory.
pub struct SimtWarp<'a> {
    warp: Warp<'a>,
    /// Who waits.
    #[cfg(target_arch = "nvptx64")]
    role: &'a mut WarpTask,
}

impl<'a> SimtWarp<'a> {
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    pub(crate) fn new(role: &'a mut WarpTask) -> Self {
        SimtWarp { warp: Warp::of_thread(), role }
    }

    /// On a host thread, which has waited before.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn new() -> Self {
        SimtWarp { warp: Warp::of_thread() }
    }

    /// As [`Simt::wait_for_inputs`], in a body of a `#[task(simt, warp, prologue)]`.
    #[inline(always)]
    #[must_use]
    pub fn wait_for_inputs(&mut self) -> bool {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: the warp runs the task of this role.
        return unsafe { self.role.pass() };
        #[cfg(not(target_arch = "nvptx64"))]
        true
    }

    /// As [`Simt::wait_until`]: `condition` is asked in lane 0.
    #[inline(always)]
    pub fn wait_until(&self, condition: impl FnMut() -> bool) -> bool {
        #[cfg(target_arch = "nvptx64")]
        return self.any(self.lane == 0 && crate::simt::poll(condition));
        #[cfg(not(target_arch = "nvptx64"))]
        crate::simt::give_up::wait_until(condition)
    }
}

impl<'a> core::ops::Deref for SimtWarp<'a> {
    type Target = Warp<'a>;
    #[inline(always)]
    fn deref(&self) -> &Warp<'a> {
        &self.warp
    }
}

/// Collectives of all threads of the body: each of them comes to the same call.
impl<const SHARED: usize> Simt<'_, SHARED> {
    /// This thread's warp.
    #[inline(always)]
    pub fn warp(&mut self) -> Warp<'_> {
        Warp::of_thread()
    }

    /// `value` of all threads combined: each warp's by [`Warp::fold`], then those in the order of the warps, so that every thread gets the same bits
    /// at every run. Two barriers ([`Simt::sync`]), which also order what the threads have written before.
    #[inline(always)]
    pub fn fold(&mut self, value: f32, combine: impl Fn(f32, f32) -> f32) -> f32 {
        #[cfg(target_arch = "nvptx64")]
        {
            use crate::shared_memory::{SharedMemory, WARPS};
            let smem = SharedMemory(crate::ptx::special::shared_base());
            let warp = self.warp();
            let (first, mut total) = (warp.lane == 0, warp.fold(value, &combine));
            // All have read the totals of the call before, also in another body.
            self.sync();
            if first {
                // SAFETY: a word of shared memory, this warp's own.
                unsafe { crate::ptx::memory::store_shared(smem.total(self.thread / 32), total.to_bits()) };
            }
            self.sync();
            let mut other = 0;
            while other < WARPS {
                // SAFETY: a word of shared memory, which is not written before all threads have come to the next call.
                let value = f32::from_bits(unsafe { crate::ptx::memory::load_shared(smem.total(other)) });
                total = if other == 0 { value } else { combine(total, value) };
                other += 1;
            }
            total
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            let _ = combine;
            value
        }
    }

    /// Sum over all threads.
    #[inline(always)]
    pub fn sum(&mut self, value: f32) -> f32 {
        self.fold(value, |a, b| a + b)
    }

    /// Largest of all threads, NaN if one is.
    #[inline(always)]
    pub fn max(&mut self, value: f32) -> f32 {
        self.fold(value, math::max)
    }

    /// Whether `condition` holds in any thread; a barrier too (PTX ISA §9.7.13.1 `barrier.red`).
    #[inline(always)]
    pub fn any(&self, condition: bool) -> bool {
        #[cfg(target_arch = "nvptx64")]
        return crate::ptx::barrier::any_user(condition);
        #[cfg(not(target_arch = "nvptx64"))]
        condition
    }

    /// Whether `condition` holds in all threads; a barrier too. For what threads must agree on, such as whether to go on behind a
    /// [`crate::Mbarrier::wait`].
    #[inline(always)]
    pub fn all(&self, condition: bool) -> bool {
        !self.any(!condition)
    }
}
