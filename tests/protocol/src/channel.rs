//! Channels under `loom`: the code of `maco_device::channel`, every shared word one of its atomics.
//!
//! Besides what `loom` finds, clocks say by the letter of the memory model whether an access to data is ordered with the one before, as in [`crate::order`]:
//! `loom` lets no load see a store that comes later, so that a load before a credit needs a clock to be noticed.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as HostOrdering};

use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use maco_device::channel::{Control, Peer, Semaphore, System, Watch};

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
}

/// What a word is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Signals that data is there.
    Signal,
    /// Signals that data was taken.
    Credit,
    /// Triggers taken by the proxy.
    Taken,
    /// Triggers completed.
    Completed,
    /// The report is there.
    Complete,
    /// Copied: an access that is in no order with another one is an error.
    Data,
    /// Says itself that it is there.
    Packet,
}

/// Words of a rank's memory.
pub const RANK: usize = 64;
/// Words of everything.
pub const WORDS: usize = 3 * RANK;
const THREADS: usize = 4;
/// Stores before this number are what words begin with.
const FIRST: u64 = 3;

/// Where words of a rank's memory are.
pub mod place {
    /// [`super::Role::Signal`].
    pub const SIGNAL: usize = 0;
    /// [`super::Role::Credit`].
    pub const CREDIT: usize = 1;
    /// Taken, and completed.
    pub const PROGRESS: usize = 2;
    /// A ring of two triggers.
    pub const RING: usize = 4;
    /// [`super::Control`].
    pub const CONTROL: usize = 16;
    /// [`super::Role::Data`].
    pub const DATA: usize = 32;
    /// Two slots of two packets.
    pub const PACKETS: usize = 48;
}

fn role(word: usize) -> Role {
    match word % RANK {
        place::SIGNAL => Role::Signal,
        place::CREDIT => Role::Credit,
        2 => Role::Taken,
        3 => Role::Completed,
        at if (place::CONTROL..place::CONTROL + 2).contains(&at) => Role::Complete,
        at if (place::CONTROL..place::PACKETS).contains(&at) => Role::Data,
        _ => Role::Packet,
    }
}

#[derive(Clone, Copy, Default)]
struct Clock([u32; THREADS]);

impl Clock {
    fn join(&mut self, other: Clock) {
        for (mine, other) in self.0.iter_mut().zip(other.0) {
            *mine = other.max(*mine);
        }
    }

    fn contains(&self, other: Clock) -> bool {
        self.0.iter().zip(other.0).all(|(&mine, other)| mine >= other)
    }
}

#[derive(Clone, Copy, Default)]
struct Thread {
    now: Clock,
    released: Clock,
    seen: Clock,
}

/// Accesses to a word.
#[derive(Clone, Copy, Default)]
struct Accesses {
    written: Clock,
    read: Clock,
}

#[derive(Default)]
struct Order {
    threads: [Thread; THREADS],
    /// Every store, by the number that is in the word: its value, and what a load gets from who stored it.
    stores: Vec<(u64, Clock)>,
    accesses: HashMap<usize, Accesses>,
    /// What a thread has read of a packet last.
    known: HashMap<(usize, usize), u64>,
    published: HashMap<usize, u32>,
    reports: u32,
    /// Slots of packets are read before they are stored anew because the store depends on it.
    dependent: bool,
}

impl Order {
    fn moment(&self, thread: usize) -> Clock {
        let mut clock = Clock::default();
        clock.0[thread] = self.threads[thread].now.0[thread];
        clock
    }

    fn read(&mut self, thread: usize, word: usize, number: u64) {
        let (now, moment) = (self.threads[thread].now, self.moment(thread));
        let accesses = self.accesses.entry(word).or_default();
        match role(word) {
            Role::Data => assert!(now.contains(accesses.written), "word {word} is read in no order with its write"),
            // Polls of what is known already are in vain.
            Role::Packet if self.known.insert((thread, word), number) == Some(number) || number < FIRST => return,
            _ => {}
        }
        accesses.read.join(moment);
    }

    fn write(&mut self, thread: usize, word: usize) {
        let (now, moment) = (self.threads[thread].now, self.moment(thread));
        let accesses = self.accesses.entry(word).or_default();
        if role(word) == Role::Data || role(word) == Role::Packet && !self.dependent {
            assert!(now.contains(accesses.read), "word {word} is stored in no order with an earlier read");
        }
        // A packet that was read is older than a store that the read comes before: coherence orders the two.
        if role(word) == Role::Data {
            assert!(now.contains(accesses.written), "word {word} is stored in no order with an earlier store");
        }
        *accesses = Accesses { written: moment, read: Clock::default() };
        self.threads[thread].now.0[thread] += 1;
    }
}

#[repr(C, align(128))]
struct Memory([UnsafeCell<u32>; WORDS]);

/// What all threads of a model share.
pub struct World {
    /// Its addresses are those of the words.
    memory: Box<Memory>,
    words: Vec<AtomicU64>,
    ticket: AtomicU32,
    own: [UnsafeCell<u32>; 64],
    order: RefCell<Order>,
    lack: Option<Lack>,
    stores: Cell<usize>,
    deadline_ns: u64,
}

impl World {
    /// Semaphores and their ends begin with `start`.
    fn new(lack: Option<Lack>, start: u32, deadline_ns: u64) -> World {
        let stores = [0, start.into(), u64::from(start) << 32].map(|value| (value, Clock::default()));
        let mut order = Order { stores: stores.into(), ..Order::default() };
        for (number, thread) in order.threads.iter_mut().enumerate() {
            thread.now.0[number] = 1;
        }
        let first = |word| match role(word) {
            Role::Signal | Role::Credit => 1,
            // What an earlier message has left.
            Role::Packet if word % RANK >= place::PACKETS => 2,
            _ => 0,
        };
        World {
            memory: Box::new(Memory([const { UnsafeCell::new(0) }; WORDS])),
            words: (0..WORDS).map(|word| AtomicU64::new(first(word))).collect(),
            ticket: AtomicU32::new(0),
            own: [const { 0 }; 64].map(|_: u32| UnsafeCell::new(start)),
            order: RefCell::new(order),
            lack,
            stores: Cell::new(0),
            deadline_ns,
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
        Watch { control: self.at(rank, place::CONTROL).cast::<Control>(), rank, deadline_ns: self.deadline_ns }
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
        let index = (at as usize - self.memory.0.as_ptr() as usize) / 4;
        assert!(index < WORDS, "an access outside of the memory");
        index
    }

    fn lacks(&self, lack: Lack) -> bool {
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
}

impl<const LOOK: u32> Loom<LOOK> {
    fn load(&self, word: usize) -> u64 {
        let number = self.world.words[word].load(Ordering::Relaxed);
        let order = &mut *self.world.order.borrow_mut();
        let (value, clock) = order.stores[number as usize];
        order.threads[self.number].seen.join(clock);
        order.read(self.number, word, number);
        value
    }

    fn store(&self, word: usize, value: u64, releases: bool) {
        self.world.stores.set(self.world.stores.get() + 1);
        let number = self.number_of(word, value, releases);
        self.world.words[word].store(number, if releases { Ordering::Release } else { Ordering::Relaxed });
    }

    /// A store of this thread, which is about to be made.
    fn number_of(&self, word: usize, value: u64, releases: bool) -> u64 {
        let order = &mut *self.world.order.borrow_mut();
        let thread = order.threads[self.number];
        order.write(self.number, word);
        order.stores.push((value, if releases { thread.now } else { thread.released }));
        order.stores.len() as u64 - 1
    }
}

// SAFETY: `loom` orders its atomics by fences as Rust does; where something is left out, a model must notice.
unsafe impl<const LOOK: u32> System for Loom<LOOK> {
    const LOOK: u32 = LOOK;
    unsafe fn own_load(&self, at: *const u32) -> u32 {
        // SAFETY: one thread uses it.
        unsafe { at.read() }
    }
    unsafe fn own_store(&self, at: *mut u32, value: u32) {
        // SAFETY: as above.
        unsafe { at.write(value) }
    }
    unsafe fn poll(&self, at: *const u32) -> u32 {
        let word = self.world.index(at);
        let value = self.load(word) as u32;
        // So far ahead that whatever is expected is reached.
        if self.world.lacks(Lack::Blind(role(word))) { value.wrapping_add(16) } else { value }
    }
    unsafe fn publish(&self, at: *mut u32, value: u32) {
        let word = self.world.index(at);
        let times = {
            let order = &mut *self.world.order.borrow_mut();
            let times = order.published.entry(word).or_default();
            *times += 1;
            *times
        };
        if !self.world.lacks(Lack::Signal(role(word), times)) && !self.world.lacks(Lack::Mute(role(word))) {
            self.store(word, value.into(), !self.world.lacks(Lack::Publish(role(word))));
        }
    }
    fn acquire(&self) {
        if !self.world.lacks(Lack::Acquire(self.number)) {
            fence(Ordering::Acquire);
            let order = &mut *self.world.order.borrow_mut();
            let seen = order.threads[self.number].seen;
            order.threads[self.number].now.join(seen);
        }
    }
    fn release(&self) {
        if !self.world.lacks(Lack::Release) {
            fence(Ordering::Release);
            let order = &mut *self.world.order.borrow_mut();
            order.threads[self.number].released = order.threads[self.number].now;
            order.threads[self.number].now.0[self.number] += 1;
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
        let flags = if self.world.index(at.cast()) % RANK < place::CONTROL { 1 << 63 } else { 0xffff_ffff << 32 };
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
        match self.world.words[word].compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => 0,
            Err(other) => self.world.order.borrow().stores[other as usize].0 as u32,
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
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 2_000;
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    builder.check(move || {
        let world = Rc::new(World::new(lack, start, deadline_ns));
        let thread =
            |number: usize| Loom::<LOOK> { world: world.clone(), number, clock: Cell::new(0), seen: Cell::new(0), vain: Cell::new(0) };
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
            let order = &mut *world.order.borrow_mut();
            let ended = order.threads[number].now;
            order.threads[0].now.join(ended);
        }
        after(&first);
        counted.fetch_add(1, HostOrdering::Relaxed);
    });
    runs.load(HostOrdering::Relaxed)
}
