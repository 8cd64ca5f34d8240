//! Words of memory that streams wait for and write, beside kernels that do the same.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::context::current;
use super::*;
use crate::exec::races::streams as races;
use crate::memory;

/// How long two looks at a word are apart.
const NAP: Duration = Duration::from_micros(50);

/// What a word has to be (`CUstreamWaitValue_flags`).
fn holds(condition: u32, found: u32, value: u32) -> bool {
    match condition {
        // The difference is signed, so that words may wrap around.
        0 => found.wrapping_sub(value) as i32 >= 0,
        1 => found == value,
        2 => found & value != 0,
        _ => !(found | value) != 0,
    }
}

/// The word at an address, if a device can use it now.
fn word(device: usize, at: u64) -> Option<&'static AtomicU32> {
    // SAFETY: live memory of the GPU, which the interpreter uses by atomics too. Freed memory stays mapped.
    (at.is_multiple_of(4) && memory::usable(device, at, 4)).then(|| unsafe { AtomicU32::from_ptr(at as *mut u32) })
}

fn gone(what: &str, at: u64) {
    eprintln!("[emu] {what} a word that was freed or unmapped: {at:#x}");
    set_fault(crate::exec::ILLEGAL_ADDRESS);
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamWaitValue32_v2(stream: *mut c_void, at: u64, value: u32, condition: u32) -> Status {
    healthy!();
    // SAFETY: promised by the caller.
    let stream = unsafe { super::streams::of(stream) };
    let device = stream.device;
    if condition > 3 {
        eprintln!("[emu] waits of streams that flush are not emulated");
        return NOT_SUPPORTED;
    }
    if word(device, at).is_none() {
        return INVALID_VALUE;
    }
    stream.push(Arc::new(move || {
        while fault() == 0 {
            match word(device, at) {
                None => return gone("a stream waits for", at),
                Some(word) if holds(condition, word.load(Ordering::Acquire), value) => return races::acquire(at),
                Some(_) => std::thread::sleep(NAP),
            }
        }
    }));
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamWriteValue32_v2(stream: *mut c_void, at: u64, value: u32, flags: u32) -> Status {
    healthy!();
    // SAFETY: promised by the caller.
    let stream = unsafe { super::streams::of(stream) };
    let device = stream.device;
    if flags > 1 || word(device, at).is_none() {
        return INVALID_VALUE;
    }
    // Without the flag, the driver fences for all devices before it writes.
    let releases = flags == 0;
    stream.push(Arc::new(move || match word(device, at) {
        None => gone("a stream writes", at),
        Some(word) => races::store(device, at, releases, || word.store(value, Ordering::Release)),
    }));
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> Status {
    current!();
    for (to, value) in [(least, 0), (greatest, -5)] {
        if !to.is_null() {
            // SAFETY: promised by the caller.
            unsafe { *to = value };
        }
    }
    SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_those_of_the_driver() {
        assert!(holds(0, 5, 5) && holds(0, 2, u32::MAX) && !holds(0, 4, 5));
        assert!(holds(1, 5, 5) && !holds(1, 6, 5));
        assert!(holds(2, 6, 2) && !holds(2, 4, 2));
        assert!(holds(3, 1, 2) && !holds(3, 1, !1));
    }
}
