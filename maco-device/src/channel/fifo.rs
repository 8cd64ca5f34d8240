//! The FIFO between executors and a proxy: triggers of 16 bytes in memory of the host. What a proxy does with them does not belong here.
//!
//! A trigger is two words of 64 bits, each of which has a bit that says in which lap of the ring it was pushed. So each says itself whether it is there: nothing
//! relies on 16 bytes being stored at once (PTX ISA §8.2.2: a vector access is a set of scalar ones in no order).

use super::{Operation, Peer, Stopped, System, Wait, Waiting, Watch, reached};

/// What the proxy should do for a channel. Any combination of copy, signal and flush; none of them is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trigger {
    /// Which channel of the proxy, below [`Trigger::CHANNELS`].
    pub channel: u32,
    /// Copy [`Trigger::bytes`] bytes.
    pub copy: bool,
    /// Then signal the peer.
    pub signal: bool,
    /// Somebody waits for the completion.
    pub flush: bool,
    /// Offset in the memory of this rank, below [`Trigger::OFFSETS`].
    pub from: u64,
    /// Offset in that of the peer, below [`Trigger::OFFSETS`].
    pub to: u64,
    /// How much.
    pub bytes: u32,
}

const LAP: u32 = 63;
const OFFSET_BITS: u32 = 40;
/// Bits of [`Trigger::bytes`] beside the source; the others are beside the target.
const LOW_BITS: u32 = 23;
const CHANNEL_BITS: u32 = 11;

const fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

impl Trigger {
    /// How many channels can be named.
    pub const CHANNELS: u32 = 1 << CHANNEL_BITS;
    /// How far offsets go: 1 TiB.
    pub const OFFSETS: u64 = 1 << OFFSET_BITS;

    /// Whether its fields have room.
    pub const fn fits(&self) -> bool {
        self.channel < Trigger::CHANNELS && self.from < Trigger::OFFSETS && self.to < Trigger::OFFSETS
    }

    /// Its words in a lap of this parity. From bit 0: offset 40, low bits of the size 23, lap 1; offset 40, high bits of the size 9, channel 11, copy, signal, flush,
    /// lap 1. What does not fit is cut off.
    #[inline(always)]
    pub const fn encode(&self, lap: u32) -> [u64; 2] {
        let lap = ((lap & 1) as u64) << LAP;
        let (low, high) = (self.bytes as u64 & mask(LOW_BITS), (self.bytes >> LOW_BITS) as u64);
        let rest = high
            | (self.channel as u64 & mask(CHANNEL_BITS)) << 9
            | (self.copy as u64) << 20
            | (self.signal as u64) << 21
            | (self.flush as u64) << 22;
        [self.from & mask(OFFSET_BITS) | low << OFFSET_BITS | lap, self.to & mask(OFFSET_BITS) | rest << OFFSET_BITS | lap]
    }

    /// The trigger of two words, whatever their lap.
    #[inline(always)]
    pub const fn decode([first, second]: [u64; 2]) -> Trigger {
        let rest = second >> OFFSET_BITS;
        Trigger {
            channel: (rest >> 9 & mask(CHANNEL_BITS)) as u32,
            copy: rest >> 20 & 1 == 1,
            signal: rest >> 21 & 1 == 1,
            flush: rest >> 22 & 1 == 1,
            from: first & mask(OFFSET_BITS),
            to: second & mask(OFFSET_BITS),
            bytes: (first >> OFFSET_BITS & mask(LOW_BITS)) as u32 | ((rest & mask(9)) as u32) << LOW_BITS,
        }
    }
}

const _: () = {
    let largest = Trigger {
        channel: Trigger::CHANNELS - 1,
        copy: true,
        signal: true,
        flush: true,
        from: Trigger::OFFSETS - 1,
        to: Trigger::OFFSETS - 1,
        bytes: u32::MAX,
    };
    let words = largest.encode(1);
    assert!(words[0] == u64::MAX && words[1] == u64::MAX, "a bit has no meaning");
};

/// The parity of the lap in which place `ticket % size` is used by `ticket`: the first lap has 1, since the ring is zero at first.
#[inline(always)]
const fn lap(ticket: u32, size: u32) -> u32 {
    !(ticket >> size.trailing_zeros()) & 1
}

/// Where executors push: any number of them, of one rank.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct FifoProducer {
    ring: Peer<u64>,
    /// The next ticket: a word that the executors of this rank draw from.
    head: *mut u32,
    /// Triggers that the proxy has taken, and completed: two words that it publishes.
    progress: *const u32,
    size: u32,
    rank: u32,
}

// SAFETY: addresses, which are used by unsafe methods alone.
unsafe impl Send for FifoProducer {}
// SAFETY: as above.
unsafe impl Sync for FifoProducer {}

impl FifoProducer {
    /// `ring` has room for `size` triggers, a power of two, and is zero at first, as are `head` and the two words at `progress`. `rank` is this one, whose proxy
    /// reports name.
    ///
    /// # Safety
    /// All stay mapped while the FIFO is used, and only producers and the consumer of this FIFO use them.
    #[inline(always)]
    pub const unsafe fn new(ring: Peer<u64>, head: *mut u32, progress: *const u32, size: u32, rank: u32) -> FifoProducer {
        FifoProducer { ring, head, progress, size, rank }
    }

    /// Hands a trigger to the proxy, when there is room: its ticket. What this executor did or saw before is visible to the proxy then. One lane calls.
    ///
    /// # Errors
    /// When the ranks do not go on. The FIFO is of no use then.
    ///
    /// # Safety
    /// `watch` has a control block; what the trigger says is inside the memory of both ranks.
    #[inline(always)]
    pub unsafe fn push<S: System>(&self, system: &S, watch: &Watch, trigger: Trigger) -> Result<u32, Stopped> {
        // SAFETY: (of all) as `new` and the caller promise.
        unsafe {
            let ticket = self.claim(system);
            self.wait(system, watch, self.progress, self.room_for(ticket), Operation::Room)?;
            self.fill(system, ticket, trigger);
            Ok(ticket)
        }
    }

    /// [`FifoProducer::push`], where the launch says how long to wait; `None` if the ranks do not go on.
    ///
    /// # Safety
    /// What the trigger says is inside the memory of both ranks.
    #[inline(always)]
    pub unsafe fn push_until<S: System>(&self, system: &S, wait: &impl Wait, trigger: Trigger) -> Option<u32> {
        // SAFETY: (of all) as above.
        unsafe {
            let ticket = self.claim(system);
            if !wait.until(|| reached(system.poll(self.progress), self.room_for(ticket))) {
                return None;
            }
            system.acquire();
            self.fill(system, ticket, trigger);
            Some(ticket)
        }
    }

    /// [`FifoProducer::completed`], where the launch says how long to wait; false if the ranks do not go on.
    #[inline(always)]
    pub fn completed_until<S: System>(&self, system: &S, wait: &impl Wait, ticket: u32) -> bool {
        // SAFETY: the word is there, as `new` promises.
        let found = wait.until(|| reached(unsafe { system.poll(self.progress.add(1)) }, ticket.wrapping_add(1)));
        system.acquire();
        found
    }

    /// Draws a ticket.
    ///
    /// # Safety
    /// As of [`FifoProducer::new`].
    #[inline(always)]
    unsafe fn claim<S: System>(&self, system: &S) -> u32 {
        // SAFETY: passed on from the caller.
        unsafe { system.claim(self.head) }
    }

    /// How many triggers the proxy has taken when there is room for the one with this ticket.
    #[inline(always)]
    const fn room_for(&self, ticket: u32) -> u32 {
        ticket.wrapping_sub(self.size - 1)
    }

    /// Stores the trigger of a ticket, for which there is room.
    ///
    /// # Safety
    /// As of [`FifoProducer::new`]; the proxy was seen to have taken what was there.
    #[inline(always)]
    unsafe fn fill<S: System>(&self, system: &S, ticket: u32, trigger: Trigger) {
        system.release();
        let at = self.ring.at::<u64>(16 * (ticket & (self.size - 1)) as u64);
        // SAFETY: passed on from the caller.
        unsafe { at.push(system, trigger.encode(lap(ticket, self.size))) };
    }

    /// Waits until the proxy has completed the trigger with this ticket, and all before. One lane calls.
    ///
    /// # Errors
    /// When the ranks do not go on.
    ///
    /// # Safety
    /// As of [`FifoProducer::push`].
    #[inline(always)]
    pub unsafe fn completed<S: System>(&self, system: &S, watch: &Watch, ticket: u32) -> Result<(), Stopped> {
        // SAFETY: as above.
        unsafe { self.wait(system, watch, self.progress.add(1), ticket.wrapping_add(1), Operation::Flush) }
    }

    #[inline(always)]
    unsafe fn wait<S: System>(
        &self,
        system: &S,
        watch: &Watch,
        word: *const u32,
        expected: u32,
        operation: Operation,
    ) -> Result<(), Stopped> {
        let waiting = Waiting { operation, peer: self.rank, word: u32::MAX, expected };
        // SAFETY: as above.
        unsafe {
            watch.until(system, waiting, |system| {
                let seen = system.poll(word);
                (reached(seen, expected), seen)
            })?;
        }
        system.acquire();
        Ok(())
    }
}

/// Where a proxy takes triggers from: one thread.
pub struct FifoConsumer {
    ring: *const u64,
    progress: *mut u32,
    size: u32,
    taken: u32,
    completed: u32,
}

// SAFETY: addresses, which are used by unsafe methods alone.
unsafe impl Send for FifoConsumer {}

impl FifoConsumer {
    /// The other end of [`FifoProducer::new`], which nothing has gone through.
    ///
    /// # Safety
    /// As there.
    pub const unsafe fn new(ring: *const u64, progress: *mut u32, size: u32) -> FifoConsumer {
        FifoConsumer { ring, progress, size, taken: 0, completed: 0 }
    }

    /// Takes the next trigger, if it is there; its place may be used again. What its executor did or saw before is visible then.
    ///
    /// # Safety
    /// As of [`FifoConsumer::new`].
    pub unsafe fn take<S: System>(&mut self, system: &S) -> Option<Trigger> {
        let at = self.ring.wrapping_add(2 * (self.taken & (self.size - 1)) as usize);
        // SAFETY: (of all) inside the ring; this is the only writer of its progress.
        let words = unsafe { system.load_packets(at) };
        let expected = lap(self.taken, self.size) as u64;
        if words[0] >> LAP != expected || words[1] >> LAP != expected {
            return None;
        }
        system.acquire();
        self.taken = self.taken.wrapping_add(1);
        // SAFETY: as above.
        unsafe { system.publish(self.progress, self.taken) };
        Some(Trigger::decode(words))
    }

    /// Says that one more trigger is completed, in the order in which they were taken.
    ///
    /// # Safety
    /// As of [`FifoConsumer::new`].
    pub unsafe fn complete<S: System>(&mut self, system: &S) {
        self.completed = self.completed.wrapping_add(1);
        // SAFETY: as above.
        unsafe { system.publish(self.progress.wrapping_add(1), self.completed) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let hash = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^ hash >> 31
    }

    #[test]
    fn triggers_are_read_as_they_were_written() {
        let mut state = 1;
        for n in 0..20_000 {
            // Every bit by itself, too.
            let bits: [u64; 4] = if n < 160 {
                let mut bits = [0; 4];
                bits[n / 40] = 1 << (n % 40);
                bits
            } else {
                [0; 4].map(|_| random(&mut state))
            };
            let trigger = Trigger {
                channel: bits[3] as u32 & (Trigger::CHANNELS - 1),
                copy: bits[3] >> 11 & 1 == 1,
                signal: bits[3] >> 12 & 1 == 1,
                flush: bits[3] >> 13 & 1 == 1,
                from: bits[0] & (Trigger::OFFSETS - 1),
                to: bits[1] & (Trigger::OFFSETS - 1),
                bytes: bits[2] as u32,
            };
            assert!(trigger.fits());
            for lap in 0..4 {
                let words = trigger.encode(lap);
                assert_eq!(words.map(|word| word >> LAP), [u64::from(lap & 1); 2]);
                assert_eq!(Trigger::decode(words), trigger);
            }
        }
        assert!(!Trigger { channel: Trigger::CHANNELS, ..Trigger::default() }.fits());
        assert!(!Trigger { from: Trigger::OFFSETS, ..Trigger::default() }.fits());
        assert!(!Trigger { to: Trigger::OFFSETS, ..Trigger::default() }.fits());
    }

    #[test]
    fn a_place_has_another_parity_each_time() {
        for size in [1, 2, 8, 1 << 20] {
            for ticket in [0, 1, 5, size, 3 * size + 1, u32::MAX - size, u32::MAX] {
                assert_ne!(lap(ticket, size), lap(ticket.wrapping_add(size), size), "{ticket} of {size}");
            }
            assert_eq!(lap(0, size), 1, "the ring is zero at first");
        }
    }
}
