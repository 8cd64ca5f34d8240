//! The watchdog: whoever waits on the host sees to it that launches go on.
//!
//! What a wait is behind it does not know: a launch on any stream, a replay of a graph, be it another library's. So it looks at all plans that may have a launch
//! on the GPU. A launch that waits too long aborts itself; one whose tasks do not end cannot, and what counters show of it stands still.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use cudarc::driver::sys;

use super::context::Context;
use super::events::{EventHandle, Patience};
use super::plan_memory::PlanMemory;
use crate::abort::Cause;
use crate::error::Error;
use crate::plan_core::PlanCore;

/// Added to the deadline between two looks at a plan, and how long a wait is no reason to look.
const GRACE: Duration = Duration::from_millis(500);
/// Between two rounds.
const ROUND: Duration = Duration::from_millis(10);

/// A plan's memory, as long as a launch of it may run, and what is known of its launches.
pub(super) struct Watched {
    context: Arc<Context>,
    core: Arc<PlanCore>,
    pub(super) memory: PlanMemory,
    launches: Mutex<Launches>,
}

#[derive(Default)]
struct Launches {
    /// Behind the last one that was queued.
    end: Option<Arc<EventHandle>>,
    /// A graph has one, and may be replayed at any time.
    captured: Captured,
    /// The longest deadline of those that may run, and of those that were captured.
    deadline_ns: u64,
    captured_ns: u64,
}

/// Who replays launches of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Captured {
    #[default]
    Nobody,
    /// In the launch order of the device.
    ByMaco,
    /// Whenever it likes.
    ByAnother,
}

impl Watched {
    pub(super) fn new(context: &Arc<Context>, core: &Arc<PlanCore>, memory: PlanMemory) -> Arc<Watched> {
        let watched = Arc::new(Watched { context: context.clone(), core: core.clone(), memory, launches: Mutex::default() });
        context.watch(&watched);
        watched
    }

    fn launches(&self) -> MutexGuard<'_, Launches> {
        self.launches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A launch is about to be queued that ends with `end`.
    pub(super) fn queue(&self, end: &Arc<EventHandle>, deadline_ns: u64) {
        let mut launches = self.launches();
        let before = if launches.end.is_some() { launches.deadline_ns } else { 0 };
        (launches.end, launches.deadline_ns) = (Some(end.clone()), before.max(deadline_ns));
    }

    /// The launch that ends with `end` has ended.
    pub(super) fn ended(&self, end: &Arc<EventHandle>) {
        let mut launches = self.launches();
        if launches.end.as_ref().is_some_and(|last| Arc::ptr_eq(last, end)) {
            launches.end = None;
        }
    }

    /// A launch is a part of a graph from now on.
    pub(super) fn capture(&self, by: Captured, deadline_ns: u64) {
        let mut launches = self.launches();
        launches.captured = launches.captured.max(by);
        launches.captured_ns = launches.captured_ns.max(deadline_ns);
    }

    /// Whether a graph has a launch of it.
    pub(super) fn is_captured(&self) -> bool {
        self.launches().captured != Captured::Nobody
    }

    /// Whether a launch may be on the GPU, and how long its state may stand still.
    fn running(&self) -> Result<Option<Duration>, Error> {
        let mut launches = self.launches();
        // Once it has passed, nobody asks again.
        if launches.end.as_ref().map(|end| end.done(&self.context)).transpose()? == Some(true) {
            launches.end = None;
        }
        let queued = launches.end.is_some().then_some(launches.deadline_ns);
        let replayed = match launches.captured {
            Captured::Nobody => false,
            Captured::ByMaco => !self.context.is_settled()?,
            Captured::ByAnother => true,
        };
        let captured = replayed.then_some(launches.captured_ns);
        Ok(queued.max(captured).map(|deadline_ns| Duration::from_nanos(deadline_ns).saturating_add(GRACE)))
    }

    /// Why a device is given up. A launch that found a task which does not end, or waits for one, has said so before it hung.
    fn no_progress(&self, period: Duration) -> String {
        match self.memory.report().map(|report| Cause::of(&report, &self.core.plan, true)) {
            Some(Cause::Hang(hang)) => format!("a launch did not end after this: {}", hang.what()),
            _ => format!("a launch of megakernel `{}` made no progress for {period:.1?} and did not abort itself", self.core.megakernel()),
        }
    }
}

/// One wait of the host.
pub(super) struct Watchdog<'a> {
    context: &'a Context,
    next: Instant,
    plans: Vec<Seen>,
}

/// What a plan looked like.
struct Seen {
    plan: Weak<Watched>,
    at: Instant,
    state: Option<u64>,
}

impl Watchdog<'_> {
    pub(super) fn new(context: &Context) -> Watchdog<'_> {
        Watchdog { context, next: Instant::now() + GRACE, plans: Vec::new() }
    }

    /// Looks at the plans whose turn it is. Why the device is beyond help, if it is: a launch has neither ended nor counted for its deadline and a half second.
    /// One of which not all CTAs run is left alone, for whatever else has the multiprocessors: the first ones know how long to wait for the others.
    pub(super) fn look(&mut self) -> Result<Option<String>, Error> {
        if Instant::now() < self.next {
            return Ok(None);
        }
        for plan in self.context.watched() {
            // What an aborted launch leaves behind: streams that wait for tasks which never came.
            if let Some(beside) = plan.core.beside.as_ref().filter(|_| plan.memory.report().is_some()) {
                beside.release()?;
            }
            let seen = self.plans.iter().position(|seen| std::ptr::eq(seen.plan.as_ptr(), Arc::as_ptr(&plan)));
            let (state, period) = match plan.running()? {
                None => (None, Duration::ZERO),
                Some(period) if seen.is_some_and(|n| self.plans[n].at.elapsed() <= period) => continue,
                Some(period) => (plan.memory.fingerprint(&plan.context)?, period),
            };
            match seen.map(|n| &mut self.plans[n]) {
                None => self.plans.push(Seen { plan: Arc::downgrade(&plan), at: Instant::now(), state }),
                Some(seen) if state.is_some() && seen.state == state => return Ok(Some(plan.no_progress(period))),
                Some(seen) => (seen.at, seen.state) = (Instant::now(), state),
            }
        }
        self.next = Instant::now() + ROUND;
        Ok(None)
    }
}

impl Context {
    /// Waits on the host for what a stream holds now.
    ///
    /// # Safety
    /// `stream` is a live stream of this context, and not captured.
    pub(super) unsafe fn drain(self: &Arc<Context>, stream: sys::CUstream) -> Result<(), Error> {
        let end = EventHandle::new(self)?;
        // SAFETY: passed on from the caller.
        unsafe { end.record(self, stream)? };
        end.synchronize(self)
    }

    /// From now on the watchdog of every wait looks at this plan.
    pub(super) fn watch(&self, plan: &Arc<Watched>) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.retain(|plan| plan.strong_count() > 0);
        watched.push(Arc::downgrade(plan));
    }

    /// The plans that there are.
    pub(super) fn watched(&self) -> Vec<Arc<Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect()
    }

    /// Waits for launches that another library replays, as far as they can be seen. A call of the driver that waits for all of them would wait for ever for one
    /// that does not end.
    pub(super) fn settle_replays(&self) -> Result<(), Error> {
        let mut watchdog = Watchdog::new(self);
        let mut patience = Patience::new();
        for plan in self.watched() {
            while plan.launches().captured == Captured::ByAnother && plan.memory.fingerprint(&plan.context)?.is_some() {
                if let Some(reason) = watchdog.look()? {
                    return Err(self.lose(&reason));
                }
                patience.wait();
            }
        }
        Ok(())
    }
}
