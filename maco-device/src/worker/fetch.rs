//! The fetcher: brings descriptors and views of coming tasks into slots, ahead of everybody else.

use super::machine::{Lane, Warp};
use super::{admitted, place, stop, supervise};
use crate::abi::{Descriptor, Launch, OP_DRAIN, OP_END, OPERANDS};
use crate::protocol::{CLAIMED, Drain, Machine, Queue, Run};
use crate::ptx::{memory, special, warp};
use crate::role::ring::{self, Arena};

/// Words of a descriptor and of the views beside it.
const DESCRIPTOR_WORDS: u32 = 16;
const VIEW_WORDS: u32 = 8 * OPERANDS as u32;
/// Word of [`Descriptor::views`].
const VIEWS: u32 = core::mem::offset_of!(Descriptor, views) as u32 / 4;
// A batch has it in the last register of a descriptor's first lane.
const _: () = assert!(VIEWS == 3);
/// First word of [`Descriptor::coord`]: a lane's first.
const COORD: u32 = core::mem::offset_of!(Descriptor, coord) as u32 / 4;
const _: () = assert!(COORD.is_multiple_of(4));

#[inline(always)]
unsafe fn fetch_descriptor(launch: &Launch, index: u32, lane: u32) -> u32 {
    let words = (launch.descriptors as *const Descriptor).wrapping_add(index as usize).cast::<u32>();
    // SAFETY: the array ends with as many entries more than any list has as the fetcher looks ahead.
    if lane < DESCRIPTOR_WORDS { unsafe { memory::load(words.add(lane as usize)) } } else { 0 }
}

/// Views of one call: a lane holds words `lane` and `lane + 32`. Tasks of one call follow one another, so the last ones are kept.
#[derive(Clone, Copy)]
struct Views {
    first: u32,
    words: [u32; 2],
}

impl Views {
    /// The views from entry `first` of the table on.
    #[inline(always)]
    unsafe fn of(self, launch: &Launch, first: u32, lane: u32) -> Views {
        if first == self.first {
            return self;
        }
        let words = (launch.views as *const u32).wrapping_add(first as usize * 8);
        // SAFETY: the plan wrote the views of every call.
        unsafe {
            let low = memory::load(words.wrapping_add(lane as usize));
            let high = if lane + 32 < VIEW_WORDS { memory::load(words.wrapping_add(lane as usize + 32)) } else { 0 };
            Views { first, words: [low, high] }
        }
    }

    /// The views of the call that a descriptor belongs to, word by word over the lanes.
    #[inline(always)]
    unsafe fn fetch(self, launch: &Launch, descriptor: u32, lane: u32) -> Views {
        // SAFETY: passed on from the caller.
        unsafe { self.of(launch, warp::broadcast(descriptor, VIEWS), lane) }
    }

    /// Writes them beside the descriptor of a slot.
    #[inline(always)]
    unsafe fn put(self, words: u32, lane: u32) {
        // SAFETY: a vacant slot is the fetcher's.
        unsafe {
            memory::store_shared(words + 64 + lane * 4, self.words[0]);
            if lane + 32 < VIEW_WORDS {
                memory::store_shared(words + 64 + 128 + lane * 4, self.words[1]);
            }
        }
        warp::sync();
    }
}

/// Waits until the slot of task `n` is vacant; false if the CTA stops before.
#[inline(always)]
unsafe fn vacate(arena: Arena, n: u32) -> bool {
    let (slot, parity) = place(n);
    // SAFETY: an initialised barrier.
    unsafe { warp::ballot(arena.wait_unless_stopped(arena.vacant(slot), parity ^ 1)) == u32::MAX }
}

/// Fills a slot; false if the CTA stops before it is vacant.
#[inline(always)]
unsafe fn fill(arena: Arena, n: u32, lane: u32, descriptor: u32, views: Views) -> bool {
    // SAFETY: a vacant slot is the fetcher's.
    unsafe {
        if !vacate(arena, n) {
            return false;
        }
        let words = arena.slot(place(n).0);
        if lane < DESCRIPTOR_WORDS {
            memory::store_shared(words + lane * 4, descriptor);
        }
        views.put(words, lane);
    }
    true
}

#[inline(always)]
pub(super) unsafe fn fetch(arena: Arena, launch: *const Launch) {
    let lane = special::thread() % 32;
    // SAFETY: the fetcher warp of a live launch; `launch` does not change while it runs.
    unsafe {
        let run = Run::new(&Warp, &*launch, special::block());
        arena.set_counters(run.counters);
        // Read once: the next acquire would send a later read to the second-level cache.
        let launch = &{ *launch };
        let mut queue = Queue::new(launch, &run);
        if queue.is_pushed() {
            pushed(arena, launch, &run, &mut queue, lane);
            return;
        }
        let mut views = Views { first: u32::MAX, words: [0; 2] };
        let (drain, first) = queue.list();
        let claimed = match drain {
            Some(drain) => claim(arena, launch, &drain, &mut views, 0, lane),
            None => Some(0),
        };
        if let Some(n) = claimed {
            listed(arena, launch, &run, first, views, n, lane);
        }
    }
}

/// Descriptors of one load: four lanes have one.
const BATCH: u32 = 8;

/// 16 bytes of each of the next [`BATCH`] descriptors of a list.
#[inline(always)]
unsafe fn fetch_batch(launch: &Launch, first: u32, lane: u32) -> [u32; 4] {
    let words = (launch.descriptors as *const Descriptor).wrapping_add(first as usize).cast::<u32>();
    // SAFETY: the array ends with as many entries more than any list has as the fetcher looks ahead.
    unsafe { memory::load4(words.wrapping_add(lane as usize * 4)) }
}

/// Walks a list from entry `first` on, behind `n` tasks. Loads come in any order, so a warp that waits for one waits for all: it loads
/// a whole batch while it hands out the one before.
#[inline(always)]
unsafe fn listed(arena: Arena, launch: &Launch, run: &Run, mut first: u32, mut views: Views, mut n: u32, lane: u32) {
    // SAFETY: passed on from the caller.
    unsafe {
        let mut batch = fetch_batch(launch, first, lane);
        loop {
            first += BATCH;
            let coming = fetch_batch(launch, first, lane);
            let mut entry = 0;
            while entry < BATCH {
                let (head, at) = (warp::broadcast(batch[0], entry * 4), warp::broadcast(batch[VIEWS as usize], entry * 4));
                if head as u16 == OP_DRAIN {
                    let word = |n: usize| warp::broadcast(batch[n], entry * 4 + COORD / 4);
                    let drain = Drain::new(run, [word(0), word(1), word(2)]);
                    let Some(behind) = claim(arena, launch, &drain, &mut views, n, lane) else { return };
                    n = behind;
                    entry += 1;
                    continue;
                }
                views = views.of(launch, at, lane);
                if !vacate(arena, n) {
                    return;
                }
                let words = arena.slot(place(n).0);
                if lane / 4 == entry {
                    memory::store_shared4(words + lane % 4 * 16, batch);
                }
                views.put(words, lane);
                ring::arrive(arena.posted(place(n).0), lane);
                if head as u16 == OP_END {
                    return;
                }
                n += 1;
                entry += 1;
            }
            batch = coming;
        }
    }
}

/// Claims tasks by ticket behind `n` others until none is left, as late as it can: what one worker has claimed, no other can run. How
/// many there are then; `None` if the CTA stops before.
#[inline(always)]
unsafe fn claim(arena: Arena, launch: &Launch, drain: &Drain, views: &mut Views, mut n: u32, lane: u32) -> Option<u32> {
    // SAFETY: passed on from the caller.
    unsafe {
        loop {
            if n >= CLAIMED {
                let (slot, parity) = place(n - CLAIMED);
                if warp::ballot(arena.wait_unless_stopped(arena.vacant(slot), parity)) != u32::MAX {
                    return None;
                }
            }
            let mut ticket = 0;
            if lane == 0 {
                ticket = drain.draw(&Lane);
            }
            let Some(index) = drain.index(warp::broadcast(ticket, 0)) else { return Some(n) };
            let descriptor = fetch_descriptor(launch, index, lane);
            *views = views.fetch(launch, descriptor, lane);
            if !fill(arena, n, lane, descriptor, *views) {
                return None;
            }
            ring::arrive(arena.posted(place(n).0), lane);
            n += 1;
        }
    }
}

/// Takes what schedulers push, and publishes it: it comes ready.
#[inline(always)]
unsafe fn pushed(arena: Arena, launch: &Launch, run: &Run, queue: &mut Queue, lane: u32) {
    // SAFETY: passed on from the caller.
    unsafe {
        if !admitted(run) {
            stop(arena, run, 0);
            return;
        }
        let mut views = Views { first: u32::MAX, words: [0; 2] };
        let mut n = 0;
        loop {
            let Some(index) = queue.pop(&Warp, run) else {
                stop(arena, run, n);
                return;
            };
            let descriptor = fetch_descriptor(launch, index, lane);
            let end = warp::broadcast(descriptor, 0) as u16 == OP_END;
            views = views.fetch(launch, descriptor, lane);
            // A scheduler is never so far ahead that this waits.
            if !fill(arena, n, lane, descriptor, views) {
                return;
            }
            ring::arrive(arena.posted(place(n).0), lane);
            ring::arrive(arena.ready(place(n).0), lane);
            if end {
                supervise(arena, run, n);
                return;
            }
            n += 1;
        }
    }
}
