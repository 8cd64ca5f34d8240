//! The host thread that plays a part of a CTA.

use std::cell::Cell;
use std::time::Duration;

use super::delay::Delays;
use super::shared::Shared;

/// What a thread asks those who run it.
pub trait Surroundings {
    /// Nanoseconds of the clock that deadlines count.
    fn now(&self) -> u64;
    /// The thread begins to work, or to wait.
    fn working(&self, works: bool);
}

/// Surroundings where time and notes of work are nobody's concern: of who sets shared memory up, and of tests.
pub struct Nobody;

impl Surroundings for Nobody {
    fn now(&self) -> u64 {
        1
    }
    fn working(&self, _: bool) {}
}

/// One thread of a modelled CTA.
pub struct Modelled<'a> {
    pub(super) shared: &'a Shared,
    pub(super) surroundings: &'a dyn Surroundings,
    /// The first hardware thread that it stands for.
    pub(super) number: u32,
    /// The warps that it stands for.
    pub(super) warps: u32,
    pub(super) block: u32,
    works: Cell<bool>,
    /// Vain tests since it waited or worked.
    vain: Cell<u32>,
    delays: Delays,
}

thread_local! {
    static CURRENT: Cell<*const Modelled<'static>> = const { Cell::new(std::ptr::null()) };
}

impl<'a> Modelled<'a> {
    /// A thread of CTA `block` that stands for `warps` warps from hardware thread `number` on; `seed` chooses delays and the order of
    /// copies, 0 for none.
    pub fn new(shared: &'a Shared, surroundings: &'a dyn Surroundings, block: u32, number: u32, warps: u32, seed: u32) -> Modelled<'a> {
        let delays = Delays::new(seed, block, number);
        Modelled { shared, surroundings, number, warps, block, works: Cell::new(false), vain: Cell::new(0), delays }
    }

    /// Runs `body` as this thread.
    pub fn enter<T>(&self, body: impl FnOnce() -> T) -> T {
        struct Reset<'a, 'b>(&'b Modelled<'a>);
        impl Drop for Reset<'_, '_> {
            fn drop(&mut self) {
                self.0.work(false);
                CURRENT.set(std::ptr::null());
            }
        }
        let _reset = Reset(self);
        CURRENT.set((&raw const *self).cast());
        self.delays.enter(body)
    }

    /// Notes whether the thread works or waits.
    pub(super) fn work(&self, works: bool) {
        self.vain.set(0);
        if self.works.replace(works) != works {
            self.surroundings.working(works);
        }
    }

    /// Notes a test that does not wait: several vain ones are a wait.
    pub(super) fn tested(&self, holds: bool) {
        match (holds, self.vain.get()) {
            // The first thing that a thread ever asks may hold at once.
            (true, _) => self.work(true),
            (false, vain @ 0..4) => self.vain.set(vain + 1),
            (false, vain) => {
                self.work(false);
                self.vain.set(vain);
                self.shared.nap(|| false);
            }
        }
    }

    /// A number below `end`; 0 without a seed.
    pub(super) fn choose(&self, end: u32) -> u32 {
        self.delays.choose(end)
    }
}

/// What this thread is.
pub(super) fn with<T>(f: impl FnOnce(&Modelled<'_>) -> T) -> T {
    let current = CURRENT.get();
    assert!(!current.is_null(), "only threads of a modelled CTA come here");
    // SAFETY: `enter` keeps the value borrowed while it is current.
    f(unsafe { &*current })
}

/// The same, for what threads outside of a modelled CTA do too.
pub(super) fn if_modelled(f: impl FnOnce(&Modelled<'_>)) {
    let current = CURRENT.get();
    if !current.is_null() {
        // SAFETY: as above.
        f(unsafe { &*current });
    }
}

/// Waits in the midst of a task for `condition`, looked at now and then; false when the CTA is let through first. `None` outside of a
/// modelled CTA.
pub fn resting(condition: &mut dyn FnMut() -> bool) -> Option<bool> {
    let current = CURRENT.get();
    if current.is_null() {
        return None;
    }
    // SAFETY: as above.
    let thread = unsafe { &*current };
    thread.work(false);
    let holds = loop {
        if condition() {
            break true;
        }
        if thread.shared.lets_through() {
            break false;
        }
        std::thread::sleep(Duration::from_micros(50));
    };
    thread.work(true);
    Some(holds)
}
