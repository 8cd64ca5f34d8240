//! Accesses to shared memory.

use super::thread::with;

/// # Safety
/// `at` is an aligned word of this CTA's shared memory.
pub unsafe fn load_shared(at: u32) -> u32 {
    with(|thread| thread.shared.word(at).load(std::sync::atomic::Ordering::Acquire))
}

/// # Safety
/// `at` is an aligned word of this CTA's shared memory.
pub unsafe fn load_relaxed_shared(at: u32) -> u32 {
    with(|thread| thread.shared.word(at).load(std::sync::atomic::Ordering::Relaxed))
}

/// # Safety
/// `at` is an aligned word of this CTA's shared memory.
pub unsafe fn store_relaxed_shared(at: u32, value: u32) {
    with(|thread| thread.shared.word(at).store(value, std::sync::atomic::Ordering::Relaxed));
}

/// # Safety
/// `at` is an aligned word of this CTA's shared memory.
pub unsafe fn fetch_add_shared(at: u32, value: u32) -> u32 {
    with(|thread| thread.shared.word(at).fetch_add(value, std::sync::atomic::Ordering::Relaxed))
}

/// # Safety
/// `at` is an aligned word of this CTA's shared memory.
pub unsafe fn load_acquire_shared(at: u32) -> u32 {
    with(|thread| {
        super::delay();
        thread.shared.word(at).load(std::sync::atomic::Ordering::Acquire)
    })
}

/// # Safety
/// `at` is an aligned word of this CTA's shared memory.
pub unsafe fn store_release_shared(at: u32, value: u32) {
    with(|thread| {
        super::delay();
        thread.shared.word(at).store(value, std::sync::atomic::Ordering::Release);
    });
}

/// # Safety
/// `at` is an aligned word of this CTA's shared memory.
pub unsafe fn read_shared(at: u32) -> u32 {
    // SAFETY: passed on from the caller.
    unsafe { load_shared(at) }
}

/// # Safety
/// `at` is 8 bytes of this CTA's shared memory at an 8-byte boundary.
pub unsafe fn read_shared2(at: u32) -> [u32; 2] {
    // SAFETY: passed on from the caller.
    unsafe { [load_shared(at), load_shared(at + 4)] }
}

/// # Safety
/// `at` is an aligned word of this CTA's shared memory.
pub unsafe fn store_shared(at: u32, value: u32) {
    with(|thread| thread.shared.word(at).store(value, std::sync::atomic::Ordering::Release));
}

/// # Safety
/// `at` is an aligned word of this CTA's shared memory.
pub unsafe fn raise_shared(at: u32, value: u32) {
    with(|thread| thread.shared.word(at).fetch_max(value, std::sync::atomic::Ordering::AcqRel));
}

/// # Safety
/// `at` is 8 bytes of this CTA's shared memory at an 8-byte boundary.
pub unsafe fn store_shared2(at: u32, words: [u32; 2]) {
    // SAFETY: passed on from the caller.
    unsafe {
        store_shared(at, words[0]);
        store_shared(at + 4, words[1]);
    }
}

/// # Safety
/// `at` is 16 bytes of the host's memory, aligned to words, which nobody else uses.
pub unsafe fn store4(at: *mut u32, words: [u32; 4]) {
    // SAFETY: passed on from the caller.
    unsafe { at.cast::<[u32; 4]>().write(words) }
}

/// # Safety
/// `at` is an aligned element of two bytes of this CTA's shared memory, which nobody writes.
pub unsafe fn load_element(at: u32) -> u16 {
    // SAFETY: inside shared memory; the caller promises the rest.
    with(|thread| unsafe { thread.shared.pointer(at, 2).cast::<u16>().read() })
}

/// # Safety
/// `at` is an aligned element of two bytes of this CTA's shared memory, which nobody else uses.
pub unsafe fn store_element(at: u32, value: u16) {
    // SAFETY: as above.
    with(|thread| unsafe { thread.shared.pointer(at, 2).cast::<u16>().write(value) });
}

/// Where a box with the 128-byte swizzle keeps what would lie at `at` without (PTX ISA §5.5.7): bits 4 to 6 are xored with bits 7 to 9.
pub fn swizzled(at: u32) -> u32 {
    at ^ (at >> 7 & 7) << 4
}

/// # Safety
/// `at` is 16 bytes of this CTA's shared memory at a 16-byte boundary, which nobody else uses before a barrier.
pub unsafe fn receive_shared4(at: u32, words: [u32; 4]) {
    // SAFETY: inside shared memory; the caller promises the rest.
    with(|thread| unsafe { thread.shared.pointer(at, 16).cast::<[u32; 4]>().write(words) });
}

/// # Safety
/// As of [`receive_shared4`].
pub unsafe fn map_shared4(at: u32, words: [u32; 4]) {
    // SAFETY: passed on from the caller.
    unsafe { receive_shared4(at, words) }
}

/// # Safety
/// `at` is 16 bytes of this CTA's shared memory at a 16-byte boundary, which nobody writes.
pub unsafe fn load_shared4(at: u32) -> [u32; 4] {
    // SAFETY: inside shared memory; the caller promises the rest.
    with(|thread| unsafe { thread.shared.pointer(at, 16).cast::<[u32; 4]>().read() })
}

/// # Safety
/// If `condition` holds, `at` is 16 readable bytes of the host's memory.
pub unsafe fn load4_if(condition: bool, at: *const u32) -> [u32; 4] {
    // SAFETY: passed on from the caller.
    if condition { unsafe { at.cast::<[u32; 4]>().read() } } else { [0; 4] }
}

/// There are no caches to fill.
pub fn prefetch(_: *const u32) {}

/// # Safety
/// `from` is 16 readable bytes of the host's memory and `to` as many of this CTA's shared memory, which nobody else uses.
pub unsafe fn fetch4(to: u32, from: *const u32) {
    // SAFETY: inside shared memory; the caller promises the rest.
    with(|thread| unsafe { thread.shared.pointer(to, 16).cast::<[u32; 4]>().write(from.cast::<[u32; 4]>().read()) });
}

/// All is there at once.
pub fn fetched() {}

/// # Safety
/// `at` is an aligned word of this CTA's shared memory, which nobody else uses before a barrier.
pub unsafe fn store_part(at: u32, value: f32) {
    // SAFETY: inside shared memory; the caller promises the rest. Not atomic: it is the barrier that makes it known.
    with(|thread| unsafe { thread.shared.pointer(at, 4).cast::<f32>().write(value) });
}

/// # Safety
/// `at` is an aligned word of this CTA's shared memory, which nobody writes.
pub unsafe fn load_part(at: u32) -> f32 {
    // SAFETY: inside shared memory; the caller promises the rest.
    with(|thread| unsafe { thread.shared.pointer(at, 4).cast::<f32>().read() })
}

/// # Safety
/// As [`store_part`].
pub unsafe fn store_factor(at: u32, value: f32) {
    // SAFETY: passed on from the caller.
    unsafe { store_part(at, value) };
}

/// # Safety
/// As [`load_part`].
pub unsafe fn load_factor(at: u32) -> f32 {
    // SAFETY: passed on from the caller.
    unsafe { load_part(at) }
}
