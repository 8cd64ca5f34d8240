//! What a launch leaves when the device code records: spans of each role, and clocks of each worker.

/// Roles of a worker that record: [`ROLE_CONSUME`], [`ROLE_LOAD`], [`ROLE_STORE`].
pub const ROLES: u32 = 3;
/// Consumers: [`KIND_WAIT`] and [`KIND_RUN`].
pub const ROLE_CONSUME: u32 = 0;
/// Loader: [`KIND_LOAD`].
pub const ROLE_LOAD: u32 = 1;
/// Store and signals: [`KIND_STORE`].
pub const ROLE_STORE: u32 = 2;

/// The consumers waited until the task might run.
pub const KIND_WAIT: u32 = 0;
/// The consumers ran the task.
pub const KIND_RUN: u32 = 1;
/// The loader copied, or waited for room in the ring.
pub const KIND_LOAD: u32 = 2;
/// The store warp sent results and signalled the end of the task.
pub const KIND_STORE: u32 = 3;
/// A scheduler took messages and pushed tasks; it has no other kind, and its records name no task.
pub const KIND_SERVE: u32 = 4;

/// Most records of a scheduler: as many as one role of all workers has that it pushes to.
pub const fn served(records: u32, workers: u32, schedulers: u32) -> u32 {
    match (workers + schedulers.saturating_sub(1)).checked_div(schedulers) {
        Some(own) if records.saturating_mul(own) < 1 << 31 => records * own,
        Some(_) => i32::MAX as u32,
        None => 0,
    }
}

/// Lowest bit of [`Record::kind`] that is not of the `KIND_*` value.
const KIND_BITS: u32 = 8;

/// What a record is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordKind {
    /// One of the `KIND_*` values.
    pub kind: u32,
    /// The consumer warp that ran the task by itself, if one did.
    pub warp: Option<u32>,
}

impl RecordKind {
    /// In [`Record::kind`].
    pub const fn encode(self) -> u32 {
        let warp = match self.warp {
            Some(warp) => warp + 1,
            None => 0,
        };
        self.kind | warp << KIND_BITS
    }

    /// From [`Record::kind`].
    pub const fn decode(word: u32) -> RecordKind {
        let warp = word >> KIND_BITS;
        RecordKind { kind: word & ((1 << KIND_BITS) - 1), warp: if warp > 0 { Some(warp - 1) } else { None } }
    }
}

/// One span of one role, or of a scheduler: 16 bytes. Times are the low words of the worker's clock; records of a role end in the order in which
/// they lie, or nearly so where several warps note. But behind what a warp ran by itself lies what it had waited before, which ended where that begins.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Tick at which it began, modulo 2³².
    pub start: u32,
    /// Ticks that it lasted.
    pub ticks: u32,
    /// A [`RecordKind`], encoded.
    pub kind: u32,
    /// Index of the task in the plan.
    pub task: u32,
}

/// The same moment on two clocks: that of one worker, and one that all workers share.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Ticks of the worker's clock.
    pub ticks: u64,
    /// Nanoseconds of the shared clock.
    pub nanoseconds: u64,
}

/// What a worker or a scheduler leaves of a launch besides its records, 64 bytes; written when the launch ends.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Before the first task.
    pub begin: Stamp,
    /// After the last one.
    pub end: Stamp,
    /// Records that each role would have made with room for all; of a scheduler the first of these.
    pub made: [u32; ROLES as usize],
    /// Multiprocessor.
    pub sm: u32,
    /// Not 0: written.
    pub written: u32,
    /// Padding to half a line.
    pub reserved: [u32; 3],
}

const _: () = {
    assert!(size_of::<Record>() == 16);
    assert!(size_of::<Profile>() == 64);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_survive() {
        for kind in KIND_WAIT..=KIND_SERVE {
            for warp in [None, Some(0), Some(7)] {
                let kind = RecordKind { kind, warp };
                assert_eq!(RecordKind::decode(kind.encode()), kind);
            }
        }
    }
}
