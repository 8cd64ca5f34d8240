//! Channels under `loom`: the code of `maco_device::channel`, every shared word one of its atomics.
//!
//! Besides what `loom` finds, clocks say by the letter of the memory model whether an access to data is ordered with the one before, as in [`crate::order`]:
//! `loom` lets no load see a store that comes later, so that a load before a credit needs a clock to be noticed.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as HostOrdering};

use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::sync::{Condvar, Mutex};
use maco_abi::Ranks;
use maco_device::channel::{Control, Peer, RankView, Semaphore, System, Wait, Watch, packet, packet_data};

pub use crate::channel_order::{Layout, RANK, Role, place};
use crate::channel_order::{Order, WORDS};

/// One thing left out of what channels rely on. A model must notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// Acquire fences of this thread do nothing.
    Acquire(usize),
    /// Release fences do nothing.
    Release,
    /// Stores of these words do not release.
    Publish(Role),
    /// Nobody stores these words, the n-th time. A later store makes up for it.
    Signal(Role, u32),
    /// Nobody stores these words at all.
    Mute(Role),
    /// Who polls these words sees what it waits for.
    Blind(Role),
    /// Of two packets only the first one's flag is looked at.
    Half,
    /// Setting the stop word is a load and a store.
    TornStop,
    /// Drawing a ticket is a load and a store.
    TornTicket,
    /// The two places of a message are one.
    OnePlace,
    /// The two signals of a message are one.
    OneSignal,
    /// The flag of a message is that of the one before.
    SameFlag,
    /// A rank's own words of this kind are not stored.
    Uncounted(Role),
    /// Lanes of a rank do not meet before its messages end.
    Meet,
    /// Credits are given before the message is read.
    EarlyCredit,
    /// Flags of messages that have a slot one behind the other are the same.
    SameRound,
    /// Signals are given before the message is stored.
    EarlySignal,
    /// Messages that nobody answers have the number of their launch.
    ByLaunch,
    /// All launches have the same number.
    SameLaunch,
}

#[repr(C, align(128))]
struct Memory([UnsafeCell<u32>; WORDS]);

/// What all threads of a model share.
pub struct World {
    /// Its addresses are those of the words.
    memory: Box<Memory>,
    /// Those that a model uses: each one more makes all interleavings longer.
    words: Vec<Option<AtomicU64>>,
    ticket: AtomicU32,
    own: [UnsafeCell<u32>; 64],
    order: RefCell<Order>,
    lack: Option<Lack>,
    stores: Cell<usize>,
    setting: Setting,
    /// Where the memory of each rank is.
    bases: Box<[u64; WORDS / RANK]>,
    /// How often lanes have come to a meeting.
    come: Mutex<u32>,
    meeting: Condvar,
}

/// What a model begins with.
#[derive(Clone, Copy)]
pub struct Setting {
    /// What words are for.
    pub layout: Layout,
    /// Semaphores and their ends, and messages, begin with this number.
    pub start: u32,
    /// The flags that the messages before have left in either place.
    pub left: [u32; 2],
    /// How long waits last.
    pub deadline_ns: u64,
}

impl World {
    fn new(lack: Option<Lack>, setting: Setting) -> World {
        let Setting { layout, start, left, .. } = setting;
        let [first_place, second_place] = left.map(|flag| packet(77, flag));
        let stores = [0, start.into(), u64::from(start) << 32, first_place, second_place, left[0].into(), left[1].into()];
        let first = |word| match layout.role(word) {
            Role::Signal if layout.parity(word).is_some() => 5 + layout.parity(word).unwrap_or(0) as u64,
            // That of the launch before.
            Role::Credit if layout.is_in_turn() => 6,
            Role::Signal | Role::Credit => 1,
            // What an earlier message has left.
            Role::Packet if layout.slot(word).is_some() => 3 + layout.slot(word).unwrap_or(0) as u64,
            Role::Packet if word % RANK >= place::PACKETS => 2,
            _ => 0,
        };
        let counted = |word| if matches!(layout.role(word), Role::Sent | Role::Received) { start } else { 0 };
        let memory = Box::new(Memory(std::array::from_fn(|word| UnsafeCell::new(counted(word)))));
        World {
            bases: Box::new(std::array::from_fn(|rank| memory.0[rank * RANK].get() as u64)),
            memory,
            words: (0..WORDS).map(|word| layout.is_shared(word).then(|| AtomicU64::new(first(word)))).collect(),
            ticket: AtomicU32::new(0),
            own: [const { 0 }; 64].map(|_: u32| UnsafeCell::new(start)),
            order: RefCell::new(Order::new(layout, stores)),
            lack,
            stores: Cell::new(0),
            setting,
            come: Mutex::new(0),
            meeting: Condvar::new(),
        }
    }

    /// The address of a word of a rank.
    pub fn at(&self, rank: u32, word: usize) -> *mut u32 {
        self.memory.0[rank as usize * RANK + word].get()
    }

    /// The same for other ranks.
    pub fn peer<T>(&self, rank: u32, word: usize) -> Peer<T> {
        // SAFETY: an address of the model.
        unsafe { Peer::new(self.at(rank, word).cast()) }
    }

    /// Words that one thread uses.
    pub fn own(&self, n: usize) -> *mut u32 {
        self.own[n].get()
    }

    /// The end of `rank` of a semaphore with `peer`, which has the same word on both.
    pub fn semaphore(&self, rank: u32, peer: u32, word: usize, own: usize) -> Semaphore {
        // SAFETY: addresses of the model; each thread has own words of its own.
        unsafe { Semaphore::new(self.at(rank, word), self.peer(peer, word), self.own(own), peer, word as u32) }
    }

    /// What waits of a rank end by.
    pub fn watch(&self, rank: u32) -> Watch {
        Watch { control: self.at(rank, place::CONTROL).cast::<Control>(), rank, deadline_ns: self.setting.deadline_ns }
    }

    /// `ranks` ranks as `rank` sees them. No wait ends in vain, so that nobody notes what is missing.
    pub fn ranks(&self, rank: u32, ranks: u32, launch: u32) -> RankView {
        // SAFETY: of the model, which lives as long as its threads.
        unsafe { RankView::new(Ranks { rank, ranks, bases: self.bases.as_ptr() as u64, missing: 0, fifo: 0 }, launch) }
    }

    /// How often somebody began to write a report.
    pub fn reports(&self) -> u32 {
        self.order.borrow().reports
    }

    /// Slots of packets are stored by who has seen that they were read by what depends on it.
    pub fn by_dependency(&self) {
        self.order.borrow_mut().dependent = true;
    }

    fn index(&self, at: *const u32) -> usize {
        let index = self.find(at).expect("an access outside of the memory");
        let layout = self.setting.layout;
        if self.lacks(Lack::OneSignal) {
            return index - layout.parity(index).unwrap_or(0);
        }
        match layout {
            Layout::Messages { packets: all, .. } | Layout::Slots { data: all, .. } | Layout::Signalled { data: all, .. }
                if self.lacks(Lack::OnePlace) && layout.slot(index) == Some(1) =>
            {
                index - all / 2
            }
            _ => index,
        }
    }

    /// The word at an address, if it is in the memory of a rank.
    fn find(&self, at: *const u32) -> Option<usize> {
        let index = (at as usize).checked_sub(self.memory.0.as_ptr() as usize)? / 4;
        (index < WORDS).then_some(index)
    }

    fn word(&self, word: usize) -> &AtomicU64 {
        self.words[word].as_ref().expect("a word that ranks share")
    }

    fn role(&self, word: usize) -> Role {
        self.setting.layout.role(word)
    }

    /// Whether this is left out.
    pub fn lacks(&self, lack: Lack) -> bool {
        self.lack == Some(lack)
    }
}

/// A thread of a model.
pub struct Loom<const LOOK: u32> {
    /// What all share.
    pub world: Rc<World>,
    number: usize,
    clock: Cell<u64>,
    seen: Cell<usize>,
    vain: Cell<u32>,
    /// Of the message that it waits for.
    flag: Cell<u32>,
    meetings: Cell<u32>,
}

impl<const LOOK: u32> Loom<LOOK> {
    /// Begins a launch whose messages have this flag.
    pub fn expect(&self, flag: u32) {
        self.flag.set(flag);
    }

    /// Meets the other lanes of its rank, `lanes` in all: the only rank with lanes.
    pub fn meet_lanes(&self, lanes: u32) {
        let meeting = self.meetings.get();
        self.meetings.set(meeting + 1);
        self.world.order.borrow_mut().come(self.number, meeting);
        {
            let mut come = self.world.come.lock().expect("no thread has panicked");
            *come += 1;
            self.world.meeting.notify_all();
            while *come < lanes * (meeting + 1) {
                come = self.world.meeting.wait(come).expect("no thread has panicked");
            }
        }
        self.world.order.borrow_mut().leave(self.number, meeting);
    }

    fn load(&self, word: usize) -> u64 {
        let number = self.world.word(word).load(Ordering::Relaxed);
        self.world.order.borrow_mut().load(self.number, word, number)
    }

    fn store(&self, word: usize, value: u64, releases: bool) {
        self.world.stores.set(self.world.stores.get() + 1);
        let number = self.number_of(word, value, releases);
        self.world.word(word).store(number, if releases { Ordering::Release } else { Ordering::Relaxed });
    }

    /// A store of this thread, which is about to be made.
    fn number_of(&self, word: usize, value: u64, releases: bool) -> u64 {
        self.world.order.borrow_mut().store(self.number, word, value, releases)
    }
}

// SAFETY: `loom` orders its atomics by fences as Rust does; where something is left out, a model must notice.
unsafe impl<const LOOK: u32> System for Loom<LOOK> {
    const LOOK: u32 = LOOK;
    unsafe fn own_load(&self, at: *const u32) -> u32 {
        if let Some(word) = self.world.find(at) {
            self.world.order.borrow_mut().read(self.number, word);
        }
        // SAFETY: one thread uses it, or clocks have found no other one that does.
        unsafe { at.read() }
    }
    unsafe fn own_store(&self, at: *mut u32, value: u32) {
        if let Some(word) = self.world.find(at) {
            if self.world.lacks(Lack::Uncounted(self.world.role(word))) {
                return;
            }
            self.world.order.borrow_mut().write(self.number, word);
        }
        // SAFETY: as above.
        unsafe { at.write(value) }
    }
    unsafe fn poll(&self, at: *const u32) -> u32 {
        let word = self.world.index(at);
        let value = self.load(word) as u32;
        if !self.world.lacks(Lack::Blind(self.world.role(word))) {
            return value;
        }
        // What is expected, or so far ahead that it is reached.
        let layout = self.world.setting.layout;
        if layout.parity(word).is_some() || layout.is_in_turn() { self.flag.get() } else { value.wrapping_add(16) }
    }
    unsafe fn publish(&self, at: *mut u32, value: u32) {
        let word = self.world.index(at);
        let times = self.world.order.borrow_mut().publish(word);
        if !self.world.lacks(Lack::Signal(self.world.role(word), times)) && !self.world.lacks(Lack::Mute(self.world.role(word))) {
            self.store(word, value.into(), !self.world.lacks(Lack::Publish(self.world.role(word))));
        }
    }
    fn acquire(&self) {
        if !self.world.lacks(Lack::Acquire(self.number)) {
            fence(Ordering::Acquire);
            self.world.order.borrow_mut().acquire(self.number);
        }
    }
    fn release(&self) {
        if !self.world.lacks(Lack::Release) {
            fence(Ordering::Release);
            self.world.order.borrow_mut().release(self.number);
        }
    }
    unsafe fn load1(&self, _: *const u8) -> u8 {
        unreachable!("models copy words")
    }
    unsafe fn store1(&self, _: *mut u8, _: u8) {
        unreachable!("models copy words")
    }
    unsafe fn load4(&self, at: *const u32) -> u32 {
        self.load(self.world.index(at)) as u32
    }
    unsafe fn store4(&self, at: *mut u32, value: u32) {
        self.store(self.world.index(at), value.into(), false);
    }
    unsafe fn load_packet(&self, at: *const u64) -> u64 {
        self.load(self.world.index(at.cast()))
    }
    unsafe fn store_packet(&self, at: *mut u64, value: u64) {
        self.store(self.world.index(at.cast()), value, false);
    }
    unsafe fn load_packets(&self, at: *const u64) -> [u64; 2] {
        // SAFETY: (of both) passed on from the caller.
        let second = unsafe { self.load_packet(at.add(1)) };
        // SAFETY: as above.
        let first = unsafe { self.load_packet(at) };
        // Flags of packets, and laps of triggers.
        let trigger = self.world.setting.layout == Layout::Channels && self.world.index(at.cast()) % RANK < place::CONTROL;
        let flags = if trigger { 1 << 63 } else { 0xffff_ffff << 32 };
        if self.world.lacks(Lack::SameFlag) {
            return [first, second].map(|word| if word == 0 { 0 } else { packet(packet_data(word), self.flag.get()) });
        }
        [first, if self.world.lacks(Lack::Half) { second & !flags | first & flags } else { second }]
    }
    unsafe fn claim(&self, _: *mut u32) -> u32 {
        if self.world.lacks(Lack::TornTicket) {
            let ticket = self.world.ticket.load(Ordering::Relaxed);
            self.world.ticket.store(ticket + 1, Ordering::Relaxed);
            return ticket;
        }
        self.world.ticket.fetch_add(1, Ordering::Relaxed)
    }
    unsafe fn compare_exchange(&self, at: *mut u32, expected: u32, new: u32) -> u32 {
        assert_eq!(expected, 0, "nothing else is replaced");
        let word = self.world.index(at);
        if self.world.lacks(Lack::TornStop) {
            let old = self.load(word) as u32;
            if old == 0 {
                self.store(word, new.into(), false);
            }
            return old;
        }
        let number = self.number_of(word, new.into(), false);
        self.world.stores.set(self.world.stores.get() + 1);
        match self.world.word(word).compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => 0,
            Err(other) => self.world.order.borrow().value(other) as u32,
        }
    }
    unsafe fn tell(&self, at: *mut u32, value: u32) {
        let word = self.world.index(at);
        if word % RANK == place::CONTROL + 2 {
            self.world.order.borrow_mut().reports += 1;
        }
        self.store(word, value.into(), false);
    }
    fn now(&self) -> u64 {
        self.clock.set(self.clock.get() + 1);
        self.clock.get()
    }
    fn pause(&self, polls: u32) {
        // A wait with a deadline ends by itself.
        if LOOK == 1 && polls < 4 {
            return;
        }
        let stores = self.world.stores.get();
        let vain = if self.seen.get() == stores { self.vain.get() + 1 } else { 0 };
        self.seen.set(stores);
        self.vain.set(vain);
        if vain > 1 {
            // As in `model.rs`: nothing new can be seen.
            loom::skip_branch();
        }
        loom::thread::yield_now();
    }
}

impl<const LOOK: u32> Wait for Loom<LOOK> {
    fn until(&self, mut condition: impl FnMut() -> bool) -> bool {
        let mut polls = 0;
        while !condition() {
            polls += 1;
            self.pause(polls);
        }
        true
    }
}

/// What a thread of a model does.
pub type Body<const LOOK: u32> = fn(&Loom<LOOK>);

/// Runs `bodies`, each on a thread, in every interleaving, and `after` behind them; how many there are.
pub fn check<const LOOK: u32>(
    bodies: &'static [Body<LOOK>],
    after: fn(&Loom<LOOK>),
    start: u32,
    deadline_ns: u64,
    preemptions: usize,
    lack: Option<Lack>,
) -> usize {
    check_in(Setting { layout: Layout::Channels, start, left: [0; 2], deadline_ns }, bodies, after, preemptions, lack)
}

/// The same, from another beginning.
pub fn check_in<const LOOK: u32>(
    setting: Setting,
    bodies: &'static [Body<LOOK>],
    after: fn(&Loom<LOOK>),
    preemptions: usize,
    lack: Option<Lack>,
) -> usize {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 2_000;
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    builder.check(move || {
        let world = Rc::new(World::new(lack, setting));
        let thread = |number: usize| Loom::<LOOK> {
            world: world.clone(),
            number,
            clock: Cell::new(0),
            seen: Cell::new(0),
            vain: Cell::new(0),
            flag: Cell::new(0),
            meetings: Cell::new(0),
        };
        let others: Vec<_> = (1..bodies.len())
            .map(|number| {
                let thread = thread(number);
                loom::thread::spawn(move || bodies[number](&thread))
            })
            .collect();
        let first = thread(0);
        bodies[0](&first);
        for (number, other) in (1..).zip(others) {
            other.join().expect("a thread panicked");
            world.order.borrow_mut().join(0, number);
        }
        after(&first);
        counted.fetch_add(1, HostOrdering::Relaxed);
    });
    runs.load(HostOrdering::Relaxed)
}
