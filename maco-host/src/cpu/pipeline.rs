//! The pipelined CPU executor: each worker is a CTA of five threads, which run the roles of a GPU over a model of its hardware.
//!
//! What the roles do does not belong here: it is `maco-device`'s.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::PoisonError;

use maco_abi::{Launch, State};
use maco_device::modelled::{Cta, CtaThread, Surroundings};
use maco_device::protocol::Machine;

use super::executor::{ABORT_PANIC, Flight};
use super::machine::{Bodies, Worker};

const THREADS: u32 = CtaThread::ALL.len() as u32;

/// The CTAs of a plan.
pub(super) struct Pipeline(Vec<Cta>);

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
        Pipeline((0..workers).map(Cta::new).collect())
    }

    /// How many threads a launch of so many workers takes.
    pub(super) fn threads(workers: u32) -> u32 {
        workers * THREADS
    }

    /// Makes the CTAs ready for a launch.
    ///
    /// # Safety
    /// `launch` names live memory.
    pub(super) unsafe fn begin(&mut self, launch: &Launch) {
        for cta in &mut self.0 {
            cta.begin(launch.delays);
            // SAFETY: passed on from the caller.
            unsafe { cta.note(launch) };
        }
    }

    /// One thread's part of a launch.
    ///
    /// # Safety
    /// Behind [`Pipeline::begin`]; called once for each number. The launch names live memory that the plan filled for its dispatch, and nobody else
    /// launches it.
    pub(super) unsafe fn run_thread(&self, flight: &Flight, number: u32) {
        let Flight { launch, bodies, .. } = flight;
        let (cta, part) = (&self.0[(number / THREADS) as usize], CtaThread::ALL[(number % THREADS) as usize]);
        let machine = Worker::new(bodies);
        let thread = Thread { machine: &machine, bodies, number, counts: part != CtaThread::Control };
        let current = Cell::new(None);
        let result = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: passed on from the caller.
            unsafe {
                cta.play(part, &machine, &thread, launch, |cpu, task, op| {
                    current.set(Some(task.index()));
                    bodies.named(number, task.index(), || (flight.dispatch)(cpu, task, op));
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
                let mut first = flight.panicked.lock().unwrap_or_else(PoisonError::into_inner);
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
