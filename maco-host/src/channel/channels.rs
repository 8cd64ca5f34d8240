//! Where the words, packets and slots of channels are in symmetric memory. What is done with them does not belong here.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use maco_device::channel::{self, PacketBuffer, Semaphore, Slots, Trigger};
use maco_ranks::Error as RanksError;

use super::control::Shared;
use super::memory::MemoryChannel;
use super::port::{PortChannel, Service};
use super::proxy::Signals;
use crate::device::Device;
use crate::error::Error;

/// Sizes of what channels share, for each pair of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelOptions {
    packet_bytes: usize,
    slot_bytes: usize,
    slots: u32,
    fifo: u32,
}

impl Default for ChannelOptions {
    /// Packets of messages up to 8 KiB, 4 slots of 64 KiB, 128 triggers.
    fn default() -> ChannelOptions {
        ChannelOptions { packet_bytes: 8 << 10, slot_bytes: 64 << 10, slots: 4, fifo: 128 }
    }
}

impl ChannelOptions {
    /// Most bytes of a message that is sent as packets; it takes four times as many of each rank's memory, for each peer.
    pub fn packet_bytes(self, packet_bytes: usize) -> ChannelOptions {
        ChannelOptions { packet_bytes, ..self }
    }

    /// Bytes of a slot: of the chunks in which transfers go.
    pub fn slot_bytes(self, slot_bytes: usize) -> ChannelOptions {
        ChannelOptions { slot_bytes, ..self }
    }

    /// Slots for each peer, a power of two: chunks that may be on their way.
    pub fn slots(self, slots: u32) -> ChannelOptions {
        ChannelOptions { slots, ..self }
    }

    /// Triggers that may wait for the proxy, a power of two.
    pub fn fifo(self, fifo: u32) -> ChannelOptions {
        ChannelOptions { fifo, ..self }
    }
}

/// Bytes between words that different ranks store.
const LINE: usize = maco_ranks::ALIGNMENT;

/// The words that a peer stores, each in a line of its own.
#[derive(Clone, Copy)]
enum Word {
    /// Signals of a memory channel.
    Memory,
    /// Signals of a port channel, by the peer's proxy.
    Port,
    /// Messages of packets that the peer has read.
    PacketCredit,
    /// Chunks that it has sent.
    Data,
    /// Chunks that it has taken.
    DataCredit,
}

const WORDS: usize = 5;

/// Where things are in a rank's memory.
struct Map {
    offset: usize,
    packets: usize,
    slot: usize,
    slots: usize,
}

impl Map {
    fn new(options: &ChannelOptions) -> Option<Map> {
        // Packets come in pairs, and slots begin at lines.
        let packets = options.packet_bytes.div_ceil(4).checked_next_multiple_of(2)?;
        u32::try_from(packets).ok()?;
        let slot = options.slot_bytes.max(1).checked_next_multiple_of(LINE)?;
        Some(Map { offset: 0, packets, slot, slots: options.slots as usize })
    }

    /// Bytes for each peer.
    fn peer(&self) -> Option<usize> {
        let packets = self.packets.checked_mul(16)?;
        let slots = self.slot.checked_mul(self.slots)?;
        (WORDS * LINE).checked_add(packets)?.checked_add(slots)?.checked_next_multiple_of(LINE)
    }

    /// Where a rank has what `from` stores.
    fn of(&self, from: u32) -> usize {
        self.offset + from as usize * self.peer().unwrap_or(0)
    }

    fn word(&self, from: u32, word: Word) -> usize {
        self.of(from) + word as usize * LINE
    }

    fn packets(&self, from: u32) -> usize {
        self.of(from) + WORDS * LINE
    }

    fn slots(&self, from: u32) -> usize {
        self.packets(from) + self.packets * 16
    }
}

/// Own words of a channel's executor: signals sent and waited for, of each semaphore and of packets. Channels point to them, so that they are not in a `Box`, which
/// would be theirs alone.
pub(super) type Own = Arc<[AtomicU32; 10]>;

/// The channels of a rank: one of each kind to every peer.
#[derive(Debug)]
pub struct Channels {
    memory: Vec<MemoryChannel>,
    port: Vec<PortChannel>,
}

impl Channels {
    pub(super) fn new(shared: &Arc<Shared>, options: &ChannelOptions) -> Result<Channels, Error> {
        let refused = |what: String, help| Error::from(RanksError::Memory { what: what.into(), help });
        let group = shared.group().clone();
        let (rank, ranks) = (group.rank(), group.ranks());
        let ChannelOptions { packet_bytes, slot_bytes, slots, fifo } = *options;
        let bytes = Map::new(options).and_then(|map| map.peer()?.checked_mul(ranks as usize));
        let fault = match () {
            () if !shared.arena.memory().is_host() => Some("memory of CPU ranks: threads do not load and store memory of GPUs"),
            () if !slots.is_power_of_two() || !fifo.is_power_of_two() => Some("slots and triggers in powers of two"),
            () if ranks > Trigger::CHANNELS || shared.arena.bytes() as u64 > Trigger::OFFSETS => Some("at most 2048 ranks with 1 TiB each"),
            () if bytes.is_none() => Some("sizes that fit into memory"),
            () => None,
        };
        // Who has a fault says so, too: otherwise the others would wait.
        let name = format!("channels: messages of {packet_bytes} bytes, {slots} slots of {slot_bytes} bytes, {fifo} triggers");
        let lines = [name.clone()];
        let text = fault.map(|fault| format!("{name} were asked for; expected {fault}"));
        match group.agree("channels", &lines, text.as_deref().map_or(Ok(()), Err)) {
            Err(RanksError::Refused { alike: true, text, .. }) => return Err(refused(text.into(), "see `ChannelOptions`")),
            result => result?,
        }
        let block = shared.arena.allocate(&name, bytes.unwrap_or(0))?;
        let mut map = Map::new(options).unwrap_or(Map { offset: 0, packets: 0, slot: LINE, slots: 1 });
        map.offset = block.offset();
        let semaphore = |peer, word, own: &Own, n: usize| {
            let (inbound, outbound) = (map.word(peer, word), map.word(rank, word));
            // SAFETY: words of the block just made, which begin with 0 as the own ones do: what `peer` stores here, and what this rank stores there.
            unsafe {
                let inbound_word = shared.own().wrapping_add(inbound).cast_const().cast::<u32>();
                Semaphore::new(inbound_word, shared.of(peer).at(outbound as u64), own[2 * n].as_ptr(), peer, (inbound / 4) as u32)
            }
        };
        let memory = |peer| {
            let own = Own::default();
            let packets = map.packets(peer);
            // SAFETY: (of all) inside the block, whose parts are apart by their map: `Map::of` the one who stores there.
            unsafe {
                let channel = channel::MemoryChannel::new(shared.own(), shared.of(peer), semaphore(peer, Word::Memory, &own, 0));
                let packets = PacketBuffer::new(
                    shared.own().wrapping_add(packets).cast_const().cast(),
                    shared.of(peer).at(map.packets(rank) as u64),
                    semaphore(peer, Word::PacketCredit, &own, 1),
                    own[8].as_ptr(),
                    map.packets as u32,
                    (packets / 4) as u32,
                );
                let slots = Slots::new(
                    shared.own().wrapping_add(map.slots(peer)).cast_const(),
                    shared.of(peer).at(map.slots(rank) as u64),
                    semaphore(peer, Word::Data, &own, 2),
                    semaphore(peer, Word::DataCredit, &own, 3),
                    map.slot as u64,
                    map.slots as u32,
                );
                MemoryChannel::new(shared.clone(), peer, own, channel, packets, slots)
            }
        };
        let memory = (0..ranks).map(memory).collect();
        let outbound = (0..ranks).map(|peer| (shared.of(peer).at(map.word(rank, Word::Port) as u64), 0)).collect();
        let service = Service::start(shared.clone(), &Device::cpu(), Signals::Counted(outbound), fifo);
        // Nobody goes on alone.
        let started = service.as_ref().map(|_| &[][..]).map_err(Error::to_string);
        group.vote("start proxies", started.as_ref().map(|bytes| *bytes).map_err(String::as_str))?;
        let service = Arc::new(service?);
        let port = |peer| {
            let own = Own::default();
            let waits = semaphore(peer, Word::Port, &own, 0);
            PortChannel::new(shared.clone(), service.clone(), peer, own, waits)
        };
        let port = (0..ranks).map(port).collect();
        Ok(Channels { memory, port })
    }

    /// The memory channel to `peer`; to this rank itself, too. None if there is no such rank.
    pub fn memory(&mut self, peer: u32) -> Option<&mut MemoryChannel> {
        self.memory.get_mut(peer as usize)
    }

    /// The port channel to `peer`; to this rank itself, too. None if there is no such rank.
    pub fn port(&mut self, peer: u32) -> Option<&mut PortChannel> {
        self.port.get_mut(peer as usize)
    }

    /// All of them, in the order of ranks: for threads that use them at the same time.
    pub fn into_parts(self) -> (Vec<MemoryChannel>, Vec<PortChannel>) {
        (self.memory, self.port)
    }
}
