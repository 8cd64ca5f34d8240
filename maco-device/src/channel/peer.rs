//! Memory of another rank: an address that has only `.sys` accesses.

use super::System;

/// A place in the memory of a peer, or of the host. It has no method that is not of `.sys` scope, and its address cannot be had: what would be a `.gpu`
/// access of a word that another GPU uses does not compile.
///
/// ```compile_fail
/// # use maco_device::channel::Peer;
/// # fn load(word: Peer<u32>) -> u32 {
/// // No access that is not a System's.
/// unsafe { *word }
/// # }
/// ```
///
/// ```compile_fail
/// # use maco_device::channel::Peer;
/// fn address(word: Peer<u32>) -> *mut u32 {
///     word.0
/// }
/// ```
#[repr(transparent)]
pub struct Peer<T>(*mut T);

impl<T> Clone for Peer<T> {
    #[inline(always)]
    fn clone(&self) -> Peer<T> {
        *self
    }
}

impl<T> Copy for Peer<T> {}

// SAFETY: an address, which is used by unsafe methods alone.
unsafe impl<T> Send for Peer<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Peer<T> {}

impl<T> Peer<T> {
    /// The place at this address of the executor's own address space.
    ///
    /// # Safety
    /// It is aligned and mapped for every executor that uses it, as long as one does; who else uses it does so by accesses of `.sys` scope, or by atomics of
    /// the CPU.
    #[inline(always)]
    pub const unsafe fn new(at: *mut T) -> Peer<T> {
        Peer(at)
    }

    /// The place so many bytes further, which holds a `U`.
    #[inline(always)]
    pub const fn at<U>(self, bytes: u64) -> Peer<U> {
        Peer(self.0.cast::<u8>().wrapping_add(bytes as usize).cast())
    }
}

impl Peer<u32> {
    /// Stores behind everything that this executor's lanes did or saw before they met: `st.release.sys`.
    ///
    /// # Safety
    /// As of [`System::publish`].
    #[inline(always)]
    pub unsafe fn publish<S: System>(self, system: &S, value: u32) {
        // SAFETY: passed on from the caller.
        unsafe { system.publish(self.0, value) }
    }

    /// `ld.relaxed.sys`.
    ///
    /// # Safety
    /// As of [`System::load4`].
    #[inline(always)]
    pub unsafe fn load<S: System>(self, system: &S) -> u32 {
        // SAFETY: passed on from the caller.
        unsafe { system.load4(self.0) }
    }

    /// `st.relaxed.sys`.
    ///
    /// # Safety
    /// As of [`System::store4`].
    #[inline(always)]
    pub unsafe fn store<S: System>(self, system: &S, value: u32) {
        // SAFETY: passed on from the caller.
        unsafe { system.store4(self.0, value) }
    }
}

impl Peer<u64> {
    /// Stores a packet.
    ///
    /// # Safety
    /// As of [`System::store_packet`].
    #[inline(always)]
    pub unsafe fn store_packet<S: System>(self, system: &S, value: u64) {
        // SAFETY: passed on from the caller.
        unsafe { system.store_packet(self.0, value) }
    }

    /// Stores two packets.
    ///
    /// # Safety
    /// As of [`System::store_packets`].
    #[inline(always)]
    pub unsafe fn store_packets<S: System>(self, system: &S, values: [u64; 2]) {
        // SAFETY: passed on from the caller.
        unsafe { system.store_packets(self.0, values) }
    }

    /// Stores a trigger.
    ///
    /// # Safety
    /// As of [`System::push`].
    #[inline(always)]
    pub unsafe fn push<S: System>(self, system: &S, words: [u64; 2]) {
        // SAFETY: passed on from the caller.
        unsafe { system.push(self.0, words) }
    }
}

impl Peer<u8> {
    /// Copies `bytes` bytes from this rank's shared memory to here, by all lanes together.
    ///
    /// # Safety
    /// Both are shared memory of that length.
    #[inline(always)]
    pub unsafe fn put<S: System>(self, system: &S, from: *const u8, bytes: u64) {
        // SAFETY: passed on from the caller.
        unsafe { copy(system, self.0, from, bytes as usize) }
    }

    /// Copies `bytes` bytes from here to this rank's shared memory, by all lanes together.
    ///
    /// # Safety
    /// Both are shared memory of that length.
    #[inline(always)]
    pub unsafe fn get<S: System>(self, system: &S, to: *mut u8, bytes: u64) {
        // SAFETY: passed on from the caller.
        unsafe { copy(system, to, self.0, bytes as usize) }
    }
}

/// Copies between pieces of shared memory, lanes in turn: 16 bytes at a time where both places allow it, else 4 or 1.
///
/// # Safety
/// Both are shared memory of `bytes` bytes.
#[inline(always)]
pub unsafe fn copy<S: System>(system: &S, to: *mut u8, from: *const u8, bytes: usize) {
    let skew = to as usize ^ from as usize;
    let unit = match () {
        () if skew & 15 == 0 => 16,
        () if skew & 3 == 0 => 4,
        () => 1,
    };
    let front = (unit - (to as usize & (unit - 1))) & (unit - 1);
    let front = if front < bytes { front } else { bytes };
    let middle = (bytes - front) & !(unit - 1);
    let (lane, lanes) = (system.lane() as usize, system.lanes() as usize);
    // SAFETY: (of all) inside the two pieces, as the caller promises; the middle is aligned in both, since their skew is.
    unsafe {
        if unit == 16 {
            let mut n = front + 16 * lane;
            while n < front + middle {
                system.store16(to.add(n).cast(), system.load16(from.add(n).cast()));
                n += 16 * lanes;
            }
        } else if unit == 4 {
            let mut n = front + 4 * lane;
            while n < front + middle {
                system.store4(to.add(n).cast(), system.load4(from.add(n).cast()));
                n += 4 * lanes;
            }
        } else {
            bytewise(system, to, from, front, front + middle);
        }
        bytewise(system, to, from, 0, front);
        bytewise(system, to, from, front + middle, bytes);
    }
}

/// The bytes from `first` to `end`.
///
/// # Safety
/// As of [`copy`].
#[inline(always)]
unsafe fn bytewise<S: System>(system: &S, to: *mut u8, from: *const u8, first: usize, end: usize) {
    let mut n = first + system.lane() as usize;
    while n < end {
        // SAFETY: passed on from the caller.
        unsafe { system.store1(to.add(n), system.load1(from.add(n))) };
        n += system.lanes() as usize;
    }
}
