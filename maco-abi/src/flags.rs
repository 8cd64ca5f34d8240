//! What a descriptor says of its task: a bit each, and no other meaning of a field depends on one.

use core::ops::{BitOr, BitOrAssign};

/// Flags of a [`crate::Descriptor`].
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(u16);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);

    /// From the bits in a descriptor.
    pub const fn decode(bits: u16) -> Flags {
        Flags(bits)
    }

    /// The bits in a descriptor.
    pub const fn encode(self) -> u16 {
        self.0
    }

    /// The same bits, of a word whose lower half has the flags.
    pub const fn mask(self) -> u32 {
        self.0 as u32
    }

    /// Whether one of `flags` is set, at least.
    pub const fn has(self, flags: Flags) -> bool {
        self.0 & flags.0 != 0
    }

    /// These and `others`.
    pub const fn with(self, others: Flags) -> Flags {
        Flags(self.0 | others.0)
    }

    /// These without `others`.
    pub const fn without(self, others: Flags) -> Flags {
        Flags(self.0 & !others.0)
    }

    /// Those of these that are among `others`.
    pub const fn among(self, others: Flags) -> Flags {
        Flags(self.0 & others.0)
    }
}

impl BitOr for Flags {
    type Output = Flags;
    fn bitor(self, others: Flags) -> Flags {
        self.with(others)
    }
}

impl BitOrAssign for Flags {
    fn bitor_assign(&mut self, others: Flags) {
        *self = self.with(others);
    }
}

/// A GEMM. Loader and store thread take part: operands come through the ring, results leave through staging memory.
pub const STAGED: Flags = Flags(1 << 0);
/// A later task may read by TMA what the consumers store, so the writer needs a proxy fence.
pub const READ_BY_TMA: Flags = Flags(1 << 1);
/// A GEMM whose tiles an all-reduce exchanges: the store warp sends them to the other ranks, too. A [`crate::PushedTiles`] has the last of the call's
/// [`crate::OPERANDS`] entries.
pub const PUSHED_TILES: Flags = Flags(1 << 2);
/// The task has one signal, a store of 1 ([`crate::Signal::single_producer`]), so that it is idempotent. Consumers and store warp may both send it.
pub const IDEMPOTENT_SIGNAL: Flags = Flags(1 << 4);
/// Early start. The body of a SIMT task begins when the task is posted, and waits for its inputs itself.
pub const EARLY_START: Flags = Flags(1 << 5);
/// The consumers poll the task's counters themselves, since the task is short and its start counts.
pub const CONSUMERS_POLL: Flags = Flags(1 << 6);
/// The split-K parts of its tile run at the same time, as far as the plan can tell, so each waits a little for the others.
pub const CONCURRENT_PARTS: Flags = Flags(1 << 7);
/// Bulk copies bring rows of operands through the ring, or pages of the ring are scratch of the body. Results do not go through staging memory.
pub const BULK_ROWS: Flags = Flags(1 << 8);
/// The loader does not wait for the task's counters. No task of the graph writes what it loads, or there is nothing to load.
pub const LOAD_BEFORE_WAIT: Flags = Flags(1 << 9);
/// A GEMV with an RMSNorm prologue on operand A. A [`crate::RmsNormPrologue`] has the last of the call's [`crate::OPERANDS`] entries.
pub const RMSNORM_PROLOGUE: Flags = Flags(1 << 10);
/// A GEMM one of whose operands no task of the graph writes (weights). The loader fills the ring with that operand before it waits for the other.
pub const LOAD_CONSTANT_OPERAND_EARLY: Flags = Flags(1 << 11);
/// A warp task, a SIMT body of one warp. Consumer warp `n % 8` runs it if it is the worker's `n`-th task and has a slot to itself; see also [`WARP_TASK_BATCH`].
pub const WARP_TASK: Flags = Flags(1 << 12);
/// With [`WARP_TASK`]: an entry of a list that stands for several warp tasks of one call, see [`crate::Descriptor::batch`]. It has no waits and signals of its own:
/// each warp waits and signals for its tasks.
pub const WARP_TASK_BATCH: Flags = Flags(1 << 13);
/// Of a slot, with [`WARP_TASK`]: a scheduler pushed the task before it is ready. Its first wait names a worker and how many tasks that must have ended. The warp
/// waits for it.
pub const UNREADY: Flags = Flags(1 << 14);
/// A GEMV with an elementwise prologue on operand A. An [`crate::ElementwisePrologue`] has the last of the call's [`crate::OPERANDS`] entries.
pub const ELEMENTWISE_PROLOGUE: Flags = Flags(1 << 15);

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Flags; 15] = [
        STAGED,
        READ_BY_TMA,
        PUSHED_TILES,
        IDEMPOTENT_SIGNAL,
        EARLY_START,
        CONSUMERS_POLL,
        CONCURRENT_PARTS,
        BULK_ROWS,
        LOAD_BEFORE_WAIT,
        RMSNORM_PROLOGUE,
        LOAD_CONSTANT_OPERAND_EARLY,
        WARP_TASK,
        WARP_TASK_BATCH,
        UNREADY,
        ELEMENTWISE_PROLOGUE,
    ];

    #[test]
    fn each_flag_has_a_bit_of_its_own() {
        for (n, one) in ALL.into_iter().enumerate() {
            assert_eq!(one.encode().count_ones(), 1);
            for (m, other) in ALL.into_iter().enumerate() {
                assert_eq!(one.has(other), n == m);
            }
        }
    }

    #[test]
    fn all_bits_survive() {
        for bits in 0..=u16::MAX {
            let flags = Flags::decode(bits);
            assert_eq!((flags.encode(), flags.mask()), (bits, bits.into()));
            for one in ALL {
                let set = bits & one.encode() != 0;
                assert_eq!(flags.has(one), set);
                assert!((flags | one).has(one) && !flags.without(one).has(one));
                assert_eq!(flags.among(one), if set { one } else { Flags::NONE });
                assert_eq!(if set { flags.without(one) | one } else { flags.with(one).without(one) }, flags);
            }
        }
    }
}
