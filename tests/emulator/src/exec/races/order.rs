//! What a launch comes behind: what its stream has done, what its stream has waited for, and what the host had seen when the launch was queued.
//!
//! The host is one agent: what its threads say to each other is not seen, so that what one of them has waited for counts for all. What it finds in
//! memory, without a wait for a stream or an event, orders nothing.

use std::cell::RefCell;
use std::sync::{Mutex, OnceLock};

use super::shadow::Clock;

/// What has happened before; in another epoch it is everything that was.
#[derive(Clone, Default)]
pub struct Known {
    pub(super) epoch: u64,
    pub(super) clock: Clock,
}

impl Known {
    const NOTHING: Known = Known { epoch: 0, clock: Clock(Vec::new()) };

    pub(super) fn join(&mut self, other: &Known) {
        if other.epoch > self.epoch {
            *self = other.clone();
        } else if other.epoch == self.epoch {
            self.clock.join(&other.clock);
        }
    }
}

static HOST: Mutex<Known> = Mutex::new(Known::NOTHING);

thread_local! {
    /// Of the stream that this thread works off.
    static STREAM: RefCell<Known> = const { RefCell::new(Known::NOTHING) };
}

/// Whether races between devices are looked for.
pub fn tracked() -> bool {
    static TRACKED: OnceLock<bool> = OnceLock::new();
    *TRACKED.get_or_init(|| crate::driver::devices() > 1 && super::level() > 0)
}

/// What the host has seen.
pub fn of_host() -> Known {
    if tracked() { HOST.lock().unwrap().clone() } else { Known::NOTHING }
}

/// What this thread's stream has done and waited for.
pub fn of_stream() -> Known {
    STREAM.with_borrow(Known::clone)
}

/// The host has waited for this.
pub fn host_saw(known: &Known) {
    if tracked() {
        HOST.lock().unwrap().join(known);
    }
}

/// This thread's stream comes behind this.
pub fn stream_behind(known: &Known) {
    if tracked() {
        STREAM.with_borrow_mut(|own| own.join(known));
    }
}
