//! A launch as the host writes it: tables, the words of a plan, and the black box.

use crate::wait::NO_COUNTER;

/// Everything a launch needs, in device memory: written when the plan is made or its arguments change, never a kernel parameter.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// `[Descriptor]`: lists, each of which ends with [`crate::OP_END`], then tasks that are claimed, then [`crate::AHEAD`] more end entries
    /// (prefetch reads past a list).
    pub descriptors: u64,
    /// `[u32; workers + 1]`: first descriptor of each worker's list (static), or all 0 (else: descriptors are in task order).
    pub starts: u64,
    /// `[ViewEntry]`, at least [`crate::OPERANDS`]; those of one call lie together.
    pub views: u64,
    /// `[TensorMap]`
    pub tensor_maps: u64,
    /// `[u32]`: scalars by call.
    pub scalars: u64,
    /// `[u32]`: waits and signals that do not fit a descriptor.
    pub overflow: u64,
    /// [`State`], then two banks of `counters` words, each at a 128-byte boundary.
    pub state: u64,
    /// [`BlackBox`] in pinned host memory (device address).
    pub black_box: u64,
    /// `[SchedulerPartition; schedulers]`
    pub partitions: u64,
    /// `[u32; workers * INBOX_WORDS]`, then `[u32; schedulers * workers * MAILBOX]`; between launches all places are 0.
    pub rings: u64,
    /// Words of one counter bank, a multiple of 32: counters, then the tickets of dynamic tile schedulers. With schedulers, which count arrivals themselves: how many tasks
    /// each worker has ended.
    pub counters: u32,
    /// Workers: CTAs that run tasks, before the schedulers in the grid.
    pub workers: u32,
    /// Tasks.
    pub tasks: u32,
    /// [`STATIC`], [`TICKETS`] or [`PUSHED`].
    pub schedule: u32,
    /// How many schedulers push tasks.
    pub schedulers: u32,
    /// 1: schedulers are spare warps of workers, not CTAs.
    pub spare: u32,
    /// Nanoseconds a single wait may last.
    pub deadline_ns: u64,
    /// Polls a wait makes at least before the deadline counts.
    pub deadline_polls: u32,
    /// Seed of the delays before waits, loads, stores and signals, when the device code is a delayed build.
    pub delays: u32,
    /// `[Profile; workers + schedulers]`, then `[Record; workers * ROLES * records]` and `[Record; schedulers * served(records, ..)]` ([`crate::served`]), or 0:
    /// nothing is recorded. Looked at by code that records only.
    pub profile: u64,
    /// Most records of one role of a worker.
    pub records: u32,
    /// Who enters and leaves: a worker each, and a scheduler each unless it is a warp of a worker.
    pub executors: u32,
    /// `[f32]`: split-K partial sums, chunk after chunk.
    pub partials: u64,
    /// `[u32]`, one per chunk of `partials`, of which that of a tile's first chunk is used: the fix-up word, 0 between launches (`maco_device::protocol::SplitKPart`).
    pub arrived: u64,
    /// Temporary tensors of two-byte elements with in-band flags, [`Launch::in_band_bytes`] bytes.
    pub in_band: u64,
    /// `[u32]`, one per element of `in_band`, in the same order: the element's bits, and above them the flag of the launch that wrote it ([`crate::epoch`]).
    pub in_band_words: u64,
    /// Bytes of `in_band`, gaps between tensors included; 0 for none.
    pub in_band_bytes: u32,
    /// Explicit padding.
    pub reserved: u32,
    /// [`crate::InjectedFault`], for tests alone. Looked at by code that is built for it only.
    pub fault: u64,
    /// [`crate::Ranks`], or 0: the plan has one rank. Looked at by collectives only.
    pub ranks: u64,
}

/// [`Launch::schedule`]: a list per worker.
pub const STATIC: u32 = 0;
/// [`Launch::schedule`]: workers draw tickets.
pub const TICKETS: u32 = 1;
/// [`Launch::schedule`]: schedulers push.
pub const PUSHED: u32 = 2;

/// The in-band flag of launch `launch`: the upper half of each word of a tensor with in-band flags. It repeats after 65,536 launches. Zero is the flag of the launch
/// before launch 0.
pub const fn epoch(launch: u32) -> u32 {
    launch.wrapping_add(1) << 16
}

/// The tasks and counters of one scheduler. `image` is its memory at the start of a launch; `memory` is where that lies if it does not fit shared memory. See
/// `maco_device::protocol::Layout`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedulerPartition {
    /// `[u32]` at a 16-byte boundary.
    pub image: u64,
    /// `[u32]` of the same length, or 0.
    pub memory: u64,
    /// `[u32; counters]`: the plan's number of each counter, for the black box.
    pub names: u64,
    /// Tasks.
    pub tasks: u32,
    /// Counters.
    pub counters: u32,
    /// Entries of the lists of waiters.
    pub waiters: u32,
    /// Explicit padding.
    pub reserved: u32,
}

/// The sum of all executors' [`arrival_increment`]s: what one launch adds to [`State::begun`], and to [`State::left`].
pub const LAUNCH: u32 = 1 << 16;
/// Most executors of a launch: [`entered`] tells the first one's increment from those of all others.
pub const MAX_EXECUTORS: u32 = LAUNCH / 2 - 1;

/// What executor `executor` of `executors` adds when it enters a launch, and when it leaves: 1, and the first executor the rest of [`LAUNCH`]. So the upper half counts
/// launches without a reset by the last executor. It wraps after 65,536 launches, as in-band flags ([`crate::epoch`]) and parities do.
pub const fn arrival_increment(executor: u32, executors: u32) -> u32 {
    if executor == 0 { LAUNCH - (executors - 1) } else { 1 }
}

/// How many of `executors` have added their [`arrival_increment`] to the lower half of a word.
pub const fn entered(word: u32, executors: u32) -> u32 {
    let sum = word % LAUNCH;
    if sum > MAX_EXECUTORS { sum - (LAUNCH - executors) } else { sum }
}

/// Mutable words of a plan in device memory, zeroed when the plan is made and by `recover`.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Default)]
pub struct State {
    /// Upper half: launches that have ended, whose parity chooses the counter bank. Lower half: executors that have left the launch that runs. See [`arrival_increment`].
    pub left: u32,
    /// Not 0: aborted, until `recover`.
    pub abort: u32,
    /// The same of executors that have entered. More than there are: two launches at once, an error.
    pub begun: u32,
    /// Tickets of the schedule [`TICKETS`], one per bank.
    pub ticket: [u32; 2],
    /// Padding to one line.
    pub reserved: [u32; 27],
}

/// Who waited for what when the deadline passed. Written once, by the CTA that set [`State::abort`].
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlackBox {
    /// One of the `REPORT_*` values; written last.
    pub report: u32,
    /// Worker.
    pub worker: u32,
    /// Multiprocessor.
    pub sm: u32,
    /// Task index in the plan.
    pub task: u32,
    /// Counter it waited for: a [`crate::CounterIndex`].
    pub counter: u32,
    /// Arrivals needed.
    pub expected: u32,
    /// Arrivals seen.
    pub seen: u32,
    /// Polls made.
    pub polls: u32,
    /// Nanoseconds the wait lasted.
    pub elapsed_ns: u64,
    /// Padding to one line.
    pub reserved: [u32; 6],
}

impl BlackBox {
    /// Nothing to report.
    pub const EMPTY: BlackBox = BlackBox {
        report: 0,
        worker: 0,
        sm: 0,
        task: u32::MAX,
        counter: NO_COUNTER.0,
        expected: 0,
        seen: 0,
        polls: 0,
        elapsed_ns: 0,
        reserved: [0; 6],
    };
}

/// No report.
pub const REPORT_NONE: u32 = 0;
/// A wait passed its deadline.
pub const REPORT_DEADLINE: u32 = 1;
/// Two launches of one plan at once.
pub const REPORT_BUSY: u32 = 2;
/// A task was begun, or pushed, and did not end.
pub const REPORT_STUCK: u32 = 3;
/// Not all CTAs of a launch that is not cooperative have begun: [`BlackBox::seen`] of [`BlackBox::expected`].
pub const REPORT_ABSENT: u32 = 4;

const _: () = {
    assert!(size_of::<Launch>() == 192 && core::mem::offset_of!(Launch, delays) == 116);
    assert!(size_of::<SchedulerPartition>() == 40);
    assert!(size_of::<State>() == 128);
    assert!(size_of::<BlackBox>() == 64);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_make_a_launch() {
        for executors in [1, 2, 3, 132, 140, MAX_EXECUTORS] {
            let all: u32 = (0..executors).map(|executor| arrival_increment(executor, executors)).sum();
            assert_eq!(all, LAUNCH, "{executors} executors");
            // As long as one is missing, with and without the first one.
            for others in [0, 1, executors / 2, executors - 1].into_iter().filter(|&others| others < executors) {
                assert_eq!(entered(others, executors), others);
                if others + 1 < executors {
                    assert_eq!(entered(arrival_increment(0, executors) + others, executors), others + 1);
                }
            }
        }
    }
}
