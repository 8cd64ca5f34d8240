//! A worker thread as a protocol machine. Its clock stops while any task body runs, so that deadlines do not count computation.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use maco_device::abi::BlackBox;
use maco_device::protocol::{Machine, Thread};

/// Most nanoseconds that one look at the clock adds: time in which the process was suspended does not count.
const MOST: u64 = 50_000_000;

/// One count per worker, odd while it runs a task body.
pub(crate) struct Bodies(Box<[Count]>);

/// On a cache line of its own: written around every task.
#[derive(Default)]
#[repr(align(128))]
struct Count(AtomicU64);

impl Bodies {
    pub(crate) fn new(workers: u32) -> Bodies {
        Bodies((0..workers).map(|_| Count::default()).collect())
    }

    /// Runs `body` as `worker`, marked as running.
    pub(crate) fn run<T>(&self, worker: u32, body: impl FnOnce() -> T) -> T {
        let count = &self.0[worker as usize].0;
        count.fetch_add(1, Ordering::Relaxed);
        let result = body();
        count.fetch_add(1, Ordering::Relaxed);
        result
    }

    /// Runs `wait` within a body of `worker`, not marked as running: clocks continue.
    pub(crate) fn idle<T>(&self, worker: u32, wait: impl FnOnce() -> T) -> T {
        let count = &self.0[worker as usize].0;
        count.fetch_sub(1, Ordering::Relaxed);
        let result = wait();
        count.fetch_add(1, Ordering::Relaxed);
        result
    }

    /// Notes that `worker` begins to run, or ends.
    pub(crate) fn turn(&self, worker: u32) {
        self.0[worker as usize].0.fetch_add(1, Ordering::Relaxed);
    }

    /// Bodies begun and ended so far, and whether any runs.
    fn look(&self) -> (u64, bool) {
        self.0.iter().fold((0, false), |(sum, running), count| {
            let count = count.0.load(Ordering::Relaxed);
            (sum.wrapping_add(count), running || count % 2 == 1)
        })
    }
}

/// A worker thread.
pub(crate) struct Worker<'a> {
    thread: Thread,
    bodies: &'a Bodies,
    /// Nanoseconds in which no body ran, as far as this worker has looked.
    stalled: Cell<u64>,
    /// When it looked last, and what it saw.
    looked: Cell<(u64, u64)>,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(bodies: &'a Bodies) -> Worker<'a> {
        let thread = Thread::new();
        let looked = Cell::new((thread.now(), bodies.look().0));
        Worker { thread, bodies, stalled: Cell::new(1), looked }
    }
}

// SAFETY: all accesses and fences are those of `Thread`, which keeps the contract.
unsafe impl Machine for Worker<'_> {
    unsafe fn load(&self, at: *const u32) -> u32 {
        // SAFETY: passed on from the caller.
        unsafe { self.thread.load(at) }
    }
    unsafe fn store(&self, at: *mut u32, value: u32) {
        // SAFETY: passed on from the caller.
        unsafe { self.thread.store(at, value) }
    }
    unsafe fn add(&self, at: *mut u32, value: u32) {
        // SAFETY: passed on from the caller.
        unsafe { self.thread.add(at, value) }
    }
    unsafe fn claim(&self, at: *mut u32, value: u32) -> u32 {
        // SAFETY: passed on from the caller.
        unsafe { self.thread.claim(at, value) }
    }
    unsafe fn compare_exchange(&self, at: *mut u32, expected: u32, new: u32) -> u32 {
        // SAFETY: passed on from the caller.
        unsafe { self.thread.compare_exchange(at, expected, new) }
    }
    fn acquire(&self) {
        self.thread.acquire();
    }
    fn release(&self) {
        self.thread.release();
    }
    /// A task may take seconds on a CPU: only time in which no worker computes counts against a deadline.
    fn now(&self) -> u64 {
        let time = self.thread.now();
        let (events, running) = self.bodies.look();
        let (before, seen) = self.looked.replace((time, events));
        if !running && events == seen {
            self.stalled.set(self.stalled.get() + (time - before).min(MOST));
        }
        self.stalled.get()
    }
    fn pause(&self, polls: u32) {
        self.thread.pause(polls);
    }
    fn place(&self) -> u32 {
        self.thread.place()
    }
    unsafe fn report(&self, at: *mut BlackBox, report: BlackBox) {
        // SAFETY: passed on from the caller.
        unsafe { self.thread.report(at, report) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_clock_stops_while_a_body_runs() {
        let bodies = Bodies::new(2);
        let worker = Worker::new(&bodies);
        let pause = || std::thread::sleep(Duration::from_millis(2));
        let start = worker.now();
        pause();
        let idle = worker.now();
        assert!(idle >= start + 1_000_000, "idle time counts");
        bodies.run(1, || {
            pause();
            let first = worker.now();
            pause();
            assert_eq!(worker.now(), first, "a body runs");
            assert_eq!(first, idle);
        });
        pause();
        assert_eq!(worker.now(), idle, "a body ended since the last look");
        pause();
        assert!(worker.now() > idle);
    }

    #[test]
    fn time_of_a_suspended_process_does_not_count() {
        let bodies = Bodies::new(1);
        let worker = Worker::new(&bodies);
        let start = worker.now();
        std::thread::sleep(Duration::from_millis(120));
        assert!(worker.now() - start <= MOST);
    }
}
