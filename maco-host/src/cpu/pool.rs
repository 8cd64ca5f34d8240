//! A pool of parked threads: a launch wakes them instead of starting them. What they run does not belong here.

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};

use maco_device::Cpu;

use super::machine::Bodies;
use crate::error::Error;

/// Looks at its mailbox that a thread makes before it yields, and before it parks.
const SPINS: u32 = 200;
const YIELDS: u32 = 20;

/// What every worker of a launch runs: `job(worker, scratch)`.
type Job<'a> = dyn Fn(u32, &mut Cpu) + Sync + 'a;

/// Threads for up to `workers` workers. Worker 0 is the thread that launches; the others are started by the first launch that needs them.
pub(crate) struct Pool {
    /// How many pools of the program were made before: devices of equally many workers are told apart by it.
    number: u32,
    workers: u32,
    bodies: Bodies,
    /// One launch at a time: plans of one device never overlap.
    turn: Mutex<Turn>,
}

struct Turn {
    scratch: Cpu,
    helpers: Vec<Helper>,
    panic: Arc<Mutex<Option<Box<dyn Any + Send>>>>,
}

/// A thread that runs worker `n + 1`.
struct Helper {
    mailbox: Arc<Mailbox>,
    thread: JoinHandle<()>,
}

/// Where a helper finds its next launch.
#[derive(Default)]
struct Mailbox {
    /// Null while there is nothing to do; the helper takes it.
    launch: AtomicPtr<Launch>,
    stop: AtomicBool,
}

/// One launch, on the stack of the thread that makes it.
struct Launch {
    job: UnsafeCell<*const Job<'static>>,
    /// Helpers that have not finished.
    pending: AtomicU32,
    caller: Thread,
}

impl Pool {
    pub(crate) fn new(workers: u32) -> Pool {
        let turn = Turn { scratch: Cpu::new(), helpers: Vec::new(), panic: Arc::default() };
        static POOLS: AtomicU32 = AtomicU32::new(0);
        let number = POOLS.fetch_add(1, Ordering::Relaxed);
        Pool { number, workers, bodies: Bodies::new(workers), turn: Mutex::new(turn) }
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn workers(&self) -> u32 {
        self.workers
    }

    /// Which workers are in a task body.
    pub(crate) fn bodies(&self) -> &Bodies {
        &self.bodies
    }

    /// Runs `job` as workers `0..workers` at once and waits for all of them. A panic of any of them continues here.
    pub(crate) fn run(&self, workers: u32, job: &Job<'_>) -> Result<(), Error> {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = &mut *turn;
        turn.start(workers)?;
        let helpers = &turn.helpers[..workers.saturating_sub(1) as usize];
        // SAFETY: only the lifetime changes; `job` outlives the launch, because this function waits for every helper below.
        let job_pointer = unsafe { std::mem::transmute::<*const Job<'_>, *const Job<'static>>(job) };
        let launch = Launch { job: UnsafeCell::new(job_pointer), pending: AtomicU32::new(helpers.len() as u32), caller: thread::current() };
        for helper in helpers {
            helper.mailbox.launch.store((&raw const launch).cast_mut(), Ordering::Release);
            helper.thread.thread().unpark();
        }
        let own = catch_unwind(AssertUnwindSafe(|| job(0, &mut turn.scratch)));
        let mut looks = 0;
        while launch.pending.load(Ordering::Acquire) != 0 {
            idle(&mut looks);
        }
        let others = turn.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(panic) = own.err().or(others) {
            turn.scratch = Cpu::new();
            resume_unwind(panic);
        }
        Ok(())
    }
}

impl Turn {
    /// Starts the helpers that `workers` workers need.
    fn start(&mut self, workers: u32) -> Result<(), Error> {
        for worker in self.helpers.len() as u32 + 1..workers {
            let mailbox = Arc::new(Mailbox::default());
            let (theirs, panic) = (mailbox.clone(), self.panic.clone());
            let thread = thread::Builder::new()
                .name(format!("maco-worker-{worker}"))
                .spawn(move || help(worker, &theirs, &panic))
                .map_err(|source| Error::Threads { worker, workers, source })?;
            self.helpers.push(Helper { mailbox, thread });
        }
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let turn = self.turn.get_mut().unwrap_or_else(PoisonError::into_inner);
        for helper in &turn.helpers {
            helper.mailbox.stop.store(true, Ordering::Release);
            helper.thread.thread().unpark();
        }
        for helper in turn.helpers.drain(..) {
            // A helper catches every panic, so there is nothing to pass on.
            let _ = helper.thread.join();
        }
    }
}

/// A helper's life.
fn help(worker: u32, mailbox: &Mailbox, panic: &Mutex<Option<Box<dyn Any + Send>>>) {
    let mut scratch = Cpu::new();
    let mut looks = 0;
    while !mailbox.stop.load(Ordering::Acquire) {
        let launch = mailbox.launch.swap(std::ptr::null_mut(), Ordering::Acquire);
        if launch.is_null() {
            idle(&mut looks);
            continue;
        }
        looks = 0;
        // SAFETY: the launching thread keeps the launch and its job alive until `pending` is 0, and wrote `job` before it
        // published the pointer.
        let result = unsafe {
            let job = &**(*launch).job.get();
            catch_unwind(AssertUnwindSafe(|| job(worker, &mut scratch)))
        };
        if let Err(payload) = result {
            scratch = Cpu::new();
            panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(payload);
        }
        // SAFETY: as above; after the subtraction the launch may be gone, so the caller's handle is cloned before it.
        unsafe {
            let caller = (*launch).caller.clone();
            if (*launch).pending.fetch_sub(1, Ordering::Release) == 1 {
                caller.unpark();
            }
        }
    }
}

/// Waits a little: spins, then yields, then parks until somebody unparks the thread.
fn idle(looks: &mut u32) {
    *looks = looks.saturating_add(1);
    match *looks {
        0..=SPINS => std::hint::spin_loop(),
        looks if looks <= SPINS + YIELDS => thread::yield_now(),
        _ => thread::park(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn every_worker_runs_once_per_launch() {
        let pool = Pool::new(8);
        for workers in [1, 8, 3, 8, 1, 2] {
            let runs: Vec<AtomicUsize> = (0..8).map(|_| AtomicUsize::new(0)).collect();
            pool.run(workers, &|worker, _| {
                runs[worker as usize].fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
            let runs: Vec<usize> = runs.into_iter().map(AtomicUsize::into_inner).collect();
            assert_eq!(runs, (0..8).map(|worker| usize::from(worker < workers as usize)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn workers_run_at_once() {
        let pool = Pool::new(6);
        for _ in 0..200 {
            let here = AtomicUsize::new(0);
            pool.run(6, &|_, _| {
                here.fetch_add(1, Ordering::Relaxed);
                while here.load(Ordering::Relaxed) < 6 {
                    thread::yield_now();
                }
            })
            .unwrap();
        }
    }

    #[test]
    fn a_panic_continues_in_the_caller_and_the_pool_goes_on() {
        let pool = Pool::new(4);
        for bad in 0..4 {
            let result = catch_unwind(AssertUnwindSafe(|| pool.run(4, &|worker, _| assert_ne!(worker, bad, "as asked"))));
            assert!(result.is_err(), "worker {bad}");
            let runs = AtomicUsize::new(0);
            pool.run(4, &|_, _| {
                runs.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
            assert_eq!(runs.into_inner(), 4);
        }
    }
}
