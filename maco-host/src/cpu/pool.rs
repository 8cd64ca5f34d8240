//! A pool of parked threads: a launch wakes them instead of starting them. What they run does not belong here.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use maco_device::Cpu;

use crate::error::Error;

/// Looks at its mailbox that a thread makes before it yields, and before it parks.
const SPINS: u32 = 200;
const YIELDS: u32 = 20;
/// How often the thread that launches looks whether the launch should be given up.
const WATCH: Duration = Duration::from_millis(10);

/// What every worker of a launch runs: `job(worker, scratch)`. It owns what it uses, since a worker may never end.
pub(crate) type Job = dyn Fn(u32, &mut Cpu) + Send + Sync;

/// Threads for up to `workers` workers, started by the first launch that needs them. The thread that launches is none of them: it waits, and may stop
/// waiting.
pub(crate) struct Pool {
    /// How many pools of the program were made before: devices of equally many workers are told apart by it.
    number: u32,
    workers: u32,
    /// One launch at a time: plans of one device never overlap.
    helpers: Mutex<Vec<Helper>>,
}

/// How a launch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All workers have.
    All,
    /// Not all workers have, and nobody waits for them any more.
    GivenUp,
}

/// A thread that runs a worker.
struct Helper {
    mailbox: Arc<Mailbox>,
    thread: JoinHandle<()>,
}

/// Where a helper finds its next launch.
#[derive(Default)]
struct Mailbox {
    /// A boxed part, null while there is nothing to do; the helper takes it.
    part: AtomicPtr<Part>,
    stop: AtomicBool,
}

/// A worker's part of a launch.
struct Part {
    job: Arc<Job>,
    end: Arc<End>,
}

/// Where a launch ends.
struct End {
    /// Helpers that have not finished.
    pending: AtomicU32,
    /// The first panic.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    caller: Thread,
}

impl Pool {
    pub(crate) fn new(workers: u32) -> Pool {
        static POOLS: AtomicU32 = AtomicU32::new(0);
        Pool { number: POOLS.fetch_add(1, Ordering::Relaxed), workers, helpers: Mutex::default() }
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn workers(&self) -> u32 {
        self.workers
    }

    /// Runs `job` as workers `0..workers` at once and waits for all of them, or until `give_up` says so. A panic of any of them continues here. When all have
    /// ended, none of them has `job` any more.
    pub(crate) fn run(&self, workers: u32, job: Arc<Job>, mut give_up: impl FnMut() -> bool) -> Result<Ended, Error> {
        let mut helpers = self.helpers.lock().unwrap_or_else(PoisonError::into_inner);
        start(&mut helpers, workers)?;
        let end = Arc::new(End { pending: AtomicU32::new(workers), panic: Mutex::default(), caller: thread::current() });
        for helper in &helpers[..workers as usize] {
            let part = Box::new(Part { job: job.clone(), end: end.clone() });
            helper.mailbox.part.store(Box::into_raw(part), Ordering::Release);
            helper.thread.thread().unpark();
        }
        drop(job);
        let mut looks = 0;
        while end.pending.load(Ordering::Acquire) != 0 {
            if !idle(&mut looks, || thread::park_timeout(WATCH)) && give_up() {
                // Those that can will end by themselves; the next launch starts others.
                helpers.drain(..).for_each(|helper| helper.stop());
                return Ok(Ended::GivenUp);
            }
        }
        let panic = end.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        match panic {
            Some(panic) => resume_unwind(panic),
            None => Ok(Ended::All),
        }
    }
}

/// Starts the helpers that `workers` workers need.
fn start(helpers: &mut Vec<Helper>, workers: u32) -> Result<(), Error> {
    for worker in helpers.len() as u32..workers {
        let mailbox = Arc::new(Mailbox::default());
        let theirs = mailbox.clone();
        let thread = thread::Builder::new()
            .name(format!("maco-worker-{worker}"))
            .spawn(move || help(worker, &theirs))
            .map_err(|source| Error::Threads { worker, workers, source })?;
        helpers.push(Helper { mailbox, thread });
    }
    Ok(())
}

impl Helper {
    /// Has the thread end, once it has nothing to do.
    fn stop(&self) {
        self.mailbox.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let helpers = self.helpers.get_mut().unwrap_or_else(PoisonError::into_inner);
        helpers.iter().for_each(Helper::stop);
        for helper in helpers.drain(..) {
            // A helper catches every panic, so there is nothing to pass on.
            let _ = helper.thread.join();
        }
    }
}

/// A helper's life.
fn help(worker: u32, mailbox: &Mailbox) {
    let mut scratch = Cpu::new();
    let mut looks = 0;
    loop {
        let part = mailbox.part.swap(std::ptr::null_mut(), Ordering::Acquire);
        if part.is_null() {
            if mailbox.stop.load(Ordering::Acquire) {
                return;
            }
            idle(&mut looks, thread::park);
            continue;
        }
        looks = 0;
        // SAFETY: only `run` fills the mailbox, with a box, and the swap has taken it.
        let Part { job, end } = *unsafe { Box::from_raw(part) };
        let result = catch_unwind(AssertUnwindSafe(|| job(worker, &mut scratch)));
        // Who sees `pending` go to 0 is the only one that has what the job uses.
        drop(job);
        if let Err(payload) = result {
            scratch = Cpu::new();
            end.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(payload);
        }
        if end.pending.fetch_sub(1, Ordering::Release) == 1 {
            end.caller.unpark();
        }
    }
}

/// Waits a little: spins, then yields, then `park`s until somebody unparks the thread. Whether it has not parked.
fn idle(looks: &mut u32, park: impl FnOnce()) -> bool {
    *looks = looks.saturating_add(1);
    match *looks {
        0..=SPINS => std::hint::spin_loop(),
        looks if looks <= SPINS + YIELDS => thread::yield_now(),
        _ => {
            park();
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    fn run(pool: &Pool, workers: u32, job: impl Fn(u32) + Send + Sync + 'static) {
        assert_eq!(pool.run(workers, Arc::new(move |worker, _: &mut Cpu| job(worker)), || false).unwrap(), Ended::All);
    }

    #[test]
    fn every_worker_runs_once_per_launch() {
        let pool = Pool::new(8);
        for workers in [1, 8, 3, 8, 1, 2] {
            let runs: Arc<Vec<AtomicUsize>> = Arc::new((0..8).map(|_| AtomicUsize::new(0)).collect());
            let counted = runs.clone();
            run(&pool, workers, move |worker| {
                counted[worker as usize].fetch_add(1, Ordering::Relaxed);
            });
            let runs: Vec<usize> = Arc::into_inner(runs).expect("nobody has the job").into_iter().map(AtomicUsize::into_inner).collect();
            assert_eq!(runs, (0..8).map(|worker| usize::from(worker < workers as usize)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn workers_run_at_once() {
        let pool = Pool::new(6);
        for _ in 0..200 {
            let here = AtomicUsize::new(0);
            run(&pool, 6, move |_| {
                here.fetch_add(1, Ordering::Relaxed);
                while here.load(Ordering::Relaxed) < 6 {
                    thread::yield_now();
                }
            });
        }
    }

    #[test]
    fn a_panic_continues_in_the_caller_and_the_pool_goes_on() {
        let pool = Pool::new(4);
        for bad in 0..4 {
            let result = catch_unwind(AssertUnwindSafe(|| run(&pool, 4, move |worker| assert_ne!(worker, bad, "as asked"))));
            assert!(result.is_err(), "worker {bad}");
            let runs = Arc::new(AtomicUsize::new(0));
            let counted = runs.clone();
            run(&pool, 4, move |_| {
                counted.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(runs.load(Ordering::Relaxed), 4);
        }
    }

    /// Who never ends is left alone, with all that the job has; later launches and the pool's end do not wait.
    #[test]
    fn a_worker_that_does_not_end_is_given_up() {
        let pool = Pool::new(3);
        for stuck in 0..3 {
            let (go, held) = (Arc::new(AtomicBool::new(false)), Arc::new(()));
            let (theirs, uses) = (go.clone(), held.clone());
            let job: Arc<Job> = Arc::new(move |worker, _: &mut Cpu| {
                let _uses = &uses;
                while worker == stuck && !theirs.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
            });
            let mut looks = 0;
            let give_up = || {
                looks += 1;
                looks == 3
            };
            assert_eq!(pool.run(3, job, give_up).unwrap(), Ended::GivenUp);
            run(&pool, 3, |_| {});
            assert!(Arc::strong_count(&held) > 1, "worker {stuck} still has it");
            go.store(true, Ordering::Relaxed);
            while Arc::strong_count(&held) > 1 {
                thread::yield_now();
            }
        }
    }
}
