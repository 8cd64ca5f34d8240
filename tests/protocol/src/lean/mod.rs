//! Collectives outside of megakernels: the code of `maco_device::lean`, on memory that a [`Machine`] has, under clocks.
//!
//! Which calls are made, and by whom, belongs to [`calls`] and [`cases`]; every interleaving of small ones to [`looms`], and a random one of large ones to [`walk`].
//!
//! Words of packets carry their flags: they are stored anew by who has seen, by packets, that they were read, and no fence says so, as of other messages. Data is
//! loaded and stored in order by releases and acquires alone.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::rc::Rc;

use maco_abi::{LEAN_PACKETS, LeanRanks};
use maco_device::channel::{System, packet, packet_data, packet_flag};

use crate::channel_order::{FIRST, Layout, Order, THREADS};

pub mod calls;
pub mod cases;
pub mod looms;
pub mod walk;

/// One thing left out of what the calls rely on. A model must notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// Acquire fences behind the greetings of data do nothing on this rank.
    Acquire(u32),
    /// Nor do release fences before those greetings.
    Release(u32),
    /// The acquire fence behind a call of packets does nothing on this rank.
    CallAcquire(u32),
    /// Nor does the release fence before one.
    CallRelease(u32),
    /// This rank does not greet in its n-th step.
    Greeting(u32, u32),
    /// This rank does not wait for greetings.
    Deaf(u32),
    /// Whatever is in the place of a packet has the flag of the step.
    SameFlag,
    /// Of two packets only the first one's flag is looked at.
    Half,
    /// Places of both parities are one.
    OnePlace,
    /// Executors do not count their steps.
    Uncounted,
    /// Places are not cleaned.
    Uncleaned,
    /// Lanes do not meet before they greet.
    Meet,
    /// Lanes do not meet when they say whether they have heard the greetings, and read what came.
    Vote,
}

/// What a model begins with.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// How many there are.
    pub ranks: u32,
    /// Lanes of each.
    pub lanes: [u32; 4],
    /// Executors of each, which run one after another.
    pub executors: u32,
    /// Bytes of a message.
    pub message: u32,
    /// How many steps have been before. Places have the flags of the last two.
    pub start: u32,
    /// Packets have been left 2³² steps ago, which have the flags of the third and the fourth step from now.
    pub stale: bool,
}

impl Setting {
    /// Ranks of one lane and one executor, with messages of one line.
    pub const fn new(ranks: u32, start: u32) -> Setting {
        Setting { ranks, lanes: [1; 4], executors: 1, message: 128, start, stale: false }
    }

    /// What the threads are: ranks and lanes.
    pub fn threads(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let lanes = self.lanes;
        (0..self.ranks).flat_map(move |rank| (0..lanes[rank as usize]).map(move |lane| (rank, lane)))
    }

    fn table(&self) -> LeanRanks {
        LeanRanks {
            control: 0,
            bases: 0,
            steps: 0,
            offset: 0,
            message: self.message,
            executors: self.executors,
            rank: 0,
            ranks: self.ranks,
        }
    }

    /// Words of a place, and its first ones that are packets.
    fn place(&self) -> [usize; 2] {
        let table = self.table();
        [table.hello(0, 0, 1), table.place(0, 0, 0)].map(|bytes| bytes as usize / 4)
    }

    /// Words of a rank's places.
    fn words(&self) -> usize {
        self.table().total() as usize / 4
    }
}

/// Words of a greeting, and what lies behind it.
const GREETING: usize = 128 / 4;

#[repr(C, align(128))]
struct Line([UnsafeCell<u32>; 32]);

fn lines(words: usize) -> Box<[Line]> {
    (0..words.div_ceil(32)).map(|_| Line([const { UnsafeCell::new(0) }; 32])).collect()
}

/// What one access has of a place: two packets, one of them, or 16 bytes of data.
type Content = [u64; 2];

/// What all threads of a model share.
pub struct World {
    setting: Setting,
    lack: Option<Lack>,
    order: RefCell<Order>,
    /// By the number of the store.
    contents: RefCell<Vec<Content>>,
    /// Its addresses are those of the places.
    memory: Box<[Line]>,
    bases: Box<[u64]>,
    /// Of executors, by rank.
    steps: Box<[UnsafeCell<u32>]>,
    /// Two of each rank.
    tensors: Box<[Box<[Line]>]>,
}

impl World {
    /// Tensors have so many words.
    fn new(setting: Setting, tensor: usize, lack: Option<Lack>) -> World {
        assert!(setting.threads().count() <= THREADS, "too many threads");
        let [place, packets] = setting.place();
        let words = setting.words() * setting.ranks as usize;
        let mut order = Order::new(Layout::Lean { place, packets, words }, [0; FIRST as usize]);
        order.dependent = true;
        let left = |ago: u32| [packet(77, setting.start.wrapping_sub(ago)); 2];
        let stale = |step: u32| [packet(78, setting.start.wrapping_add(step)); 2];
        let mut contents = vec![[0; 2]; FIRST as usize];
        let even = setting.start % 2;
        contents[1] = left(even);
        contents[2] = left(1 - even);
        contents[3] = stale(4 - even);
        contents[4] = stale(3 + even);
        let memory = lines(words);
        let base = memory.as_ptr() as u64;
        World {
            setting,
            lack,
            order: RefCell::new(order),
            contents: RefCell::new(contents),
            bases: (0..setting.ranks as usize).map(|rank| base + (4 * rank * setting.words()) as u64).collect(),
            memory,
            steps: (0..setting.ranks * setting.executors).map(|_| UnsafeCell::new(setting.start)).collect(),
            tensors: (0..2 * setting.ranks).map(|_| lines(tensor)).collect(),
        }
    }

    /// The number of what a word begins with.
    fn first(&self, word: usize) -> u64 {
        let [place, packets] = self.setting.place();
        let (parity, at) = ((word / place % 2) as u64, word % place);
        match at {
            _ if at >= packets || self.setting.start == 0 => 0,
            _ if at >= GREETING && self.setting.stale => 3 + parity,
            _ => 1 + parity,
        }
    }

    /// Word `n` of the first or second tensor of a rank.
    fn tensor(&self, rank: u32, second: bool, n: usize) -> *mut u32 {
        self.tensors[2 * rank as usize + usize::from(second)][n / 32].0[n % 32].get()
    }

    /// The word of a place at an address; none if it is elsewhere.
    fn find(&self, at: *const u32) -> Option<usize> {
        let word = (at as usize).checked_sub(self.memory.as_ptr() as usize)? / 4;
        (word < self.setting.words() * self.setting.ranks as usize).then_some(word)
    }

    /// The word of a place that an access uses.
    fn index(&self, at: *const u64) -> usize {
        let word = self.find(at.cast()).expect("an access outside of the memory");
        let [place, _] = self.setting.place();
        if self.lacks(Lack::OnePlace) && word / place % 2 == 1 { word - place } else { word }
    }

    /// The word of an executor's number of steps, behind all places.
    fn counter(&self, at: *const u32) -> usize {
        self.setting.words() * self.setting.ranks as usize + (at as usize - self.steps.as_ptr() as usize) / 4
    }

    fn lacks(&self, lack: Lack) -> bool {
        self.lack == Some(lack)
    }
}

/// Who runs the threads, and what their loads see.
pub trait Machine {
    /// Two packets are stored and loaded as one word.
    const TOGETHER: bool;
    /// The number of the store that a load of this word sees.
    fn load(&self, world: &World, thread: usize, word: usize) -> u64;
    /// Makes a store, which has its number then.
    fn store(&self, world: &World, word: usize, number: impl FnOnce() -> u64);
    /// An acquire fence.
    fn acquire(&self);
    /// A release fence.
    fn release(&self);
    /// Lets others go on, after so many polls.
    fn pause(&self, polls: u32);
    /// Waits until all lanes of a rank have come, `lanes` in all, so often.
    fn meet(&self, rank: u32, lanes: u32, times: u32);
}

/// A thread of a model: a lane of a rank.
pub struct Thread<M> {
    world: Rc<World>,
    machine: M,
    number: usize,
    rank: u32,
    lane: u32,
    /// Of the call: it is one of packets, and each executor sends so many blocks of them at most.
    packets: Cell<bool>,
    blocks: Cell<u32>,
    /// The last greeting, by halves.
    greeting: [Cell<Content>; 2],
    /// The flag of what was stored last.
    flag: Cell<u32>,
    meetings: Cell<u32>,
}

impl<M: Machine> Thread<M> {
    fn new(world: Rc<World>, machine: M, number: usize, (rank, lane): (u32, u32)) -> Thread<M> {
        let greeting = [const { Cell::new([0; 2]) }; 2];
        Thread {
            world,
            machine,
            number,
            rank,
            lane,
            packets: Cell::new(false),
            blocks: Cell::new(0),
            greeting,
            flag: Cell::new(0),
            meetings: Cell::new(0),
        }
    }

    /// The lanes of the rank meet.
    fn gather(&self) {
        let (meeting, lanes) = (self.meetings.get(), self.lanes());
        if lanes == 1 {
            return;
        }
        self.meetings.set(meeting + 1);
        let name = self.rank << 28 | meeting;
        self.world.order.borrow_mut().come(self.number, name);
        self.machine.meet(self.rank, lanes, meeting + 1);
        self.world.order.borrow_mut().leave(self.number, name);
    }

    fn load(&self, word: usize) -> Content {
        let number = self.machine.load(&self.world, self.number, word);
        self.world.order.borrow_mut().load(self.number, word, number);
        self.world.contents.borrow()[number as usize]
    }

    fn store(&self, word: usize, content: Content) {
        self.machine.store(&self.world, word, || {
            let number = self.world.order.borrow_mut().store(self.number, word, 0, false);
            self.world.contents.borrow_mut().push(content);
            number
        });
    }

    /// Where a word is in its place: behind the greeting, and in which half of a block.
    fn half(&self, word: usize) -> (Option<usize>, usize) {
        let at = word % self.world.setting.place()[0];
        (at.checked_sub(GREETING).map(|at| at / 8), at / 4 % 2)
    }
}

// SAFETY: machines order their words by fences as Rust does, and lanes by meetings; where something is left out, a model must notice.
unsafe impl<M: Machine> System for Thread<M> {
    /// No wait looks at clock and stop word.
    const LOOK: u32 = u32::MAX;
    fn lane(&self) -> u32 {
        self.lane
    }
    fn lanes(&self) -> u32 {
        self.world.setting.lanes[self.rank as usize]
    }
    fn all(&self, condition: bool) -> bool {
        assert!(condition, "no wait ends in vain");
        if !self.world.lacks(Lack::Vote) {
            self.gather();
        }
        condition
    }
    fn meet(&self) {
        if !self.world.lacks(Lack::Meet) {
            self.gather();
        }
    }
    unsafe fn own_load(&self, at: *const u32) -> u32 {
        self.world.order.borrow_mut().read(self.number, self.world.counter(at));
        // SAFETY: clocks have found no other thread that stores it meanwhile.
        unsafe { at.read() }
    }
    unsafe fn own_store(&self, at: *mut u32, value: u32) {
        if !self.world.lacks(Lack::Uncounted) {
            self.world.order.borrow_mut().write(self.number, self.world.counter(at));
            // SAFETY: as above.
            unsafe { at.write(value) };
        }
    }
    unsafe fn poll(&self, _: *const u32) -> u32 {
        unreachable!("greetings are packets")
    }
    unsafe fn publish(&self, _: *mut u32, _: u32) {
        unreachable!("greetings are packets")
    }
    fn acquire(&self) {
        let lack = if self.packets.get() { Lack::CallAcquire(self.rank) } else { Lack::Acquire(self.rank) };
        if !self.world.lacks(lack) {
            self.machine.acquire();
            self.world.order.borrow_mut().acquire(self.number);
        }
    }
    fn release(&self) {
        let lack = if self.packets.get() { Lack::CallRelease(self.rank) } else { Lack::Release(self.rank) };
        if !self.world.lacks(lack) {
            self.machine.release();
            self.world.order.borrow_mut().release(self.number);
        }
    }
    unsafe fn load1(&self, _: *const u8) -> u8 {
        unreachable!("blocks are moved")
    }
    unsafe fn store1(&self, _: *mut u8, _: u8) {
        unreachable!("blocks are moved")
    }
    unsafe fn load4(&self, _: *const u32) -> u32 {
        unreachable!("blocks are moved")
    }
    unsafe fn store4(&self, _: *mut u32, _: u32) {
        unreachable!("blocks are moved")
    }
    unsafe fn load16(&self, at: *const u32) -> [u32; 4] {
        if self.world.find(at).is_none() {
            // SAFETY: four words of this rank's tensor, which its lanes use in order.
            return unsafe { at.cast::<[u32; 4]>().read() };
        }
        let [low, high] = self.load(self.world.index(at.cast()));
        [low as u32, (low >> 32) as u32, high as u32, (high >> 32) as u32]
    }
    unsafe fn store16(&self, at: *mut u32, [a, b, c, d]: [u32; 4]) {
        if self.world.find(at).is_none() {
            // SAFETY: as above.
            return unsafe { at.cast::<[u32; 4]>().write([a, b, c, d]) };
        }
        self.store(self.world.index(at.cast_const().cast()), [packet(a, b), packet(c, d)]);
    }
    unsafe fn load_packet(&self, _: *const u64) -> u64 {
        unreachable!("packets come by two")
    }
    unsafe fn store_packet(&self, _: *mut u64, _: u64) {
        unreachable!("packets come by two")
    }
    unsafe fn load_packets(&self, at: *const u64) -> [u64; 2] {
        let word = self.world.index(at);
        let (block, half) = self.half(word);
        if block.is_none() && self.world.lacks(Lack::Deaf(self.rank)) {
            return self.greeting[half].get();
        }
        let [first, second] = if M::TOGETHER {
            self.load(word)
        } else {
            // The second one first: order is not promised.
            let [second, _] = self.load(word + 2);
            [self.load(word)[0], second]
        };
        if block.is_some() && self.world.lacks(Lack::SameFlag) {
            return [first, second].map(|found| packet(packet_data(found), self.flag.get()));
        }
        [first, if self.world.lacks(Lack::Half) { packet(packet_data(second), packet_flag(first)) } else { second }]
    }
    unsafe fn store_packets(&self, at: *mut u64, values: [u64; 2]) {
        let word = self.world.index(at);
        let (block, half) = self.half(word);
        let flag = packet_flag(values[0]);
        self.flag.set(flag);
        match block {
            None => {
                self.greeting[half].set(values);
                if self.world.lacks(Lack::Greeting(self.rank, flag.wrapping_sub(self.world.setting.start))) {
                    return;
                }
            }
            Some(block) if block >= self.blocks.get() as usize && self.world.lacks(Lack::Uncleaned) => return,
            Some(block) => assert!(block < LEAN_PACKETS as usize, "a packet behind its place"),
        }
        if M::TOGETHER {
            return self.store(word, values);
        }
        self.store(word, [values[0], 0]);
        self.store(word + 2, [values[1], 0]);
    }
    unsafe fn claim(&self, _: *mut u32) -> u32 {
        unreachable!("executors have their own words")
    }
    unsafe fn compare_exchange(&self, _: *mut u32, _: u32, _: u32) -> u32 {
        panic!("a greeting of another call");
    }
    unsafe fn tell(&self, _: *mut u32, _: u32) {
        unreachable!("nobody reports")
    }
    fn now(&self) -> u64 {
        1
    }
    fn pause(&self, polls: u32) {
        self.machine.pause(polls);
    }
}
