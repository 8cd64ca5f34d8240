//! Channels between two tasks that the model checker goes through: launches of two ranks, whose steps are those of a user's body over a memory channel.
//!
//! Words of slots carry no flag: each access must be in order with the one before, by the signals alone.

use maco_abi::{MessageWord, Messages};
use maco_device::channel::{Side, TileChannel};

use crate::channel::{Body, Lack, Layout, Loom, Setting, check_in};

const PATIENT: u32 = u32::MAX;
/// Counts wrap in the midst.
const START: u32 = u32::MAX;
const RANKS: u32 = 2;
/// One tile for each rank, of one line.
const MESSAGES: Messages = Messages { offset: 0, bytes: 16, tiles: 1, grid: [1, 1], first: 0, sources: 1, rows: 0 };
/// The same with a second line, which stands for the result of the rank.
const OPENED: Messages = Messages { bytes: 32, ..MESSAGES };

/// Which lane of a rank a thread is.
#[derive(Clone, Copy)]
struct Lane {
    rank: u32,
    lane: u32,
    lanes: u32,
}

const fn alone(rank: u32) -> Lane {
    Lane { rank, lane: 0, lanes: 1 }
}

/// What a rank says in a launch.
fn said(rank: u32, launch: u32) -> [u32; 1] {
    [launch << 8 | rank << 4 | 1]
}

/// As `InFlight` in `cta/channels.rs`: stores in `side`, and loads the other one. Of two lanes the first one stores and signals, and both load.
fn launches(thread: &Loom<PATIENT>, Lane { rank, lane, lanes }: Lane, side: Side, launches: u32) {
    let (world, peer) = (&thread.world, 1 - rank);
    for launch in 0..launches {
        let ranks = world.ranks(rank, RANKS, launch);
        // SAFETY: (of all) as the model's memory has them.
        let channel = unsafe { TileChannel::new(ranks, MESSAGES, peer, [0, 0]) };
        let count = channel.count(thread);
        if lane + 1 == lanes {
            // SAFETY: as above.
            unsafe { channel.store(thread, side, count, 0, said(rank, launch)) };
        }
        if lanes > 1 && !world.lacks(Lack::Meet) {
            thread.meet_lanes(lanes);
        }
        if lane == 0 {
            // SAFETY: as above.
            unsafe { channel.signal(thread, count) };
        }
        assert!(channel.wait(thread, thread, count));
        let from = if side == Side::Peer { Side::Own } else { Side::Peer };
        // SAFETY: as above.
        assert_eq!(unsafe { channel.load::<_, 1>(thread, from, count, 0) }, said(peer, launch), "launch {launch} of rank {rank}");
        if lanes > 1 {
            // The next kernel of the stream.
            thread.meet_lanes(lanes);
        }
    }
}

/// As `Opened` in `cta/symmetric.rs`: says where its result lies, waits for the other rank to say it, stores that rank's result, and waits for its own. The slot's second line is
/// the result: what a launch has stored there, later tasks of the rank load, before the next one opens it. Of two lanes the first one says and signals, the last one
/// stores, and both load.
fn opened(thread: &Loom<PATIENT>, Lane { rank, lane, lanes }: Lane, launches: u32) {
    const RESULT: u32 = 16;
    let (world, peer) = (&thread.world, 1 - rank);
    let meet = || {
        if lanes > 1 && !world.lacks(Lack::Meet) {
            thread.meet_lanes(lanes);
        }
    };
    for launch in 0..launches {
        let ranks = world.ranks(rank, RANKS, launch);
        // SAFETY: (of all) as the model's memory has them.
        let channel = unsafe { TileChannel::new(ranks, OPENED, peer, [0, 0]) };
        let count = channel.count(thread);
        let next = count.wrapping_add(1);
        if lane == 0 {
            // SAFETY: as above.
            unsafe { channel.store(thread, Side::Peer, count, 0, said(rank, launch)) };
        }
        meet();
        if lane == 0 {
            // SAFETY: as above.
            unsafe { channel.signal(thread, count) };
        }
        assert!(channel.wait(thread, thread, count));
        // SAFETY: as above.
        assert_eq!(unsafe { channel.load::<_, 1>(thread, Side::Own, count, 0) }, said(peer, launch), "grant {launch} of rank {rank}");
        if lane + 1 == lanes {
            // SAFETY: as above.
            unsafe { channel.store(thread, Side::Peer, count, RESULT, said(rank, launch + 16)) };
        }
        meet();
        if lane == 0 {
            // SAFETY: as above.
            unsafe { channel.signal(thread, next) };
        }
        assert!(channel.wait(thread, thread, next));
        // SAFETY: as above.
        let result = unsafe { channel.load::<_, 1>(thread, Side::Own, count, RESULT) };
        assert_eq!(result, said(peer, launch + 16), "result {launch} of rank {rank}");
        if lanes > 1 {
            // The next kernel of the stream.
            thread.meet_lanes(lanes);
        }
    }
}

fn check(threads: &'static [Body<PATIENT>], lack: Option<Lack>) -> usize {
    check_of(MESSAGES, threads, lack)
}

fn check_of(messages: Messages, threads: &'static [Body<PATIENT>], lack: Option<Lack>) -> usize {
    let data = messages.word(0, 0, MessageWord::Credit) as usize / 4;
    let layout = Layout::Slots { ranks: RANKS as usize, data, words: messages.total(RANKS) as usize / 4 };
    check_in(Setting { layout, start: START, left: [0; 2], deadline_ns: 0 }, threads, |_| {}, 1, lack)
}

/// Each stores in the other's slot: four launches through two slots.
pub fn puts(lack: Option<Lack>) -> usize {
    check(&[|thread| launches(thread, alone(0), Side::Peer, 4), |thread| launches(thread, alone(1), Side::Peer, 4)], lack)
}

/// Each stores in its own slot, which the other one loads.
pub fn offers(lack: Option<Lack>) -> usize {
    check(&[|thread| launches(thread, alone(0), Side::Own, 4), |thread| launches(thread, alone(1), Side::Own, 4)], lack)
}

/// One rank has two lanes: one stores, the other one signals, and both load.
pub fn lanes_of_a_channel(lack: Option<Lack>) -> usize {
    check(
        &[
            |thread| launches(thread, alone(0), Side::Peer, 3),
            |thread| launches(thread, Lane { rank: 1, lane: 0, lanes: 2 }, Side::Peer, 3),
            |thread| launches(thread, Lane { rank: 1, lane: 1, lanes: 2 }, Side::Peer, 3),
        ],
        lack,
    )
}

/// Each stores the other's result, which it has opened.
pub fn opens(lack: Option<Lack>) -> usize {
    check_of(OPENED, &[|thread| opened(thread, alone(0), 3), |thread| opened(thread, alone(1), 3)], lack)
}

/// The same where one rank has two lanes.
pub fn lanes_that_open(lack: Option<Lack>) -> usize {
    check_of(
        OPENED,
        &[
            |thread| opened(thread, alone(0), 1),
            |thread| opened(thread, Lane { rank: 1, lane: 0, lanes: 2 }, 1),
            |thread| opened(thread, Lane { rank: 1, lane: 1, lanes: 2 }, 1),
        ],
        lack,
    )
}
