//! Tasks as the host writes them: descriptors, and what a slot holds.

use crate::flags::{Flags, WARP_TASK_BATCH};
use crate::limits::{MAX_SPLIT_K, OPERANDS};
use crate::signal::NO_SIGNAL;
use crate::view::ViewEntry;
use crate::wait::Wait;

/// [`Descriptor::op`] that ends a worker's list.
pub const OP_END: u16 = u16::MAX;
/// [`Descriptor::op`] of a task without a body (fences in tests and benches).
pub const OP_NONE: u16 = u16::MAX - 1;
/// [`Descriptor::op`] of an entry of a static list that stands for the tasks of a dynamic tile scheduler: see [`Descriptor::dynamic`].
pub const OP_DYNAMIC: u16 = u16::MAX - 2;

/// Most tasks of a [`crate::WARP_TASK_BATCH`]. A longer one would hold its slot longer, and delay the next call's batch.
pub const MAX_WARP_TASK_BATCH: u32 = 32;

/// One task, 64 bytes. Indices only: no pointers.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Dense instance number: the arm of the dispatch.
    pub op: u16,
    /// First entry of the call's scalars in [`crate::Launch::scalars`].
    pub scalar: u16,
    /// What the roles do for it.
    pub flags: Flags,
    /// The task begins after the worker's own task this many places before has ended; 0 for none, less than [`crate::SLOTS`]. In [`Descriptor::dynamic`]: how many tasks a
    /// worker may have claimed and not ended, at most [`crate::SLOTS`].
    pub after: u16,
    /// Start of the overflow in [`crate::Launch::overflow`]: `extra_waits` × [`Wait`] (two words each), `extra_signals` words, then
    /// `indirect` × [`crate::Indirect`].
    pub overflow: u32,
    /// The views of the call's [`OPERANDS`] tensor parameters, of which the last may be a prologue's record: index of the first one in [`crate::Launch::views`].
    pub views: u32,
    /// First waits; unused ones are [`Wait::NONE`], and the first one is used before the second.
    pub wait: [Wait; 2],
    /// Tile coordinates, one per grid axis. With split-K the third one is the tile's first chunk of [`crate::CHUNK_BYTES`] in [`crate::Launch::partials`].
    pub coord: [u32; 3],
    /// Index of the task in the plan, for the black box.
    pub task: u32,
    /// First signals: encoded [`crate::Signal`]s, or with schedulers [`crate::Route`]s. Unused ones are [`NO_SIGNAL`], and the first one is used before the second.
    pub signal: [u32; 2],
    /// Waits beyond the inline two.
    pub extra_waits: u16,
    /// Signals beyond the inline two.
    pub extra_signals: u16,
    /// Waits whose counters are named by data.
    pub indirect: u16,
    /// With split-K a [`Part`], encoded; 0 without.
    pub split: u16,
}

impl Descriptor {
    /// The entry that ends a list.
    pub const END: Descriptor = Descriptor {
        op: OP_END,
        scalar: 0,
        flags: Flags::NONE,
        after: 0,
        overflow: 0,
        views: 0,
        wait: [Wait::NONE; 2],
        coord: [0; 3],
        task: u32::MAX,
        signal: [NO_SIGNAL; 2],
        extra_waits: 0,
        extra_signals: 0,
        indirect: 0,
        split: 0,
    };

    /// The first word of a descriptor: instance, and first scalar.
    pub const fn head(op: u16, scalar: u16) -> u32 {
        op as u32 | (scalar as u32) << 16
    }

    /// The entry of a dynamic tile scheduler: workers claim `tasks` tasks by an atomic ticket until none is left. Ticket `n`, drawn from word `ticket` of the counter bank,
    /// is for descriptor `first + n`. A worker may have claimed `ahead` tasks and not ended them.
    pub const fn dynamic(ticket: u32, tasks: u32, first: u32, ahead: u16) -> Descriptor {
        Descriptor { op: OP_DYNAMIC, after: ahead, coord: [ticket, tasks, first], ..Descriptor::END }
    }

    /// The entry for a batch of `tasks` warp tasks of one call, whose descriptors lie from `at` on. This is the first of them. Each of the eight consumer warps takes every
    /// eighth task, in this order.
    pub const fn batch(&self, at: u32, tasks: u32) -> Descriptor {
        Descriptor {
            op: self.op,
            scalar: self.scalar,
            flags: self.flags.with(WARP_TASK_BATCH),
            views: self.views,
            coord: [at, tasks, 0],
            task: self.task,
            ..Descriptor::END
        }
    }
}

/// Which part of K a task of a GEMM sums, with split-K.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which part.
    pub part: u32,
    /// How many parts there are, 2 at least.
    pub parts: u32,
}

const PARTS_SHIFT: u32 = 8;
const _: () = assert!(MAX_SPLIT_K < 1 << PARTS_SHIFT);

impl Part {
    /// In [`Descriptor::split`].
    pub const fn encode(self) -> u16 {
        (self.parts << PARTS_SHIFT | self.part) as u16
    }

    /// From [`Descriptor::split`], whatever the upper half of the word; 0 of 0 parts without split-K.
    pub const fn decode(split: u32) -> Part {
        Part { part: split & ((1 << PARTS_SHIFT) - 1), parts: split >> PARTS_SHIFT }
    }
}

/// A descriptor with the views of its tensors, 256 bytes: what the prefetcher puts into shared memory.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// The task.
    pub descriptor: Descriptor,
    /// Views of its tensor parameters, the last of which may be a prologue's record.
    pub views: [ViewEntry; OPERANDS],
}

const _: () = {
    assert!(size_of::<Descriptor>() == 64);
    assert!(size_of::<Slot>() == 256);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_survive() {
        assert_eq!(Part::decode(Descriptor::END.split.into()), Part { part: 0, parts: 0 });
        for parts in 2..=MAX_SPLIT_K {
            for part in 0..parts {
                let part = Part { part, parts };
                assert_eq!(Part::decode(part.encode().into()), part);
                assert_ne!(part.encode(), 0);
            }
        }
    }

    #[test]
    fn a_descriptor_begins_with_its_head() {
        let descriptor = Descriptor { op: 0x1234, scalar: 0xabcd, ..Descriptor::END };
        // SAFETY: plain data without padding.
        let first = unsafe { (&raw const descriptor).cast::<u32>().read() };
        assert_eq!(first, Descriptor::head(descriptor.op, descriptor.scalar));
    }

    #[test]
    fn entries_that_stand_for_tasks_say_which() {
        let first = Descriptor { op: 3, flags: crate::WARP_TASK, task: 7, ..Descriptor::END };
        let batch = first.batch(40, 5);
        assert_eq!((batch.op, batch.task, &batch.coord[..2]), (3, 7, &[40, 5][..]));
        assert!(batch.flags.has(WARP_TASK_BATCH) && batch.flags.has(crate::WARP_TASK));
        let dynamic = Descriptor::dynamic(9, 100, 20, 4);
        assert_eq!((dynamic.op, dynamic.coord, dynamic.after), (OP_DYNAMIC, [9, 100, 20], 4));
    }
}
