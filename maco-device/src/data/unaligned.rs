//! Blocks of eight elements that are no aligned access: read and written element by element.
//!
//! These are functions that are not inlined, one for each size of element: they are rarely needed, and every access of every task would carry them. A block is passed
//! in two words of 64 bits, since an array would go through local memory. Code that holds a row in registers inlines them in a loop: a call leaves too few
//! registers.

use crate::hardware::special;

/// 16 bytes, the first element lowest.
pub type Words = (u64, u64);

/// Elements of so many bytes in 16 bytes, but never more than eight.
const fn elements(bytes: u32) -> u32 {
    if bytes > 2 { 16 / bytes } else { 8 }
}

/// Elements `from..to` of those that begin at `at` and lie `step` bytes apart, the others zero.
///
/// # Safety
/// Elements `from..to` may be read, and are aligned.
#[inline(never)]
pub unsafe fn gather<const BYTES: u32>(at: u64, step: u64, from: u32, to: u32) -> Words {
    // SAFETY: passed on from the caller.
    unsafe { gather_here::<BYTES>(at, step, from, to) }
}

/// [`gather`], inlined.
///
/// # Safety
/// As there.
#[inline(always)]
pub unsafe fn gather_here<const BYTES: u32>(at: u64, step: u64, from: u32, to: u32) -> Words {
    let (mut low, mut high) = (0, 0);
    // Opaque, or it would be unrolled.
    let mut n = special::opaque(elements(BYTES));
    while n > 0 {
        n -= 1;
        high = high << (8 * BYTES) | low >> (64 - 8 * BYTES);
        low <<= 8 * BYTES;
        if from <= n && n < to {
            let at = at.wrapping_add(u64::from(n).wrapping_mul(step));
            // SAFETY: passed on from the caller.
            low |= unsafe {
                match BYTES {
                    1 => u64::from((at as *const u8).read()),
                    2 => u64::from((at as *const u16).read()),
                    _ => u64::from((at as *const u32).read()),
                }
            };
        }
    }
    (low, high)
}

/// Writes the first `count` elements to where they belong, `step` bytes apart from `at` on.
///
/// # Safety
/// They may be written by nobody else, and are aligned.
#[inline(never)]
pub unsafe fn scatter<const BYTES: u32>(at: u64, step: u64, count: u32, words: Words) {
    // SAFETY: passed on from the caller.
    unsafe { scatter_here::<BYTES>(at, step, count, words) }
}

/// [`scatter`], inlined.
///
/// # Safety
/// As there.
#[inline(always)]
pub unsafe fn scatter_here<const BYTES: u32>(at: u64, step: u64, count: u32, (low, high): Words) {
    let (mut low, mut high, mut at) = (low, high, at);
    let end = if count < elements(BYTES) { count } else { elements(BYTES) };
    let mut n = special::opaque(0);
    while n < end {
        // SAFETY: passed on from the caller.
        unsafe {
            match BYTES {
                1 => (at as *mut u8).write(low as u8),
                2 => (at as *mut u16).write(low as u16),
                _ => (at as *mut u32).write(low as u32),
            }
        }
        low = low >> (8 * BYTES) | high << (64 - 8 * BYTES);
        high >>= 8 * BYTES;
        at = at.wrapping_add(step);
        n += 1;
    }
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::{gather, scatter};

    /// What is gathered from every third element is scattered to every second, and nothing else.
    #[test]
    fn elements_keep_their_places() {
        let source: Vec<u16> = (1..=24).collect();
        for (from, to) in [(0, 8), (0, 3), (2, 8), (5, 5)] {
            let mut sink = [0u16; 16];
            // SAFETY: eight elements, three and two apart, inside the arrays.
            unsafe {
                let words = gather::<2>(source.as_ptr() as u64, 6, from, to);
                scatter::<2>(sink.as_mut_ptr() as u64, 4, 7, words);
            }
            for n in 0..8 {
                let there = n >= from && n < to && n < 7;
                assert_eq!(sink[n as usize * 2], if there { source[n as usize * 3] } else { 0 }, "{n} of {from}..{to}");
                assert_eq!(sink[n as usize * 2 + 1], 0);
            }
        }
        let bytes: Vec<u8> = (1..=8).collect();
        let words: Vec<u32> = (1..=4).collect();
        // SAFETY: eight bytes and four words.
        unsafe {
            assert_eq!(gather::<1>(bytes.as_ptr() as u64, 1, 0, 8), (0x0807_0605_0403_0201, 0));
            assert_eq!(gather::<4>(words.as_ptr() as u64, 4, 0, 4), (2 << 32 | 1, 4 << 32 | 3));
        }
    }
}
