//! Collectives of a warpgroup of a SIMT body: shuffles and shared memory for its 128 threads.
//!
//! GEMMs do not belong here: see `wgmma_queue.rs`.

use core::marker::PhantomData;

use crate::hardware::fence;
use crate::math;
use crate::simt::Simt;
use crate::simt::warp::Warp;

/// Threads of a warpgroup.
#[cfg(target_arch = "nvptx64")]
const THREADS: u32 = 128;

/// The warpgroup of a thread of a SIMT body: 128 threads, four warps side by side, on a GPU; the one thread of a reference on a CPU. Tensor cores
/// are asked by whole warpgroups.
///
/// A token of scope, as [`Warp`] is: what takes it is done by the whole warpgroup, all of whose threads come to the same call.
///
/// A body for several blocks of rows takes them by turns, `let mut block = warpgroup.index; while block < blocks { ..; block += warpgroup.count }`,
/// and is a reference too.
pub struct Warpgroup<'a> {
    /// This warpgroup among those of the body, below `count`.
    pub index: u32,
    /// Warpgroups that run the body: 2 on a GPU, 1 in a reference.
    pub count: u32,
    /// This thread in it, below `threads`.
    pub thread: u32,
    /// Threads of it: 128 on a GPU, 1 in a reference.
    pub threads: u32,
    body: PhantomData<&'a Simt<'a>>,
}

impl<const SHARED: usize> Simt<'_, SHARED> {
    /// This thread's warpgroup. All threads of the body may meet while there is one, [`Simt::sync`]: warpgroups share what is in scratch.
    #[inline(always)]
    pub fn warpgroup(&self) -> Warpgroup<'_> {
        #[cfg(target_arch = "nvptx64")]
        {
            const COUNT: u32 = maco_abi::CONSUMERS / THREADS;
            // The same in all lanes, which only a shuffle says: ptxas serialises products that it believes threads come to apart (C7520).
            let index = crate::ptx::warp::broadcast(self.thread / THREADS, 0);
            // SAFETY: the thread is one of the consumers. A loop over as many blocks as there are warpgroups is none then.
            unsafe { core::hint::assert_unchecked(index < COUNT) };
            Warpgroup { index, count: COUNT, thread: self.thread % THREADS, threads: THREADS, body: PhantomData }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        Warpgroup { index: 0, count: 1, thread: 0, threads: 1, body: PhantomData }
    }
}

impl Warpgroup<'_> {
    /// This thread's warp.
    #[inline(always)]
    pub fn warp(&self) -> Warp<'_> {
        Warp::of_thread()
    }

    /// Barrier among the threads of the warpgroup (PTX ISA §9.7.13.1 `bar.sync` on named barriers 2 and 3).
    #[inline(always)]
    pub fn sync(&self) {
        #[cfg(target_arch = "nvptx64")]
        crate::ptx::barrier::sync_group(self.index);
    }

    /// [`Warpgroup::sync`], behind which tensor cores and copies see what the warpgroup's threads have written to scratch before
    /// (PTX ISA §9.7.13.4 `fence.proxy.async`).
    #[inline(always)]
    pub fn sync_copies(&self) {
        fence::proxy_async_shared();
        self.sync();
    }

    /// `value` of all threads combined: each warp's by [`Warp::fold`], then those in the order of the warps. Two barriers
    /// ([`Warpgroup::sync`]).
    #[inline(always)]
    pub fn fold(&self, value: f32, combine: impl Fn(f32, f32) -> f32) -> f32 {
        #[cfg(target_arch = "nvptx64")]
        {
            use crate::shared_memory::SharedMemory;
            const WARPS: u32 = THREADS / 32;
            let smem = SharedMemory(crate::ptx::special::shared_base());
            let warp = self.warp();
            let mut total = warp.fold(value, &combine);
            // All have read the totals of the call before, also in another body.
            self.sync();
            if warp.lane == 0 {
                let own = smem.group_total(self.index * WARPS + self.thread / 32);
                // SAFETY: a word of shared memory, this warp's own.
                unsafe { crate::ptx::memory::store_shared(own, total.to_bits()) };
            }
            self.sync();
            let mut other = 0;
            while other < WARPS {
                // SAFETY: a word of shared memory, which is not written before all threads have come to the next call.
                let value = f32::from_bits(unsafe { crate::ptx::memory::load_shared(smem.group_total(self.index * WARPS + other)) });
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

    /// Sum over the warpgroup.
    #[inline(always)]
    pub fn sum(&self, value: f32) -> f32 {
        self.fold(value, |a, b| a + b)
    }

    /// Largest of the warpgroup, NaN if one is.
    #[inline(always)]
    pub fn max(&self, value: f32) -> f32 {
        self.fold(value, math::max)
    }

    /// Whether `condition` holds in any thread; a barrier too (PTX ISA §9.7.13.1 `barrier.red`).
    #[inline(always)]
    pub fn any(&self, condition: bool) -> bool {
        #[cfg(target_arch = "nvptx64")]
        return crate::ptx::barrier::any_of_group(self.index, condition);
        #[cfg(not(target_arch = "nvptx64"))]
        condition
    }

    /// Whether `condition` holds in all threads; a barrier too.
    #[inline(always)]
    pub fn all(&self, condition: bool) -> bool {
        !self.any(!condition)
    }
}
