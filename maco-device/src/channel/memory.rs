//! Memory channels: a peer's memory that this executor loads and stores itself, and a semaphore.

use super::{Peer, Semaphore, Stopped, System, Watch};

/// What a rank does with the memory of one peer (`MemoryChannel` of MSCCL++). Offsets are bytes from the beginning of the symmetric memory of each.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct MemoryChannel {
    own: *mut u8,
    remote: Peer<u8>,
    semaphore: Semaphore,
}

// SAFETY: addresses, which are used by unsafe methods alone.
unsafe impl Send for MemoryChannel {}
// SAFETY: as above.
unsafe impl Sync for MemoryChannel {}

impl MemoryChannel {
    /// `own` is the symmetric memory of this rank, `remote` that of the peer.
    ///
    /// # Safety
    /// Both stay mapped while the channel is used.
    #[inline(always)]
    pub const unsafe fn new(own: *mut u8, remote: Peer<u8>, semaphore: Semaphore) -> MemoryChannel {
        MemoryChannel { own, remote, semaphore }
    }

    /// Copies `bytes` bytes from `from` of this rank to `to` of the peer, which sees them behind a signal. All lanes call together.
    ///
    /// # Safety
    /// Both ranges are inside the symmetric memory. Nobody stores the one, or uses the other, meanwhile.
    #[inline(always)]
    pub unsafe fn put<S: System>(&self, system: &S, to: u64, from: u64, bytes: u64) {
        // SAFETY: passed on from the caller.
        unsafe { self.remote.at::<u8>(to).put(system, self.own.wrapping_add(from as usize), bytes) }
    }

    /// Copies `bytes` bytes from `from` of the peer to `to` of this rank. All lanes call together.
    ///
    /// # Safety
    /// As of [`MemoryChannel::put`].
    #[inline(always)]
    pub unsafe fn get<S: System>(&self, system: &S, to: u64, from: u64, bytes: u64) {
        // SAFETY: passed on from the caller.
        unsafe { self.remote.at::<u8>(from).get(system, self.own.wrapping_add(to as usize), bytes) }
    }

    /// A word of the peer.
    ///
    /// # Safety
    /// `at` is an aligned word of the symmetric memory.
    #[inline(always)]
    pub unsafe fn read<S: System>(&self, system: &S, at: u64) -> u32 {
        // SAFETY: passed on from the caller.
        unsafe { self.remote.at::<u32>(at).load(system) }
    }

    /// Stores a word of the peer.
    ///
    /// # Safety
    /// As of [`MemoryChannel::read`].
    #[inline(always)]
    pub unsafe fn write<S: System>(&self, system: &S, at: u64, value: u32) {
        // SAFETY: passed on from the caller.
        unsafe { self.remote.at::<u32>(at).store(system, value) }
    }

    /// Tells the peer that everything before is there. All lanes call together.
    ///
    /// # Safety
    /// As of [`Semaphore::signal`].
    #[inline(always)]
    pub unsafe fn signal<S: System>(&self, system: &S) {
        // SAFETY: passed on from the caller.
        unsafe { self.semaphore.signal(system) }
    }

    /// Returns when everything that this executor put has been stored and what it got has been loaded: its sources may be overwritten by others that this
    /// rank then tells of it. All lanes call together. A signal needs no flush before it.
    #[inline(always)]
    pub fn flush<S: System>(&self, system: &S) {
        system.meet();
        system.release();
    }

    /// Waits for the next signal of the peer. All lanes call together.
    ///
    /// # Errors
    /// When the ranks do not go on.
    ///
    /// # Safety
    /// As of [`Semaphore::wait`].
    #[inline(always)]
    pub unsafe fn wait<S: System>(&self, system: &S, watch: &Watch) -> Result<(), Stopped> {
        // SAFETY: passed on from the caller.
        unsafe { self.semaphore.wait(system, watch) }
    }

    /// The channel's semaphore.
    #[inline(always)]
    pub const fn semaphore(&self) -> &Semaphore {
        &self.semaphore
    }

    /// The peer's memory.
    #[inline(always)]
    pub const fn remote(&self) -> Peer<u8> {
        self.remote
    }
}
