//! Work beside builds: cargo leaves cores idle while its last crates compile, and most test programs have one long test, so they run side by side.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// When work is begun: what is urgent before what is not, and what was put in first before what came later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Takes longest: what begins it last ends last.
    Long,
    /// Everything else that may fail.
    Test,
    /// Fills cores that nothing else wants.
    Spare,
}

type Job<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Work that waits for a core.
pub struct Queue<'a> {
    state: Mutex<State<'a>>,
    changed: Condvar,
}

struct State<'a> {
    /// By rank and number, the next one last.
    waiting: Vec<(Rank, usize, Job<'a>)>,
    put: usize,
    closed: bool,
}

impl<'a> Queue<'a> {
    fn new() -> Queue<'a> {
        Queue { state: Mutex::new(State { waiting: Vec::new(), put: 0, closed: false }), changed: Condvar::new() }
    }

    /// Has `job` done by a worker.
    pub fn put(&self, rank: Rank, job: impl FnOnce() + Send + 'a) {
        let mut state = self.lock();
        let number = state.put;
        state.put += 1;
        state.waiting.push((rank, number, Box::new(job)));
        state.waiting.sort_by_key(|(rank, number, _)| std::cmp::Reverse((*rank, *number)));
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job, once there is one; `None` when none will come.
    fn take(&self) -> Option<Job<'a>> {
        let mut state = self.lock();
        loop {
            if let Some((.., job)) = state.waiting.pop() {
                return Some(job);
            }
            if state.closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }
}

/// Closes even when what puts work in panics: workers would wait for ever.
struct Open<'q, 'a>(&'q Queue<'a>);

impl Drop for Open<'_, '_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// `begin` on this thread, and what it puts into the queue on as many others as there are cores; ends when everything is done.
pub fn with<'a, R>(begin: impl FnOnce(&Queue<'a>) -> R) -> R {
    let queue = Queue::new();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(job) = queue.take() {
                    job();
                }
            });
        }
        let open = Open(&queue);
        begin(open.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_was_put_in_is_done() {
        let done = Mutex::new(Vec::new());
        let result = with(|queue| {
            for n in 0..100 {
                let done = &done;
                queue.put(Rank::Test, move || done.lock().unwrap().push(n));
            }
            7
        });
        let mut done = done.into_inner().unwrap();
        done.sort_unstable();
        assert_eq!((result, done), (7, (0..100).collect()));
    }

    #[test]
    fn what_is_urgent_comes_first() {
        let order = Mutex::new(Vec::new());
        let queue = Queue::new();
        let order = &order;
        for (rank, name) in [(Rank::Spare, "spare"), (Rank::Test, "first"), (Rank::Test, "second"), (Rank::Long, "long")] {
            queue.put(rank, move || order.lock().unwrap().push(name));
        }
        queue.close();
        std::iter::from_fn(|| queue.take()).for_each(|job| job());
        assert_eq!(*order.lock().unwrap(), ["long", "first", "second", "spare"]);
    }
}
