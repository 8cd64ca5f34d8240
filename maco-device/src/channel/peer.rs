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

    /// Four words, in no order: `st.relaxed.sys.v4`.
    ///
    /// # Safety
    /// As of [`System::store16`].
    #[inline(always)]
    pub unsafe fn store16<S: System>(self, system: &S, words: [u32; 4]) {
        // SAFETY: passed on from the caller.
        unsafe { system.store16(self.0, words) }
    }
}

impl<const N: usize> Peer<[u32; N]> {
    /// Stores words of data, in no order.
    ///
    /// # Safety
    /// As of [`System::store4`]; of fours of words as of [`System::store16`].
    #[inline(always)]
    pub unsafe fn store_words<S: System>(self, system: &S, words: [u32; N]) {
        let (fours, rest) = words.as_chunks::<4>();
        let at = self.0.cast::<u32>();
        for (n, four) in fours.iter().enumerate() {
            // SAFETY: passed on from the caller.
            unsafe { system.store16(at.add(4 * n), *four) };
        }
        for (n, word) in rest.iter().enumerate() {
            // SAFETY: passed on from the caller.
            unsafe { system.store4(at.add(4 * fours.len() + n), *word) };
        }
    }

    /// Loads words of data, in no order.
    ///
    /// # Safety
    /// As of [`System::load4`]; of fours of words as of [`System::load16`].
    #[inline(always)]
    pub unsafe fn load_words<S: System>(self, system: &S) -> [u32; N] {
        let mut words = [0; N];
        let at = self.0.cast::<u32>();
        let (fours, rest) = words.as_chunks_mut::<4>();
        let behind = 4 * fours.len();
        for (n, four) in fours.iter_mut().enumerate() {
            // SAFETY: passed on from the caller.
            *four = unsafe { system.load16(at.add(4 * n)) };
        }
        for (n, word) in rest.iter_mut().enumerate() {
            // SAFETY: passed on from the caller.
            *word = unsafe { system.load4(at.add(behind + n)) };
        }
        words
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

/// Copies between pieces of shared memory, lanes in turn: 16 bytes at a time where both places allow it, else words, else bytes.
///
/// # Safety
/// Both are shared memory of `bytes` bytes.
#[inline(always)]
pub unsafe fn copy<S: System>(system: &S, to: *mut u8, from: *const u8, bytes: usize) {
    let skew = to as usize ^ from as usize;
    // SAFETY: (of all) parts of the two pieces; words and fours of them are aligned in both, since their skew is.
    unsafe {
        if skew & 3 != 0 {
            return copy1(system, to, from, 0, bytes);
        }
        let [first, end] = aligned(to as usize, 0, bytes, 4);
        copy1(system, to, from, 0, first);
        if skew & 15 == 0 {
            let [inner, outer] = aligned(to as usize, first, end, 16);
            copy4(system, to, from, first, inner);
            let mut n = inner + 16 * system.lane() as usize;
            while n < outer {
                system.store16(to.add(n).cast(), system.load16(from.add(n).cast()));
                n += 16 * system.lanes() as usize;
            }
            copy4(system, to, from, outer, end);
        } else {
            copy4(system, to, from, first, end);
        }
        copy1(system, to, from, end, bytes);
    }
}

/// The part of the bytes from `first` to `end` behind `at` that begins and ends at multiples of `unit`; none if there is no unit.
#[inline(always)]
const fn aligned(at: usize, first: usize, end: usize, unit: usize) -> [usize; 2] {
    let low = ((at + first + unit - 1) & !(unit - 1)) - at;
    let low = if low < end { low } else { end };
    [low, low + ((end - low) & !(unit - 1))]
}

/// The bytes from `first` to `end`.
///
/// # Safety
/// As of [`copy`].
#[inline(always)]
unsafe fn copy1<S: System>(system: &S, to: *mut u8, from: *const u8, first: usize, end: usize) {
    let mut n = first + system.lane() as usize;
    while n < end {
        // SAFETY: passed on from the caller.
        unsafe { system.store1(to.add(n), system.load1(from.add(n))) };
        n += system.lanes() as usize;
    }
}

/// The words from `first` to `end`.
///
/// # Safety
/// As of [`copy`]; the first one is aligned in both.
#[inline(always)]
unsafe fn copy4<S: System>(system: &S, to: *mut u8, from: *const u8, first: usize, end: usize) {
    let mut n = first + 4 * system.lane() as usize;
    while n < end {
        // SAFETY: passed on from the caller.
        unsafe { system.store4(to.add(n).cast(), system.load4(from.add(n).cast())) };
        n += 4 * system.lanes() as usize;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::channel::CpuThread;

    /// Every skew and every small size: against a slice.
    #[test]
    fn copies_are_exact() {
        #[repr(align(16))]
        struct Aligned([u8; 128]);
        let system = CpuThread::new(|| 0);
        let source: [u8; 128] = std::array::from_fn(|n| n as u8 + 1);
        let (from, to) = (Cell::new(Aligned(source)), Cell::new(Aligned([0; 128])));
        for first in 0..17 {
            for second in 0..17 {
                for bytes in (0..70).chain([90, 111]) {
                    to.set(Aligned([0; 128]));
                    // SAFETY: inside both, which this thread alone uses.
                    let found = unsafe {
                        copy(&system, to.as_ptr().cast::<u8>().add(second), from.as_ptr().cast::<u8>().add(first), bytes);
                        (*to.as_ptr()).0
                    };
                    let mut expected = [0; 128];
                    expected[second..second + bytes].copy_from_slice(&source[first..first + bytes]);
                    assert_eq!(found, expected, "{bytes} bytes from {first} to {second}");
                }
            }
        }
    }
}
