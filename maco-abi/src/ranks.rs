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
///
/// With less room than tiles, tiles have slots in turn ([`Messages::is_in_turn`]): each rank has slots for every rank's messages, and in a launch the tiles of one slot follow each
/// other in task order, each when the one before has been read.
#[repr(C, align(32))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Messages {
    /// Of the first one, from the base of a rank's symmetric memory; a multiple of 16.
    pub offset: u64,
    /// Bytes of a message, a multiple of 16.
    pub bytes: u32,
    /// Tiles of the call; where they have slots in turn, slots for each rank.
    pub tiles: u32,
    /// Tiles along its second and third grid axis; 1 for none.
    pub grid: [u32; 2],
    /// Where [`Ranks::missing`] has its first tile.
    pub first: u32,
    /// How many ranks may send a message of one tile: all, or 1 where the tile says which. 2 of a port channel: its slots for what comes, and those that the proxy copies
    /// from.
    pub sources: u16,
    /// Tiles along the first grid axis, where tiles have slots in turn; else 0.
    pub rows: u16,
}

/// Where a tile stands among those of its rank that have slots in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// In task order.
    pub index: u32,
    /// Its slot.
    pub slot: u32,
    /// How many tiles have had the slot in this launch.
    pub round: u32,
}

/// Of a call that NCCL exchanges beside the kernel: where its gates are, 32 bytes, in the place of [`Messages`]. The call has a chunk of rows for each gate, and two tasks for
/// each chunk ([`ExchangeTask::Offer`], [`ExchangeTask::Await`]): the first says that the chunk is there, the second waits until it has been exchanged. A stream of the host's
/// waits for the first word, has NCCL exchange the chunk, and stores the second one; behind the launch both are cleared.
#[repr(C, align(32))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gates {
    /// Of the first gate, in device memory; 0 if there are none.
    pub address: u64,
    /// How many.
    pub count: u32,
    /// Of nothing.
    pub unused: [u32; 5],
}

impl Gates {
    /// Bytes of a gate: its words lie in lines of their own.
    pub const BYTES: u64 = 256;

    /// `count` gates from `address` on.
    pub const fn new(address: u64, count: u32) -> Gates {
        Gates { address, count, unused: [0; 5] }
    }

    /// The word of gate `n` in which a task stores 1 when the chunk is there.
    pub const fn ready(self, n: u32) -> u64 {
        self.address + n as u64 * Gates::BYTES
    }

    /// The word of gate `n` in which there is 1 when the chunk has been exchanged.
    pub const fn done(self, n: u32) -> u64 {
        self.ready(n) + Gates::BYTES / 2
    }
}

/// What one task of a tile does that ranks exchange with signals: the tile has two of them, or three of an all-reduce in two steps, a [`crate::Part`] each.
///
/// In two steps (two-shot) a rank owns the tile. All others send it theirs, it adds them up and sends the result: of R ranks each sends and receives 2 (R - 1) / R tiles for each
/// tile instead of R - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeTask {
    /// Of two: sends the tile to all that need it.
    Send,
    /// Of two: receives those of the others and makes the result.
    Receive,
    /// Of three: sends the tile to its owner.
    SendToOwner,
    /// Of three: the owner receives the tiles of all, makes the result and sends it.
    Reduce,
    /// Of three: the others receive the result.
    ReceiveResult,
    /// Of a chunk for NCCL: says that it is there.
    Offer,
    /// Of a chunk for NCCL: waits until it has been exchanged.
    Await,
}

impl ExchangeTask {
    /// How many tasks a tile has, in one step and in two.
    pub const ONE_SHOT: u32 = 2;
    /// See [`ExchangeTask::ONE_SHOT`].
    pub const TWO_SHOT: u32 = 3;
    /// What a chunk for NCCL says instead; it has two tasks.
    pub const BY_NCCL: u32 = 4;

    /// Task `part` of `parts`.
    pub const fn of(part: u32, parts: u32) -> ExchangeTask {
        match (part, parts) {
            (0, Self::TWO_SHOT) => ExchangeTask::SendToOwner,
            (1, Self::TWO_SHOT) => ExchangeTask::Reduce,
            (_, Self::TWO_SHOT) => ExchangeTask::ReceiveResult,
            (0, Self::BY_NCCL) => ExchangeTask::Offer,
            (_, Self::BY_NCCL) => ExchangeTask::Await,
            (0, _) => ExchangeTask::Send,
            _ => ExchangeTask::Receive,
        }
    }
}

/// Which of `ranks` ranks owns tile `tile`: in turn, so that tiles that are made at the same time have all of them.
pub const fn owner(tile: u32, ranks: u32) -> u32 {
    tile % ranks
}

/// What the tasks of a GEMM know of the all-reduce whose tiles they send: 32 bytes, in the last of the GEMM's [`crate::OPERANDS`] places
/// ([`crate::PUSHED_TILES`]). A tile of the GEMM is one or several tiles of the all-reduce, whose messages are rows of tiles.
#[repr(C, align(32))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushedTiles {
    /// As [`Messages::offset`].
    pub offset: u64,
    /// As [`Messages::bytes`].
    pub bytes: u32,
    /// As [`Messages::tiles`].
    pub tiles: u32,
    /// Tiles along the second grid axis, of two.
    pub along: u32,
    /// As [`Messages::sources`].
    pub sources: u16,
    /// 1 if tiles go to their [owners](owner) alone, 0 if they go to all ranks.
    pub to_owner: u16,
    /// The first of two times as many tensor maps as there are ranks, by parity of the launch and by rank: this rank's messages of all tiles in the memory of that rank, one
    /// behind the other.
    pub map: u32,
    /// Rows of a tile.
    pub rows: u16,
    /// Columns of a tile.
    pub cols: u16,
}

impl PushedTiles {
    /// Those whose messages are `messages`, of a grid of two axes; a tile has `rows` × `cols` elements. `to_owner`: an all-reduce in two steps.
    pub const fn new(messages: Messages, map: u32, [rows, cols]: [u16; 2], to_owner: bool) -> PushedTiles {
        let Messages { offset, bytes, tiles, grid: [along, _], sources, .. } = messages;
        PushedTiles { offset, bytes, tiles, along, sources, to_owner: to_owner as u16, map, rows, cols }
    }

    /// Whether tile `tile` goes to rank `to`, another one of `ranks`.
    pub const fn goes_to(self, tile: u32, to: u32, ranks: u32) -> bool {
        self.to_owner == 0 || owner(tile, ranks) == to
    }

    /// Their messages, for who sends them.
    pub const fn messages(self) -> Messages {
        let PushedTiles { offset, bytes, tiles, along, sources, .. } = self;
        Messages { offset, bytes, tiles, grid: [along, 1], first: 0, sources, rows: 0 }
    }

    /// The tile with this element of the result, and where in the tile it is.
    pub const fn place(self, [row, col]: [u32; 2]) -> (u32, [u32; 2]) {
        let (down, right) = (row / self.rows as u32, col / self.cols as u32);
        (down * self.along + right, [row - down * self.rows as u32, col - right * self.cols as u32])
    }
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
    /// How many it has received: its own. Of tiles that have slots in turn: the [flag](turn_flag) of this rank's last message that the peer has read, which stores it.
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

    /// Whether tiles have slots in turn.
    pub const fn is_in_turn(self) -> bool {
        self.rows != 0
    }

    /// Where the tile at these coordinates stands, of a call whose tiles have slots in turn. `of_plane`: the first coordinate is the rank that sends it, and each rank counts its
    /// own.
    pub const fn turn(self, [first, second, third]: [u32; 3], of_plane: bool) -> Turn {
        let [along, columns] = self.grid;
        let index = if of_plane {
            task_order(along, columns, [second, third])
        } else if columns > 1 {
            first * along * columns + task_order(along, columns, [second, third])
        } else {
            task_order(self.rows as u32, along, [first, second])
        };
        Turn { index, slot: index % self.tiles, round: index / self.tiles }
    }

    /// Where a rank has message `number` of `tile` from rank `source`.
    pub const fn message(self, number: u32, source: u32, tile: u32) -> u64 {
        let source = if self.sources == 1 { 0 } else { source };
        self.offset + (((number % 2) * self.sources as u32 + source) as u64 * self.tiles as u64 + tile as u64) * self.bytes as u64
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

/// The same of a tile that has its slot in round `round` of the launch.
pub const fn turn_flag(launch: u32, round: u32) -> u32 {
    launch_flag(launch) | round << 1
}

/// Most rounds of a slot in a launch, so that each has a flag.
pub const ROUNDS: u32 = 1 << 15;

/// Whether the message with this flag, or a later one of its launch, has been read, as a peer's credit says.
pub const fn is_read(credit: u32, flag: u32) -> bool {
    (credit ^ flag) >> 16 == 0 && credit >= flag
}

/// Rows of tiles per group in task order: a group's tiles follow each other column by column.
pub const GROUP_ROWS: u32 = 16;

/// The place of a tile in task order, of so many rows and columns of tiles.
pub const fn task_order(rows: u32, columns: u32, [row, column]: [u32; 2]) -> u32 {
    let first = row / GROUP_ROWS * GROUP_ROWS;
    let group = if rows - first < GROUP_ROWS { rows - first } else { GROUP_ROWS };
    first * columns + column * group + row % GROUP_ROWS
}

/// The flag of the packets of a message that has a number of its own.
pub const fn message_flag(number: u32) -> u32 {
    number << 1 | 1
}

const _: () = {
    assert!(size_of::<Ranks>() == 32);
    assert!(size_of::<Fifo>() == 32);
    assert!(size_of::<Messages>() == 32);
    assert!(size_of::<PushedTiles>() == 32);
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
            let messages = Messages { offset, bytes: 16 * pairs, tiles, grid: [1, 1], first: 0, sources: sources as u16, rows: 0 };
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
            let messages = Messages { offset, bytes: 32, tiles, grid: [1, 1], first: 0, sources: sources as u16, rows: 0 };
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
    fn elements_are_found_in_tiles() {
        let messages = Messages { offset: 128, bytes: 64 * 256 * 2, tiles: 6, grid: [3, 1], first: 7, sources: 2, rows: 0 };
        let pushed = PushedTiles::new(messages, 5, [64, 256], false);
        assert_eq!(pushed.messages(), Messages { first: 0, ..messages });
        for row in 0..128 {
            for col in 0..768 {
                let (tile, [down, right]) = pushed.place([row, col]);
                assert_eq!(tile, messages.tile([row / 64, col / 256, 0]));
                assert_eq!([down, right], [row % 64, col % 256]);
            }
        }
    }

    #[test]
    fn tasks_of_a_tile_are_parts() {
        use ExchangeTask::*;
        assert_eq!([0, 1].map(|part| ExchangeTask::of(part, ExchangeTask::ONE_SHOT)), [Send, Receive]);
        assert_eq!([0, 1, 2].map(|part| ExchangeTask::of(part, ExchangeTask::TWO_SHOT)), [SendToOwner, Reduce, ReceiveResult]);
    }

    /// Each tile goes to one rank, and all ranks own as many, or to all.
    #[test]
    fn tiles_have_owners() {
        let messages = Messages { tiles: 24, sources: 3, ..Messages::default() };
        let [to_all, to_owner] = [false, true].map(|to_owner| PushedTiles::new(messages, 0, [64, 256], to_owner));
        for tile in 0..24 {
            assert!((0..3).all(|to| to_all.goes_to(tile, to, 3)));
            assert_eq!((0..3).filter(|&to| to_owner.goes_to(tile, to, 3)).collect::<Vec<_>>(), [owner(tile, 3)]);
        }
        assert!((0..3).all(|rank| (0..24).filter(|&tile| owner(tile, 3) == rank).count() == 8));
    }

    #[test]
    fn large_tiles_are_signalled() {
        assert!(is_signalled(64, 128, 2) && is_signalled(64, 64, 4) && is_signalled(u32::MAX.into(), u32::MAX.into(), 4));
        assert!(!is_signalled(64, 127, 2) && !is_signalled(0, 1 << 20, 4) && !is_signalled(1 << 20, 0, 4));
    }

    /// Tiles of a slot follow each other by rounds; who reads the last one has read those before, of this launch alone.
    #[test]
    fn slots_are_had_in_turn() {
        let messages = Messages { tiles: 3, grid: [4, 1], sources: 2, rows: 18, ..Messages::default() };
        assert!(messages.is_in_turn() && !Messages { rows: 0, ..messages }.is_in_turn());
        // Sixteen rows column by column, then the other two.
        let turn = |row, column| messages.turn([row, column, 0], false);
        assert_eq!((turn(15, 0).index, turn(0, 1).index, turn(16, 0).index, turn(17, 0).index, turn(16, 1).index), (15, 16, 64, 65, 66));
        assert_eq!(turn(16, 1), Turn { index: 66, slot: 0, round: 22 });
        // Planes: a sender's own tiles, or all.
        let planes = Messages { grid: [5, 7], rows: 2, ..messages };
        assert_eq!((planes.turn([1, 3, 2], true).index, planes.turn([1, 3, 2], false).index), (13, 48));
        assert_eq!(Messages { grid: [5, 1], ..planes }.turn([1, 3, 0], true).index, 3);
        for launch in [0, 1, 70_000, u32::MAX] {
            let flag = |round| turn_flag(launch, round);
            assert_eq!(flag(0), launch_flag(launch));
            assert!(is_read(flag(2), flag(1)) && is_read(flag(ROUNDS - 1), flag(ROUNDS - 1)) && !is_read(flag(0), flag(1)));
            assert!(
                !is_read(0, flag(0))
                    && !is_read(turn_flag(launch.wrapping_add(1), 5), flag(1))
                    && !is_read(turn_flag(launch.wrapping_sub(1), 5), flag(1))
            );
        }
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
