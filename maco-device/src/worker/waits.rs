//! What tasks in flight wait for, in a form that dependency poller and consumers poll without delay.
//!
//! A descriptor has two waits. Others, and rows that data name, are behind several loads of global memory, and whoever polls should do nothing else. So the
//! prefetcher finds the counters when it fills a slot, and writes up to [`WAITS`] of them beside it.

use core::mem::offset_of;

use super::watchdog::slot;
use crate::hardware::{memory, special};
use crate::protocol::{Machine, Names};
#[cfg(target_arch = "nvptx64")]
use crate::ptx::warp;
use crate::shared_memory::{SharedMemory, WAITS};
use crate::sync::waits::LONG;
use maco_abi::{Descriptor, Indirect, Launch, NO_COUNTER, Naming, View, Wait};

const INLINE: u32 = offset_of!(Descriptor, wait) as u32;
const COORD: u32 = offset_of!(Descriptor, coord) as u32;
const OVERFLOW: u32 = offset_of!(Descriptor, overflow) as u32;
const EXTRA: u32 = offset_of!(Descriptor, extra_waits) as u32;
const _: () = assert!(EXTRA.is_multiple_of(8) && offset_of!(Descriptor, extra_signals) as u32 == EXTRA + 2);
const _: () = assert!(offset_of!(Descriptor, indirect) as u32 == EXTRA + 4);

/// Writes the waits of tasks whose descriptors are in registers, 16 bytes a lane: each four lanes have one, for slot `at` if it is
/// `included`. The lanes whose tasks wait for more than a descriptor holds: see [`find`].
///
/// # Safety
/// All lanes of a warp call together; the slots are its own.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub unsafe fn resolve(smem: SharedMemory, at: u32, words: [u32; 4], included: bool, lane: u32) -> u32 {
    const _: () = assert!(WAITS == 4 && INLINE == 16 && EXTRA == 56);
    let first = lane / 4 * 4;
    // Words 4 to 7 are the waits, words 14 and 15 how many there are elsewhere.
    let (extra, names) = (warp::broadcast(words[2], first + 3), warp::broadcast(words[3], first + 3));
    let inline = [0, 1, 2, 3].map(|n: usize| warp::broadcast(words[n], first + 1));
    let wait = match lane % 4 {
        0 => Wait::decode([inline[0], inline[1]]),
        1 => Wait::decode([inline[2], inline[3]]),
        _ => Wait::NONE,
    };
    if included {
        // SAFETY: the slot is the caller's.
        unsafe { memory::store_shared2(smem.waits(at) + lane % 4 * 8, wait.counted().encode()) };
    }
    warp::ballot(included && (extra & 0xffff != 0 || names as u16 != 0))
}

/// Writes the waits of the task in slot `at`. All lanes call together; afterwards they meet before anyone is told.
///
/// # Safety
/// The slot holds a task of a live launch that is not posted yet.
#[inline(always)]
pub unsafe fn find<M: Machine>(machine: &M, smem: SharedMemory, launch: *const Launch, at: u32) {
    let place = smem.slot(at);
    // SAFETY: the slot is the caller's; the plan wrote the overflow.
    unsafe {
        let [extras, names] = memory::read_shared2(place + EXTRA);
        let (extra_waits, indirect) = (extras & 0xffff, names as u16);
        // Inline waits that there are, then the others, then names.
        let inline = if memory::read_shared(place + INLINE) == NO_COUNTER.0 {
            0
        } else if memory::read_shared(place + INLINE + 8) == NO_COUNTER.0 {
            1
        } else {
            2 + extra_waits
        };
        // Read anew: registers are scarce here.
        let overflow = ((*launch).overflow as *const u32).wrapping_add(memory::read_shared(place + OVERFLOW) as usize);
        let mut long = inline > WAITS || indirect > 1;
        let mut named = None;
        if indirect == 1 && !long {
            let skip = 2 * extra_waits as usize + (extras >> 16) as usize;
            let record = overflow.add(skip).cast::<Indirect>();
            let Indirect { naming, axis, rows, .. } = *record;
            let views = (&raw const (*slot(smem, at)).views).cast::<View>();
            let coord = |axis| memory::read_shared(place + COORD + axis * 4);
            let names = Names::of([naming, axis, rows], coord, |operand| views.add(operand).read());
            // Names that a task writes are not there yet.
            long = !Naming::decode(naming).known || inline + names.count() > WAITS;
            named = Some((names, record));
        }
        // Opaque: the place that the lane has in the overflow would be kept across all tasks.
        let mut n = special::opaque(machine.lane());
        while n < WAITS {
            let mut wait = Wait::NONE;
            if long {
                wait.counter = if n == 0 { LONG } else { NO_COUNTER };
            } else if n < inline && n < 2 {
                wait = Wait::decode(memory::read_shared2(place + INLINE + n * 8));
            } else if n < inline {
                let at = overflow.add(2 * (n as usize - 2));
                wait = Wait::decode([at.read(), at.add(1).read()]);
            } else if let Some((names, record)) = named {
                // No task writes them.
                wait = names.wait(record, n - inline, |at| at.read());
            }
            memory::store_shared2(smem.waits(at) + n * 8, wait.counted().encode());
            n += machine.lanes();
        }
    }
}
