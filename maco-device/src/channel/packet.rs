//! Packets: words that carry their flag, for messages that are too small to be worth a fence (the LL protocol of NCCL).
//!
//! A packet is 8 bytes, a word of data and the sequence number of its message, stored and loaded as one scalar of 64 bits. Two of them side by side are
//! what others call LL16, {data, flag, data, flag}: a vector access of 16 bytes is a set of scalar ones in no order (PTX ISA §8.2.2), and each half says
//! itself whether it is there. So nothing relies on 16 bytes being stored at once.

use super::{Operation, Peer, Semaphore, Stopped, System, Waiting, Watch};

/// A message may be shorter than the slot, and behind its end flags of older messages stay. Sequence numbers come again after 2³² messages, so that an old
/// flag could pass for a new one: the first message of each slot in so many is followed by packets up to the slot's end.
pub const CLEANED: u32 = 1 << 30;

/// A word and its flag.
#[inline(always)]
pub const fn packet(data: u32, flag: u32) -> u64 {
    (flag as u64) << 32 | data as u64
}

/// The flag of a packet.
#[inline(always)]
pub const fn packet_flag(packet: u64) -> u32 {
    (packet >> 32) as u32
}

/// The word of a packet.
#[inline(always)]
pub const fn packet_data(packet: u64) -> u32 {
    packet as u32
}

/// Two slots of packets in the memory of each of two ranks: message `n` uses slot `n % 2` of its receiver. One executor uses an end at a time.
///
/// A slot holds messages of [`PacketBuffer::capacity`] bytes. It is zero at first, and the first message has number 1.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct PacketBuffer {
    inbound: *const u64,
    outbound: Peer<u64>,
    credit: Semaphore,
    /// Two words: messages sent and received.
    own: *mut u32,
    packets: u32,
    word: u32,
}

// SAFETY: addresses, which are used by unsafe methods alone.
unsafe impl Send for PacketBuffer {}
// SAFETY: as above.
unsafe impl Sync for PacketBuffer {}

impl PacketBuffer {
    /// `inbound` are two slots of this rank of `packets` packets each, an even number, which the peer stores; `outbound` those of the peer. Over `credit` this
    /// end says how many messages it has read. `own` is two words of this executor, which begin as `credit` does. `word` names `inbound` in reports.
    ///
    /// # Safety
    /// All stay mapped while the buffer is used, at 16-byte boundaries, and nobody else uses them, except the peer its own end.
    #[inline(always)]
    pub const unsafe fn new(
        inbound: *const u64,
        outbound: Peer<u64>,
        credit: Semaphore,
        own: *mut u32,
        packets: u32,
        word: u32,
    ) -> PacketBuffer {
        PacketBuffer { inbound, outbound, credit, own, packets, word }
    }

    /// Most bytes of a message.
    #[inline(always)]
    pub const fn capacity(&self) -> u64 {
        self.packets as u64 * 4
    }

    /// Stores message `sequence` of `bytes` bytes into the peer's slot. No fence, and no wait: the caller knows that the peer has read message `sequence - 2`,
    /// for example because it has sent `sequence - 1` behind that. All lanes call together.
    ///
    /// # Safety
    /// `from` is so much shared memory of this rank, `bytes` at most the capacity, and the peer has read that message.
    #[inline(always)]
    pub unsafe fn put<S: System>(&self, system: &S, sequence: u32, from: *const u8, bytes: u64) {
        let slot = self.outbound.at::<u64>(self.slot(sequence));
        let words = bytes.div_ceil(4) as u32;
        let end = if sequence % CLEANED < 2 { self.packets } else { words };
        let mut n = 2 * system.lane();
        while n < end {
            // SAFETY: inside the slot, whose packets are an even number; words of the message as the caller promises.
            unsafe {
                let first = packet(word_of(system, from, n, bytes), sequence);
                let at = slot.at::<u64>(8 * n as u64);
                if n + 1 < end {
                    at.store_packets(system, [first, packet(word_of(system, from, n + 1, bytes), sequence)]);
                } else {
                    at.store_packet(system, first);
                }
            }
            n += 2 * system.lanes();
        }
    }

    /// Waits for the packets of message `sequence` and copies its `bytes` bytes. Nothing else of the peer becomes visible. All lanes call together.
    ///
    /// # Errors
    /// When the ranks do not go on.
    ///
    /// # Safety
    /// `to` is so much shared memory of this rank, `bytes` at most the capacity; `watch` has a control block.
    #[inline(always)]
    pub unsafe fn read<S: System>(&self, system: &S, watch: &Watch, sequence: u32, to: *mut u8, bytes: u64) -> Result<(), Stopped> {
        let first = self.slot(sequence);
        let slot = self.inbound.cast::<u8>().wrapping_add(first as usize).cast::<u64>();
        let words = bytes.div_ceil(4) as u32;
        let mut n = 2 * system.lane();
        let mut result = Ok(());
        while n < words && result.is_ok() {
            let two = n + 1 < words;
            let word = self.word.wrapping_add((first / 4) as u32 + 2 * n);
            let waiting = Waiting { operation: Operation::Packets, peer: self.credit.peer(), word, expected: sequence };
            let mut found = [0; 2];
            // SAFETY: (of all) inside the slot, as the caller promises.
            result = unsafe {
                watch.until(system, waiting, |system| {
                    let at = slot.add(n as usize);
                    found = if two { system.load_packets(at) } else { [system.load_packet(at), packet(0, sequence)] };
                    let [first, second] = [packet_flag(found[0]), packet_flag(found[1])];
                    (first == sequence && second == sequence, if first == sequence { second } else { first })
                })
            };
            if result.is_ok() {
                // SAFETY: as above.
                unsafe {
                    store_word(system, to, n, bytes, packet_data(found[0]));
                    if two {
                        store_word(system, to, n + 1, bytes, packet_data(found[1]));
                    }
                }
            }
            n += 2 * system.lanes();
        }
        if system.all(result.is_ok()) { Ok(()) } else { Err(Stopped) }
    }

    /// Sends the next message, when the peer has read the one before the last. All lanes call together.
    ///
    /// # Errors
    /// When the ranks do not go on.
    ///
    /// # Safety
    /// As of [`PacketBuffer::put`] and [`PacketBuffer::read`], but for what the peer has read; the peer reads by [`PacketBuffer::receive`].
    #[inline(always)]
    pub unsafe fn send<S: System>(&self, system: &S, watch: &Watch, from: *const u8, bytes: u64) -> Result<(), Stopped> {
        // SAFETY: passed on from the caller.
        unsafe {
            let next = system.own_load(self.own).wrapping_add(1);
            self.credit.wait_until(system, watch, next.wrapping_sub(2), Operation::Credit)?;
            self.put(system, next, from, bytes);
            self.count(system, self.own, next);
        }
        Ok(())
    }

    /// Reads the next message, and says so to the peer. All lanes call together.
    ///
    /// # Errors
    /// When the ranks do not go on.
    ///
    /// # Safety
    /// As of [`PacketBuffer::read`].
    #[inline(always)]
    pub unsafe fn receive<S: System>(&self, system: &S, watch: &Watch, to: *mut u8, bytes: u64) -> Result<(), Stopped> {
        // SAFETY: passed on from the caller.
        unsafe {
            let next = system.own_load(self.own.add(1)).wrapping_add(1);
            self.read(system, watch, next, to, bytes)?;
            self.count(system, self.own.add(1), next);
            self.credit.signal(system);
        }
        Ok(())
    }

    /// All lanes have loaded the word when they meet in `read` or `wait_until`, and see its new value behind this.
    unsafe fn count<S: System>(&self, system: &S, own: *mut u32, next: u32) {
        if system.lane() == 0 {
            // SAFETY: a word of this executor.
            unsafe { system.own_store(own, next) };
        }
        system.meet();
    }

    /// Where the slot of a message begins, in bytes.
    #[inline(always)]
    const fn slot(&self, sequence: u32) -> u64 {
        (sequence & 1) as u64 * self.packets as u64 * 8
    }
}

/// Word `n` of a message, whose last one may be a part, and behind which are zeros.
///
/// # Safety
/// The message is `bytes` bytes of shared memory.
#[inline(always)]
unsafe fn word_of<S: System>(system: &S, from: *const u8, n: u32, bytes: u64) -> u32 {
    let first = 4 * n as u64;
    let at = from.wrapping_add(first as usize);
    if first + 4 <= bytes && at as usize & 3 == 0 {
        // SAFETY: an aligned word of the message.
        return unsafe { system.load4(at.cast()) };
    }
    let (mut word, mut byte) = (0, 0);
    while byte < 4 && first + (byte as u64) < bytes {
        // SAFETY: a byte of the message.
        word |= (unsafe { system.load1(at.wrapping_add(byte)) } as u32) << (8 * byte);
        byte += 1;
    }
    word
}

/// Stores word `n` of a message of `bytes` bytes, or what of it is a part of the message.
///
/// # Safety
/// The message is `bytes` bytes of shared memory.
#[inline(always)]
unsafe fn store_word<S: System>(system: &S, to: *mut u8, n: u32, bytes: u64, word: u32) {
    let first = 4 * n as u64;
    let at = to.wrapping_add(first as usize);
    if first + 4 <= bytes && at as usize & 3 == 0 {
        // SAFETY: an aligned word of the message.
        return unsafe { system.store4(at.cast(), word) };
    }
    let mut byte = 0;
    while byte < 4 && first + (byte as u64) < bytes {
        // SAFETY: a byte of the message.
        unsafe { system.store1(at.wrapping_add(byte), (word >> (8 * byte)) as u8) };
        byte += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::channel::{Control, CpuThread};

    #[test]
    fn a_packet_is_word_and_flag() {
        for (data, flag) in [(0, 1), (u32::MAX, 0), (0x1234_5678, 0x9abc_def0)] {
            assert_eq!((packet_data(packet(data, flag)), packet_flag(packet(data, flag))), (data, flag));
        }
        // As NCCL and MSCCL++ have it in memory.
        assert_eq!(packet(0x0403_0201, 0x0807_0605).to_le_bytes(), [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[repr(align(16))]
    struct Memory<const N: usize>([Cell<u64>; N]);

    /// A rank that sends to itself, and begins behind message `start`.
    fn alone<R>(start: u32, old: u64, run: impl FnOnce(&PacketBuffer, &Watch, &[Cell<u64>; 16]) -> R) -> R {
        let slots = Memory([const { Cell::new(0) }; 16]);
        slots.0.iter().for_each(|word| word.set(old));
        let words = [const { Cell::new(0) }; 8];
        words.iter().for_each(|word| word.set(start));
        let mut control = Control::default();
        let watch = Watch { control: &raw mut control, rank: 0, deadline_ns: 1_000_000_000 };
        // SAFETY: words of this thread, which live as long as the buffer.
        unsafe {
            let credit = Semaphore::new(words[0].as_ptr(), Peer::new(words[0].as_ptr()), words[1..].as_ptr().cast_mut().cast(), 0, 0);
            let own = words[4..].as_ptr().cast_mut().cast();
            run(
                &PacketBuffer::new(slots.0.as_ptr().cast(), Peer::new(slots.0.as_ptr().cast_mut().cast()), credit, own, 8, 0),
                &watch,
                &slots.0,
            )
        }
    }

    /// Behind short messages flags of old ones stay, but none so long that its number comes again.
    #[test]
    fn old_flags_are_cleaned() {
        let system = CpuThread::new(|| 0);
        let data = Memory([const { Cell::new(0x0102_0304_0506_0708) }; 8]);
        let at = data.0.as_ptr().cast_mut().cast::<u8>();
        for epoch in 0..4u32 {
            let first = epoch.wrapping_mul(CLEANED);
            let start = first.wrapping_sub(3);
            // The flag of message `first + 4`, from 2³² messages ago.
            alone(start, packet(0, first.wrapping_add(4)), |packets, watch, slots| {
                for n in 1..5u32 {
                    // SAFETY: words of this thread.
                    unsafe {
                        packets.send(&system, watch, at.cast_const(), 4).unwrap();
                        packets.receive(&system, watch, at.wrapping_add(32), 4).unwrap();
                    }
                    let left = slots.iter().filter(|word| packet_flag(word.get()) == first.wrapping_add(4)).count();
                    let cleaned = [0, 0, 8, 16][n as usize - 1];
                    assert!(if cleaned == 0 { left > 12 } else { left <= 16 - cleaned }, "{left} after message {n}");
                }
            });
        }
        assert!(2 * u64::from(CLEANED) <= 1 << 31, "flags are compared with numbers that are far from them");
    }

    #[test]
    fn messages_of_every_size_pass() {
        let system = CpuThread::new(|| 0);
        let data = Memory(std::array::from_fn::<_, 16, _>(|n| Cell::new(0x1122_3344_5566_7788u64.wrapping_mul(n as u64))));
        let bytes = |first: usize, bytes: usize| -> Vec<u8> {
            data.0.iter().flat_map(|word| word.get().to_ne_bytes()).skip(first).take(bytes).collect()
        };
        alone(u32::MAX - 20, 0, |packets, watch, _| {
            assert_eq!(packets.capacity(), 32);
            for size in 0..=32 {
                for [from, to] in [[0, 64], [3, 65], [4, 70]] {
                    let at = data.0.as_ptr().cast_mut().cast::<u8>();
                    // SAFETY: words of this thread.
                    unsafe {
                        packets.send(&system, watch, at.wrapping_add(from).cast_const(), size).unwrap();
                        packets.receive(&system, watch, at.wrapping_add(to), size).unwrap();
                    }
                    assert_eq!(bytes(from, size as usize), bytes(to, size as usize));
                }
            }
        });
    }
}
