//! Collectives outside of megakernels: what one executor, a warp of a GPU or a CPU thread, does of a call.
//!
//! Everything is made of one step: an executor stores a message for each rank into that rank's memory, greets it with the step's number, and waits until all have
//! greeted it. Executors of one number exchange with each other alone, so that there is no barrier over a grid. Small messages are packets, which carry their flags:
//! no fence, and no wait for all of it.
//!
//! A step's places are used again by the step after the next one. Who sends that has heard of all in the step between, which they sent when they had read this one.
//! So two places are enough, no rank is more than a step ahead of another one, and no credits are needed. The numbers go on from call to call, in words of the
//! executor, so that a captured launch may be replayed.
//!
//! Elements are moved 16 bytes at a time whatever they are, and element and reduction are values: the kernel has this code once.

use maco_abi::{LEAN_BLOCK, LEAN_PACKETS, LeanCall, LeanElement, LeanOperation, LeanReduction, LeanTensor};

use crate::channel::{CLEANED, Control, OTHER_CALL, Operation, Peer, Stopped, System, Waiting, Watch, packet, packet_data, packet_flag};
use crate::data::element::{Element, bf16, f16};
use crate::data::number::Number;
use crate::operations::collective::{Max, Min, Reduction, Sum};

/// Bytes that a lane moves at a time.
const BYTES: u32 = 16;
/// Blocks of them that a lane has loaded before it stores the first.
const AHEAD: usize = 4;

/// What one step sends and makes, in elements of its tensors.
#[derive(Clone, Copy)]
struct Step {
    /// Where the part for rank 0 begins, and those of the next ranks behind it.
    send: [u64; 2],
    /// Where the part from rank 0 goes, and those of the next ranks behind it; of a sum, where that goes.
    to: [u64; 2],
    /// What this rank has itself of what the others send it; `None` if it is in its place.
    own: Option<u64>,
    /// Elements of a part.
    elements: u64,
    /// No part goes beyond it.
    end: u64,
    /// Whether this rank sends; it greets anyway.
    sends: bool,
    /// From which rank on, and before which one, parts come.
    from: [u32; 2],
    /// Of the parts of these ranks their reduction is made.
    sum: bool,
}

impl Step {
    /// First element and number of elements of a part.
    #[inline(always)]
    fn part(&self, [first, by]: [u64; 2], rank: u32) -> (u64, u32) {
        let first = first + by * rank as u64;
        let left = self.end.saturating_sub(first);
        (first, if left < self.elements { left } else { self.elements } as u32)
    }
}

/// How the messages of a call travel: the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// As packets; else as data, which the greeting releases.
    pub packets: bool,
    /// A sum in two steps: owners reduce, then all gather.
    pub two_steps: bool,
}

impl Form {
    /// That of a call, by its size.
    #[inline(always)]
    pub fn of(call: &LeanCall) -> Form {
        let bytes = 1 << shift_of(call);
        Form { packets: call.in_packets(bytes), two_steps: call.in_two_steps(bytes) }
    }
}

/// Bits by which the number of an element is shifted for its place.
#[inline(always)]
fn shift_of(call: &LeanCall) -> u32 {
    match LeanElement::of(call.code) {
        Some(LeanElement::Bf16 | LeanElement::F16) => 1,
        _ => 2,
    }
}

/// One executor within a call.
struct Executor<'a, S> {
    system: &'a S,
    call: &'a LeanCall,
    watch: Watch,
    number: u32,
    /// The last step.
    step: u32,
    /// Bits by which the number of an element is shifted for its place.
    shift: u32,
    /// Messages are packets.
    packets: bool,
    /// See [`Form`].
    two_steps: bool,
}

/// Where an element is.
#[inline(always)]
fn place(tensor: &LeanTensor, shift: u32, n: u64) -> u64 {
    let n = if tensor.stride == 0 { n } else { n / tensor.columns * tensor.stride + n % tensor.columns };
    tensor.address + (n << shift)
}

/// The elements `valid` from `first` of a tensor, as a block; the rest is zero bits.
///
/// # Safety
/// They are readable, and nobody stores them meanwhile.
#[inline(always)]
unsafe fn load<S: System>(system: &S, tensor: &LeanTensor, shift: u32, first: u64, valid: u32) -> [u32; 4] {
    let at = place(tensor, shift, first);
    if valid == BYTES >> shift && tensor.stride == 0 && at.is_multiple_of(16) {
        // SAFETY: a whole block, which is aligned to 16 bytes.
        return unsafe { system.load16(at as *const u32) };
    }
    let mut words = [0; 4];
    let mut n = 0;
    // From behind, in words that move on.
    while n < BYTES >> shift {
        let [a, b, c, d] = words;
        let at = place(tensor, shift, first + n as u64);
        let mut bits = 0;
        if n < valid {
            // SAFETY: passed on from the caller; elements are aligned.
            bits = unsafe { if shift == 1 { (at as *const u16).read() as u32 } else { (at as *const u32).read() } };
        }
        words = if shift == 1 { [a >> 16 | b << 16, b >> 16 | c << 16, c >> 16 | d << 16, d >> 16 | bits << 16] } else { [b, c, d, bits] };
        n += 1;
    }
    words
}

/// Stores them.
///
/// # Safety
/// They are writable, and no other lane or executor uses them meanwhile.
#[inline(always)]
unsafe fn store<S: System>(system: &S, tensor: &LeanTensor, shift: u32, first: u64, valid: u32, words: [u32; 4]) {
    let at = place(tensor, shift, first);
    if valid == BYTES >> shift && tensor.stride == 0 && at.is_multiple_of(16) {
        // SAFETY: as of `load`.
        unsafe { system.store16(at as *mut u32, words) };
        return;
    }
    let mut words = words;
    let mut n = 0;
    while n < valid {
        let [a, b, c, d] = words;
        let at = place(tensor, shift, first + n as u64);
        if shift == 1 {
            // SAFETY: as of `load`.
            unsafe { (at as *mut u16).write(a as u16) };
            words = [a >> 16 | b << 16, b >> 16 | c << 16, c >> 16 | d << 16, d >> 16];
        } else {
            // SAFETY: as above.
            unsafe { (at as *mut u32).write(a) };
            words = [b, c, d, 0];
        }
        n += 1;
    }
}

/// The bits of the values of a block: four of four bytes, or eight.
#[inline(always)]
fn open(code: u32, words: [u32; 4]) -> [u32; 8] {
    match LeanElement::of(code) {
        Some(LeanElement::Bf16) => bf16::open(words).map(f32::to_bits),
        Some(LeanElement::F16) => f16::open(words).map(f32::to_bits),
        _ => [words[0], words[1], words[2], words[3], 0, 0, 0, 0],
    }
}

/// The block of these values.
#[inline(always)]
fn close(code: u32, values: [u32; 8]) -> [u32; 4] {
    match LeanElement::of(code) {
        Some(LeanElement::Bf16) => bf16::close(values.map(f32::from_bits)),
        Some(LeanElement::F16) => f16::close(values.map(f32::from_bits)),
        _ => [values[0], values[1], values[2], values[3]],
    }
}

#[inline(always)]
fn of_floats(op: impl Reduction<f32>, a: [u32; 8], b: [u32; 8]) -> [u32; 8] {
    core::array::from_fn(|n| op.combine(f32::from_bits(a[n]), f32::from_bits(b[n])).to_bits())
}

#[inline(always)]
fn of_integers(op: impl Reduction<i32>, a: [u32; 8], b: [u32; 8]) -> [u32; 8] {
    core::array::from_fn(|n| if n < 4 { op.combine(a[n] as i32, b[n] as i32) as u32 } else { 0 })
}

/// `a` of lower ranks, and `b`.
#[inline(always)]
fn combine(code: u32, a: [u32; 8], b: [u32; 8]) -> [u32; 8] {
    let integers = matches!(LeanElement::of(code), Some(LeanElement::I32));
    match LeanReduction::of(code) {
        Some(LeanReduction::Max) if integers => of_integers(Max, a, b),
        Some(LeanReduction::Min) if integers => of_integers(Min, a, b),
        _ if integers => of_integers(Sum, a, b),
        Some(LeanReduction::Max) => of_floats(Max, a, b),
        Some(LeanReduction::Min) => of_floats(Min, a, b),
        _ => of_floats(Sum, a, b),
    }
}

/// What is made of all of them.
#[inline(always)]
fn finish(code: u32, all: [u32; 8], ranks: u32) -> [u32; 8] {
    match (LeanReduction::of(code), LeanElement::of(code)) {
        // At least one, so that nothing is to panic of.
        (Some(LeanReduction::Mean), Some(LeanElement::I32)) => {
            let ranks = ranks.clamp(1, u16::MAX.into()) as i32;
            core::array::from_fn(|n| if n < 4 { (all[n] as i32 / ranks) as u32 } else { 0 })
        }
        (Some(LeanReduction::Mean), _) => all.map(|value| f32::from_bits(value).over(ranks).to_bits()),
        _ => all,
    }
}

impl<S: System> Executor<'_, S> {
    /// Where this rank has the symmetric memory of `rank`.
    #[inline(always)]
    fn of(&self, rank: u32) -> Peer<u8> {
        // SAFETY: the table has as many addresses, and nobody stores it; the memory is mapped, and all accesses of ranks to it are of `.sys` scope.
        unsafe { Peer::new((self.call.ranks.bases as *const *mut u8).wrapping_add(rank as usize).read()) }
    }

    /// A place of this rank's own symmetric memory.
    #[inline(always)]
    fn own<T>(&self, offset: u64) -> *const T {
        let rank = self.call.ranks.rank as usize;
        // SAFETY: as above.
        unsafe { (self.call.ranks.bases as *const *const u8).wrapping_add(rank).read() }.wrapping_add(offset as usize).cast()
    }

    /// Rank `n` places behind this one: ranks send to different ones at a time.
    #[inline(always)]
    fn peer(&self, n: u32) -> u32 {
        let to = self.call.ranks.rank + n;
        if to < self.call.ranks.ranks { to } else { to - self.call.ranks.ranks }
    }

    /// Blocks of so many elements.
    #[inline(always)]
    fn blocks(&self, elements: u32) -> u32 {
        (elements << self.shift).div_ceil(BYTES)
    }

    /// First element of block `n`, and how many it has of `elements`.
    #[inline(always)]
    fn block(&self, n: u32, elements: u32) -> (u64, u32) {
        let each = BYTES >> self.shift;
        let left = elements - n * each;
        ((n * each) as u64, if left < each { left } else { each })
    }

    /// What this rank calls: who greets says it.
    #[inline(always)]
    fn header(&self) -> [u32; 4] {
        [self.call.code, self.call.root, self.call.count as u32, (self.call.count >> 32) as u32]
    }

    /// Stores a block as packets.
    ///
    /// # Safety
    /// `to` has room for four, and its reader has read what was there.
    #[inline(always)]
    unsafe fn store_packets(&self, to: Peer<u8>, words: [u32; 4]) {
        let flag = self.step;
        // SAFETY: passed on from the caller.
        unsafe {
            to.at::<u64>(0).store_packets(self.system, [packet(words[0], flag), packet(words[1], flag)]);
            to.at::<u64>(16).store_packets(self.system, [packet(words[2], flag), packet(words[3], flag)]);
        }
    }

    /// Waits for the packets of a block that rank `from` stores at `at` of this rank's symmetric memory. Each lane waits by itself.
    ///
    /// # Safety
    /// As of [`run`]; there is such a block.
    #[inline(always)]
    unsafe fn load_packets(&self, from: u32, at: u64) -> Result<[u32; 4], Stopped> {
        let place = self.own::<u64>(at);
        let mut packets = [0; 4];
        // SAFETY: (of all) packets of this rank's symmetric memory; the watch is this rank's, as the caller promises.
        unsafe {
            self.watch.until(self.system, self.waiting(from, at), |system| {
                let ([a, b], [c, d]) = (system.load_packets(place), system.load_packets(place.wrapping_add(2)));
                packets = [a, b, c, d];
                let stale = packets.map(|packet| packet_flag(packet) ^ self.step);
                (stale[0] | stale[1] | stale[2] | stale[3] == 0, packet_flag(a))
            })?;
        }
        Ok(packets.map(packet_data))
    }

    #[inline(always)]
    fn waiting(&self, peer: u32, at: u64) -> Waiting {
        let operation = match LeanOperation::of(self.call.code) {
            Some(LeanOperation::AllGather) => Operation::AllGather,
            Some(LeanOperation::ReduceScatter) => Operation::ReduceScatter,
            Some(LeanOperation::AllToAll) => Operation::AllToAll,
            Some(LeanOperation::Broadcast) => Operation::Broadcast,
            _ => Operation::AllReduce,
        };
        Waiting { operation, peer, word: (at / 4) as u32, expected: self.step }
    }

    /// Sends what is for each rank, and greets it.
    ///
    /// # Safety
    /// As of [`Executor::step`].
    #[inline(always)]
    unsafe fn send(&self, tensor: &LeanTensor, step: &Step) {
        let (system, ranks, shift, flag) = (self.system, &self.call.ranks, self.shift, self.step);
        // See `CLEANED`.
        let cleans = flag % CLEANED < 2;
        let mut n = 1;
        while n < ranks.ranks {
            let peer = self.peer(n);
            let to = self.of(peer);
            let (message, packets) =
                (to.at::<u8>(ranks.place(ranks.rank, self.number, flag)), ranks.packets(ranks.rank, self.number, flag));
            let packets = to.at::<u8>(packets);
            let (first, elements) = step.part(step.send, peer);
            let elements = if step.sends { elements } else { 0 };
            let blocks = self.blocks(elements);
            let mut block = system.lane();
            // Where a place is cleaned, each of its blocks has its turn below.
            if !self.packets && !cleans && tensor.stride == 0 && place(tensor, shift, first).is_multiple_of(16) {
                let whole = (elements << shift) / BYTES;
                let from = place(tensor, shift, first) as *const u32;
                while block + (AHEAD as u32 - 1) * system.lanes() < whole {
                    let at: [u32; AHEAD] = core::array::from_fn(|n| block + n as u32 * system.lanes());
                    // SAFETY: whole blocks of the tensor.
                    let words = at.map(|block| unsafe { system.load16(from.wrapping_add(4 * block as usize)) });
                    let both = at.iter().zip(words);
                    // SAFETY: the same ones of the message, whose reader has read what was there: it has sent the step before.
                    both.for_each(|(block, words)| unsafe { message.at::<u32>(16 * *block as u64).store16(system, words) });
                    block += AHEAD as u32 * system.lanes();
                }
            }
            let end = if cleans && blocks < LEAN_PACKETS { LEAN_PACKETS } else { blocks };
            while block < end {
                let mut words = [0; 4];
                if block < blocks {
                    let (at, valid) = self.block(block, elements);
                    // SAFETY: as above.
                    words = unsafe { load(system, tensor, shift, first + at, valid) };
                    if !self.packets {
                        // SAFETY: as above.
                        unsafe { message.at::<u32>(16 * block as u64).store16(system, words) };
                    }
                }
                if self.packets || cleans && block < LEAN_PACKETS {
                    // SAFETY: as above.
                    unsafe { self.store_packets(packets.at(32 * block as u64), words) };
                }
                block += system.lanes();
            }
            n += 1;
        }
        // What the lanes stored comes before the greetings.
        system.meet();
        if !self.packets {
            system.release();
        }
        let mut n = 1 + system.lane();
        while n < ranks.ranks {
            // SAFETY: the greeting of this rank and executor, of which one lane is the writer.
            unsafe { self.store_packets(self.of(self.peer(n)).at(ranks.hello(ranks.rank, self.number, flag)), self.header()) };
            n += system.lanes();
        }
    }

    /// Waits until all ranks have greeted this one, and looks whether they make the same call. What lanes find out by themselves.
    ///
    /// # Safety
    /// As of [`run`].
    #[inline(always)]
    unsafe fn hear(&self) -> bool {
        let (system, ranks) = (self.system, &self.call.ranks);
        let own = self.header();
        let mut goes_on = true;
        let mut n = 1 + system.lane();
        while n < ranks.ranks && goes_on {
            let from = self.peer(n);
            let at = ranks.hello(from, self.number, self.step);
            // SAFETY: (of all) passed on from the caller.
            match unsafe { self.load_packets(from, at) } {
                Ok(found) if found != own => {
                    let (word, found, expected) = match () {
                        () if found[0] != own[0] => (0, found[0], own[0]),
                        () if found[1] != own[1] => (1, found[1], own[1]),
                        () if found[2] != own[2] => (2, found[2], own[2]),
                        () => (3, found[3], own[3]),
                    };
                    let waiting = Waiting { word, expected, ..self.waiting(from, at) };
                    // SAFETY: as above.
                    unsafe { self.watch.report(system, waiting, [found, OTHER_CALL, 0], 0) };
                    goes_on = false;
                }
                Ok(_) => {}
                Err(Stopped) => goes_on = false,
            }
            n += system.lanes();
        }
        if !self.packets {
            system.acquire();
        }
        goes_on
    }

    /// Block `n` of what rank `from` has sent in this step.
    ///
    /// # Safety
    /// It sends as much; if not as packets, it has greeted.
    #[inline(always)]
    unsafe fn received(&self, from: u32, n: u32) -> Result<[u32; 4], Stopped> {
        let ranks = &self.call.ranks;
        // SAFETY: (of both) a block of the message.
        unsafe {
            if self.packets {
                self.load_packets(from, ranks.packets(from, self.number, self.step) + 32 * n as u64)
            } else {
                Ok(self.system.load16(self.own(ranks.place(from, self.number, self.step) + 16 * n as u64)))
            }
        }
    }

    /// Makes the result of what ranks have sent: in the order of ranks, rounded once. False if it does not come.
    ///
    /// # Safety
    /// As of [`Executor::step`], behind what it waits for.
    #[inline(always)]
    unsafe fn make(&self, tensor: &LeanTensor, step: &Step) -> bool {
        let (system, call) = (self.system, self.call);
        let mut part = step.from[0];
        // Of a sum there is one part, of all ranks.
        while part < if step.sum { step.from[0] + 1 } else { step.from[1] } {
            let [begin, end] = if step.sum { step.from } else { [part, part + 1] };
            let (to, elements) = step.part(step.to, part);
            let blocks = if begin + 1 == end && begin == call.ranks.rank && step.own.is_none() { 0 } else { self.blocks(elements) };
            let mut block = system.lane();
            while block < blocks {
                let (at, valid) = self.block(block, elements);
                let (mut all, mut words) = ([0; 8], [0; 4]);
                let mut from = begin;
                // The next rank's block is loaded before the one that has come is used.
                loop {
                    let mut next = [0; 4];
                    if from < end {
                        if from == call.ranks.rank {
                            // SAFETY: this rank's own part.
                            next = unsafe { load(system, tensor, self.shift, step.own.unwrap_or(0) + at, valid) };
                        } else {
                            // SAFETY: that rank sends as much.
                            match unsafe { self.received(from, block) } {
                                Ok(block) => next = block,
                                Err(Stopped) => return false,
                            }
                        }
                    }
                    if step.sum && from > begin {
                        let values = open(call.code, words);
                        all = if from == begin + 1 { values } else { combine(call.code, all, values) };
                    }
                    if from == end {
                        break;
                    }
                    words = next;
                    from += 1;
                }
                if step.sum {
                    words = close(call.code, finish(call.code, all, call.ranks.ranks));
                }
                // SAFETY: this lane's block of the result.
                unsafe { store(system, &call.output, self.shift, to + at, valid, words) };
                block += system.lanes();
            }
            part += 1;
        }
        true
    }

    /// One step. All lanes call together, and all come back together.
    ///
    /// # Safety
    /// As of [`run`]; the parts are in the tensors and fit a message.
    #[inline(always)]
    unsafe fn step(&mut self, tensor: &LeanTensor, step: &Step) -> Result<(), Stopped> {
        self.step = self.step.wrapping_add(1);
        // SAFETY: (of all) passed on from the caller.
        unsafe {
            self.send(tensor, step);
            // The lanes meet, also those that gave up: what one has acquired all see.
            let heard = self.hear();
            if !self.system.all(heard) {
                return Err(Stopped);
            }
            let made = self.make(tensor, step);
            // What others send next has been made.
            if self.system.all(made) { Ok(()) } else { Err(Stopped) }
        }
    }

    /// This executor's part of the call.
    ///
    /// # Safety
    /// As of [`run`].
    #[inline(always)]
    unsafe fn run(&mut self) -> Result<(), Stopped> {
        let call = self.call;
        let (rank, ranks) = (call.ranks.rank, call.ranks.ranks);
        let bytes = 1 << self.shift;
        let operation = call.code & 0xff;
        let is = |other: LeanOperation| operation == other as u32;
        let [mut first, end] = call.part(self.number, bytes);
        let twice = self.two_steps;
        let most = call.capacity(bytes) * if twice { ranks as u64 } else { 1 };
        // Each rank has planes of the one or the other.
        let planes = is(LeanOperation::ReduceScatter) || is(LeanOperation::AllToAll);
        let sum = is(LeanOperation::AllReduce) || is(LeanOperation::ReduceScatter);
        let broadcast = is(LeanOperation::Broadcast);
        let mut second = false;
        // One step at least, so that calls of nothing are compared as well.
        loop {
            let left = end - first;
            let elements = if left < most { left } else { most };
            let behind = first + elements;
            let (step, tensor);
            if twice {
                // A part of each rank, in blocks; the last ones may be shorter, or none.
                let each = (elements.div_ceil(LEAN_BLOCK) as u32).div_ceil(ranks) as u64 * LEAN_BLOCK;
                let (mine, all) = ([first + rank as u64 * each, 0], [first, each]);
                tensor = if second { call.output } else { call.input };
                step = Step {
                    send: if second { mine } else { all },
                    to: if second { all } else { mine },
                    own: if second { None } else { Some(mine[0]) },
                    elements: each,
                    end: behind,
                    sends: true,
                    from: [0, ranks],
                    sum: !second,
                };
            } else {
                let own = first + if planes { rank as u64 * call.count } else { 0 };
                tensor = call.input;
                step = Step {
                    send: [first, if planes { call.count } else { 0 }],
                    to: [first, if sum || broadcast { 0 } else { call.count }],
                    own: if broadcast { None } else { Some(own) },
                    elements,
                    end: u64::MAX,
                    sends: !broadcast || rank == call.root,
                    from: if broadcast { [call.root, call.root + 1] } else { [0, ranks] },
                    sum,
                };
            }
            // SAFETY: pieces of the tensors, which the caller promises.
            unsafe { self.step(&tensor, &step)? };
            second = twice && !second;
            if !second {
                first = behind;
                if first >= end {
                    return Ok(());
                }
            }
        }
    }
}

/// What executor `number` of a rank does of `call`: one of [`LeanRanks::executors`](maco_abi::LeanRanks::executors). All lanes call together.
///
/// # Errors
/// When the ranks do not go on; the control block says why.
///
/// # Safety
/// The tables of the call are mapped and of as many ranks and executors; the symmetric memory at each base has its messages, which were zero before the first
/// call, and nobody else uses them. The tensors have as many elements, and nobody else uses them meanwhile. Ranks make their calls in one order, and an executor
/// one at a time.
#[inline(always)]
pub unsafe fn run<S: System>(system: &S, call: &LeanCall, number: u32) -> Result<(), Stopped> {
    // SAFETY: passed on from the caller.
    unsafe { run_as(system, call, number, Form::of(call)) }
}

/// The same with a form that all ranks agree on: [`run`] has that of the call's size.
///
/// # Errors
/// As of [`run`].
///
/// # Safety
/// As of [`run`]; packets have [`LEAN_PACKETS`] blocks for each executor, and only a sum of all goes in two steps, not as packets.
#[inline(always)]
pub unsafe fn run_as<S: System>(system: &S, call: &LeanCall, number: u32, form: Form) -> Result<(), Stopped> {
    let shift = shift_of(call);
    if number >= call.active(1 << shift) {
        return Ok(());
    }
    let watch = Watch { control: call.ranks.control as *mut Control, rank: call.ranks.rank, deadline_ns: call.deadline_ns };
    let steps = (call.ranks.steps as *mut u32).wrapping_add(number as usize);
    // SAFETY: (of all) this executor's word, and what the caller promises.
    unsafe {
        let Form { packets, two_steps } = form;
        let mut executor = Executor { system, call, watch, number, step: system.own_load(steps), shift, packets, two_steps };
        // All have loaded it.
        system.meet();
        let result = executor.run();
        if system.lane() == 0 {
            system.own_store(steps, executor.step);
        }
        result
    }
}

/// What a rank without launches does of `call`: all its executors, one after another.
///
/// # Errors
/// As of [`run`].
///
/// # Safety
/// As of [`run`]; another thread may have made the call before, which happens before this one.
#[inline]
pub unsafe fn run_all<S: System>(system: &S, call: &LeanCall) -> Result<(), Stopped> {
    // SAFETY: passed on from the caller.
    unsafe { run_all_as(system, call, Form::of(call)) }
}

/// The same with a form that all ranks agree on.
///
/// Data is stored where that of the step before the last was loaded, and the greetings of the step between say that it was. Those of packets order no data. A
/// launch of a GPU begins when the loads of the one before have ended; here fences say so.
///
/// # Errors
/// As of [`run`].
///
/// # Safety
/// As of [`run_as`] and [`run_all`].
#[inline]
pub unsafe fn run_all_as<S: System>(system: &S, call: &LeanCall, form: Form) -> Result<(), Stopped> {
    if form.packets {
        // What the call before has loaded comes before the greetings of this one.
        system.release();
    }
    for number in 0..call.active(1 << shift_of(call)) {
        // SAFETY: passed on from the caller.
        unsafe { run_as(system, call, number, form)? };
    }
    if form.packets {
        // The same of the others: what the next call stores comes behind their greetings.
        system.acquire();
    }
    Ok(())
}
