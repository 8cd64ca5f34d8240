//! The kernel that shows the host the timer of this GPU. What becomes of it does not belong here.

#[cfg(target_arch = "nvptx64")]
use maco_device::ptx::{special, sys_scope};

/// Shows the timer at once as answer 0, and again whenever the host counts up `asked`, up to answer `last`. It leaves behind that, or when the host has not asked for
/// `patience` nanoseconds: no host makes it wait for ever. An answer is not 0 where it is there.
///
/// # Safety
/// One thread. `asked` is a word of the host's memory, mapped for this GPU, and `shown` are `last + 1` words of 8 bytes there, which are 0.
#[cfg(target_arch = "nvptx64")]
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn show_timer(asked: *const u32, shown: *mut u64, last: u32, patience: u64) {
    let mut answer = 0;
    loop {
        // At a tick, so that the number is not older than it seems.
        let now = special::stamp().nanoseconds;
        // SAFETY: the host made room for the answer, which is whole: it needs no flag.
        unsafe { sys_scope::store_packet(shown.wrapping_add(answer as usize), now) };
        if answer == last {
            return;
        }
        answer += 1;
        // SAFETY: the caller promises the word.
        while unsafe { sys_scope::poll(asked) } < answer {
            if special::global_timer() - now > patience {
                return;
            }
        }
    }
}
