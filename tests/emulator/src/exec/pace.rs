//! Launches of several devices keep step: whoever's virtual clock is far ahead of another device's sleeps until that has caught up.
//!
//! Kernels wait for stores of other devices' kernels. One that spins, or sleeps through its virtual time, would otherwise come to its deadline while
//! the other one has not had its turn on this machine's processors.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Instructions of a warp that a launch may be ahead.
const AHEAD: u64 = 10_000;

/// A launch that runs: its number, its device, and its clock.
struct Running {
    number: u64,
    device: usize,
    now: u64,
}

static RUNNING: Mutex<Vec<Running>> = Mutex::new(Vec::new());

/// A launch among those of other devices; none where there is one device.
pub(super) struct Pace(Option<u64>);

/// The slowest clock of other devices' launches.
fn slowest(running: &[Running], device: usize) -> Option<u64> {
    running.iter().filter(|other| other.device != device).map(|other| other.now).min()
}

impl Pace {
    /// A launch begins at `time`, or when the slowest of the other devices' launches is already: not behind all of them.
    pub fn begin(device: usize, time: u64) -> (Pace, u64) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        if crate::driver::devices() == 1 {
            return (Pace(None), time);
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut running = RUNNING.lock().unwrap();
        let now = slowest(&running, device).map_or(time, |other| other.max(time));
        running.push(Running { number, device, now });
        (Pace(Some(number)), now)
    }

    /// The launch's clock is at `now`, of `tick` an instruction: waits until others are not far behind.
    pub fn keep(&self, now: u64, tick: u64) {
        let Some(number) = self.0 else { return };
        loop {
            let mut running = RUNNING.lock().unwrap();
            let Some(own) = running.iter_mut().find(|launch| launch.number == number) else { return };
            own.now = now;
            let device = own.device;
            if slowest(&running, device).is_none_or(|other| now <= other + AHEAD * tick) {
                return;
            }
            drop(running);
            std::thread::sleep(Duration::from_micros(20));
        }
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        if let Some(number) = self.0 {
            RUNNING.lock().unwrap().retain(|launch| launch.number != number);
        }
    }
}
