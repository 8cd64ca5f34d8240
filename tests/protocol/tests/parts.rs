//! Parts of a tile's sum: whatever happens when, each owner's chunks are added up once, of partial sums that are written, and the word is as it was.

use std::cell::Cell;
use std::panic::catch_unwind;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32 as Count, Ordering::Relaxed};

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::thread;
use maco_device::protocol::{FixupWord, INCOMPLETE, SplitKPart};

/// One thing left out of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    /// The first fence of a part, or the second, which is that of a late one, does nothing.
    Release(u32),
    Acquire(u32),
    /// As many calls leave the word as it is.
    Clear,
    TornArrival,
    TornLeave,
    /// A late part does not write what it owns.
    Unwritten,
}

/// A tile's word as one part sees it.
struct Word<'a> {
    at: &'a AtomicU32,
    mutation: Option<Mutation>,
    released: Cell<u32>,
    acquired: Cell<u32>,
}

impl Word<'_> {
    /// Whether this fence is there; how many there were before.
    fn fences(&self, before: &Cell<u32>, missing: fn(u32) -> Mutation) -> bool {
        before.set(before.get() + 1);
        self.mutation != Some(missing(before.get()))
    }

    fn torn(&self, by: Mutation, new: impl Fn(u32) -> u32) -> Option<u32> {
        let before = (self.mutation == Some(by)).then(|| self.at.load(Ordering::Relaxed))?;
        self.at.store(new(before), Ordering::Relaxed);
        Some(before)
    }
}

// SAFETY: relaxed atomics with fences, unless a mutation takes one away.
unsafe impl FixupWord for Word<'_> {
    fn load(&self) -> u32 {
        self.at.load(Ordering::Relaxed)
    }

    fn arrive(&self, value: u32) -> u32 {
        self.torn(Mutation::TornArrival, |before| before + value).unwrap_or_else(|| self.at.fetch_add(value, Ordering::Relaxed))
    }

    fn leave(&self, bits: u32) -> u32 {
        self.torn(Mutation::TornLeave, |before| before | bits).unwrap_or_else(|| self.at.fetch_or(bits, Ordering::Relaxed))
    }

    fn clear(&self, bits: u32) {
        if self.mutation != Some(Mutation::Clear) {
            self.at.fetch_and(!bits, Ordering::Relaxed);
        }
    }

    fn acquire(&self) {
        if self.fences(&self.acquired, Mutation::Acquire) {
            fence(Ordering::Acquire);
        }
    }

    fn release(&self) {
        if self.fences(&self.released, Mutation::Release) {
            fence(Ordering::Release);
        }
    }
}

/// A tile of `owners` chunks.
struct Tile {
    word: AtomicU32,
    /// What each part has written of each chunk.
    partials: Vec<UnsafeCell<u32>>,
    added: Vec<Count>,
}

/// Tasks that make one tile.
#[derive(Clone, Copy, Debug)]
struct Model {
    parts: u32,
    owners: u32,
    /// How often each part looks.
    looks: &'static [u32],
}

impl Model {
    fn task(self, tile: &Tile, part: u32, mutation: Option<Mutation>) {
        let looks = self.looks[part as usize];
        let own = if part < self.owners { 1 << part } else { 0 };
        let partial = |part: u32, chunk: u32| &tile.partials[(part * self.owners + chunk) as usize];
        // SAFETY: loom sees to it that nobody else is there.
        let write = |chunk: u32| partial(part, chunk).with_mut(|at| unsafe { *at = 1 + part });
        (0..self.owners).filter(|&chunk| chunk != part || looks == 0).for_each(write);
        let word = Word { at: &tile.word, mutation, released: Cell::new(0), acquired: Cell::new(0) };
        let this = SplitKPart { parts: self.parts, own, looks };
        let mut owners = this.arrive(&word);
        if owners == INCOMPLETE {
            if mutation != Some(Mutation::Unwritten) {
                write(part);
            }
            owners = this.leave(&word);
        }
        for chunk in (0..self.owners).filter(|chunk| owners >> chunk & 1 == 1) {
            // Its own is in registers.
            for other in (0..self.parts).filter(|&other| other != part || chunk != part) {
                // SAFETY: as above.
                let found = partial(other, chunk).with(|at| unsafe { *at });
                assert_eq!(found, 1 + other, "chunk {chunk} of part {other}, read by part {part}");
            }
            tile.added[chunk as usize].fetch_add(1, Relaxed);
        }
    }

    /// Every interleaving.
    fn check(self, mutation: Option<Mutation>) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let cells = 0..self.parts * self.owners;
            let tile = Rc::new(Tile {
                word: AtomicU32::new(0),
                partials: cells.map(|_| UnsafeCell::new(0)).collect(),
                added: (0..self.owners).map(|_| Count::new(0)).collect(),
            });
            let spawn = |part: u32| {
                let tile = tile.clone();
                thread::spawn(move || self.task(&tile, part, mutation))
            };
            let others: Vec<_> = (1..self.parts).map(spawn).collect();
            self.task(&tile, 0, mutation);
            others.into_iter().for_each(|other| other.join().unwrap());
            let added: Vec<u32> = tile.added.iter().map(|count| count.load(Relaxed)).collect();
            assert_eq!(added, vec![1; self.owners as usize], "how often each chunk was added up");
            assert_eq!(tile.word.load(Ordering::Relaxed), 0, "what the launch leaves");
        });
    }
}

/// Two that look, and one of whom one does not; three owners, and one part that owns nothing.
const MODELS: [Model; 5] = [
    Model { parts: 2, owners: 2, looks: &[1, 1] },
    Model { parts: 2, owners: 1, looks: &[2, 0] },
    Model { parts: 2, owners: 2, looks: &[0, 1] },
    Model { parts: 3, owners: 3, looks: &[1, 0, 1] },
    Model { parts: 3, owners: 2, looks: &[1, 1, 0] },
];

#[test]
fn every_chunk_is_added_up_once() {
    MODELS.into_iter().for_each(|model| model.check(None));
}

#[test]
fn nothing_can_be_spared() {
    std::panic::set_hook(Box::new(|_| {}));
    let mutations = [
        Mutation::Release(1),
        Mutation::Release(2),
        Mutation::Acquire(1),
        Mutation::Acquire(2),
        Mutation::Clear,
        Mutation::TornArrival,
        Mutation::TornLeave,
        Mutation::Unwritten,
    ];
    let unseen: Vec<Mutation> = mutations
        .into_iter()
        .filter(|&mutation| catch_unwind(|| MODELS.into_iter().for_each(|model| model.check(Some(mutation)))).is_ok())
        .collect();
    let _ = std::panic::take_hook();
    assert_eq!(unseen, [], "unseen");
}
