//! The CTA on a GPU: which warp plays which role, and how a launch begins and ends.

use core::marker::PhantomData;

use super::rest::Rest;
use super::{admitted, copy, dependency_poller, prefetcher, roles, warp_tasks};
use crate::data::task::Task;
use crate::dispatch::{Callable, ChosenEpilogue, Filter, Gemms, NotGemms, dispatch, fuses_elementwise_prologues, gemm_shape, is_gemm};
use crate::machine::{Lane, SharedWarp, Warp};
use crate::profile;
use crate::profile::served::Serving;
use crate::profile::warp_task::WarpTaskTimer;
use crate::protocol::{self, Layout, Run};
use crate::ptx::{barrier, delay, memory, special, warp};
use crate::roles::consumer::{Consumer, GemmConsumer};
use crate::roles::elementwise_prologue::ElementwisePrologue;
use crate::roles::loader::Loader;
use crate::roles::store::Store;
use crate::shared_memory::SharedMemory;
use maco_abi::{Launch, SHARED_BYTES, SchedulerPartition};

/// Words of a line of the second-level cache.
const LINE_WORDS: u32 = 32;
/// Lines behind the launch record's begin that are asked for at once: list starts, views and tensor maps lie there, and each of these would
/// be waited for behind the one before.
const FIRST_LINES: u32 = 32;

/// The tasks of `C` that are in `F`.
struct Compiled<C, F>(PhantomData<(C, F)>);

macro_rules! tasks {
    ($($role:ty)*) => {$(
        impl<C: Callable, F: Filter> roles::Tasks<$role> for Compiled<C, F> {
            #[inline(always)]
            fn run(&mut self, role: &mut $role, task: Task, op: u32) {
                dispatch::<C, $role, F>(role, task, op);
            }
        }
    )*};
}
tasks!(Loader Store<false> Store<true> ElementwisePrologue);

impl<C: Callable, F: Filter> roles::Tasks<Consumer> for Compiled<C, F> {
    #[inline(always)]
    fn run(&mut self, role: &mut Consumer, task: Task, op: u32) {
        if !is_gemm::<C, F>(op) {
            dispatch::<C, Consumer, NotGemms<C, F>>(role, task, op);
            return;
        }
        let mut gemm = GemmConsumer::new(role, gemm_shape::<C, F>(op));
        dispatch::<C, GemmConsumer<'_>, Gemms<C, F>>(&mut gemm, task, op);
        // Nothing of them is kept while there are products to make.
        gemm.end::<ChosenEpilogue<C, F>>(task, gemm_shape::<C, F>(task.op()));
    }
}

impl<C: Callable, F: Filter> roles::Warps for Compiled<C, F> {
    const WARP_TASKS: bool = C::WARP_TASKS & F::MASK != 0;

    #[inline(always)]
    unsafe fn run_warp_tasks(&mut self, launch: *const Launch, n: u32, warp: u32, timer: WarpTaskTimer) -> u32 {
        // SAFETY: passed on from the caller.
        unsafe { warp_tasks::run::<C, F>(launch, n, warp, timer) }
    }
}

/// The tasks of `C` in `F` that map one tensor.
struct OnlyElementwise<C, F>(PhantomData<(C, F)>);

impl<C: Callable, F: Filter> Filter for OnlyElementwise<C, F> {
    const MASK: u128 = C::ELEMENTWISE & F::MASK;
}

impl<C: Callable, F: Filter> roles::Prologues for Compiled<C, F> {
    const ELEMENTWISE_PROLOGUES: bool = fuses_elementwise_prologues::<C>(F::MASK);

    #[inline(always)]
    unsafe fn map(&mut self, launch: *const Launch, n: u32) {
        // SAFETY: passed on from the caller.
        unsafe { map::<C, F>(launch, n) }
    }
}

/// A function of its own, called where a consumer holds nearly nothing: what it takes of registers, no product has less of.
///
/// # Safety
/// As of [`roles::map`].
#[inline(never)]
unsafe fn map<C: Callable, F: Filter>(launch: *const Launch, n: u32) {
    // SAFETY: passed on from the caller.
    unsafe { roles::map(launch, n, Compiled::<C, OnlyElementwise<C, F>>(PhantomData)) }
}

/// Runs a CTA: the body of every device entry.
///
/// # Safety
/// Launched with [`maco_abi::THREADS`] threads, [`maco_abi::SHARED_BYTES`] of dynamic shared memory and one CTA per worker and
/// scheduler, all resident; `launch` and everything it names is live device memory that the plan filled for `C`.
#[inline(always)]
pub unsafe fn megakernel<C: Callable, F: Filter>(launch: *const Launch) {
    let smem = SharedMemory(special::shared_base());
    let thread = special::thread();
    let block = special::block();
    // SAFETY: the caller promises a live launch, which does not change while it runs; every role gets the threads it is for.
    unsafe {
        if thread < FIRST_LINES {
            memory::prefetch(launch.cast::<u32>().wrapping_add((thread * LINE_WORDS) as usize));
        }
        delay::seed((*launch).delays);
        barrier::let_next_launch_begin();
        let workers = (*launch).workers;
        let mut rest = Rest::NONE;
        // Meanwhile. What schedulers have there lies elsewhere.
        smem.init(thread, maco_abi::THREADS);
        if block >= workers {
            if profile::ON && thread == 0 {
                profile::init(smem, launch, block);
            }
            barrier::wait_for_launch_before();
            delay::meet();
            rest = scheduler(smem, launch, block - workers);
            if thread / 32 == 1 {
                end(launch);
                return;
            }
        } else {
            if thread == 0 {
                profile::init(smem, launch, block);
            }
            if thread < 128 {
                special::registers_decrease();
                match thread / 32 {
                    0 => {
                        meet();
                        roles::load(smem, launch, Compiled::<C, F>(PhantomData));
                        end(launch);
                        return;
                    }
                    1 => {
                        meet();
                        rest = dependency_poller::run(smem, launch);
                    }
                    2 => {
                        meet();
                        if C::COLLECTIVES {
                            roles::store::<_, _, _, true>(&Warp, &Lane, smem, launch, Compiled::<C, F>(PhantomData));
                        } else {
                            roles::store::<_, _, _, false>(&Warp, &Lane, smem, launch, Compiled::<C, F>(PhantomData));
                        }
                    }
                    _ => {
                        let first = prefetcher::ask(launch);
                        meet();
                        rest = prefetcher::run(smem, launch, first);
                    }
                }
            } else {
                special::registers_increase();
                meet();
                roles::consume(smem, launch, Compiled::<C, F>(PhantomData));
                // None of them has anything left to do.
                warp::sync();
                barrier::sync_cta();
                return;
            }
        }
        // Who they are need not be known behind this.
        rest.run(launch);
        warp::sync();
        barrier::sync_cta();
    }
}

/// The CTA's last warp: leaves the launch when all others have ended. One that has nothing left to do.
///
/// # Safety
/// A whole warp, one of each CTA of a live launch.
#[inline(always)]
unsafe fn end(launch: *const Launch) {
    warp::sync();
    barrier::sync_cta();
    if warp::lane_again() == 0 {
        // SAFETY: passed on from the caller.
        unsafe {
            profile::finish(launch);
            protocol::leave(&Lane, (*launch).state as *mut _, special::block(), (*launch).executors);
        }
    }
}

/// The CTA's words are initialised, and what launches write is this launch's. Every role comes here by itself, so that the prefetcher can ask for what it
/// reads first before.
#[inline(always)]
fn meet() {
    barrier::wait_for_launch_before();
    barrier::sync_cta();
}

/// A CTA that is scheduler `number`. What is left to do for this warp.
#[inline(always)]
unsafe fn scheduler(smem: SharedMemory, launch: *const Launch, number: u32) -> Rest {
    // SAFETY: the caller promises a live launch; all threads copy before the first warp reads.
    unsafe {
        let run = Run::new(&Warp, &*launch, (*launch).workers + number);
        let partition = ((*launch).partitions as *const SchedulerPartition).add(number as usize).read();
        let words = Layout::new(&partition, (*launch).workers, (*launch).schedulers, number).words;
        let memory = if partition.memory == 0 { special::generic(smem.0) } else { partition.memory };
        copy(&partition, memory, words, special::thread(), maco_abi::THREADS);
        barrier::sync_cta();
        if profile::ON && special::thread() / 32 == 1 {
            // The scheduler has better to do.
            profile::stamp(launch);
        }
        if special::thread() < 32 && admitted(&run) {
            if partition.memory != 0 {
                return Rest::SCHEDULE;
            }
            schedule_shared(launch, run.worker, number, smem);
        }
    }
    Rest::NONE
}

/// A function of its own: what it takes of registers, no other role has less of.
///
/// # Safety
/// One warp of a live launch; the scheduler's image has been copied to the begin of shared memory.
#[inline(never)]
unsafe fn schedule_shared(launch: *const Launch, worker: u32, number: u32, smem: SharedMemory) {
    // SAFETY: passed on from the caller.
    unsafe {
        let run = Run::new(&Warp, &*launch, worker);
        // Read once: the next acquire would send a later read to the second-level cache.
        protocol::schedule(&SharedWarp, &{ *launch }, &run, number, smem.0 as usize as *mut u32, Serving::here());
    }
}

const _: () = assert!(SHARED_BYTES.is_multiple_of(16));
