//! The prefetcher (warp 3): copies descriptors and views of coming tasks into slots, ahead of all other roles.

use super::rest::Rest;
use super::{admitted, place, waits, watchdog};
use crate::machine::{Lane, Warp};
use crate::profile;
use crate::protocol::{CLAIMED, DynamicTiles, Machine, Outcome, Push, Queue, Run, Until};
use crate::ptx::{mbarrier, memory, special, warp};
use crate::shared_memory::{self, ARRIVALS, SharedMemory, WAITS};
use crate::sync::ready_mailbox;
use maco_abi::{CounterIndex, Descriptor, INITIAL_TASKS, Launch, OP_DYNAMIC, OP_END, OPERANDS, Slot, UNREADY, WARP_TASK, Wait};

/// Words of a descriptor and of the views beside it.
const DESCRIPTOR_WORDS: u32 = 16;
const VIEW_WORDS: u32 = 8 * OPERANDS as u32;
/// Word of [`Descriptor::views`].
const VIEWS: u32 = core::mem::offset_of!(Descriptor, views) as u32 / 4;
// A batch has it in the last register of a descriptor's first lane.
const _: () = assert!(VIEWS == 3);
/// Word of [`Descriptor::flags`].
const WAYS: u32 = watchdog::WAYS / 4;
/// Word of [`Descriptor::after`], its upper half, in a descriptor's first lane.
const AHEAD: usize = core::mem::offset_of!(Descriptor, after) / 4;
const _: () = assert!(core::mem::offset_of!(Descriptor, after) == 6 && AHEAD < 4);
/// First word of [`Descriptor::wait`].
const WAIT: u32 = core::mem::offset_of!(Descriptor, wait) as u32 / 4;
/// First word of [`Descriptor::coord`]: a lane's first.
const COORD: u32 = core::mem::offset_of!(Descriptor, coord) as u32 / 4;
const _: () = assert!(COORD.is_multiple_of(4));

/// What is read for every task, from the launch: read once, since the next acquire would send a later read to the second-level cache.
#[derive(Clone, Copy)]
struct Tables {
    descriptors: *const Descriptor,
    views: *const u32,
    launch: *const Launch,
}

#[inline(always)]
unsafe fn fetch_descriptor(tables: Tables, index: u32, lane: u32) -> u32 {
    // SAFETY: the array ends with as many entries more than any list has as the prefetcher looks ahead.
    if lane < DESCRIPTOR_WORDS { unsafe { memory::load(descriptor_word(tables, index)) } } else { 0 }
}

/// This lane's word of a descriptor. The lane is read anew: else its place in the table, whatever the index, is kept in two registers across all tasks.
#[inline(always)]
fn descriptor_word(tables: Tables, index: u32) -> *const u32 {
    tables.descriptors.wrapping_add(index as usize).cast::<u32>().wrapping_add(warp::lane_again() as usize)
}

/// The same of a pushed task, and what it waits for: two words, for the two lanes behind those of the descriptor.
#[inline(always)]
unsafe fn fetch_pushed(tables: Tables, push: Push, lane: u32) -> u32 {
    let beside = lane.wrapping_sub(DESCRIPTOR_WORDS);
    let words = if beside < 2 { push.until.wrapping_add(beside as usize) } else { descriptor_word(tables, push.index) };
    let wanted = lane < DESCRIPTOR_WORDS || beside < 2 && !push.until.is_null();
    // SAFETY: as above; what a push waits for was acquired with it.
    if wanted { unsafe { memory::load(words) } } else { 0 }
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
    unsafe fn of(self, tables: Tables, first: u32, lane: u32) -> Views {
        if first == self.first {
            return self;
        }
        let words = tables.views.wrapping_add(first as usize * 8);
        // SAFETY: the plan wrote the views of every call.
        unsafe {
            let low = memory::load(words.wrapping_add(lane as usize));
            let high = if lane + 32 < VIEW_WORDS { memory::load(words.wrapping_add(lane as usize + 32)) } else { 0 };
            Views { first, words: [low, high] }
        }
    }

    /// The views of the call that a descriptor belongs to, word by word over the lanes.
    #[inline(always)]
    unsafe fn fetch(self, tables: Tables, descriptor: u32, lane: u32) -> Views {
        // SAFETY: passed on from the caller.
        unsafe { self.of(tables, warp::broadcast(descriptor, VIEWS), lane) }
    }

    /// Writes them beside the descriptor of a slot.
    #[inline(always)]
    unsafe fn put(self, words: u32, lane: u32) {
        // SAFETY: a vacant slot is the prefetcher's.
        unsafe {
            memory::store_shared(words + 64 + lane * 4, self.words[0]);
            if lane + 32 < VIEW_WORDS {
                memory::store_shared(words + 64 + 128 + lane * 4, self.words[1]);
            }
        }
    }
}

/// Waits until the slot of task `n` is vacant; false if the CTA stops before.
#[inline(always)]
unsafe fn vacate(smem: SharedMemory, n: u32) -> bool {
    let (slot, parity) = place(n);
    // SAFETY: an initialised barrier.
    unsafe { warp::ballot(smem.wait_unless_stopped(smem.vacant(slot), parity ^ 1)) == u32::MAX }
}

/// Fills a slot; false if the CTA stops before it is vacant.
#[inline(always)]
unsafe fn fill(smem: SharedMemory, n: u32, lane: u32, descriptor: u32, views: Views) -> bool {
    // SAFETY: a vacant slot is the prefetcher's.
    unsafe {
        if !vacate(smem, n) {
            return false;
        }
        let words = smem.slot(place(n).0);
        if lane < DESCRIPTOR_WORDS {
            memory::store_shared(words + lane * 4, descriptor);
        }
        views.put(words, lane);
        warp::sync();
    }
    true
}

/// Has what a list begins with on its way, before anything that a launch writes is read, and loads the tasks that lie before the launch record: 16 bytes a lane.
/// The prefetcher warp calls.
#[inline(always)]
pub(super) unsafe fn ask(launch: *const Launch) -> [u32; 4] {
    let lane = special::thread() % 32;
    // SAFETY: a live launch, whose record, first tasks and list starts do not change.
    unsafe {
        let first = launch.cast::<Slot>().wrapping_sub(INITIAL_TASKS as usize * (special::block() as usize + 1));
        let words = memory::load4(first.cast::<u32>().wrapping_add(lane as usize * 4));
        let start = memory::load(((*launch).starts as *const u32).wrapping_add(special::block() as usize));
        // Two batches of descriptors, two to a line, and behind them the plan's state.
        if lane <= BATCH {
            let descriptors = ((*launch).descriptors as *const Descriptor).wrapping_add((start + lane * 2) as usize);
            memory::prefetch(if lane < BATCH { descriptors.cast() } else { (*launch).state as _ });
        }
        words
    }
}
const _: () = assert!(INITIAL_TASKS as usize * size_of::<Slot>() == 32 * 16, "a lane has 16 bytes");

/// Posts the tasks that [`ask`] has loaded, if there are any, and says how many, and if behind the first one is the drain that the list begins with, which. They wait
/// for nothing.
#[inline(always)]
unsafe fn post_first(smem: SharedMemory, words: [u32; 4], workers: u32, lane: u32) -> (u32, Option<DynamicTiles>) {
    const _: () = assert!(INITIAL_TASKS == 2);
    let [first, second] = [0, 16].map(|lane| warp::broadcast(words[0], lane) as u16);
    let tasks = if first >= OP_DYNAMIC { 0 } else { 1 + (second < OP_DYNAMIC) as u32 };
    let n = lane / 16;
    // SAFETY: nobody has used the slots yet, which are the prefetcher's; initialised barriers.
    unsafe {
        if n < tasks {
            let at = place(n).0;
            memory::store_shared4(smem.slot(at) + lane % 16 * 16, words);
            if lane % 16 < WAITS {
                memory::store_shared2(smem.waits(at) + lane % 16 * 8, Wait::NONE.encode());
            }
        }
        warp::sync();
        let mut n = 0;
        while n < tasks {
            shared_memory::arrive(smem.posted(place(n).0), lane);
            n += 1;
        }
    }
    let [ticket, all, first] = [0, 1, 2].map(|n: usize| warp::broadcast(words[n], 16 + COORD / 4));
    let tiles = DynamicTiles::new(smem.counters(), [ticket, all, first], warp::broadcast(words[AHEAD], 16) >> 16);
    (tasks, if second == OP_DYNAMIC { Some(tiles.dealt(workers)) } else { None })
}

#[inline(always)]
pub(super) unsafe fn run(smem: SharedMemory, launch: *const Launch, words: [u32; 4]) -> Rest {
    let lane = special::thread() % 32;
    // SAFETY: the prefetcher warp of a live launch; `launch` does not change while it runs.
    unsafe {
        let run = Run::new(&Warp, &*launch, special::block());
        let tables = Tables { descriptors: (*launch).descriptors as _, views: (*launch).views as _, launch };
        let mut queue = Queue::new(&*launch, &run);
        smem.set_counters(run.counters);
        smem.set_in_band((*launch).in_band, (*launch).in_band_words, (*launch).in_band_bytes, run.epoch());
        if ARRIVALS > 1 {
            // All lanes have written the same, and each reads what it wrote: racecheck sees the others' too.
            warp::sync();
        }
        if queue.is_pushed() {
            return pushed(smem, tables, &run, &mut queue, lane);
        }
        let (n, dealt) = post_first(smem, words, (*launch).workers, lane);
        let (tiles, first) = queue.list();
        listed(smem, tables, dealt.or(tiles), first + n, n, lane);
        Rest::NONE
    }
}

/// Descriptors of one load: four lanes have one.
const BATCH: u32 = 8;

/// 16 bytes of each of the next [`BATCH`] descriptors of a list.
#[inline(always)]
unsafe fn fetch_batch(tables: Tables, first: u32) -> [u32; 4] {
    let words = tables.descriptors.wrapping_add(first as usize).cast::<u32>();
    // The lane anew: as in `descriptor_word`.
    // SAFETY: the array ends with as many entries more than any list has as the prefetcher looks ahead.
    unsafe { memory::load4(words.wrapping_add(warp::lane_again() as usize * 4)) }
}

/// Claims from `drain`, then walks a list from entry `first` on, behind `n` tasks. Loads come in any order, so a warp that waits for one waits for all: it
/// loads a whole batch while it hands out the one before.
#[inline(always)]
unsafe fn listed(smem: SharedMemory, tables: Tables, mut tiles: Option<DynamicTiles>, mut first: u32, mut n: u32, lane: u32) {
    let mut views = Views { first: u32::MAX, words: [0; 2] };
    // SAFETY: passed on from the caller.
    unsafe {
        'again: loop {
            if let Some(tiles) = tiles {
                let Some(behind) = claim(smem, tables, &tiles, &mut views, n, lane) else { return };
                n = behind;
            }
            tiles = None;
            let mut batch = fetch_batch(tables, first);
            loop {
                let coming = fetch_batch(tables, first + BATCH);
                let mut entry = 0;
                while entry < BATCH {
                    let (head, at) = (warp::broadcast(batch[0], entry * 4), warp::broadcast(batch[VIEWS as usize], entry * 4));
                    if head as u16 == OP_DYNAMIC {
                        let word = |n: usize| warp::broadcast(batch[n], entry * 4 + COORD / 4);
                        let ahead = warp::broadcast(batch[AHEAD], entry * 4) >> 16;
                        tiles = Some(DynamicTiles::new(smem.counters(), [word(0), word(1), word(2)], ahead));
                        // What has been loaded would take registers that claiming needs.
                        first += entry + 1;
                        continue 'again;
                    }
                    views = views.of(tables, at, lane);
                    if !vacate(smem, n) {
                        return;
                    }
                    let (tasks, ended) = hand_out(smem, tables, batch, entry, views, n, lane);
                    if ended {
                        return;
                    }
                    n += tasks;
                    entry += tasks;
                }
                first += BATCH;
                batch = coming;
            }
        }
    }
}

/// Posts the tasks of a batch from `entry` on, behind `n` others, for whom there is room already: those of one call, whose `views` are
/// these, at once. How many, and whether the last one is the end entry. There is room for the first.
#[inline(always)]
unsafe fn hand_out(smem: SharedMemory, tables: Tables, batch: [u32; 4], entry: u32, views: Views, n: u32, lane: u32) -> (u32, bool) {
    let (mine, part) = (lane / 4, lane % 4);
    // The entry of this lane, by its place behind the first.
    let behind = mine.wrapping_sub(entry);
    let (at, parity) = place(n.wrapping_add(behind));
    let words = smem.slot(at);
    // SAFETY: initialised barriers; vacant slots are the prefetcher's.
    unsafe {
        // By all lanes, before anything that they do not all do.
        let (head, first) = (warp::broadcast(batch[0], mine * 4) as u16, warp::broadcast(batch[VIEWS as usize], mine * 4));
        let alike = mine >= entry && head != OP_DYNAMIC && first == views.first;
        let room = behind == 0 || mbarrier::test(smem.vacant(at), parity ^ 1);
        // Lanes from the first entry's on, up to one that must wait, or the end entry.
        let going = warp::ballot(alike && room) >> (entry * 4);
        let ends = warp::ballot(mine >= entry && head == OP_END) >> (entry * 4);
        let most = if ends == 0 { u32::MAX } else { ends.trailing_zeros() / 4 + 1 };
        let mut tasks = (!going).trailing_zeros() / 4;
        let ended = tasks >= most;
        if ended {
            tasks = most;
        }
        let included = mine >= entry && behind < tasks;
        // Each slot was found vacant by four lanes, and all write to it: a vote alone orders no accesses.
        warp::sync();
        let mut m = 0;
        while ARRIVALS > 1 && m < tasks {
            // Racecheck follows a wait only to the lane that made it, and not one whose answer nobody uses. Each is vacant already.
            let (at, parity) = place(n + m);
            smem.wait(smem.vacant(at), parity ^ 1);
            m += 1;
        }
        if included {
            memory::store_shared4(words + part * 16, batch);
        }
        m = 0;
        while m < tasks {
            views.put(smem.slot(place(n + m).0), lane);
            m += 1;
        }
        let long = waits::resolve(smem, at, batch, included, lane);
        warp::sync();
        m = 0;
        while long != 0 && m < tasks {
            if long >> ((entry + m) * 4) & 1 != 0 {
                waits::find(&Warp, smem, tables.launch, place(n + m).0);
            }
            m += 1;
        }
        if long != 0 {
            warp::sync();
        }
        if ARRIVALS > 1 {
            m = 0;
            while m < tasks {
                mbarrier::arrive(smem.posted(place(n + m).0));
                m += 1;
            }
        } else if included && part == 0 {
            mbarrier::arrive(smem.posted(at));
        }
        (tasks, ended)
    }
}

/// Claims tasks by ticket behind `n` others until none is left: what one worker has claimed, no other can run, so where only data knows what
/// they take as late as it can, and otherwise a ticket ahead, so that what tickets and descriptors take is hidden. How many tasks there are
/// then; `None` if the CTA stops before.
#[inline(always)]
unsafe fn claim(smem: SharedMemory, tables: Tables, tiles: &DynamicTiles, views: &mut Views, mut n: u32, lane: u32) -> Option<u32> {
    let early = tiles.ahead() > CLAIMED;
    // SAFETY: passed on from the caller.
    unsafe {
        let mut ticket = if early { draw(tiles, lane) } else { 0 };
        loop {
            if !early {
                if !has_room(smem, tiles, n) {
                    return None;
                }
                ticket = draw(tiles, lane);
            }
            let Some(index) = tiles.index(warp::broadcast(ticket, 0)) else { return Some(n) };
            let descriptor = fetch_descriptor(tables, index, lane);
            if early {
                // Both on their way while an earlier task is waited for.
                ticket = draw(tiles, lane);
                if !has_room(smem, tiles, n) {
                    return None;
                }
            }
            *views = views.fetch(tables, descriptor, lane);
            if !fill(smem, n, lane, descriptor, *views) {
                return None;
            }
            waits::find(&Warp, smem, tables.launch, place(n).0);
            warp::sync();
            shared_memory::arrive(smem.posted(place(n).0), lane);
            n += 1;
        }
    }
}

/// Draws a ticket, which the first lane has.
#[inline(always)]
unsafe fn draw(tiles: &DynamicTiles, lane: u32) -> u32 {
    // SAFETY: passed on from the caller.
    if lane == 0 { unsafe { tiles.draw(&Lane) } } else { 0 }
}

/// Waits until few enough tasks before task `n` have not ended for it to be claimed; false if the CTA stops before.
#[inline(always)]
unsafe fn has_room(smem: SharedMemory, tiles: &DynamicTiles, n: u32) -> bool {
    if n < tiles.ahead() {
        return true;
    }
    let (slot, parity) = place(n - tiles.ahead());
    // SAFETY: an initialised barrier.
    unsafe { warp::ballot(smem.wait_unless_stopped(smem.vacant(slot), parity)) == u32::MAX }
}

/// Takes what schedulers push, and publishes it: it comes ready, or waits for one word, in its slot already.
#[inline(always)]
unsafe fn pushed(smem: SharedMemory, tables: Tables, run: &Run, queue: &mut Queue, lane: u32) -> Rest {
    // SAFETY: passed on from the caller.
    unsafe {
        if !admitted(run) {
            return Rest::stop(0);
        }
        let mut views = Views { first: u32::MAX, words: [0; 2] };
        let mut n = 0;
        loop {
            let Some(push) = queue.pop(&Warp, run) else {
                return Rest::stop(n);
            };
            let mut descriptor = fetch_pushed(tables, push, lane);
            let end = warp::broadcast(descriptor, 0) as u16 == OP_END;
            // Counted from 1.
            let [worker, ended] = [DESCRIPTOR_WORDS, DESCRIPTOR_WORDS + 1].map(|word| warp::broadcast(descriptor, word));
            // A warp that runs the task by itself waits by itself: nothing is between the word that it waits for and the body.
            let by_warp = ended != 0 && warp::broadcast(descriptor, WAYS) & WARP_TASK.mask() != 0;
            if by_warp {
                let change = |word, old, new| if lane == word { new } else { old };
                descriptor = change(WAYS, descriptor, descriptor | UNREADY.mask());
                descriptor = change(WAIT, descriptor, worker);
                descriptor = change(WAIT + 1, descriptor, ended);
            }
            views = views.fetch(tables, descriptor, lane);
            // A scheduler is never so far ahead that this waits.
            if !fill(smem, n, lane, descriptor, views) {
                return Rest::NONE;
            }
            shared_memory::arrive(smem.posted(place(n).0), lane);
            if ended != 0 && !by_warp && Until::of(CounterIndex(worker), ended).wait(&Warp, run) == Outcome::Abort {
                return Rest::stop(n);
            }
            let announced = ready_mailbox::of(n, [warp::broadcast(descriptor, 0), warp::broadcast(descriptor, 1)]);
            shared_memory::arrive(smem.ready(place(n).0), lane);
            if lane == 0 {
                ready_mailbox::give(smem, n, announced);
            }
            if end {
                return Rest::supervise(n);
            }
            n += 1;
        }
    }
}
