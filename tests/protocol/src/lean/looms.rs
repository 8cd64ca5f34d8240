//! Every interleaving of a few small calls, and every value that the memory model lets a load return: each place is an atomic of `loom`.
//!
//! Packets that are stored together may be one atomic, which makes for fewer interleavings. One model and [`super::walk`] take them apart.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as HostOrdering};

use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::sync::{Condvar, Mutex};

use super::calls::Call;
use super::{GREETING, Lack, Machine, Setting, Thread, World};

/// What the threads of a model share.
struct Shared {
    /// Those that a model uses, by word.
    places: HashMap<usize, AtomicU64>,
    stores: Cell<usize>,
    /// How often lanes of each rank have come to a meeting.
    come: [Mutex<u32>; 4],
    meeting: Condvar,
}

impl Shared {
    /// Messages have so many blocks, as packets and as data.
    fn new(world: &World, blocks: [usize; 2], together: bool) -> Shared {
        let (ranks, [place, packets]) = (world.setting.ranks as usize, world.setting.place());
        let mut places = HashMap::new();
        for (rank, source, parity) in (0..ranks * ranks * 2).map(|n| (n / 2 / ranks, n / 2 % ranks, n % 2)) {
            let first = rank * world.setting.words() + (2 * source + parity) * place;
            let step = if together { 4 } else { 2 };
            let greeting = (0..8).step_by(step);
            let message = (0..8 * blocks[0]).step_by(step).map(|at| GREETING + at);
            let data = (0..blocks[1]).map(|n| packets + 4 * n);
            if rank != source {
                places.extend(greeting.chain(message).chain(data).map(|at| (first + at, AtomicU64::new(world.first(first + at)))));
            }
        }
        let come = [(); 4].map(|()| Mutex::new(0));
        Shared { places, stores: Cell::new(0), come, meeting: Condvar::new() }
    }

    fn place(&self, word: usize) -> &AtomicU64 {
        self.places.get(&word).unwrap_or_else(|| panic!("word {word} is of no block"))
    }
}

/// A thread of `loom`.
struct Loom<const TOGETHER: bool> {
    shared: Rc<Shared>,
    seen: Cell<usize>,
    vain: Cell<u32>,
}

impl<const TOGETHER: bool> Machine for Loom<TOGETHER> {
    const TOGETHER: bool = TOGETHER;
    fn load(&self, _: &World, _: usize, word: usize) -> u64 {
        self.shared.place(word).load(Ordering::Relaxed)
    }
    fn store(&self, _: &World, word: usize, number: impl FnOnce() -> u64) {
        self.shared.stores.set(self.shared.stores.get() + 1);
        self.shared.place(word).store(number(), Ordering::Relaxed);
    }
    fn acquire(&self) {
        fence(Ordering::Acquire);
    }
    fn release(&self) {
        fence(Ordering::Release);
    }
    fn pause(&self, _: u32) {
        let stores = self.shared.stores.get();
        let vain = if self.seen.get() == stores { self.vain.get() + 1 } else { 0 };
        self.seen.set(stores);
        self.vain.set(vain);
        if vain > 1 {
            // As in `model.rs`: nothing new can be seen.
            loom::skip_branch();
        }
        loom::thread::yield_now();
    }
    fn meet(&self, rank: u32, lanes: u32, times: u32) {
        let mut come = self.shared.come[rank as usize].lock().expect("no thread has panicked");
        *come += 1;
        self.shared.meeting.notify_all();
        while *come < lanes * times {
            come = self.shared.meeting.wait(come).expect("no thread has panicked");
        }
    }
}

/// Makes `calls` in every interleaving; how many there are. Messages have so many `blocks`, as packets and as data.
pub fn check<const TOGETHER: bool>(
    setting: Setting,
    calls: &'static [Call],
    blocks: [usize; 2],
    preemptions: usize,
    lack: Option<Lack>,
) -> usize {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 4_000;
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let tensor = calls.iter().map(|call| call.words(setting.ranks)).max().unwrap_or(0);
    builder.check(move || {
        let world = Rc::new(World::new(setting, tensor, lack));
        let shared = Rc::new(Shared::new(&world, blocks, TOGETHER));
        let mut threads = setting.threads().enumerate().map(|(number, who)| {
            let machine = Loom::<TOGETHER> { shared: shared.clone(), seen: Cell::new(0), vain: Cell::new(0) };
            Thread::new(world.clone(), machine, number, who)
        });
        let first = threads.next().expect("a rank");
        let others: Vec<_> = threads.map(|thread| loom::thread::spawn(move || thread.make(calls))).collect();
        first.make(calls);
        for other in others {
            other.join().expect("a thread panicked");
        }
        counted.fetch_add(1, HostOrdering::Relaxed);
    });
    runs.load(HostOrdering::Relaxed)
}
