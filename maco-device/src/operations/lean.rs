//! Collectives outside of megakernels: what one executor, a warp of a GPU or a CPU thread, does of a call.
//!
//! Everything is made of one step: an executor stores a message for each rank into that rank's memory, tells it the step's number, and waits until all have told
//! it theirs. Executors of one number exchange with each other alone, so that there is no barrier over a grid.
//!
//! A step's places are used again by the step after the next one. Who sends that has heard of all in the step between, which they sent when they had read this one.
//! So two places are enough, no rank is more than a step ahead of another one, and no credits are needed. The numbers go on from call to call, in words of the
//! executor, so that a captured launch may be replayed.

use maco_abi::{LEAN_BLOCK, LeanCall, LeanElement, LeanOperation, LeanReduction, LeanTensor};

use crate::channel::{Control, OTHER_CALL, Operation, Peer, Stopped, System, Waiting, Watch, reached};
use crate::data::element::{Element, bf16, f16};
use crate::data::number::Number;
use crate::operations::collective::{Max, Mean, Min, Reduction, Sum};

/// Elements of a block.
const BLOCK: u32 = LEAN_BLOCK as u32;

/// Elements of a tensor, or of a message: so many, from the first.
#[derive(Clone, Copy)]
struct Piece {
    first: u64,
    elements: u32,
}

impl Piece {
    const NONE: Piece = Piece { first: 0, elements: 0 };

    /// The next `most` elements from `first`, as far as `end`.
    #[inline(always)]
    fn next(first: u64, end: u64, most: u64) -> Piece {
        let left = if first < end { end - first } else { 0 };
        Piece { first, elements: if left < most { left } else { most } as u32 }
    }

    #[inline(always)]
    fn blocks(self) -> u32 {
        self.elements.div_ceil(BLOCK)
    }

    /// Elements of block `n`.
    #[inline(always)]
    fn of_block(self, n: u32) -> u32 {
        let left = self.elements - BLOCK * n;
        if left < BLOCK { left } else { BLOCK }
    }

    /// The same elements of part `n`, of so many.
    #[inline(always)]
    fn of_part(self, n: u32, elements: u64) -> Piece {
        Piece { first: self.first + n as u64 * elements, ..self }
    }
}

/// The operator of a code, as a value: code for each would be four times as much.
#[derive(Clone, Copy)]
struct ByCode(u32);

impl<V: Number> Reduction<V> for ByCode {
    #[inline(always)]
    fn combine(self, a: V, b: V) -> V {
        if self.0 == LeanReduction::Max as u32 {
            Max.combine(a, b)
        } else if self.0 == LeanReduction::Min as u32 {
            Min.combine(a, b)
        } else {
            Sum.combine(a, b)
        }
    }
    #[inline(always)]
    fn finish(self, all: V, ranks: u32) -> V {
        if self.0 == LeanReduction::Mean as u32 { Mean.finish(all, ranks) } else { all }
    }
}

/// One executor within a call on elements `E`.
struct Executor<'a, S> {
    system: &'a S,
    call: &'a LeanCall,
    watch: Watch,
    number: u32,
    /// The last step.
    step: u32,
    /// No step of this call has been made.
    is_first: bool,
}

/// The elements `valid` from `first` of a tensor, as a block; the rest is zero bits.
///
/// # Safety
/// They are readable, and nobody stores them meanwhile.
#[inline(always)]
unsafe fn load<S: System, E: Element>(system: &S, tensor: &LeanTensor, first: u64, valid: u32) -> E::Eight {
    let mut eight = E::Eight::default();
    let words = eight.as_mut();
    let at = place::<E>(tensor, first);
    if valid == BLOCK && tensor.stride == 0 && at as u64 % 16 == 0 {
        let mut n = 0;
        while n < 2 * E::BYTES as usize {
            // SAFETY: inside the block, which is aligned to 16 bytes.
            let four = unsafe { system.load16(at.cast::<u32>().wrapping_add(n)) };
            words[n..][..4].copy_from_slice(&four);
            n += 4;
        }
        return eight;
    }
    let mut n = 0;
    while n < BLOCK {
        if n < valid {
            // SAFETY: passed on from the caller.
            let bits = unsafe { E::bits_if(true, place::<E>(tensor, first + n as u64)) };
            words[(n * E::BYTES / 4) as usize] |= bits << (8 * (n * E::BYTES % 4));
        }
        n += 1;
    }
    eight
}

/// Stores them.
///
/// # Safety
/// They are writable, and no other lane or executor uses them meanwhile.
#[inline(always)]
unsafe fn store<S: System, E: Element>(system: &S, tensor: &LeanTensor, first: u64, valid: u32, eight: E::Eight) {
    let words = eight.as_ref();
    let at = place::<E>(tensor, first);
    if valid == BLOCK && tensor.stride == 0 && at as u64 % 16 == 0 {
        let mut n = 0;
        while n < 2 * E::BYTES as usize {
            // SAFETY: as of `load`.
            unsafe { system.store16(at.cast::<u32>().wrapping_add(n), [words[n], words[n + 1], words[n + 2], words[n + 3]]) };
            n += 4;
        }
        return;
    }
    let mut n = 0;
    while n < BLOCK {
        if n < valid {
            let bits = words[(n * E::BYTES / 4) as usize] >> (8 * (n * E::BYTES % 4));
            // SAFETY: passed on from the caller; an element has no more bytes than a word, whose low ones these are, and is any bits.
            unsafe { place::<E>(tensor, first + n as u64).write(core::mem::transmute_copy::<u32, E>(&bits)) };
        }
        n += 1;
    }
}

/// Where an element is.
#[inline(always)]
fn place<E>(tensor: &LeanTensor, n: u64) -> *mut E {
    let n = if tensor.stride == 0 { n } else { n / tensor.columns * tensor.stride + n % tensor.columns };
    (tensor.address as *mut E).wrapping_add(n as usize)
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

    /// Sends `piece(p)` of `tensor` to each rank p, and waits for what all have sent. All lanes call together.
    ///
    /// # Safety
    /// As of [`run`]; the pieces are in the tensor and fit a message.
    #[inline(always)]
    unsafe fn exchange<E: Element>(&mut self, tensor: &LeanTensor, piece: impl Fn(u32) -> Piece) -> Result<(), Stopped> {
        let (system, call) = (self.system, self.call);
        let ranks = call.ranks;
        self.step = self.step.wrapping_add(1);
        let mut n = 1;
        while n < ranks.ranks {
            let (to, part) = (self.peer(n), piece(self.peer(n)));
            let place = self.of(to).at::<u32>(ranks.place(ranks.rank, self.number, self.step));
            let mut block = system.lane();
            while block < part.blocks() {
                // SAFETY: (of all) a block of the tensor, and the same one of the message, whose reader has read what was there: it has sent the step before.
                let eight = unsafe { load::<S, E>(system, tensor, part.first + (block * BLOCK) as u64, part.of_block(block)) };
                let words = eight.as_ref();
                let mut word = 0;
                while word < 2 * E::BYTES as usize {
                    let at = place.at::<u32>((block * BLOCK * E::BYTES) as u64 + 4 * word as u64);
                    // SAFETY: as above.
                    unsafe { at.store16(system, [words[word], words[word + 1], words[word + 2], words[word + 3]]) };
                    word += 4;
                }
                block += system.lanes();
            }
            if self.is_first && system.lane() == 0 {
                let header = self.of(to).at::<u32>(ranks.header(ranks.rank, self.number, self.step));
                // SAFETY: the header of that message.
                unsafe { header.store16(system, self.header()) };
            }
            n += 1;
        }
        // What the lanes stored comes before the numbers.
        system.meet();
        let mut n = 1 + system.lane();
        while n < ranks.ranks {
            // SAFETY: the word of this rank and executor, of which one lane is the writer.
            unsafe { self.of(self.peer(n)).at::<u32>(ranks.word(ranks.rank, self.number)).publish(system, self.step) };
            n += system.lanes();
        }
        let mut result = Ok(());
        let mut n = 1 + system.lane();
        while n < ranks.ranks && result.is_ok() {
            // SAFETY: passed on from the caller.
            result = unsafe { self.hear(self.peer(n)) };
            n += system.lanes();
        }
        self.is_first = false;
        // The lanes meet: what one has acquired all see.
        if system.all(result.is_ok()) { Ok(()) } else { Err(Stopped) }
    }

    /// What this rank calls.
    #[inline(always)]
    fn header(&self) -> [u32; 4] {
        [self.call.code, self.call.root, self.call.count as u32, (self.call.count >> 32) as u32]
    }

    /// Waits until rank `from` has sent its part of this step, of the same call.
    ///
    /// # Safety
    /// As of [`run`].
    #[inline(always)]
    unsafe fn hear(&self, from: u32) -> Result<(), Stopped> {
        let (system, ranks, expected) = (self.system, self.call.ranks, self.step);
        let operation = match LeanOperation::of(self.call.code) {
            Some(LeanOperation::AllGather) => Operation::AllGather,
            Some(LeanOperation::ReduceScatter) => Operation::ReduceScatter,
            Some(LeanOperation::AllToAll) => Operation::AllToAll,
            Some(LeanOperation::Broadcast) => Operation::Broadcast,
            _ => Operation::AllReduce,
        };
        let at = ranks.word(from, self.number);
        let mut waiting = Waiting { operation, peer: from, word: (at / 4) as u32, expected };
        // SAFETY: (of all) words of this rank's symmetric memory; the watch is this rank's, as the caller promises.
        unsafe {
            self.watch.until(system, waiting, |system| {
                let seen = system.poll(self.own(at));
                (reached(seen, expected), seen)
            })?;
        }
        system.acquire();
        if !self.is_first {
            return Ok(());
        }
        // SAFETY: as above: the header came before the number.
        let found = unsafe { system.load16(self.own(ranks.header(from, self.number, self.step))) };
        let own = self.header();
        let mut word = 0;
        while word < 4 {
            if found[word] != own[word] {
                (waiting.word, waiting.expected) = (word as u32, own[word]);
                // SAFETY: as above.
                unsafe { self.watch.report(system, waiting, [found[word], OTHER_CALL, 0], 0) };
                return Err(Stopped);
            }
            word += 1;
        }
        Ok(())
    }

    /// Block `n` of what rank `from` has sent in this step.
    ///
    /// # Safety
    /// It has sent as much.
    #[inline(always)]
    unsafe fn received<E: Element>(&self, from: u32, n: u32) -> E::Eight {
        let at = self.own::<u32>(self.call.ranks.place(from, self.number, self.step));
        let at = at.wrapping_add((n * BLOCK * E::BYTES / 4) as usize);
        let mut eight = E::Eight::default();
        let words = eight.as_mut();
        let mut word = 0;
        while word < 2 * E::BYTES as usize {
            // SAFETY: a block of the message.
            let four = unsafe { self.system.load16(at.wrapping_add(word)) };
            words[word..][..4].copy_from_slice(&four);
            word += 4;
        }
        eight
    }

    /// Stores at `to` of the output what all have sent and what this rank has at `own` of the input, reduced in the order of ranks and rounded once.
    ///
    /// # Safety
    /// As of [`run`]; behind an exchange of as many elements.
    #[inline(always)]
    unsafe fn reduce<E: Element>(&self, own: Piece, to: Piece) {
        let (system, call) = (self.system, self.call);
        let operator = ByCode(call.code >> 8 & 0xff);
        let mut block = system.lane();
        while block < to.blocks() {
            let valid = to.of_block(block);
            let at = (block * BLOCK) as u64;
            // SAFETY: (of all) blocks of the tensors and of messages, as the caller promises; this lane's alone.
            let of = |from| unsafe {
                if from == call.ranks.rank {
                    load::<S, E>(system, &call.input, own.first + at, valid)
                } else {
                    self.received::<E>(from, block)
                }
            };
            let mut all = E::open(of(0));
            let mut from = 1;
            while from < call.ranks.ranks {
                let values = E::open(of(from));
                all = core::array::from_fn(|n| operator.combine(all[n], values[n]));
                from += 1;
            }
            let all = E::close(all.map(|value| operator.finish(value, call.ranks.ranks)));
            // SAFETY: as above.
            unsafe { store::<S, E>(system, &call.output, to.first + at, valid, all) };
            block += system.lanes();
        }
    }

    /// Stores at `to` of the output what rank `from` has sent, or, if that is this rank, what it has at `own` of the input.
    ///
    /// # Safety
    /// As of [`Executor::reduce`].
    #[inline(always)]
    unsafe fn take<E: Element>(&self, from: u32, own: Piece, to: Piece) {
        let (system, call) = (self.system, self.call);
        let mut block = system.lane();
        while block < to.blocks() {
            let (valid, at) = (to.of_block(block), (block * BLOCK) as u64);
            // SAFETY: (of all) as of `reduce`.
            unsafe {
                let eight = if from == call.ranks.rank {
                    load::<S, E>(system, &call.input, own.first + at, valid)
                } else {
                    self.received::<E>(from, block)
                };
                store::<S, E>(system, &call.output, to.first + at, valid, eight);
            }
            block += system.lanes();
        }
    }

    /// This executor's part of the call.
    ///
    /// # Safety
    /// As of [`run`].
    #[inline(always)]
    unsafe fn run<E: Element>(&mut self) -> Result<(), Stopped> {
        let call = self.call;
        let (rank, ranks) = (call.ranks.rank, call.ranks.ranks);
        let operation = call.code & 0xff;
        let is = |other: LeanOperation| operation == other as u32;
        let [mut first, end] = call.part(self.number, E::BYTES);
        let most = call.capacity(E::BYTES);
        if is(LeanOperation::AllReduce) && call.in_two_steps(E::BYTES) {
            while first < end {
                // A part of each rank, in blocks; the last ones may be shorter, or none.
                let all = Piece::next(first, end, most * ranks as u64);
                let each = all.elements.div_ceil(BLOCK).div_ceil(ranks) * BLOCK;
                let behind = first + all.elements as u64;
                let part = |rank: u32| Piece::next(first + rank as u64 * each as u64, behind, each.into());
                // SAFETY: (of all) pieces of the tensors, which the caller promises.
                unsafe {
                    self.exchange::<E>(&call.input, part)?;
                    self.reduce::<E>(part(rank), part(rank));
                    // Other lanes send what this one has stored.
                    self.system.meet();
                    self.exchange::<E>(&call.output, |_| part(rank))?;
                    let mut from = 0;
                    while from < ranks {
                        if from != rank {
                            self.take::<E>(from, Piece::NONE, part(from));
                        }
                        from += 1;
                    }
                }
                first = behind;
            }
            return Ok(());
        }
        // Each rank has planes of the one or the other.
        let planes = is(LeanOperation::ReduceScatter) || is(LeanOperation::AllToAll);
        let sum = is(LeanOperation::AllReduce) || is(LeanOperation::ReduceScatter);
        loop {
            let piece = Piece::next(first, end, most);
            let sent = |to: u32| match () {
                () if planes => piece.of_part(to, call.count),
                () if is(LeanOperation::Broadcast) && rank != call.root => Piece::NONE,
                () => piece,
            };
            // SAFETY: (of all) as above. Whoever broadcasts hears of all, too.
            unsafe {
                self.exchange::<E>(&call.input, sent)?;
                if sum {
                    self.reduce::<E>(sent(rank), piece);
                } else if is(LeanOperation::Broadcast) {
                    self.take::<E>(call.root, piece, piece);
                } else {
                    let mut from = 0;
                    while from < ranks {
                        self.take::<E>(from, sent(rank), piece.of_part(from, call.count));
                        from += 1;
                    }
                }
            }
            first += most;
            // One step at least, so that calls of nothing are compared as well.
            if first >= end {
                return Ok(());
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
    let bytes = match LeanElement::of(call.code) {
        Some(LeanElement::Bf16 | LeanElement::F16) => 2,
        _ => 4,
    };
    if number >= call.active(bytes) {
        return Ok(());
    }
    let watch = Watch { control: call.ranks.control as *mut Control, rank: call.ranks.rank, deadline_ns: call.deadline_ns };
    let steps = (call.ranks.steps as *mut u32).wrapping_add(number as usize);
    // SAFETY: (of all) this executor's word, and what the caller promises.
    unsafe {
        let mut executor = Executor { system, call, watch, number, step: system.own_load(steps), is_first: true };
        // All have loaded it.
        system.meet();
        let result = match LeanElement::of(call.code) {
            Some(LeanElement::Bf16) => executor.run::<bf16>(),
            Some(LeanElement::F16) => executor.run::<f16>(),
            Some(LeanElement::F32) => executor.run::<f32>(),
            Some(LeanElement::I32) => executor.run::<i32>(),
            None => Ok(()),
        };
        if system.lane() == 0 {
            system.own_store(steps, executor.step);
        }
        result
    }
}
