//! Calls of collectives that the model checker goes through, each with what it is there for.

use maco_abi::LeanOperation::{AllGather, AllReduce, AllToAll, Broadcast, ReduceScatter};

use super::calls::Call;
use super::looms::check;
use super::{Lack, Setting};

/// No step of these cleans its places, which would be too many words.
const START: u32 = 7;

const TWO: Setting = Setting::new(2, START);
const THREE: Setting = Setting::new(3, START);

const fn packets(call: Call) -> Call {
    call.by(true, false)
}

const fn data(call: Call) -> Call {
    call.by(false, false)
}

/// Two ranks, packets: three calls through two places, of other operations and sizes.
pub fn packets_of_two(lack: Option<Lack>) -> usize {
    const CALLS: &[Call] = &[packets(Call::new(AllReduce, 4)), packets(Call::new(AllGather, 2)), packets(Call::new(AllToAll, 3))];
    check::<true>(TWO, CALLS, [1, 0], 1, lack)
}

/// The same, and each packet comes by itself.
pub fn packets_apart(lack: Option<Lack>) -> usize {
    const CALLS: &[Call] = &[packets(Call::new(AllReduce, 4)), Call::new(AllGather, 0), packets(Call::new(AllToAll, 2))];
    check::<false>(TWO, CALLS, [1, 0], 0, lack)
}

/// Two ranks, data.
pub fn data_of_two(lack: Option<Lack>) -> usize {
    const CALLS: &[Call] = &[data(Call::new(ReduceScatter, 4)), data(Call::new(AllReduce, 3)), data(Call::new(AllGather, 1))];
    check::<true>(TWO, CALLS, [0, 1], 2, lack)
}

/// Data, and data again with packets between: no greeting with a fence says that the first was read.
pub fn packets_between_data(lack: Option<Lack>) -> usize {
    const CALLS: &[Call] = &[data(Call::new(AllToAll, 3)), packets(Call::new(AllReduce, 2)), data(Call::new(AllGather, 4))];
    check::<true>(TWO, CALLS, [1, 1], 1, lack)
}

/// A call of nothing between those of data has a greeting alone.
pub fn nothing_between_data(lack: Option<Lack>) -> usize {
    const CALLS: &[Call] = &[data(Call::new(AllReduce, 4)), Call::new(AllGather, 0), data(Call::new(AllReduce, 4))];
    check::<true>(TWO, CALLS, [0, 1], 2, lack)
}

/// Packets, and packets again with data between.
pub fn data_between_packets(lack: Option<Lack>) -> usize {
    const CALLS: &[Call] = &[packets(Call::new(AllReduce, 3)), data(Call::new(AllReduce, 4)), packets(Call::new(AllReduce, 1))];
    check::<true>(TWO, CALLS, [1, 1], 1, lack)
}

/// Two ranks in two steps, each of which owns a part; the second one's is shorter.
pub fn owners_of_two(lack: Option<Lack>) -> usize {
    const CALLS: &[Call] = &[Call::new(AllReduce, 12).by(false, true), Call::new(AllReduce, 16).by(false, true)];
    check::<true>(TWO, CALLS, [0, 2], 2, lack)
}

/// One rank sends to the other one, which has nothing to say and greets.
pub fn broadcasts_of_two(lack: Option<Lack>) -> usize {
    const CALLS: &[Call] = &[data(Call::new(Broadcast, 4)), data(Call::new(Broadcast, 2)), data(Call::new(Broadcast, 3))];
    check::<true>(TWO, CALLS, [0, 1], 2, lack)
}

/// The same by packets, the last one by the other rank.
pub fn broadcasts_by_packets(lack: Option<Lack>) -> usize {
    const CALLS: &[Call] = &[packets(Call::new(Broadcast, 4)), packets(Call::new(Broadcast, 2)), packets(Call::new(Broadcast, 3).from(1))];
    check::<true>(TWO, CALLS, [1, 0], 1, lack)
}

/// A call of more than a message holds: several steps.
pub fn steps_of_a_call(lack: Option<Lack>) -> usize {
    const CALLS: &[Call] = &[data(Call::new(AllReduce, 72))];
    check::<true>(TWO, CALLS, [0, 8], 2, lack)
}

/// Three ranks: each greets both others.
pub fn data_of_three(lack: Option<Lack>) -> usize {
    const CALLS: &[Call] = &[data(Call::new(AllReduce, 1)), data(Call::new(AllGather, 4)), data(Call::new(AllReduce, 2))];
    check::<true>(THREE, CALLS, [0, 1], 0, lack)
}

/// One rank has two lanes, which divide the two blocks and the greetings of two others.
pub fn lanes_of_three(lack: Option<Lack>) -> usize {
    const CALLS: &[Call] = &[data(Call::new(AllReduce, 8)), data(Call::new(AllReduce, 8)), data(Call::new(AllReduce, 8))];
    check::<true>(Setting { lanes: [1, 2, 1, 1], ..THREE }, CALLS, [0, 2], 0, lack)
}

/// One of two ranks has two lanes, of which the first one greets.
pub fn lanes_of_two(lack: Option<Lack>) -> usize {
    const CALLS: &[Call] = &[data(Call::new(AllReduce, 8)), data(Call::new(AllGather, 8)), data(Call::new(AllReduce, 8))];
    check::<true>(Setting { lanes: [1, 2, 1, 1], ..TWO }, CALLS, [0, 2], 0, lack)
}
