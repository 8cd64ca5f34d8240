//! The fetcher: brings descriptors and views of coming tasks into slots, ahead of everybody else.

use super::machine::{Lane, Warp};
use super::{admitted, place, stop, supervise};
use crate::abi::{Descriptor, Launch, OP_END, OPERANDS};
use crate::protocol::{Machine, Queue, Run};
use crate::ptx::{mbarrier, memory, special, warp};
use crate::role::ring::Arena;

/// Words of a descriptor and of the views beside it.
const DESCRIPTOR_WORDS: u32 = 16;
const VIEW_WORDS: u32 = 8 * OPERANDS as u32;
/// Word of [`Descriptor::views`].
const VIEWS: u32 = core::mem::offset_of!(Descriptor, views) as u32 / 4;

#[inline(always)]
unsafe fn fetch_descriptor(launch: &Launch, index: u32, lane: u32) -> u32 {
    let words = (launch.descriptors as *const Descriptor).wrapping_add(index as usize).cast::<u32>();
    // SAFETY: the array ends with two entries more than any list has.
    if lane < DESCRIPTOR_WORDS { unsafe { memory::load(words.add(lane as usize)) } } else { 0 }
}

/// Views of one call: a lane holds words `lane` and `lane + 32`. Tasks of one call follow one another, so the last ones are kept.
#[derive(Clone, Copy)]
struct Views {
    first: u32,
    words: [u32; 2],
}

impl Views {
    #[inline(always)]
    unsafe fn fetch(self, launch: &Launch, descriptor: u32, lane: u32) -> Views {
        let first = warp::broadcast(descriptor, VIEWS);
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
}

/// Fills a slot; false if the CTA stops before it is vacant.
#[inline(always)]
unsafe fn fill(arena: Arena, n: u32, lane: u32, descriptor: u32, views: Views) -> bool {
    let (slot, parity) = place(n);
    // SAFETY: an initialised barrier; a vacant slot is the fetcher's.
    unsafe {
        if warp::ballot(arena.wait_unless_stopped(arena.vacant(slot), parity ^ 1)) != u32::MAX {
            return false;
        }
        let words = arena.slot(slot);
        if lane < DESCRIPTOR_WORDS {
            memory::store_shared(words + lane * 4, descriptor);
        }
        memory::store_shared(words + 64 + lane * 4, views.words[0]);
        if lane + 32 < VIEW_WORDS {
            memory::store_shared(words + 64 + 128 + lane * 4, views.words[1]);
        }
    }
    warp::sync();
    true
}

#[inline(always)]
pub(super) unsafe fn fetch(arena: Arena, launch: *const Launch) {
    let lane = special::thread() % 32;
    // SAFETY: the fetcher warp of a live launch; `launch` does not change while it runs.
    unsafe {
        let launch = &*launch;
        let run = Run::new(&Warp, launch, special::block());
        let mut queue = Queue::new(launch, run.worker);
        if queue.is_pushed() {
            pushed(arena, launch, &run, &mut queue, lane);
            return;
        }
        // A task's way through this warp takes three turns: its ticket, its descriptor, its views. So no turn waits for its own loads.
        let mut ticket = 0;
        let mut index = || {
            let index = queue.index(warp::broadcast(ticket, 0));
            if lane == 0 {
                ticket = queue.ask(&Lane, &run);
            }
            index
        };
        index();
        let mut descriptor = fetch_descriptor(launch, index(), lane);
        let mut second = fetch_descriptor(launch, index(), lane);
        let mut third = fetch_descriptor(launch, index(), lane);
        let none = Views { first: u32::MAX, words: [0; 2] };
        let mut views = none.fetch(launch, descriptor, lane);
        let mut then = views.fetch(launch, second, lane);
        let mut n = 0;
        loop {
            if !fill(arena, n, lane, descriptor, views) {
                return;
            }
            if lane == 0 {
                mbarrier::arrive(arena.posted(place(n).0));
            }
            if warp::broadcast(descriptor, 0) as u16 == OP_END {
                return;
            }
            (descriptor, views) = (second, then);
            then = then.fetch(launch, third, lane);
            second = third;
            third = fetch_descriptor(launch, index(), lane);
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
            if lane == 0 {
                mbarrier::arrive(arena.ready(place(n).0));
            }
            if end {
                supervise(arena, run, n);
                return;
            }
            n += 1;
        }
    }
}
