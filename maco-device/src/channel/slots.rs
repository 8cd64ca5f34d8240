//! Slots with credits: transfers of any size in chunks, through memory that is bounded.

use super::{Operation, Peer, Semaphore, Stopped, System, Watch, copy};

/// A ring of slots in the memory of each of two ranks, one direction each. Chunk `n` uses slot `n % count` of its receiver, who gives it back by a credit.
/// One executor sends, and one receives, at a time.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Slots {
    inbound: *const u8,
    outbound: Peer<u8>,
    /// Chunks that are there.
    data: Semaphore,
    /// Chunks that were taken.
    credit: Semaphore,
    bytes: u64,
    count: u32,
}

// SAFETY: addresses, which are used by unsafe methods alone.
unsafe impl Send for Slots {}
// SAFETY: as above.
unsafe impl Sync for Slots {}

impl Slots {
    /// `inbound` are `count` slots of `bytes` bytes of this rank, and `outbound` those of the peer; `count` is a power of two, so that numbers wrap. `data` and
    /// `credit` are used for nothing else, and begin with the same number.
    ///
    /// # Safety
    /// All stay mapped while the slots are used, and nobody else uses them, except the peer its own end.
    #[inline(always)]
    pub const unsafe fn new(inbound: *const u8, outbound: Peer<u8>, data: Semaphore, credit: Semaphore, bytes: u64, count: u32) -> Slots {
        Slots { inbound, outbound, data, credit, bytes, count }
    }

    /// Most bytes of a chunk.
    #[inline(always)]
    pub const fn chunk(&self) -> u64 {
        self.bytes
    }

    /// Sends the next chunk, when the peer has taken the one that its slot held. All lanes call together.
    ///
    /// # Errors
    /// When the ranks do not go on.
    ///
    /// # Safety
    /// `from` is `bytes` bytes of shared memory of this rank, at most a slot's; `watch` has a control block.
    #[inline(always)]
    pub unsafe fn send<S: System>(&self, system: &S, watch: &Watch, from: *const u8, bytes: u64) -> Result<(), Stopped> {
        // SAFETY: passed on from the caller; the slot is inside the ring.
        unsafe {
            let next = self.data.sent(system).wrapping_add(1);
            self.credit.wait_until(system, watch, next.wrapping_sub(self.count), Operation::Credit)?;
            self.outbound.at::<u8>(self.slot(next)).put(system, from, bytes);
            self.data.signal(system);
            // The lanes have a new number of their own.
            system.meet();
        }
        Ok(())
    }

    /// Waits for the next chunk, copies it and gives its slot back. All lanes call together.
    ///
    /// # Errors
    /// When the ranks do not go on.
    ///
    /// # Safety
    /// `to` is `bytes` bytes of shared memory of this rank, as many as the peer sends; `watch` has a control block.
    #[inline(always)]
    pub unsafe fn receive<S: System>(&self, system: &S, watch: &Watch, to: *mut u8, bytes: u64) -> Result<(), Stopped> {
        // SAFETY: as above.
        unsafe {
            self.data.wait(system, watch)?;
            let slot = self.slot(self.data.taken(system));
            copy(system, to, self.inbound.wrapping_add(slot as usize), bytes as usize);
            self.credit.signal(system);
        }
        Ok(())
    }

    /// Where the slot of a chunk begins, in bytes.
    #[inline(always)]
    const fn slot(&self, chunk: u32) -> u64 {
        (chunk & (self.count - 1)) as u64 * self.bytes
    }
}
