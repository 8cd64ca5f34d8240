//! Memory channels as CPU ranks call them: what is asked for is checked, and a wait that ended in vain becomes an error.

use std::fmt;
use std::sync::Arc;

use maco_device::channel::{self, PacketBuffer, Slots, Stopped};

use super::channels::Own;
use super::control::Shared;
use super::symmetric::SymmetricPlace;
use crate::error::Error;

/// The memory of one peer, which this rank loads and stores itself, and semaphores between the two.
///
/// A signal says that everything before it is there; the peer waits for one after the other. Every wait ends by the communicator's deadline, when a rank is
/// lost, or when another rank has stopped: with MACO0099, on all ranks that wait, and every call after it returns that again.
pub struct MemoryChannel {
    shared: Arc<Shared>,
    peer: u32,
    channel: channel::MemoryChannel,
    packets: PacketBuffer,
    slots: Slots,
    /// Words that the others point to.
    _own: Own,
}

// SAFETY: one thread at a time uses a channel (`&mut self`); its own words are in no thread, and the shared ones are atomics.
unsafe impl Send for MemoryChannel {}

impl MemoryChannel {
    /// Everything is of `shared`, and the own words are `own`.
    pub(super) fn new(
        shared: Arc<Shared>,
        peer: u32,
        own: Own,
        channel: channel::MemoryChannel,
        packets: PacketBuffer,
        slots: Slots,
    ) -> MemoryChannel {
        MemoryChannel { shared, peer, channel, packets, slots, _own: own }
    }

    /// The other rank.
    pub fn peer(&self) -> u32 {
        self.peer
    }

    /// Copies `bytes` bytes from `from` of this rank to `to` of the peer. They are there, for the peer, behind a signal.
    ///
    /// # Errors
    /// MACO0100 outside of buffers, MACO0099 after a rank has stopped.
    pub fn put(&mut self, to: SymmetricPlace, from: SymmetricPlace, bytes: usize) -> Result<(), Error> {
        let (to, from) = (to.of(bytes)?, from.of(bytes)?);
        self.shared.check()?;
        // SAFETY: both ranges are inside the mapped memory, as was checked; all accesses to it are atomics.
        unsafe { self.channel.put(&self.shared.system(), to, from, bytes as u64) };
        Ok(())
    }

    /// Copies `bytes` bytes from `from` of the peer to `to` of this rank: as the peer has left them before its last signal that was waited for.
    ///
    /// # Errors
    /// As [`MemoryChannel::put`].
    pub fn get(&mut self, to: SymmetricPlace, from: SymmetricPlace, bytes: usize) -> Result<(), Error> {
        let (to, from) = (to.of(bytes)?, from.of(bytes)?);
        self.shared.check()?;
        // SAFETY: as above.
        unsafe { self.channel.get(&self.shared.system(), to, from, bytes as u64) };
        Ok(())
    }

    /// A word of the peer, at a multiple of 4 bytes.
    ///
    /// # Errors
    /// As [`MemoryChannel::put`].
    pub fn read(&mut self, at: SymmetricPlace) -> Result<u32, Error> {
        let at = at.of_word()?;
        self.shared.check()?;
        // SAFETY: as above.
        Ok(unsafe { self.channel.read(&self.shared.system(), at) })
    }

    /// Stores a word of the peer, at a multiple of 4 bytes.
    ///
    /// # Errors
    /// As [`MemoryChannel::put`].
    pub fn write(&mut self, at: SymmetricPlace, value: u32) -> Result<(), Error> {
        let at = at.of_word()?;
        self.shared.check()?;
        // SAFETY: as above.
        unsafe { self.channel.write(&self.shared.system(), at, value) };
        Ok(())
    }

    /// Tells the peer that everything before is there.
    ///
    /// # Errors
    /// MACO0099 after a rank has stopped.
    pub fn signal(&mut self) -> Result<(), Error> {
        self.shared.check()?;
        // SAFETY: this thread alone uses the channel.
        unsafe { self.channel.signal(&self.shared.system()) };
        Ok(())
    }

    /// Returns when what was put has been stored, and what was got has been loaded.
    pub fn flush(&mut self) {
        self.channel.flush(&self.shared.system());
    }

    /// Waits for the peer's next signal.
    ///
    /// # Errors
    /// MACO0099 if it does not come by the deadline.
    pub fn wait(&mut self) -> Result<(), Error> {
        // SAFETY: this thread alone uses the channel; the watch is this rank's.
        self.outcome(unsafe { self.channel.wait(&self.shared.system(), &self.shared.watch()) })
    }

    /// Whether the peer's next signal has come; if so it is taken.
    ///
    /// # Errors
    /// MACO0099 after a rank has stopped.
    pub fn try_wait(&mut self) -> Result<bool, Error> {
        self.shared.check()?;
        // SAFETY: as above.
        Ok(unsafe { self.channel.semaphore().try_wait(&self.shared.system()) })
    }

    /// Most bytes of a message that is sent as packets.
    pub fn packet_capacity(&self) -> usize {
        self.packets.capacity() as usize
    }

    /// Sends a message as packets, each of which says itself that it is there: no signal is needed. Waits until the peer has received the one before the last.
    ///
    /// # Errors
    /// MACO0100 for more than [`MemoryChannel::packet_capacity`] bytes or outside of buffers, MACO0099 if the peer receives none by the deadline.
    pub fn send_packets(&mut self, from: SymmetricPlace, bytes: usize) -> Result<(), Error> {
        let from = self.message(from, bytes)?;
        self.shared.check()?;
        // SAFETY: inside the mapped memory; this thread alone uses the channel.
        self.outcome(unsafe { self.packets.send(&self.shared.system(), &self.shared.watch(), from, bytes as u64) })
    }

    /// Receives the peer's next message of packets, which has so many bytes.
    ///
    /// # Errors
    /// As [`MemoryChannel::send_packets`].
    pub fn receive_packets(&mut self, to: SymmetricPlace, bytes: usize) -> Result<(), Error> {
        let to = self.message(to, bytes)?;
        self.shared.check()?;
        // SAFETY: as above.
        self.outcome(unsafe { self.packets.receive(&self.shared.system(), &self.shared.watch(), to, bytes as u64) })
    }

    fn message(&self, place: SymmetricPlace, bytes: usize) -> Result<*mut u8, Error> {
        let offset = place.of(bytes)?;
        let most = self.packet_capacity();
        if bytes > most {
            let what = format!("a message of {bytes} bytes as packets, which hold {most}").into();
            let help = "raise `ChannelOptions::packet_bytes`, or send large messages by `put` and `signal`";
            return Err(maco_ranks::Error::Memory { what, help }.into());
        }
        Ok(self.shared.own().wrapping_add(offset as usize))
    }

    /// Bytes of a chunk.
    pub fn chunk(&self) -> usize {
        self.slots.chunk() as usize
    }

    /// Sends the next chunk, of at most [`MemoryChannel::chunk`] bytes, through a slot of the peer: waits until one is free.
    ///
    /// # Errors
    /// MACO0100 for a larger one or outside of buffers, MACO0099 if no slot is free by the deadline.
    pub fn send_chunk(&mut self, from: SymmetricPlace, bytes: usize) -> Result<(), Error> {
        let from = self.piece(from, bytes)?;
        self.shared.check()?;
        // SAFETY: inside the mapped memory; this thread alone uses the channel.
        self.outcome(unsafe { self.slots.send(&self.shared.system(), &self.shared.watch(), from, bytes as u64) })
    }

    /// Receives the peer's next chunk, which has so many bytes, and gives its slot back.
    ///
    /// # Errors
    /// As [`MemoryChannel::send_chunk`].
    pub fn receive_chunk(&mut self, to: SymmetricPlace, bytes: usize) -> Result<(), Error> {
        let to = self.piece(to, bytes)?;
        self.shared.check()?;
        // SAFETY: as above.
        self.outcome(unsafe { self.slots.receive(&self.shared.system(), &self.shared.watch(), to, bytes as u64) })
    }

    /// Sends any number of bytes, in chunks. The peer receives as many. Two ranks that only send to each other wait for each other: they take turns with
    /// [`MemoryChannel::send_chunk`] and [`MemoryChannel::receive_chunk`].
    ///
    /// # Errors
    /// As [`MemoryChannel::send_chunk`].
    pub fn send(&mut self, from: SymmetricPlace, bytes: usize) -> Result<(), Error> {
        from.of(bytes)?;
        self.chunks(bytes).try_for_each(|(first, bytes)| self.send_chunk(from.plus(first), bytes))
    }

    /// Receives what the peer sends by [`MemoryChannel::send`], of so many bytes.
    ///
    /// # Errors
    /// As [`MemoryChannel::send_chunk`].
    pub fn receive(&mut self, to: SymmetricPlace, bytes: usize) -> Result<(), Error> {
        to.of(bytes)?;
        self.chunks(bytes).try_for_each(|(first, bytes)| self.receive_chunk(to.plus(first), bytes))
    }

    /// First byte and size of each chunk; of nothing there is none.
    fn chunks(&self, bytes: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let chunk = self.chunk();
        (0..bytes).step_by(chunk).map(move |first| (first, chunk.min(bytes - first)))
    }

    fn piece(&self, place: SymmetricPlace, bytes: usize) -> Result<*mut u8, Error> {
        let offset = place.of(bytes)?;
        let most = self.chunk();
        if bytes > most {
            let what = format!("a chunk of {bytes} bytes, but slots have {most}").into();
            return Err(
                maco_ranks::Error::Memory { what, help: "raise `ChannelOptions::slot_bytes`, or use `send`, which makes chunks" }.into()
            );
        }
        Ok(self.shared.own().wrapping_add(offset as usize))
    }

    fn outcome(&self, outcome: Result<(), Stopped>) -> Result<(), Error> {
        outcome.map_err(|Stopped| self.shared.stopped())
    }
}

impl fmt::Debug for MemoryChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryChannel(rank {} to rank {})", self.shared.group().rank(), self.peer)
    }
}
