//! The ranks of a plan, and the messages between them.

/// The ranks that launch a plan together, as one of them sees them: what [`crate::Launch::ranks`] points to.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranks {
    /// This one.
    pub rank: u32,
    /// How many there are, at least 2.
    pub ranks: u32,
    /// `[u64; ranks]`: where this rank has the symmetric memory of each.
    pub bases: u64,
    /// `[u32; tiles]`, one for each tile of each collective: the rank whose message a task has waited for in vain, plus 1.
    pub missing: u64,
    /// [`Fifo`] to this rank's proxy; 0 for none.
    pub fifo: u64,
}

/// Where tasks of a rank hand over to its proxy: what [`Ranks::fifo`] points to.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fifo {
    /// `[[u64; 2]; size]`: triggers.
    pub ring: u64,
    /// `u32`: the next ticket.
    pub head: u64,
    /// `[u32; 2]`: triggers that the proxy has taken, and completed.
    pub progress: u64,
    /// A power of two.
    pub size: u32,
    /// This rank.
    pub rank: u32,
}

/// Where the messages of a collective lie, and how its tiles are numbered: 32 bytes, in the last of the call's [`crate::OPERANDS`] places. There is none of a plan
/// with one rank.
///
/// A message is one tile from one rank to another, as packets: words of 64 bits, 32 of data and 32 of flag. Of large tiles it is data alone, and a signal says that they
/// are there. Each rank has room for two messages of every tile from every rank, by the parity of their numbers; behind that [`MessageWord`]s for each rank and tile.
#[repr(C, align(32))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Messages {
    /// Of the first one, from the base of a rank's symmetric memory; a multiple of 16.
    pub offset: u64,
    /// Bytes of a message, a multiple of 16.
    pub bytes: u32,
    /// Tiles of the call.
    pub tiles: u32,
    /// Tiles along its second and third grid axis; 1 for none.
    pub grid: [u32; 2],
    /// Where [`Ranks::missing`] has its first tile.
    pub first: u32,
    /// How many ranks may send a message of one tile: all, or 1 where the tile says which. 2 of a port channel: its slots for what comes, and those that the proxy copies
    /// from.
    pub sources: u32,
}

/// What a rank counts of messages that nobody answers, for each peer and tile. Those that all answer are numbered by their launch and need no counts: the signals of large
/// ones are in the first two words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MessageWord {
    /// How many of this rank's messages the peer has read; of a channel, how many it has sent. The peer stores it.
    Credit = 0,
    /// How many it has sent: its own.
    Sent = 1,
    /// How many it has received: its own.
    Received = 2,
}

impl MessageWord {
    const COUNT: u64 = 3;
}

impl Messages {
    /// The number of the tile at these coordinates.
    pub const fn tile(self, [first, second, third]: [u32; 3]) -> u32 {
        (first * self.grid[0] + second) * self.grid[1] + third
    }

    /// Where a rank has message `number` of `tile` from rank `source`.
    pub const fn message(self, number: u32, source: u32, tile: u32) -> u64 {
        let source = if self.sources == 1 { 0 } else { source };
        self.offset + (((number % 2) * self.sources + source) as u64 * self.tiles as u64 + tile as u64) * self.bytes as u64
    }

    /// Where a rank has a word of `peer` and `tile`.
    pub const fn word(self, peer: u32, tile: u32, word: MessageWord) -> u64 {
        self.offset + self.message_bytes() + 4 * (MessageWord::COUNT * (peer as u64 * self.tiles as u64 + tile as u64) + word as u64)
    }

    /// Where a rank has the signal of message `number` of `tile` from rank `source`, which stores [`launch_flag`] there. There are two, by parity: a rank may be a launch
    /// ahead of another one, which has still to see the signal before.
    pub const fn signal(self, number: u32, source: u32, tile: u32) -> u64 {
        self.word(source, tile, if number.is_multiple_of(2) { MessageWord::Credit } else { MessageWord::Sent })
    }

    const fn message_bytes(self) -> u64 {
        2 * self.sources as u64 * self.tiles as u64 * self.bytes as u64
    }

    /// Bytes of all of them, on each rank.
    pub const fn total(self, ranks: u32) -> u64 {
        self.message_bytes() + 4 * MessageWord::COUNT * ranks as u64 * self.tiles as u64
    }
}

/// Least bytes of a tile that goes as data with a signal, where all ranks answer, and by two tasks: one sends it, the other receives. Of smaller ones a packet's flag is
/// there sooner.
pub const SIGNALLED_BYTES: u64 = 16 * 1024;

/// Whether a tile of so many rows and columns, as its task says them, and bytes of an element goes so. One without a size does not.
pub const fn is_signalled(rows: u64, cols: u64, bytes: u32) -> bool {
    rows.saturating_mul(cols).saturating_mul(bytes as u64) >= SIGNALLED_BYTES
}

/// The flag of the packets of a message that is numbered by its launch, or its signal: the number, which repeats after 65,536 launches, above a bit that is set. Memory of zeros holds
/// no packet.
pub const fn launch_flag(launch: u32) -> u32 {
    crate::epoch(launch) | 1
}

/// The flag of the packets of a message that has a number of its own.
pub const fn message_flag(number: u32) -> u32 {
    number << 1 | 1
}

const _: () = {
    assert!(size_of::<Ranks>() == 32);
    assert!(size_of::<Fifo>() == 32);
    assert!(size_of::<Messages>() == 32);
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// No two of them share a byte, and all are inside.
        #[test]
        fn places_are_apart(ranks in 1u32..9, all: bool, tiles in 1u32..20, pairs in 1u32..9, offset in 0u64..1 << 40) {
            let sources = if all { ranks } else { 1 };
            let messages = Messages { offset, bytes: 16 * pairs, tiles, grid: [1, 1], first: 0, sources };
            let mut places: Vec<(u64, u64)> = Vec::new();
            for rank in 0..ranks {
                for tile in 0..tiles {
                    if all || rank == 0 {
                        places.extend((0..2).map(|number| (messages.message(number, rank, tile), 16 * u64::from(pairs))));
                    }
                    let words = [MessageWord::Credit, MessageWord::Sent, MessageWord::Received];
                    places.extend(words.map(|word| (messages.word(rank, tile, word), 4)));
                }
            }
            places.sort_unstable();
            prop_assert!(places.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0));
            prop_assert_eq!((places[0].0, places.last().map(|last| last.0 + last.1)), (offset, Some(offset + messages.total(ranks))));
        }

        /// The signals of two launches are two words of their peer and tile; the one after has that of the first again.
        #[test]
        fn signals_are_apart(tiles in 1u32..20, sources in 1u32..9, number: u32, offset in 0u64..1 << 40) {
            let messages = Messages { offset, bytes: 32, tiles, grid: [1, 1], first: 0, sources };
            let mut places = Vec::new();
            for rank in 0..sources {
                for tile in 0..tiles {
                    let [even, odd] = [number, number.wrapping_add(1)].map(|number| messages.signal(number, rank, tile));
                    prop_assert_eq!(messages.signal(number.wrapping_add(2), rank, tile), even);
                    prop_assert!([even, odd].iter().all(|at| (at - offset) % 4 == 0 && *at >= messages.word(0, 0, MessageWord::Credit)));
                    prop_assert!([even, odd].iter().all(|at| at + 4 <= offset + messages.total(sources)));
                    places.extend([even, odd]);
                }
            }
            places.sort_unstable();
            prop_assert!(places.windows(2).all(|two| two[0] + 4 <= two[1]));
        }

        #[test]
        fn tiles_are_numbered(grid in [1u32..6, 1u32..6, 1u32..6]) {
            let messages = Messages { grid: [grid[1], grid[2]], tiles: grid.iter().product(), ..Messages::default() };
            let mut next = 0;
            for first in 0..grid[0] {
                for second in 0..grid[1] {
                    for third in 0..grid[2] {
                        prop_assert_eq!(messages.tile([first, second, third]), next);
                        next += 1;
                    }
                }
            }
            prop_assert_eq!(next, messages.tiles);
        }
    }

    #[test]
    fn large_tiles_are_signalled() {
        assert!(is_signalled(64, 128, 2) && is_signalled(64, 64, 4) && is_signalled(u32::MAX.into(), u32::MAX.into(), 4));
        assert!(!is_signalled(64, 127, 2) && !is_signalled(0, 1 << 20, 4) && !is_signalled(1 << 20, 0, 4));
    }

    /// A message is told from the one whose place it takes, and from zeros.
    #[test]
    fn flags_tell_messages_apart() {
        for number in (0..70_000).chain([u32::MAX / 2, u32::MAX - 1, u32::MAX]) {
            for flag in [launch_flag, message_flag] {
                assert_ne!(flag(number), 0);
                assert_ne!(flag(number), flag(number.wrapping_sub(2)));
            }
        }
    }
}
