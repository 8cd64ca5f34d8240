//! Messages of collectives that the model checker goes through: launches of two and three ranks, whose steps are those of `SimtConsumer::collective`.
//!
//! A rank begins a launch when it has ended the one before, and waits for nobody then: as kernels of one stream do. Clocks say that no place is stored anew before its
//! packets were read.

use maco_abi::{Messages, launch_flag, message_flag};
use maco_device::channel::{System, TileMessages, Which};

use crate::channel::{Body, Lack, Layout, Loom, Setting, check_in};

/// No wait looks at clock and stop word.
const PATIENT: u32 = u32::MAX;
/// Numbers of launches and of messages wrap in the midst.
const START: u32 = u32::MAX - 1;

type Thread = Loom<PATIENT>;

/// A collective.
#[derive(Clone, Copy)]
struct Call {
    ranks: u32,
    tiles: u32,
    /// Of a message.
    pairs: u32,
    launches: u32,
    one_way: bool,
    /// Messages have signals: a word of each pair is sent.
    signalled: bool,
    /// In two steps, by owners.
    owned: bool,
    /// Tiles have so many slots in turn; 0: each has its own place.
    slots: u32,
    /// Whom a rank sends to and hears in a launch, by tile.
    flow: fn(Place, u32) -> (Which, Which),
}

/// What a thread does, and where.
#[derive(Clone, Copy)]
struct Place {
    rank: u32,
    tile: u32,
    launch: u32,
}

/// A thread of a rank.
#[derive(Clone, Copy)]
struct Lane {
    rank: u32,
    lane: u32,
    lanes: u32,
}

impl Call {
    const fn messages(self) -> Messages {
        let sources = if self.slots == 0 && self.tiles > 1 && !self.owned { 1 } else { self.ranks as u16 };
        let (tiles, rows) = if self.slots > 0 { (self.slots, self.tiles as u16) } else { (self.tiles, 0) };
        Messages { offset: 0, bytes: 16 * self.pairs, tiles, grid: [1, 1], first: 0, sources, rows }
    }

    const fn layout(self) -> Layout {
        let packets = self.messages().word(0, 0, maco_abi::MessageWord::Credit) as usize / 4;
        let (ranks, words) = (self.ranks as usize, self.messages().total(self.ranks) as usize / 4);
        if self.signalled {
            Layout::Signalled { ranks, data: packets, words, credits: self.slots > 0 }
        } else {
            Layout::Messages { ranks, packets, words, credits: self.slots > 0 }
        }
    }

    const fn flag(self, number: u32) -> u32 {
        if self.one_way { message_flag(number) } else { launch_flag(number) }
    }

    fn check(self, threads: &'static [Body<PATIENT>], preemptions: usize, lack: Option<Lack>) -> usize {
        let left = [2, 1].map(|before| self.flag(START - before));
        let setting = Setting { layout: self.layout(), start: START, left, deadline_ns: 0 };
        check_in(setting, threads, |_| {}, preemptions, lack)
    }

    /// All launches of a rank, or of a lane of one.
    fn run(self, thread: &Thread, lane: Lane) {
        // In one launch credits alone give slots back.
        if self.launches > 1 && (!self.one_way || thread.world.lacks(Lack::ByLaunch)) {
            thread.world.by_dependency();
        }
        for launch in 0..self.launches {
            // A rank's own tile first: others' may run at the same time, on other workers. Where a rank waits for an answer, all have one order.
            let first = if self.owned || self.slots > 0 { 0 } else { lane.rank };
            for n in 0..self.tiles {
                self.exchange(thread, lane, Place { rank: lane.rank, tile: (first + n) % self.tiles, launch });
            }
            if lane.lanes > 1 {
                // The next kernel of the stream.
                thread.meet_lanes(lane.lanes);
            }
        }
    }

    /// As `SimtConsumer::collective`; pairs are checked, and not combined.
    fn exchange(self, thread: &Thread, lane: Lane, place: Place) {
        let world = &thread.world;
        let number = START.wrapping_add(if world.lacks(Lack::SameLaunch) { 0 } else { place.launch });
        let ranks = world.ranks(place.rank, self.ranks, number);
        let (to, from) = (self.flow)(place, self.ranks);
        let turn = self.messages().turn([place.tile, 0, 0], false);
        let round = if self.slots > 0 && !world.lacks(Lack::SameRound) { turn.round } else { 0 };
        thread.expect(if self.slots > 0 { maco_abi::turn_flag(number, round) } else { self.flag(number) });
        let one_way = self.one_way && !world.lacks(Lack::ByLaunch);
        // SAFETY: (of all) as the model's memory has them.
        let exchange = unsafe {
            if self.slots > 0 {
                TileMessages::in_turn(ranks, self.messages(), place.tile, maco_abi::Turn { round, ..turn })
            } else {
                TileMessages::new(ranks, self.messages(), [place.tile; 2], one_way)
            }
        };
        if self.owned {
            let owner = maco_abi::owner(place.tile, self.ranks);
            let (to, from) = if owner == place.rank { (Which::None, Which::All) } else { (Which::One(owner), Which::None) };
            self.exchange_by_signals(thread, lane, place, exchange, (to, from));
            if lane.lanes > 1 {
                thread.meet_lanes(lane.lanes);
            }
            // What comes of the owner is the result, whatever its parts were.
            let (to, from) = if owner == place.rank { (Which::All, Which::None) } else { (Which::None, Which::One(owner)) };
            return self.exchange_by_signals(thread, lane, place, exchange, (to, from));
        }
        if self.signalled {
            return self.exchange_by_signals(thread, lane, place, exchange, (to, from));
        }
        // SAFETY: as above.
        assert!(unsafe { exchange.begin(thread, thread, to) });
        for pair in (lane.lane..self.pairs).step_by(lane.lanes as usize) {
            for peer in (1..self.ranks).map(|n| ranks.behind(n)).filter(|&peer| to.has(peer)) {
                // SAFETY: as above.
                unsafe { exchange.send(thread, peer, pair, part(place, pair)) };
            }
        }
        if self.slots > 0 && world.lacks(Lack::EarlyCredit) && lane.lane == 0 {
            // SAFETY: not as it should be.
            unsafe { exchange.give_back(thread, from) };
        } else if let (true, Which::One(from)) = (world.lacks(Lack::EarlyCredit), from) {
            let word = self.messages().word(place.rank, place.tile, maco_abi::MessageWord::Credit) / 4;
            // SAFETY: the word that `end` publishes.
            unsafe { thread.publish(world.at(from, word as usize), number.wrapping_add(1)) };
        }
        for pair in (lane.lane..self.pairs).step_by(lane.lanes as usize) {
            for peer in (0..self.ranks).filter(|&peer| peer != place.rank && from.has(peer)) {
                let mut found = [[0; 2]];
                // SAFETY: as above.
                assert!(unsafe { exchange.receive(thread, thread, peer, pair, &mut found) });
                assert_eq!(found, [part(Place { rank: peer, ..place }, pair)], "pair {pair} of rank {peer} in launch {}", place.launch);
            }
        }
        self.give_back(thread, lane, exchange, from);
        if self.one_way {
            if lane.lanes > 1 && !world.lacks(Lack::Meet) {
                thread.meet_lanes(lane.lanes);
            }
            if lane.lane == 0 && one_way {
                // SAFETY: as above.
                unsafe { exchange.end(thread, to, from) };
            }
        }
    }

    /// Where tiles have slots in turn, when the threads have read.
    fn give_back(self, thread: &Thread, lane: Lane, exchange: TileMessages, from: Which) {
        if self.slots == 0 || thread.world.lacks(Lack::EarlyCredit) {
            return;
        }
        if lane.lanes > 1 && !thread.world.lacks(Lack::Meet) {
            thread.meet_lanes(lane.lanes);
        }
        if lane.lane == 0 {
            // SAFETY: as above.
            unsafe { exchange.give_back(thread, from) };
        }
    }

    /// The same where messages have signals.
    fn exchange_by_signals(self, thread: &Thread, lane: Lane, place: Place, exchange: TileMessages, (to, from): (Which, Which)) {
        let world = &thread.world;
        let pairs = || (lane.lane..self.pairs).step_by(lane.lanes as usize);
        let peers = |which: Which| (0..self.ranks).filter(move |&peer| peer != place.rank && which.has(peer));
        let early = world.lacks(Lack::EarlySignal);
        // SAFETY: as above.
        assert!(unsafe { exchange.begin(thread, thread, to) });
        if early && lane.lane == 0 {
            // SAFETY: not as it should be.
            unsafe { exchange.signal(thread, to) };
        }
        for pair in pairs() {
            // SAFETY: (of all) as the model's memory has them.
            peers(to).for_each(|peer| unsafe { exchange.store(thread, peer, 16 * pair, [part(place, pair)[0]]) });
        }
        if lane.lanes > 1 && !world.lacks(Lack::Meet) {
            thread.meet_lanes(lane.lanes);
        }
        if lane.lane == 0 && !early {
            // SAFETY: as above.
            unsafe { exchange.signal(thread, to) };
        }
        // SAFETY: as above.
        assert!(unsafe { exchange.wait(thread, thread, from) });
        if self.slots > 0 && world.lacks(Lack::EarlyCredit) && lane.lane == 0 {
            // SAFETY: not as it should be.
            unsafe { exchange.give_back(thread, from) };
        }
        for pair in pairs() {
            for peer in peers(from) {
                // SAFETY: as above.
                let found = unsafe { exchange.load::<_, 1>(thread, peer, 16 * pair) };
                assert_eq!(found[0], part(Place { rank: peer, ..place }, pair)[0], "pair {pair} of rank {peer} in launch {}", place.launch);
            }
        }
        self.give_back(thread, lane, exchange, from);
    }
}

/// What a rank sends.
fn part(Place { rank, tile, launch }: Place, pair: u32) -> [u32; 2] {
    [0, 1].map(|half| launch << 16 | tile << 12 | rank << 8 | pair << 4 | half)
}

/// A rank of one lane.
const fn alone(rank: u32) -> Lane {
    Lane { rank, lane: 0, lanes: 1 }
}

const fn all_reduce(ranks: u32, pairs: u32, launches: u32) -> Call {
    Call {
        ranks,
        tiles: 1,
        pairs,
        launches,
        one_way: false,
        signalled: false,
        owned: false,
        slots: 0,
        flow: |_, _| (Which::All, Which::All),
    }
}

const fn by_signals(call: Call) -> Call {
    Call { signalled: true, ..call }
}

/// Two ranks, each of which sends two pairs: three launches through two places.
pub fn all_reduce_of_two(lack: Option<Lack>) -> usize {
    const CALL: Call = all_reduce(2, 2, 3);
    CALL.check(&[|thread| CALL.run(thread, alone(0)), |thread| CALL.run(thread, alone(1))], 1, lack)
}

/// Three ranks, and three launches: a rank is at most one launch ahead of another one.
pub fn all_reduce_of_three(lack: Option<Lack>) -> usize {
    const CALL: Call = all_reduce(3, 1, 3);
    CALL.check(&[|thread| CALL.run(thread, alone(0)), |thread| CALL.run(thread, alone(1)), |thread| CALL.run(thread, alone(2))], 0, lack)
}

const GATHER: Call = Call {
    tiles: 2,
    flow: |place, _| (if place.tile == place.rank { Which::All } else { Which::None }, Which::One(place.tile)),
    ..all_reduce(2, 1, 4)
};

/// Two ranks, large tiles: three launches through two places and two signals.
pub fn signals_of_two(lack: Option<Lack>) -> usize {
    const CALL: Call = by_signals(all_reduce(2, 1, 3));
    CALL.check(&[|thread| CALL.run(thread, alone(0)), |thread| CALL.run(thread, alone(1))], 1, lack)
}

/// Three ranks, large tiles.
pub fn signals_of_three(lack: Option<Lack>) -> usize {
    const CALL: Call = by_signals(all_reduce(3, 1, 3));
    CALL.check(&[|thread| CALL.run(thread, alone(0)), |thread| CALL.run(thread, alone(1)), |thread| CALL.run(thread, alone(2))], 0, lack)
}

/// Two ranks in two steps, each of which owns a tile.
pub fn owners_of_two(lack: Option<Lack>) -> usize {
    const CALL: Call = Call { tiles: 2, owned: true, ..by_signals(all_reduce(2, 1, 3)) };
    CALL.check(&[|thread| CALL.run(thread, alone(0)), |thread| CALL.run(thread, alone(1))], 1, lack)
}

/// Three ranks in two steps, of which one owns the only tile: the others hear of each other by it alone.
pub fn owner_of_three(lack: Option<Lack>) -> usize {
    const CALL: Call = Call { owned: true, ..by_signals(all_reduce(3, 1, 3)) };
    CALL.check(&[|thread| CALL.run(thread, alone(0)), |thread| CALL.run(thread, alone(1)), |thread| CALL.run(thread, alone(2))], 1, lack)
}

/// Large tiles that one rank sends each.
pub fn signals_of_a_gather(lack: Option<Lack>) -> usize {
    const CALL: Call = by_signals(GATHER);
    CALL.check(&[|thread| CALL.run(thread, alone(0)), |thread| CALL.run(thread, alone(1))], 1, lack)
}

/// One rank has two lanes, each of which stores and loads half of a large tile: one signals for both.
pub fn signals_of_lanes(lack: Option<Lack>) -> usize {
    const CALL: Call = by_signals(all_reduce(2, 2, 3));
    CALL.check(
        &[
            |thread| CALL.run(thread, alone(0)),
            |thread| CALL.run(thread, Lane { rank: 1, lane: 0, lanes: 2 }),
            |thread| CALL.run(thread, Lane { rank: 1, lane: 1, lanes: 2 }),
        ],
        0,
        lack,
    )
}

const TURNS: Call = Call { tiles: 3, slots: 1, ..all_reduce(2, 1, 2) };

/// Two ranks, three tiles in one slot.
pub fn turns_of_packets(lack: Option<Lack>) -> usize {
    const CALL: Call = Call { launches: 1, ..TURNS };
    CALL.check(&[|thread| CALL.run(thread, alone(0)), |thread| CALL.run(thread, alone(1))], 1, lack)
}

/// The same in two launches, of which the first messages need no credit.
pub fn turns_of_two_launches(lack: Option<Lack>) -> usize {
    const CALL: Call = TURNS;
    CALL.check(&[|thread| CALL.run(thread, alone(0)), |thread| CALL.run(thread, alone(1))], 1, lack)
}

/// Likewise with signals.
pub fn turns_of_signals(lack: Option<Lack>) -> usize {
    const CALL: Call = by_signals(TURNS);
    CALL.check(&[|thread| CALL.run(thread, alone(0)), |thread| CALL.run(thread, alone(1))], 1, lack)
}

/// Five tiles in two slots, each with an owner, who sends when it has received.
pub fn turns_of_owners(lack: Option<Lack>) -> usize {
    const CALL: Call = Call { tiles: 5, slots: 2, owned: true, ..by_signals(all_reduce(2, 1, 1)) };
    CALL.check(&[|thread| CALL.run(thread, alone(0)), |thread| CALL.run(thread, alone(1))], 1, lack)
}

/// One rank has two lanes, of which one gives the slot back for both: with packets.
pub fn turns_of_lanes(lack: Option<Lack>) -> usize {
    const CALL: Call = Call { tiles: 2, slots: 1, pairs: 2, ..all_reduce(2, 2, 1) };
    CALL.check(
        &[
            |thread| CALL.run(thread, alone(0)),
            |thread| CALL.run(thread, Lane { rank: 1, lane: 0, lanes: 2 }),
            |thread| CALL.run(thread, Lane { rank: 1, lane: 1, lanes: 2 }),
        ],
        0,
        lack,
    )
}

/// Tiles that one rank sends each: it hears of the others by their tiles.
pub fn all_gather(lack: Option<Lack>) -> usize {
    const CALL: Call = GATHER;
    CALL.check(&[|thread| CALL.run(thread, alone(0)), |thread| CALL.run(thread, alone(1))], 2, lack)
}

/// From the rank before to the one behind.
const fn ring(ranks: u32, launches: u32) -> Call {
    let flow = |place: Place, ranks| (Which::One((place.rank + 1) % ranks), Which::One((place.rank + ranks - 1) % ranks));
    Call { ranks, tiles: 1, pairs: 1, launches, one_way: true, signalled: false, owned: false, slots: 0, flow }
}

/// Around a ring of two.
pub fn ring_of_two(lack: Option<Lack>) -> usize {
    const CALL: Call = ring(2, 4);
    CALL.check(&[|thread| CALL.run(thread, alone(0)), |thread| CALL.run(thread, alone(1))], 1, lack)
}

/// Around a ring of three, where a rank does not hear of the one that it sends to.
pub fn ring_of_three(lack: Option<Lack>) -> usize {
    const CALL: Call = ring(3, 3);
    CALL.check(&[|thread| CALL.run(thread, alone(0)), |thread| CALL.run(thread, alone(1)), |thread| CALL.run(thread, alone(2))], 0, lack)
}

/// One rank sends all the time, and nobody answers.
pub fn send(lack: Option<Lack>) -> usize {
    const CALL: Call = Call { flow: |place, _| between(place.rank, 0, 1), pairs: 2, ..ring(2, 4) };
    CALL.check(&[|thread| CALL.run(thread, alone(0)), |thread| CALL.run(thread, alone(1))], 1, lack)
}

/// Who has one message read may send the third one: there are two places.
pub fn one_credit(lack: Option<Lack>) -> usize {
    const CALL: Call = Call { flow: |place, _| between(place.rank, 0, 1), ..ring(2, 3) };
    const FIRST: Call = Call { launches: 1, ..CALL };
    CALL.check(&[|thread| CALL.run(thread, alone(0)), |thread| FIRST.run(thread, alone(1))], 1, lack)
}

/// What a rank does when `from` sends to `to`.
fn between(rank: u32, from: u32, to: u32) -> (Which, Which) {
    (if rank == from { Which::One(to) } else { Which::None }, if rank == to { Which::One(from) } else { Which::One(rank) })
}

/// The sender is another one from launch to launch, for each of which messages are numbered by themselves.
pub fn send_by_turns(lack: Option<Lack>) -> usize {
    const CALL: Call = Call {
        flow: |place, _| {
            let from = [0, 2, 0, 0, 2][place.launch as usize];
            between(place.rank, from, 1)
        },
        ..ring(3, 5)
    };
    CALL.check(&[|thread| CALL.run(thread, alone(0)), |thread| CALL.run(thread, alone(1)), |thread| CALL.run(thread, alone(2))], 1, lack)
}

/// The root of two ranks is another one in the midst.
pub fn broadcast_by_turns(lack: Option<Lack>) -> usize {
    const CALL: Call = Call {
        flow: |place, _| {
            let root = [0, 1, 0, 0, 0][place.launch as usize];
            (if place.rank == root { Which::All } else { Which::None }, Which::One(root))
        },
        ..ring(2, 5)
    };
    CALL.check(&[|thread| CALL.run(thread, alone(0)), |thread| CALL.run(thread, alone(1))], 2, lack)
}

/// One rank sends to two others, which it does not hear of.
pub fn broadcast(lack: Option<Lack>) -> usize {
    const CALL: Call = Call { flow: |place, _| (if place.rank == 0 { Which::All } else { Which::None }, Which::One(0)), ..ring(3, 3) };
    CALL.check(&[|thread| CALL.run(thread, alone(0)), |thread| CALL.run(thread, alone(1)), |thread| CALL.run(thread, alone(2))], 0, lack)
}

const LANES: Call = Call { flow: |place, _| between(place.rank, 0, 1), pairs: 2, ..ring(2, 3) };

/// The receiver has two lanes, one for each pair: one gives the credit for both.
pub fn lanes_that_receive(lack: Option<Lack>) -> usize {
    LANES.check(
        &[
            |thread| LANES.run(thread, alone(0)),
            |thread| LANES.run(thread, Lane { rank: 1, lane: 0, lanes: 2 }),
            |thread| LANES.run(thread, Lane { rank: 1, lane: 1, lanes: 2 }),
        ],
        0,
        lack,
    )
}

/// The sender has two lanes, each of which waits for the credit.
pub fn lanes_that_send(lack: Option<Lack>) -> usize {
    LANES.check(
        &[
            |thread| LANES.run(thread, Lane { rank: 0, lane: 0, lanes: 2 }),
            |thread| LANES.run(thread, Lane { rank: 0, lane: 1, lanes: 2 }),
            |thread| LANES.run(thread, alone(1)),
        ],
        0,
        lack,
    )
}
