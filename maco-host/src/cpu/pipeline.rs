//! The pipelined CPU executor: each worker is a CTA of five threads, which run the roles of a GPU over a model of its hardware.
//!
//! What the roles do does not belong here: it is `maco-device`'s.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::PoisonError;

use maco_device::abi::{Launch, State};
use maco_device::modelled::{Cta, CtaThread, Surroundings};
use maco_device::protocol::Machine;

use super::executor::{ABORT_PANIC, Panicked, run_scheduler};
use super::machine::{Bodies, Worker};
use super::pool::Pool;
use crate::error::Error;
use crate::program::Dispatch;

const THREADS: u32 = CtaThread::ALL.len() as u32;

/// The CTAs of a plan.
pub(super) struct Pipeline {
    ctas: Vec<Cta>,
    /// Which threads compute, and do not wait.
    bodies: Bodies,
}

/// What a thread of a CTA knows of its launch.
struct Thread<'a> {
    machine: &'a Worker<'a>,
    bodies: &'a Bodies,
    number: u32,
    /// Whether its work stops the clocks. The dependency poller only waits, so its work does not.
    counts: bool,
}

impl Surroundings for Thread<'_> {
    fn now(&self) -> u64 {
        self.machine.now()
    }

    fn working(&self, _: bool) {
        if self.counts {
            self.bodies.turn(self.number);
        }
    }
}

impl Pipeline {
    pub(super) fn new(workers: u32) -> Pipeline {
        Pipeline { ctas: (0..workers).map(Cta::new).collect(), bodies: Bodies::new(workers * THREADS) }
    }

    /// Runs a launch and waits for all of it.
    ///
    /// # Safety
    /// `launch` names live memory that the plan filled for `dispatch`, and nobody else launches it.
    pub(super) unsafe fn run(&mut self, pool: &Pool, launch: &Launch, dispatch: Dispatch, panicked: &Panicked) -> Result<(), Error> {
        for cta in &mut self.ctas {
            cta.begin(launch.delays);
            // SAFETY: passed on from the caller.
            unsafe { cta.note(launch) };
        }
        let this = &*self;
        // SAFETY: passed on from the caller; the pool gives every number once.
        pool.run(launch.workers * THREADS + launch.schedulers, &|number, _| unsafe {
            match number.checked_sub(launch.workers * THREADS) {
                None => this.run_thread(launch, number, dispatch, panicked),
                Some(scheduler) => run_scheduler(launch, scheduler, &this.bodies),
            }
        })
    }

    /// One thread's part of a launch.
    ///
    /// # Safety
    /// As [`Pipeline::run`]; called once for each number.
    unsafe fn run_thread(&self, launch: &Launch, number: u32, dispatch: Dispatch, panicked: &Panicked) {
        let (cta, part) = (&self.ctas[(number / THREADS) as usize], CtaThread::ALL[(number % THREADS) as usize]);
        let machine = Worker::new(&self.bodies);
        let thread = Thread { machine: &machine, bodies: &self.bodies, number, counts: part != CtaThread::Control };
        let current = Cell::new(None);
        let result = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: passed on from the caller.
            unsafe {
                cta.play(part, &machine, &thread, launch, |cpu, task, op| {
                    current.set(Some(task.index()));
                    dispatch(cpu, task, op);
                    current.set(None);
                });
            }
        }));
        let mut payload = result.err();
        if payload.is_some() {
            // SAFETY: the plan's memory is live.
            unsafe { machine.compare_exchange(&raw mut (*(launch.state as *mut State)).abort, 0, ABORT_PANIC) };
            cta.let_through();
            if let Some(task) = current.get() {
                let mut first = panicked.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(payload) = payload.take() {
                    first.get_or_insert((task, payload));
                }
            }
        }
        // SAFETY: passed on from the caller: this part has ended.
        unsafe { cta.leave(&machine, launch) };
        if let Some(payload) = payload {
            resume_unwind(payload);
        }
    }
}
