//! What happens before what, by the letter of the memory model.
//!
//! `loom` has an acquire fence also take in what other threads saw before it by relaxed loads, if they happen before the fence. So it
//! does not miss the fence of a thread in the middle: a scheduler. These clocks take in what the fence's own thread has loaded
//! (C++20 `atomics.fences`). Which values a load may return is not decided here.

use std::collections::HashMap;

/// Most executors of a launch.
const THREADS: usize = 5;

/// Per executor: how much of it happened before.
#[derive(Clone, Copy, Debug, Default)]
struct Clock([u32; THREADS]);

impl Clock {
    fn join(&mut self, other: Clock) {
        for (mine, other) in self.0.iter_mut().zip(other.0) {
            *mine = other.max(*mine);
        }
    }

    fn contains(&self, other: Clock) -> bool {
        self.0.iter().zip(other.0).all(|(&mine, other)| mine >= other)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    /// What happened before its next action.
    now: Clock,
    /// That at its last release fence.
    released: Clock,
    /// What an acquire fence would add.
    seen: Clock,
}

/// Accesses to the output of a task.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    written: Clock,
    read: Clock,
}

/// Clocks of all executors, stores and outputs.
#[derive(Debug, Default)]
pub struct Order {
    threads: [Thread; THREADS],
    /// What a load of this content of this word gets from who stored it. Each store has a number of its own in the upper half.
    stores: HashMap<(u32, u64), Clock>,
    next: u64,
    cells: HashMap<u32, Cell>,
}

impl Order {
    /// Executor `child` begins what the host, which is executor 0, asks of it.
    pub fn spawn(&mut self, child: usize) {
        let host = self.threads[0].now;
        self.threads[0].now.0[0] += 1;
        self.threads[child].now.join(host);
        self.threads[child].now.0[child] += 1;
    }

    /// The host has seen `child` end.
    pub fn join(&mut self, child: usize) {
        let child = self.threads[child].now;
        self.threads[0].now.join(child);
    }

    /// The content to store for `value`.
    pub fn store(&mut self, thread: usize, word: u32, value: u32) -> u64 {
        self.next += 1;
        let content = self.next << 32 | value as u64;
        self.stores.insert((word, content), self.threads[thread].released);
        content
    }

    /// A relaxed load has returned `content`.
    pub fn load(&mut self, thread: usize, word: u32, content: u64) {
        let from = self.stores.get(&(word, content)).copied().unwrap_or_default();
        self.threads[thread].seen.join(from);
    }

    /// An addition has replaced `old` by `new`.
    pub fn add(&mut self, thread: usize, word: u32, old: u64, new: u64) {
        self.load(thread, word, old);
        // The release sequence goes on.
        let mut clock = self.stores.get(&(word, old)).copied().unwrap_or_default();
        clock.join(self.threads[thread].released);
        self.stores.insert((word, new), clock);
    }

    /// The content to store for `value`, by a store that releases.
    pub fn publish(&mut self, thread: usize, word: u32, value: u32) -> u64 {
        let content = self.store(thread, word, value);
        self.stores.insert((word, content), self.threads[thread].now);
        self.threads[thread].now.0[thread] += 1;
        content
    }

    /// A load that acquires has returned `content`.
    pub fn observe(&mut self, thread: usize, word: u32, content: u64) {
        self.load(thread, word, content);
        let from = self.stores.get(&(word, content)).copied().unwrap_or_default();
        self.threads[thread].now.join(from);
    }

    /// An addition that releases, if it is `ordered`, has replaced `old` by `new`.
    pub fn arrive(&mut self, thread: usize, word: u32, old: u64, new: u64, ordered: bool) {
        let mut clock = self.stores.get(&(word, old)).copied().unwrap_or_default();
        clock.join(if ordered { self.threads[thread].now } else { self.threads[thread].released });
        self.stores.insert((word, new), clock);
        self.threads[thread].now.0[thread] += 1;
    }

    /// An acquire fence.
    pub fn acquire(&mut self, thread: usize) {
        let seen = self.threads[thread].seen;
        self.threads[thread].now.join(seen);
    }

    /// A release fence.
    pub fn release(&mut self, thread: usize) {
        self.threads[thread].released = self.threads[thread].now;
        self.threads[thread].now.0[thread] += 1;
    }

    /// A task writes output `cell`.
    pub fn write(&mut self, thread: usize, cell: u32) {
        let now = self.threads[thread].now;
        let Cell { written, read } = self.cells.insert(cell, Cell { written: at(thread, now), read: Clock::default() }).unwrap_or_default();
        assert!(now.contains(written) && now.contains(read), "output {cell} is written in no order with an earlier access");
    }

    /// A task reads output `cell`.
    pub fn read(&mut self, thread: usize, cell: u32) {
        let now = self.threads[thread].now;
        let cell_of = self.cells.entry(cell).or_default();
        assert!(now.contains(cell_of.written), "output {cell} is read in no order with its write");
        cell_of.read.join(at(thread, now));
    }
}

/// The moment of one executor alone.
fn at(thread: usize, now: Clock) -> Clock {
    let mut clock = Clock::default();
    clock.0[thread] = now.0[thread];
    clock
}
