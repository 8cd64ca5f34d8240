//! A worker thread as a protocol machine. Its clock stops while any task body runs, so that deadlines do not count computation.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use maco_abi::BlackBox;
use maco_device::protocol::{Machine, Thread};

/// Most nanoseconds that one look at the clock adds: time in which the process was suspended does not count.
const MOST: u64 = 50_000_000;

/// What workers compute.
pub(crate) struct Bodies(Box<[Body]>);

/// Of one worker; on a cache line of its own: written around every task.
#[repr(align(128))]
struct Body {
    /// Odd while it runs a task body.
    count: AtomicU64,
    /// How often the body has waited.
    waits: AtomicU32,
    /// The task, or [`NONE`].
    task: AtomicU32,
}

/// No task.
const NONE: u32 = u32::MAX;

impl Bodies {
    pub(crate) fn new(workers: u32) -> Bodies {
        let none = || Body { count: AtomicU64::new(0), waits: AtomicU32::new(0), task: AtomicU32::new(NONE) };
        Bodies((0..workers).map(|_| none()).collect())
    }

    /// Runs the body of `task` as `worker`, marked as running.
    pub(crate) fn run<T>(&self, worker: u32, task: u32, body: impl FnOnce() -> T) -> T {
        self.turn(worker);
        let result = self.named(worker, task, body);
        self.turn(worker);
        result
    }

    /// Runs the body of `task` as `worker`, which is marked as running already.
    pub(crate) fn named<T>(&self, worker: u32, task: u32, body: impl FnOnce() -> T) -> T {
        let of = &self.0[worker as usize].task;
        of.store(task, Ordering::Relaxed);
        let result = body();
        of.store(NONE, Ordering::Relaxed);
        result
    }

    /// Runs `wait` within a body of `worker`, not marked as running: clocks continue.
    pub(crate) fn idle<T>(&self, worker: u32, wait: impl FnOnce() -> T) -> T {
        let body = &self.0[worker as usize];
        body.waits.fetch_add(1, Ordering::Relaxed);
        body.count.fetch_sub(1, Ordering::Relaxed);
        let result = wait();
        body.count.fetch_add(1, Ordering::Relaxed);
        result
    }

    /// Notes that `worker` begins to run, or ends.
    pub(crate) fn turn(&self, worker: u32) {
        self.0[worker as usize].count.fetch_add(1, Ordering::Relaxed);
    }

    /// Bodies begun and ended so far, and whether any runs.
    fn look(&self) -> (u64, bool) {
        self.0.iter().fold((0, false), |(sum, running), body| {
            let count = body.count.load(Ordering::Relaxed);
            (sum.wrapping_add(count), running || count % 2 == 1)
        })
    }
}

/// Looks for a body that does not end, from a thread that is no worker.
pub(crate) struct Watch {
    limit: Duration,
    looked: Instant,
    /// Of each worker what it was at, and for how long.
    seen: Vec<(u64, u32, Duration)>,
}

/// A body that does not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endless {
    pub(crate) worker: u32,
    pub(crate) task: u32,
    pub(crate) ran: Duration,
}

impl Watch {
    /// A body that computes for longer than `limit` does not end.
    pub(crate) fn new(limit: Duration) -> Watch {
        Watch { limit, looked: Instant::now(), seen: Vec::new() }
    }

    /// The first body that is past the limit.
    pub(crate) fn look(&mut self, bodies: &Bodies) -> Option<Endless> {
        let now = Instant::now();
        let step = (now - std::mem::replace(&mut self.looked, now)).min(Duration::from_nanos(MOST));
        self.seen.resize(bodies.0.len(), (0, 0, Duration::ZERO));
        for (worker, (body, seen)) in bodies.0.iter().zip(&mut self.seen).enumerate() {
            let (count, waits, task) =
                (body.count.load(Ordering::Relaxed), body.waits.load(Ordering::Relaxed), body.task.load(Ordering::Relaxed));
            let same = (count, waits) == (seen.0, seen.1) && count % 2 == 1 && task != NONE;
            *seen = (count, waits, if same { seen.2 + step } else { Duration::ZERO });
            if seen.2 > self.limit {
                return Some(Endless { worker: worker as u32, task, ran: seen.2 });
            }
        }
        None
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
    fn multiprocessor(&self) -> u32 {
        self.thread.multiprocessor()
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
        bodies.run(1, 0, || {
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
    fn a_body_that_does_not_end_is_found() {
        let bodies = Bodies::new(3);
        let mut watch = Watch::new(Duration::from_millis(60));
        let mut looks = |n: u32| {
            let pause = || std::thread::sleep(Duration::from_millis(15));
            (0..n).find_map(|_| {
                pause();
                watch.look(&bodies)
            })
        };
        assert_eq!(looks(8), None, "nobody computes");
        bodies.run(0, 7, || {
            for _ in 0..8 {
                bodies.idle(0, || ());
                assert_eq!(looks(1), None, "it waits");
            }
        });
        for task in 0..8 {
            bodies.run(1, task, || assert_eq!(looks(1), None, "others come"));
        }
        bodies.run(2, 5, || {
            let found = looks(20).unwrap();
            assert_eq!((found.worker, found.task), (2, 5));
            assert!(found.ran > Duration::from_millis(60));
        });
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
