//! Rings of words with one producer and one consumer: a word is a message, 0 is an empty place.
//!
//! No index is shared. The consumer empties a place when it has read it, and the producer looks before it fills one. So nothing has
//! to be reset between launches: a launch that ends leaves every place empty.

use super::wait::{Look, Outcome, Patience};
use super::{Machine, Run};
use maco_abi::{INBOX, INBOX_WORDS, Launch, MAILBOX};

/// The inbox of a worker: pushed tasks.
///
/// # Safety
/// `launch` is live and `worker` one of its workers.
#[inline(always)]
pub unsafe fn inbox(launch: &Launch, worker: u32) -> *mut u32 {
    (launch.rings as *mut u32).wrapping_add((worker * INBOX_WORDS) as usize)
}

/// The mailbox from a worker to a scheduler: ended tasks.
///
/// # Safety
/// `launch` is live, `worker` and `scheduler` are of it.
#[inline(always)]
pub unsafe fn mailbox(launch: &Launch, worker: u32, scheduler: u32) -> *mut u32 {
    let before = launch.workers as usize * INBOX_WORDS as usize;
    let number = scheduler as usize * launch.workers as usize + worker as usize;
    (launch.rings as *mut u32).wrapping_add(before + number * MAILBOX as usize)
}

/// What the task in place `at` of an inbox waits for, if its word says [`maco_abi::Push::until`]: a worker, and how many tasks that has ended
/// then. Not emptied: nobody reads it without that bit.
#[inline(always)]
pub fn until(inbox: *mut u32, at: u32) -> *mut u32 {
    inbox.wrapping_add((INBOX + 2 * (at % INBOX)) as usize)
}

/// Waits until the worker may fill place `at` (its count of messages so far) of a mailbox. It looks at a half before it fills the
/// first place of it: most messages cost no load.
///
/// It looks at every place: the scheduler empties them in order, but nothing orders those stores for the worker. It could see the
/// last one while an earlier one, still on its way, would wipe out the next message. A place that was seen empty stays empty.
///
/// # Safety
/// `ring` is a mailbox of the live launch `run`, and this executor its only producer.
#[inline(always)]
pub unsafe fn room<M: Machine>(machine: &M, run: &Run, ring: *mut u32, at: u32) -> Outcome {
    const HALF: u32 = MAILBOX / 2;
    if !at.is_multiple_of(HALF) {
        return Outcome::Ready;
    }
    let half = ring.wrapping_add((at % MAILBOX) as usize);
    let mut patience = Patience::new();
    loop {
        let mut held = 0;
        let mut place = 0;
        while place < HALF as usize {
            // SAFETY: the caller promises a live ring.
            held |= unsafe { machine.load(half.add(place)) };
            place += 1;
        }
        if held == 0 {
            return Outcome::Ready;
        }
        // A scheduler never waits for a worker, so this ends; if it does not, the scheduler's own deadline says why.
        // SAFETY: passed on from the caller.
        if unsafe { patience.look(machine, run) } == Look::Abort {
            return Outcome::Abort;
        }
    }
}

/// Fills place `at` of a ring of `places`, behind a release fence.
///
/// # Safety
/// As [`room`]; the place is empty and `message` is not 0.
#[inline(always)]
pub unsafe fn put<M: Machine>(machine: &M, ring: *mut u32, places: u32, at: u32, message: u32) {
    // SAFETY: passed on from the caller.
    unsafe { machine.store(ring.add((at % places) as usize), message) }
}

/// What place `at` of a ring holds; 0 if nothing has come. An acquire fence belongs behind a message.
///
/// # Safety
/// `ring` is a ring of `places` of a live launch, and this executor its only consumer.
#[inline(always)]
pub unsafe fn peek<M: Machine>(machine: &M, ring: *mut u32, places: u32, at: u32) -> u32 {
    // SAFETY: passed on from the caller.
    unsafe { machine.load(ring.add((at % places) as usize)) }
}

/// Empties place `at`.
///
/// # Safety
/// As [`peek`], which has found a message there.
#[inline(always)]
pub unsafe fn clear<M: Machine>(machine: &M, ring: *mut u32, places: u32, at: u32) {
    // SAFETY: passed on from the caller.
    unsafe { machine.store(ring.add((at % places) as usize), 0) }
}
