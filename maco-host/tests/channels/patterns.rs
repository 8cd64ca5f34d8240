//! What ranks do with channels, checked byte for byte.

use std::thread;
use std::time::Duration;

use maco_host::{ChannelOptions, Channels, Communicator, Device, Error, SymmetricBuffer, SymmetricMemory};

/// Rounds of ping-pong between two ranks.
const ROUNDS: u32 = 10_000;
/// Most bytes of a message in an all-to-all.
const MOST: usize = 5000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    Signals,
    Packets,
    Direct,
    Chunks,
    Ports,
    Gets,
    Streams,
}

impl Case {
    pub const ALL: [Case; 7] = [Case::Signals, Case::Packets, Case::Direct, Case::Chunks, Case::Ports, Case::Gets, Case::Streams];

    pub fn run(self, ranks: &Communicator) -> Result<(), Error> {
        match self {
            Case::Signals => ping_pong(ranks, false),
            Case::Packets => ping_pong(ranks, true),
            Case::Direct => all_to_all(ranks, Way::Put),
            Case::Chunks => all_to_all(ranks, Way::Chunks),
            Case::Ports => all_to_all(ranks, Way::Port),
            Case::Gets => gets(ranks),
            Case::Streams => streams(ranks),
        }
    }
}

/// splitmix64
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let hash = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^ hash >> 31
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Now and then, so that each comes late in some round.
    pub fn delay(&mut self) {
        match self.below(200) {
            0 => thread::sleep(Duration::from_micros(self.below(300) as u64)),
            1..10 => thread::yield_now(),
            _ => {}
        }
    }
}

/// What `from` sends to `to` in a round: the same to all who ask.
fn message(round: u32, from: u32, to: u32, bytes: usize) -> Vec<u8> {
    let mut random = Random(u64::from(round) << 32 | u64::from(from) << 16 | u64::from(to));
    let mut message = Vec::with_capacity(bytes + 8);
    while message.len() < bytes {
        message.extend(random.next().to_le_bytes());
    }
    message.truncate(bytes);
    message
}

fn small() -> ChannelOptions {
    ChannelOptions::default().packet_bytes(256).slot_bytes(384).slots(2).fifo(4)
}

fn set_up(ranks: &Communicator, bytes: usize) -> Result<(SymmetricMemory, SymmetricBuffer, Channels), Error> {
    let memory = ranks.symmetric(&Device::cpu(), 8 << 20)?;
    let buffer = memory.allocate("buffer", bytes)?;
    let channels = memory.channels(&small())?;
    Ok((memory, buffer, channels))
}

/// Pairs of ranks send a message to and fro; one without a partner, to itself.
fn ping_pong(ranks: &Communicator, packets: bool) -> Result<(), Error> {
    let (_memory, buffer, mut channels) = set_up(ranks, 1024)?;
    let rank = ranks.rank();
    let peer = Some(rank ^ 1).filter(|peer| *peer < ranks.ranks()).unwrap_or(rank);
    let channel = channels.memory(peer).expect("a rank");
    let mut random = Random(rank.into());
    let (out, back) = (buffer.at(0), buffer.at(512));
    for round in 0..ROUNDS {
        let send = |channel: &mut maco_host::MemoryChannel| {
            let bytes = 1 + (round as usize * 7) % 61;
            buffer.write(0, &message(round, rank, peer, bytes))?;
            if packets {
                channel.send_packets(out, bytes)
            } else {
                channel.put(back, out, bytes)?;
                channel.signal()
            }
        };
        if rank <= peer {
            send(channel)?;
        }
        random.delay();
        let bytes = 1 + (round as usize * 7) % 61;
        if packets {
            channel.receive_packets(back, bytes)?;
        } else {
            channel.wait()?;
        }
        let mut found = vec![0; bytes];
        buffer.read(512, &mut found)?;
        assert_eq!(found, message(round, peer, rank, bytes), "round {round}");
        if rank > peer {
            send(channel)?;
        }
    }
    ranks.barrier()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Put,
    Chunks,
    Port,
}

/// Sizes of all messages of a round, and where they begin in the sender's and the receiver's buffer: the same on all ranks. Odd ones and none among them.
struct Plan {
    ranks: u32,
    bytes: Vec<usize>,
    from: Vec<usize>,
    to: Vec<usize>,
}

impl Plan {
    fn new(round: u32, ranks: u32) -> Plan {
        let mut random = Random(round.into());
        let pairs = (ranks * ranks) as usize;
        let bytes = |random: &mut Random| match (round, random.below(4)) {
            (0, _) | (_, 0) => random.below(3),
            (_, 1) => random.below(64),
            _ => random.below(MOST),
        };
        let mut plan = Plan { ranks, bytes: (0..pairs).map(|_| bytes(&mut random)).collect(), from: vec![0; pairs], to: vec![0; pairs] };
        for rank in 0..ranks {
            // One behind the other, with gaps, in another order on each.
            let (mut from, mut to) = (random.below(17), random.below(17));
            for other in (0..ranks).map(|n| (n + rank) % ranks) {
                let (out, into) = (plan.pair(rank, other), plan.pair(other, rank));
                (plan.from[out], plan.to[into]) = (from, to);
                from += plan.bytes[out] + random.below(5);
                to += plan.bytes[into] + random.below(5);
            }
        }
        plan
    }

    fn pair(&self, from: u32, to: u32) -> usize {
        (from * self.ranks + to) as usize
    }
}

const POISON: u8 = 0xa5;

/// Every rank sends to every rank; nothing else may be stored.
fn all_to_all(ranks: &Communicator, way: Way) -> Result<(), Error> {
    let count = ranks.ranks();
    let half = count as usize * (MOST + 8) + 32;
    let (memory, buffer, mut channels) = set_up(ranks, 2 * half)?;
    let rank = ranks.rank();
    let mut random = Random(u64::from(rank) + 77);
    let rounds = if count > 4 { 12 } else { 40 };
    for round in 0..rounds {
        let plan = Plan::new(round, count);
        let mut sent = vec![0; half];
        for to in 0..count {
            let pair = plan.pair(rank, to);
            sent[plan.from[pair]..][..plan.bytes[pair]].copy_from_slice(&message(round, rank, to, plan.bytes[pair]));
        }
        buffer.write(0, &sent)?;
        buffer.write(half, &vec![POISON; half])?;
        // Nobody is sent to before it is ready.
        for peer in 0..count {
            channels.memory(peer).expect("a rank").signal()?;
        }
        for peer in 0..count {
            channels.memory(peer).expect("a rank").wait()?;
        }
        exchange(rank, &plan, half, way, &buffer, &mut channels, &mut random)?;
        let mut found = vec![0; half];
        buffer.read(half, &mut found)?;
        let mut expected = vec![POISON; half];
        for from in 0..count {
            let pair = plan.pair(from, rank);
            expected[plan.to[pair]..][..plan.bytes[pair]].copy_from_slice(&message(round, from, rank, plan.bytes[pair]));
        }
        let wrong = (0..half).find(|&at| found[at] != expected[at]);
        assert!(wrong.is_none(), "round {round}, {way:?}: byte {wrong:?} on rank {rank} of {count}");
    }
    assert!(memory.used() <= memory.high_water() && memory.high_water() <= memory.bytes());
    drop(channels);
    buffer.free()
}

fn exchange(
    rank: u32,
    plan: &Plan,
    half: usize,
    way: Way,
    buffer: &SymmetricBuffer,
    channels: &mut Channels,
    random: &mut Random,
) -> Result<(), Error> {
    let others = |rank: u32| (0..plan.ranks).map(move |n| (rank + n) % plan.ranks);
    if way == Way::Chunks {
        let chunk = channels.memory(0).expect("a rank").chunk();
        let rounds = plan.bytes.iter().map(|bytes| bytes.div_ceil(chunk)).max().unwrap_or(0);
        // What is left of a message in each turn.
        let part = |bytes: usize, turn: usize| bytes.saturating_sub(turn * chunk).min(chunk);
        for turn in 0..rounds {
            for peer in others(rank) {
                let pair = plan.pair(rank, peer);
                let bytes = part(plan.bytes[pair], turn);
                if bytes > 0 {
                    random.delay();
                    channels.memory(peer).expect("a rank").send_chunk(buffer.at(plan.from[pair] + turn * chunk), bytes)?;
                }
            }
            for peer in others(rank) {
                let pair = plan.pair(peer, rank);
                let bytes = part(plan.bytes[pair], turn);
                if bytes > 0 {
                    channels.memory(peer).expect("a rank").receive_chunk(buffer.at(half + plan.to[pair] + turn * chunk), bytes)?;
                }
            }
        }
        return Ok(());
    }
    for peer in others(rank) {
        let pair = plan.pair(rank, peer);
        let (to, from, bytes) = (buffer.at(half + plan.to[pair]), buffer.at(plan.from[pair]), plan.bytes[pair]);
        random.delay();
        match way {
            Way::Port => {
                let channel = channels.port(peer).expect("a rank");
                // In parts, and by each of its methods.
                let first = random.below(bytes + 1);
                channel.put(to, from, first)?;
                match random.below(3) {
                    0 => {
                        channel.put(to.plus(first), from.plus(first), bytes - first)?;
                        channel.signal()?;
                    }
                    1 => channel.put_with_signal(to.plus(first), from.plus(first), bytes - first)?,
                    _ => channel.put_with_signal_and_flush(to.plus(first), from.plus(first), bytes - first)?,
                }
            }
            _ => {
                let channel = channels.memory(peer).expect("a rank");
                channel.put(to, from, bytes)?;
                channel.signal()?;
            }
        }
    }
    for peer in others(rank) {
        match way {
            Way::Port => channels.port(peer).expect("a rank").wait()?,
            _ => channels.memory(peer).expect("a rank").wait()?,
        }
    }
    if way == Way::Port {
        // The sources are stored in the next round.
        channels.port(rank).expect("a rank").flush()?;
    }
    Ok(())
}

/// Each gets from its neighbour what that has signalled, and reads and writes words of it.
fn gets(ranks: &Communicator) -> Result<(), Error> {
    let (_memory, buffer, mut channels) = set_up(ranks, 4096)?;
    let (rank, count) = (ranks.rank(), ranks.ranks());
    let (right, left) = ((rank + 1) % count, (rank + count - 1) % count);
    let mut random = Random(u64::from(rank) + 5);
    for round in 0..300u32 {
        let [at, to, bytes] = [1, 2, 3].map(|n| Random(u64::from(round) * 4 + n).below(900));
        buffer.write(at, &message(round, rank, 0, bytes))?;
        buffer.write(4000, &round.to_ne_bytes())?;
        channels.memory(left).expect("a rank").signal()?;
        random.delay();
        let channel = channels.memory(right).expect("a rank");
        channel.wait()?;
        channel.get(buffer.at(2000 + to), buffer.at(at), bytes)?;
        assert_eq!(channel.read(buffer.at(4000))?, round);
        channel.write(buffer.at(4004), round * 8 + rank)?;
        channel.flush();
        let mut found = vec![0; bytes];
        buffer.read(2000 + to, &mut found)?;
        assert_eq!(found, message(round, right, 0, bytes));
        // It may change, and has been written.
        channel.signal()?;
        let channel = channels.memory(left).expect("a rank");
        channel.wait()?;
        let mut word = [0; 4];
        buffer.read(4004, &mut word)?;
        assert_eq!(u32::from_ne_bytes(word), round * 8 + left);
        channel.signal()?;
        channels.memory(right).expect("a rank").wait()?;
    }
    ranks.barrier()
}

/// One direction, without turns: the receiver is slower, or the sender is. Of chunks, packets and the proxy's FIFO only credits and room bound how far the
/// sender is ahead.
fn streams(ranks: &Communicator) -> Result<(), Error> {
    let (_memory, buffer, mut channels) = set_up(ranks, 40_001)?;
    let (rank, count) = (ranks.rank(), ranks.ranks());
    let peer = rank ^ 1;
    if peer >= count {
        return ranks.barrier();
    }
    let sizes = |round: u32| [0, 1, 383, 384, 385, 9999, 20_000][round as usize % 7];
    let mut random = Random(u64::from(rank) + 9);
    let slow = |random: &mut Random, round: u32, of: u32| {
        if (round / 10) % 2 == of && random.below(3) == 0 {
            thread::sleep(Duration::from_micros(random.below(400) as u64));
        }
    };
    for round in 0..60u32 {
        let bytes = sizes(round);
        let packets = (round as usize * 31) % 257;
        let channel = channels.memory(peer).expect("a rank");
        slow(&mut random, round, rank % 2);
        if rank < peer {
            buffer.write(3, &message(round, rank, peer, bytes))?;
            channel.send(buffer.at(3), bytes)?;
            for n in 0..8 {
                buffer.write(0, &message(round * 8 + n, rank, peer, packets))?;
                channel.send_packets(buffer.at(0), packets)?;
            }
        } else {
            channel.receive(buffer.at(20_001), bytes)?;
            let mut found = vec![0; bytes];
            buffer.read(20_001, &mut found)?;
            assert_eq!(found, message(round, peer, rank, bytes), "round {round}");
            for n in 0..8 {
                channel.receive_packets(buffer.at(0), packets)?;
                let mut found = vec![0; packets];
                buffer.read(0, &mut found)?;
                assert_eq!(found, message(round * 8 + n, peer, rank, packets), "round {round}, message {n}");
            }
        }
    }
    // More triggers than there is room for, none of which waits for the peer.
    let channel = channels.port(peer).expect("a rank");
    for n in 0..200usize {
        channel.put_with_signal(buffer.at(30_000 + n), buffer.at(100), 1)?;
    }
    for _ in 0..200 {
        channel.wait()?;
    }
    channel.flush()?;
    ranks.barrier()
}
