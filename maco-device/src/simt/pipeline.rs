//! Pipelines of SIMT bodies: stages with a pair of mbarriers each, and the positions of producer and consumer.
//!
//! What lies in a stage, and how it comes there, does not belong here.

use crate::hardware::scratch;
use crate::simt::Simt;
use crate::simt::mbarrier::{BYTES, Mbarrier, Mbarriers};

impl<const SHARED: usize> Simt<'_, SHARED> {
    /// Runs `f` with the barriers of `STAGES` stages in the scratch, 16 bytes each from byte `AT` on, a multiple of 8. A stage is full when
    /// `producers` arrivals and all announced bytes have come, and empty when `consumers` have (PTX ISA §9.7.13.15); at first all are empty.
    ///
    /// Each thread that fills stages has a [`Producer`], each that uses them a [`Consumer`], all from the same `f`, and all go through the
    /// stages in turn. A reference is one thread with one of each, which fills at most `STAGES` stages before it uses one.
    ///
    /// ```
    /// # use maco_device::{Scratch, Simt};
    /// # let mut scratch = Scratch::<48>::new();
    /// # let mut cta = Simt::alone_with(&mut scratch);
    /// let place = cta.shared::<u32, 0, 2>();
    /// // SAFETY: one thread; barriers are behind the elements.
    /// unsafe {
    ///     cta.pipeline::<8, 2>(1, 1, |_, pipeline| {
    ///         let (mut producer, mut consumer) = (pipeline.producer(), pipeline.consumer());
    ///         for n in 0..10 {
    ///             let Some(stage) = producer.acquire() else { return };
    ///             place.write(stage, n);
    ///             producer.commit();
    ///             let Some(stage) = consumer.acquire() else { return };
    ///             assert_eq!((stage, place.read(stage)), (n % 2, n));
    ///             consumer.release();
    ///         }
    ///     });
    /// }
    /// ```
    ///
    /// # Safety
    /// As [`Simt::mbarriers`].
    #[inline(always)]
    pub unsafe fn pipeline<const AT: usize, const STAGES: usize>(
        &mut self,
        producers: u32,
        consumers: u32,
        f: impl FnOnce(&mut Self, Pipeline<'_, STAGES>),
    ) {
        const {
            assert!(STAGES > 0, "MACO0020: a pipeline has a stage");
            assert!(AT.is_multiple_of(BYTES), "MACO0020: an mbarrier lies at a multiple of 8 bytes");
            assert!(
                AT + 2 * STAGES * BYTES <= SHARED,
                "MACO0020: the barriers of this pipeline end beyond what the task asks for\nhelp: write more bytes into `#[task(simt, shared = ..)]`, at most 196608"
            );
        }
        // SAFETY: inside the scratch.
        let at = unsafe { scratch::after(self.place(), AT as u32) };
        let stages = STAGES as u32;
        // SAFETY: room for all of them; the rest is promised by the caller.
        unsafe {
            let pipeline = Pipeline { full: Mbarriers::of(at), empty: Mbarriers::of(scratch::after(at, stages * BYTES as u32)) };
            self.between(at, 2 * stages, |n| if n < stages { producers } else { consumers }, |threads| f(threads, pipeline));
        }
    }
}

/// Barriers of stages: see [`Simt::pipeline`].
#[derive(Clone, Copy)]
pub struct Pipeline<'a, const STAGES: usize> {
    full: Mbarriers<'a, STAGES>,
    empty: Mbarriers<'a, STAGES>,
}

impl<'a, const STAGES: usize> Pipeline<'a, STAGES> {
    /// A thread that fills stages, at the first one.
    #[inline(always)]
    pub fn producer(&self) -> Producer<'a, STAGES> {
        Producer { pipeline: *self, at: PipelineState { stage: 0, parity: 0 } }
    }

    /// A thread that uses stages, at the first one.
    #[inline(always)]
    pub fn consumer(&self) -> Consumer<'a, STAGES> {
        Consumer { pipeline: *self, at: PipelineState { stage: 0, parity: 0 }, released: 0 }
    }
}

/// A stage, and the parity of its phase.
#[derive(Clone, Copy)]
struct PipelineState {
    stage: u32,
    parity: u32,
}

impl PipelineState {
    #[inline(always)]
    fn advance<const STAGES: usize>(&mut self) {
        self.stage += 1;
        if self.stage == STAGES as u32 {
            *self = PipelineState { stage: 0, parity: self.parity ^ 1 };
        }
    }
}

/// Made by [`Pipeline::producer`].
pub struct Producer<'a, const STAGES: usize> {
    pipeline: Pipeline<'a, STAGES>,
    at: PipelineState,
}

impl<'a, const STAGES: usize> Producer<'a, STAGES> {
    /// Waits until all consumers have released this thread's present stage, and says which it is; `None` when the launch is aborted first, as
    /// [`Mbarrier::wait`] says false.
    #[inline(always)]
    #[must_use]
    pub fn acquire(&self) -> Option<u32> {
        self.pipeline.empty.at(self.at.stage).wait(self.at.parity ^ 1).then_some(self.at.stage)
    }

    /// Arrives with `bytes` of copies that the present stage waits for, and goes to the next one; the barrier is for these copies, which are
    /// asked for behind this.
    #[inline(always)]
    pub fn commit_copies(&mut self, bytes: u32) -> Mbarrier<'a> {
        let full = self.pipeline.full.at(self.at.stage);
        full.arrive_expect(bytes);
        self.at.advance::<STAGES>();
        full
    }

    /// Goes to the next stage, which another lane commits: all lanes of a warp have acquired it, and one of them fills it.
    #[inline(always)]
    pub fn skip(&mut self) {
        self.at.advance::<STAGES>();
    }

    /// Arrives, having written the present stage by itself, and goes to the next one. What tensor cores or copies will read of it needs a
    /// fence before this, by whoever wrote it, which [`crate::Warpgroup::sync_copies`] has.
    #[inline(always)]
    pub fn commit(&mut self) {
        self.pipeline.full.at(self.at.stage).arrive();
        self.at.advance::<STAGES>();
    }
}

/// Made by [`Pipeline::consumer`].
pub struct Consumer<'a, const STAGES: usize> {
    pipeline: Pipeline<'a, STAGES>,
    at: PipelineState,
    /// The stage that is given back next.
    released: u32,
}

impl<const STAGES: usize> Consumer<'_, STAGES> {
    /// Waits until the next stage is full, and says which it is; `None` when the launch is aborted first.
    #[inline(always)]
    #[must_use]
    pub fn acquire(&mut self) -> Option<u32> {
        let PipelineState { stage, parity } = self.at;
        self.at.advance::<STAGES>();
        self.pipeline.full.at(stage).wait(parity).then_some(stage)
    }

    /// Arrives at the oldest stage that this thread has acquired and not released: it no longer reads it. Products do until
    /// [`crate::Queue::wait`] says that their group is complete.
    #[inline(always)]
    pub fn release(&mut self) {
        self.pipeline.empty.at(self.released).arrive();
        self.released = if self.released + 1 == STAGES as u32 { 0 } else { self.released + 1 };
    }
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::*;
    use crate::simt::smem::Scratch;

    /// Ahead by all stages, over several turns of them; stages are released later than they are acquired.
    #[test]
    fn stages_take_turns() {
        let mut scratch = Scratch::<112>::new();
        let mut cta = Simt::alone_with(&mut scratch);
        let from: Vec<u128> = (0..20).collect();
        let place = cta.shared::<u32, 0, 12>();
        // SAFETY: one thread; barriers are behind the elements; all copies are waited for.
        unsafe {
            cta.pipeline::<64, 3>(1, 1, |_, pipeline| {
                let (mut producer, mut beside, mut consumer) = (pipeline.producer(), pipeline.producer(), pipeline.consumer());
                let mut produced = 0;
                for step in 0..20 {
                    while produced < 20.min(step + 2) {
                        let stage = producer.acquire().unwrap();
                        assert_eq!((stage as usize, beside.acquire()), (produced % 3, Some(stage)));
                        beside.skip();
                        let full = producer.commit_copies(16);
                        place.load(4 * stage, from.as_ptr().add(produced).cast(), 4, &full);
                        produced += 1;
                    }
                    let stage = consumer.acquire().unwrap();
                    assert_eq!((stage as usize, place.read(4 * stage) as usize), (step % 3, step));
                    if step > 0 {
                        consumer.release();
                    }
                }
            });
        }
    }

    #[test]
    #[should_panic = "a phase of parity 0 that nobody completes"]
    fn a_stage_in_use_is_not_filled() {
        let mut scratch = Scratch::<32>::new();
        // SAFETY: one thread, nothing else in the scratch.
        unsafe {
            Simt::alone_with(&mut scratch).pipeline::<0, 1>(1, 1, |_, pipeline| {
                let (mut producer, mut consumer) = (pipeline.producer(), pipeline.consumer());
                for _ in 0..2 {
                    let _ = producer.acquire();
                    producer.commit();
                    let _ = consumer.acquire();
                    consumer.release();
                }
                let _ = producer.acquire();
                producer.commit();
                // Neither used nor released.
                let _ = producer.acquire();
            });
        }
    }
}
