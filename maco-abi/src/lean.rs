//! Collectives outside of megakernels: what one call of the lean kernel is told, and where its messages lie.

/// Parts of executors and of ranks begin at multiples of so many elements: 16 or 32 bytes.
pub const LEAN_BLOCK: u64 = 8;
/// Warps of a CTA of the lean kernel, each an executor.
pub const LEAN_WARPS: u32 = 8;
/// Bytes between what different ranks store.
const LINE: u64 = 128;
/// Blocks of 16 bytes that a message of packets has at most; each is 32 bytes of packets.
pub const LEAN_PACKETS: u32 = 64;
/// Executors get no less than so many bytes each, as long as one has more: a block for each lane of a warp.
const LEAN_SHARE: u64 = 512;
/// Sums of so many bytes are reduced by owners, which send the result to all: less to send, but two steps.
const LEAN_TWO_STEPS: u64 = 128 << 10;

/// Which collective it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum LeanOperation {
    /// Each rank has the reduction of what all have.
    AllReduce = 0,
    /// Each rank has what all have, in their order.
    AllGather = 1,
    /// Each rank has the reduction of one part.
    ReduceScatter = 2,
    /// Each rank has a part of what each has.
    AllToAll = 3,
    /// Each rank has what one has.
    Broadcast = 4,
}

/// How values of all ranks become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum LeanReduction {
    /// Their sum.
    Sum = 0,
    /// Their sum, divided by the number of ranks.
    Mean = 1,
    /// The greatest.
    Max = 2,
    /// The least.
    Min = 3,
}

/// The elements there is code for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum LeanElement {
    /// 16 bits, 8 of exponent.
    Bf16 = 0,
    /// 16 bits, 5 of exponent.
    F16 = 1,
    /// 32 bits.
    F32 = 2,
    /// 32 bits, with sign.
    I32 = 3,
}

impl LeanOperation {
    /// That of a code.
    pub const fn of(code: u32) -> Option<LeanOperation> {
        Some(match code & 0xff {
            0 => LeanOperation::AllReduce,
            1 => LeanOperation::AllGather,
            2 => LeanOperation::ReduceScatter,
            3 => LeanOperation::AllToAll,
            4 => LeanOperation::Broadcast,
            _ => return None,
        })
    }
}

impl LeanReduction {
    /// That of a code.
    pub const fn of(code: u32) -> Option<LeanReduction> {
        Some(match code >> 8 & 0xff {
            0 => LeanReduction::Sum,
            1 => LeanReduction::Mean,
            2 => LeanReduction::Max,
            3 => LeanReduction::Min,
            _ => return None,
        })
    }
}

impl LeanElement {
    /// That of a code.
    pub const fn of(code: u32) -> Option<LeanElement> {
        Some(match code >> 16 & 0xff {
            0 => LeanElement::Bf16,
            1 => LeanElement::F16,
            2 => LeanElement::F32,
            3 => LeanElement::I32,
            _ => return None,
        })
    }
}

/// All three in a word.
pub const fn lean_code(operation: LeanOperation, reduction: LeanReduction, element: LeanElement) -> u32 {
    operation as u32 | (reduction as u32) << 8 | (element as u32) << 16
}

/// What all calls of a communicator's rank share.
///
/// An executor of a rank, a warp or a thread, exchanges with the executors of the same number on the other ranks, and with no other. For each of these it has two
/// places, by the parity of the step's number: for a greeting, for a small message as packets, and for a message.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeanRanks {
    /// This rank's control block.
    pub control: u64,
    /// `[u64; ranks]`: where this rank has the symmetric memory of each.
    pub bases: u64,
    /// `[u32; executors]`: how many steps each executor of this rank has made.
    pub steps: u64,
    /// Of the messages in the symmetric memory of each rank, a multiple of 128.
    pub offset: u64,
    /// Bytes of a message, a multiple of 128.
    pub message: u32,
    /// Executors of each rank.
    pub executors: u32,
    /// This rank.
    pub rank: u32,
    /// How many there are.
    pub ranks: u32,
}

impl LeanRanks {
    /// Bytes of a place.
    const fn stride(&self) -> u64 {
        LINE + 32 * LEAN_PACKETS as u64 + self.message as u64
    }

    /// Where a rank has what `source` calls in this step of this executor: four packets.
    #[inline(always)]
    pub const fn hello(&self, source: u32, executor: u32, step: u32) -> u64 {
        let place = 2 * (executor as u64 * self.ranks as u64 + source as u64) + (step & 1) as u64;
        self.offset + place * self.stride()
    }

    /// Its message as packets, of [`LEAN_PACKETS`] blocks.
    #[inline(always)]
    pub const fn packets(&self, source: u32, executor: u32, step: u32) -> u64 {
        self.hello(source, executor, step) + LINE
    }

    /// Its message.
    #[inline(always)]
    pub const fn place(&self, source: u32, executor: u32, step: u32) -> u64 {
        self.packets(source, executor, step) + 32 * LEAN_PACKETS as u64
    }

    /// Bytes of each rank's symmetric memory.
    pub const fn total(&self) -> u64 {
        2 * self.executors as u64 * self.ranks as u64 * self.stride()
    }
}

/// Elements of a tensor, one after another whatever lies between its rows.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeanTensor {
    /// Where it begins.
    pub address: u64,
    /// Elements of a row.
    pub columns: u64,
    /// Elements from one row to the next; 0 where nothing lies between rows.
    pub stride: u64,
}

/// One call: the parameter of the lean kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeanCall {
    /// The ranks.
    pub ranks: LeanRanks,
    /// What this rank has; of `reduce_scatter` and `all_to_all` a part for each rank.
    pub input: LeanTensor,
    /// What it gets; of `all_gather` and `all_to_all` a part of each rank. May be the input where both have one part.
    pub output: LeanTensor,
    /// Elements of a part.
    pub count: u64,
    /// How long a wait may last.
    pub deadline_ns: u64,
    /// [`lean_code`].
    pub code: u32,
    /// Who broadcasts.
    pub root: u32,
}

impl LeanCall {
    /// Elements that one message holds, of this size.
    #[inline(always)]
    pub const fn capacity(&self, bytes: u32) -> u64 {
        (self.ranks.message / bytes) as u64
    }

    /// Executors that have a part of the elements, at least one: the same on all ranks.
    #[inline(always)]
    pub const fn active(&self, bytes: u32) -> u32 {
        let shares = (self.count * bytes as u64).div_ceil(LEAN_SHARE);
        let most = self.ranks.executors;
        if shares <= 1 {
            1
        } else if shares < most as u64 {
            shares as u32
        } else {
            most
        }
    }

    /// Elements of an executor's part; the last ones may have less, or none.
    #[inline(always)]
    const fn each(&self, bytes: u32) -> u64 {
        self.count.div_ceil(LEAN_BLOCK).div_ceil(self.active(bytes) as u64) * LEAN_BLOCK
    }

    /// First element, and the one behind the last, of an executor. Each begins with a block.
    #[inline(always)]
    pub const fn part(&self, executor: u32, bytes: u32) -> [u64; 2] {
        let each = self.each(bytes);
        let (first, end) = (each * executor as u64, each * executor as u64 + each);
        [if first < self.count { first } else { self.count }, if end < self.count { end } else { self.count }]
    }

    /// Whether it is an all-reduce that goes in two steps: each rank reduces a part, and sends it to all.
    #[inline(always)]
    pub const fn in_two_steps(&self, bytes: u32) -> bool {
        self.code & 0xff == LeanOperation::AllReduce as u32 && self.ranks.ranks > 2 && self.count * bytes as u64 >= LEAN_TWO_STEPS
    }

    /// Whether messages are packets: in one step, in which they all fit.
    #[inline(always)]
    pub const fn in_packets(&self, bytes: u32) -> bool {
        self.each(bytes) * bytes as u64 <= 16 * LEAN_PACKETS as u64 && !self.in_two_steps(bytes)
    }

    /// Which of these it is.
    pub const fn way(&self, bytes: u32) -> LeanWay {
        if self.in_packets(bytes) {
            LeanWay::Packets
        } else if self.in_two_steps(bytes) {
            LeanWay::TwoSteps
        } else {
            LeanWay::OneStep
        }
    }
}

/// How a call sends its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeanWay {
    /// As packets, in one step.
    Packets,
    /// As they are, in one step.
    OneStep,
    /// As they are, to owners and from there to all.
    TwoSteps,
}

impl LeanWay {
    /// For people.
    pub const fn name(self) -> &'static str {
        match self {
            LeanWay::Packets => "packets",
            LeanWay::OneStep => "data in one step",
            LeanWay::TwoSteps => "data in two steps",
        }
    }
}

const _: () = {
    assert!(size_of::<LeanRanks>() == 48);
    assert!(size_of::<LeanCall>() == 120);
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TENSOR: LeanTensor = LeanTensor { address: 0, columns: 1, stride: 0 };

    fn ranks(ranks: u32, executors: u32, message: u32, offset: u64) -> LeanRanks {
        LeanRanks { control: 0, bases: 0, steps: 0, offset, message, executors, rank: 0, ranks }
    }

    proptest! {
        /// No two of them share a line, and all are inside.
        #[test]
        fn lean_places_are_apart(world in 1u32..6, executors in 1u32..6, lines in 1u32..5, offset in 0u64..1 << 30) {
            let ranks = ranks(world, executors, 128 * lines, 128 * offset);
            let mut places = Vec::new();
            for executor in 0..executors {
                for source in 0..world {
                    for step in 6..8 {
                        places.push((ranks.hello(source, executor, step), 128));
                        places.push((ranks.packets(source, executor, step), 32 * u64::from(LEAN_PACKETS)));
                        places.push((ranks.place(source, executor, step), u64::from(ranks.message)));
                    }
                }
            }
            places.sort_unstable();
            prop_assert!(places.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0));
            prop_assert_eq!((places[0].0, places.last().map(|last| last.0 + last.1)), (ranks.offset, Some(ranks.offset + ranks.total())));
        }

        /// Every element belongs to one executor that is active.
        #[test]
        fn executors_divide_the_elements(count in 0u64..1 << 40, executors in 1u32..300, bytes in 1u32..3) {
            let bytes = 2 * bytes;
            let call = LeanCall {
                ranks: ranks(4, executors, 8192, 0), input: TENSOR, output: TENSOR, count, deadline_ns: 0, code: 0, root: 0,
            };
            let active = call.active(bytes);
            prop_assert!((1..=executors).contains(&active));
            let mut next = 0;
            for executor in 0..active {
                let [first, end] = call.part(executor, bytes);
                prop_assert!(first == next && first <= end && (first.is_multiple_of(LEAN_BLOCK) || first == count));
                next = end;
            }
            prop_assert_eq!(next, count);
        }
    }

    /// Of a GPU's 256 executors with 8 KiB each.
    #[test]
    fn small_messages_are_packets_and_large_sums_of_three_ranks_go_in_two_steps() {
        let way = |operation, world, bytes: u64| {
            let code = lean_code(operation, LeanReduction::Sum, LeanElement::Bf16);
            let ranks = ranks(world, 256, 8 << 10, 0);
            LeanCall { ranks, input: TENSOR, output: TENSOR, count: bytes / 2, deadline_ns: 0, code, root: 0 }.way(2)
        };
        let (sum, gather) = (LeanOperation::AllReduce, LeanOperation::AllGather);
        assert_eq!([0, 8 << 10, 256 << 10].map(|bytes| way(sum, 2, bytes)), [LeanWay::Packets; 3]);
        assert_eq!([(256 << 10) + 16, 1 << 30].map(|bytes| way(sum, 2, bytes)), [LeanWay::OneStep; 2]);
        assert_eq!([0, (128 << 10) - 2].map(|bytes| way(sum, 3, bytes)), [LeanWay::Packets; 2]);
        assert_eq!([128 << 10, 1 << 30].map(|bytes| way(sum, 3, bytes)), [LeanWay::TwoSteps; 2]);
        assert_eq!([256 << 10, 1 << 30].map(|bytes| way(gather, 3, bytes)), [LeanWay::Packets, LeanWay::OneStep]);
    }

    #[test]
    fn codes_are_read_as_they_were_written() {
        for operation in [0, 1, 2, 3, 4].map(|code| LeanOperation::of(code).unwrap()) {
            for reduction in [0, 1, 2, 3].map(|code| LeanReduction::of(code << 8).unwrap()) {
                for element in [0, 1, 2, 3].map(|code| LeanElement::of(code << 16).unwrap()) {
                    let code = lean_code(operation, reduction, element);
                    assert_eq!(
                        (LeanOperation::of(code), LeanReduction::of(code), LeanElement::of(code)),
                        (Some(operation), Some(reduction), Some(element))
                    );
                }
            }
        }
        assert_eq!((LeanOperation::of(5), LeanReduction::of(4 << 8), LeanElement::of(4 << 16)), (None, None, None));
    }
}
