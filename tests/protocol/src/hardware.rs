//! What the files of a CTA in `maco-device` are built on, with the names of its `hardware`: shared memory and mbarriers that are `loom`'s atomics,
//! fences, lanes that vote.
//!
//! What is a race here depends on the words alone that warps tell each other something by: those of [`Cta::shared`]. All else in shared memory is there
//! before anyone begins.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use loom::sync::atomic::{AtomicU64, Ordering, fence as loom_fence};

use crate::lanes;
use crate::order::Order;

/// One thing left out of what the CTA relies on. A model must notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The sequentially consistent fence of consumers, or of whoever stops the CTA.
    SequentialOfConsumers,
    /// See above.
    SequentialOfController,
    /// The acquire fence of consumers behind a look.
    AcquireOfConsumers,
    /// The acquire fence of the controller behind a look.
    AcquireOfController,
    /// The release fence before a signal.
    Release,
    /// Words of shared memory are stored without release: the halt word, or a notice.
    Store(Kind),
    /// They are loaded without acquire.
    Load(Kind),
    /// Arrivals do not release.
    Arrive(Kind),
    /// Who sees a phase complete does not acquire.
    Test(Kind),
    /// What a warp at its gate says by these two bits it does not say.
    Unsaid(u32),
    /// Whoever stops the CTA takes a warp that looks for one that does not.
    Impatient,
    /// Who looks sees no halt word.
    Blind,
    /// Nobody arrives.
    Unheard(Kind),
    /// A wait is not there.
    Edge,
    /// Nobody looks at the abort word.
    BlindToAbort,
    /// Setting the abort word is a load and a store.
    TornExchange,
}

/// What a word of shared memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// What a warp at its gate says.
    Begun,
    /// How far the CTA is stopped.
    Halt,
    /// Announces a task.
    ReadyMailbox,
    /// The mbarriers of a slot.
    Posted,
    /// See above.
    Ready,
    /// See above.
    Vacant,
}

/// What executors of a model share, besides what `loom` has of it.
pub struct Cta {
    /// By address: what it is, the word, its index for [`Order`], and of an mbarrier arrivals of a phase.
    pub shared: HashMap<u32, (Kind, AtomicU64, u32, u64)>,
    /// Words of global memory that tell something, by index, which is that for [`Order`], too.
    pub global: HashMap<usize, AtomicU64>,
    /// Where they are, and the others.
    pub base: *mut u32,
    /// What a look at the clock adds.
    pub tick: u64,
    /// Shared memory that nobody writes meanwhile.
    pub plain: RefCell<Vec<u64>>,
    /// What happens before what.
    pub order: RefCell<Order>,
    /// What is left out.
    pub lack: Option<Lack>,
    /// Stores so far.
    pub stores: Cell<usize>,
    /// Reports so far, by kind.
    pub reports: RefCell<Vec<u32>>,
}

impl Cta {
    /// Whether this is left out.
    pub fn lacks(&self, lack: Lack) -> bool {
        self.lack == Some(lack)
    }

    fn order(&self) -> std::cell::RefMut<'_, Order> {
        self.order.borrow_mut()
    }

    /// The host's address of a shared address.
    pub fn pointer(&self, at: u32) -> *mut u8 {
        self.plain.borrow_mut().as_mut_ptr().cast::<u8>().wrapping_add((at - special::BASE) as usize)
    }
}

/// One of a model's threads.
pub struct Executor {
    /// What all share.
    pub cta: Rc<Cta>,
    /// Its number for [`Order`].
    pub number: usize,
    /// First hardware thread.
    pub thread: u32,
    /// Stores seen at the last vain poll, and vain polls since.
    pub vain: Cell<(usize, u32)>,
    /// Looks at the clock.
    pub clock: Cell<u64>,
    /// Whether it has tested an mbarrier in vain, or waited for one.
    pub tested: Cell<bool>,
    /// See above.
    pub waited: Cell<bool>,
}

impl Executor {
    /// Thread `thread` of a worker's CTA, or of another one.
    pub fn new(cta: &Rc<Cta>, number: usize, thread: u32) -> Executor {
        Executor {
            cta: cta.clone(),
            number,
            thread,
            vain: Cell::default(),
            clock: Cell::default(),
            tested: Cell::default(),
            waited: Cell::default(),
        }
    }

    /// Runs `body` as this.
    pub fn enter<T>(self, body: impl FnOnce() -> T) -> T {
        CURRENT.with(|current| *current.borrow_mut() = Some(Rc::new(self)));
        let result = body();
        CURRENT.with(|current| *current.borrow_mut() = None);
        result
    }

    fn is_consumer(&self) -> bool {
        self.thread >= 128
    }

    /// A poll was in vain.
    pub fn pause(&self) {
        let (seen, vain) = self.vain.get();
        let stores = self.cta.stores.get();
        let vain = if seen == stores { vain + 1 } else { 0 };
        self.vain.set((stores, vain));
        if vain > 1 {
            // As in `model.rs`.
            loom::skip_branch();
        }
        loom::thread::yield_now();
    }

    fn change(&self) {
        self.cta.stores.set(self.cta.stores.get() + 1);
    }
}

loom::thread_local! {
    static CURRENT: RefCell<Option<Rc<Executor>>> = RefCell::new(None);
}

/// The executor that runs.
pub fn current() -> Rc<Executor> {
    CURRENT.with(|current| current.borrow().clone()).expect("only executors of a model come here")
}

/// Accesses to shared words that tell something.
mod words {
    use super::*;

    pub fn load(at: u32, relaxed: bool) -> Option<u32> {
        let this = current();
        let (kind, word, index, _) = this.cta.shared.get(&at)?;
        let relaxed = relaxed || this.cta.lacks(Lack::Load(*kind)) || this.cta.lacks(Lack::Test(*kind));
        let content = lanes::once(at as usize, || {
            let content = word.load(if relaxed { Ordering::Relaxed } else { Ordering::Acquire });
            if relaxed {
                this.cta.order().load(this.number, *index, content);
            } else {
                this.cta.order().observe(this.number, *index, content);
            }
            content
        });
        Some(content as u32)
    }

    pub fn store(at: u32, value: u32, relaxed: bool) -> bool {
        let this = current();
        let Some((kind, word, index, _)) = this.cta.shared.get(&at) else { return false };
        if *kind == Kind::Begun && this.cta.lacks(Lack::Unsaid(value & 3)) {
            return true;
        }
        this.change();
        let relaxed = relaxed || this.cta.lacks(Lack::Store(*kind));
        let content =
            if relaxed { this.cta.order().store(this.number, *index, value) } else { this.cta.order().publish(this.number, *index, value) };
        word.store(content, if relaxed { Ordering::Relaxed } else { Ordering::Release });
        true
    }

    pub fn arrive(at: u32) {
        let this = current();
        let Some((kind, word, index, _)) = this.cta.shared.get(&at) else { return };
        if this.cta.lacks(Lack::Unheard(*kind)) {
            return;
        }
        this.change();
        let relaxed = this.cta.lacks(Lack::Arrive(*kind));
        let old = word.fetch_add(1, if relaxed { Ordering::Relaxed } else { Ordering::Release });
        this.cta.order().arrive(this.number, *index, old, old + 1, !relaxed);
    }
}

/// The consumers' barrier: no task here comes after another one of its worker.
pub mod barrier {
    /// Not there.
    pub fn sync_consumers() {
        unreachable!("no task needs it");
    }
}

/// Fences.
pub mod fence {
    use super::*;

    /// Of who has looked at counters.
    pub fn acquire_gpu() {
        let this = current();
        let lack = if this.is_consumer() { Lack::AcquireOfConsumers } else { Lack::AcquireOfController };
        if !this.cta.lacks(lack) && lanes::lane() == 0 {
            loom_fence(Ordering::Acquire);
            this.cta.order().acquire(this.number);
        }
    }

    /// Of who signals.
    pub fn release_gpu() {
        let this = current();
        if !this.cta.lacks(Lack::Release) {
            loom_fence(Ordering::Release);
            this.cta.order().release(this.number);
        }
    }

    /// Dekker's. What else it orders is not relied on.
    pub fn sequential_cta() {
        let this = current();
        let lack = if this.is_consumer() { Lack::SequentialOfConsumers } else { Lack::SequentialOfController };
        // It would release what the halt word does not.
        let lacks = this.cta.lacks(lack) || this.cta.lacks(Lack::Store(Kind::Halt));
        if !lacks && lanes::lane() == 0 {
            loom_fence(Ordering::SeqCst);
        }
    }

    /// There is one proxy.
    pub fn mbarrier_init() {}
}

/// Words of global memory.
pub mod gpu_scope {
    use super::*;

    fn index(this: &Executor, at: *const u32) -> usize {
        (at as usize - this.cta.base as usize) / 4
    }

    /// # Safety
    /// A word of the model.
    pub unsafe fn load_relaxed(at: *const u32) -> u32 {
        let this = current();
        let index = index(&this, at);
        if index == super::ABORT && this.cta.lacks(Lack::BlindToAbort) {
            return 0;
        }
        let Some(word) = this.cta.global.get(&index) else {
            // SAFETY: one executor uses it.
            return unsafe { at.read() };
        };
        let content = lanes::once(at as usize, || {
            let content = word.load(Ordering::Relaxed);
            this.cta.order().load(this.number, index as u32, content);
            content
        });
        content as u32
    }

    /// # Safety
    /// As above.
    pub unsafe fn store_relaxed(at: *mut u32, value: u32) {
        let this = current();
        let index = index(&this, at);
        this.change();
        let content = this.cta.order().store(this.number, index as u32, value);
        this.cta.global[&index].store(content, Ordering::Relaxed);
    }

    /// # Safety
    /// As above.
    pub unsafe fn fetch_add_relaxed(at: *mut u32, value: u32) -> u32 {
        let this = current();
        let index = index(&this, at);
        let Some(word) = this.cta.global.get(&index) else {
            // SAFETY: one executor uses it.
            return unsafe { at.replace(at.read() + value) };
        };
        this.change();
        let old = word.fetch_add(value.into(), Ordering::Relaxed);
        this.cta.order().add(this.number, index as u32, old, old + u64::from(value));
        old as u32
    }

    /// # Safety
    /// As above.
    pub unsafe fn compare_exchange(at: *mut u32, expected: u32, new: u32) -> u32 {
        let this = current();
        if this.cta.lacks(Lack::TornExchange) {
            // SAFETY: passed on from the caller.
            unsafe {
                let old = load_relaxed(at);
                if old == expected {
                    store_relaxed(at, new);
                }
                return old;
            }
        }
        let index = index(&this, at);
        this.change();
        let content = this.cta.order().store(this.number, index as u32, new);
        // What is expected has not been stored yet: it has no number.
        match this.cta.global[&index].compare_exchange(expected.into(), content, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(old) | Err(old) => old as u32,
        }
    }
}

/// Index of [`maco_abi::State::abort`].
pub const ABORT: usize = 1;

/// mbarriers: how many have arrived.
pub mod mbarrier {
    use super::*;

    /// # Safety
    /// None is needed.
    pub unsafe fn init(_: u32, _: u32) {
        unreachable!("a model's are there");
    }

    /// # Safety
    /// None is needed.
    pub unsafe fn arrive(at: u32) {
        words::arrive(at);
    }

    fn is_complete(at: u32, parity: u32) -> bool {
        // What no task of the model uses is as it was made.
        let Some(arrived) = words::load(at, false) else { return parity == 1 };
        let phase = u64::from(arrived) / current().cta.shared[&at].3;
        phase & 1 != parity.into()
    }

    /// # Safety
    /// None is needed.
    pub unsafe fn test(at: u32, parity: u32) -> bool {
        let this = current();
        if this.is_consumer() { poll(at, parity, &this.tested) } else { is_complete(at, parity) }
    }

    /// # Safety
    /// None is needed.
    pub unsafe fn try_wait(at: u32, parity: u32) -> bool {
        let this = current();
        // Who sees then that the CTA stops asks once more, by a test.
        this.tested.set(false);
        poll(at, parity, &this.waited)
    }

    /// Lets others go on before a second vain look, and not behind the first: what a thread has seen before it lets others go on, `loom` does not
    /// show it again.
    fn poll(at: u32, parity: u32, vain: &Cell<bool>) -> bool {
        if vain.get() && lanes::lane() == 0 {
            current().pause();
        }
        let complete = is_complete(at, parity);
        vain.set(!complete);
        complete
    }
}

/// Shared memory.
pub mod memory {
    use super::*;

    /// # Safety
    /// `at` is an aligned word.
    pub unsafe fn load_shared(at: u32) -> u32 {
        // SAFETY: passed on from the caller.
        unsafe { load(at, false) }
    }

    unsafe fn load(at: u32, relaxed: bool) -> u32 {
        let this = current();
        let Some(word) = words::load(at, relaxed) else {
            // SAFETY: inside of shared memory, and nobody writes it.
            return unsafe { this.cta.pointer(at).cast::<u32>().read() };
        };
        match this.cta.shared[&at].0 {
            Kind::Halt if this.is_consumer() && this.cta.lacks(Lack::Blind) => 0,
            Kind::Begun if word & 3 == 1 && this.cta.lacks(Lack::Impatient) => word & !3,
            Kind::Begun if word & 3 == 1 => {
                if lanes::lane() == 0 {
                    this.pause();
                }
                word
            }
            _ => word,
        }
    }

    /// # Safety
    /// As above.
    pub unsafe fn store_shared(at: u32, value: u32) {
        if current().cta.shared.contains_key(&at) && lanes::lane() != 0 {
            // One instruction of all lanes, which store the same.
            return;
        }
        if !words::store(at, value, false) {
            // SAFETY: inside of shared memory, and nobody else uses it.
            unsafe { current().cta.pointer(at).cast::<u32>().write(value) };
        }
    }

    /// # Safety
    /// As above.
    pub unsafe fn store_shared2(at: u32, words: [u32; 2]) {
        // SAFETY: passed on from the caller.
        unsafe {
            store_shared(at, words[0]);
            store_shared(at + 4, words[1]);
        }
    }

    /// # Safety
    /// As above.
    pub unsafe fn load_relaxed_shared(at: u32) -> u32 {
        // SAFETY: passed on from the caller.
        unsafe { load(at, true) }
    }

    /// # Safety
    /// As above.
    pub unsafe fn load_acquire_shared(at: u32) -> u32 {
        // SAFETY: passed on from the caller.
        unsafe { load_shared(at) }
    }

    /// # Safety
    /// As above.
    pub unsafe fn store_relaxed_shared(at: u32, value: u32) {
        words::store(at, value, true);
    }

    /// # Safety
    /// As above.
    pub unsafe fn store_release_shared(at: u32, value: u32) {
        // A lane of each slot calls, or all lanes, which store the same.
        if lanes::lane() == 0 || current().cta.shared.get(&at).is_none_or(|word| word.0 != Kind::Halt) {
            words::store(at, value, false);
        }
    }

    /// # Safety
    /// As above.
    pub unsafe fn read_shared(at: u32) -> u32 {
        // SAFETY: passed on from the caller.
        unsafe { load_shared(at) }
    }

    /// # Safety
    /// As above.
    pub unsafe fn read_shared2(at: u32) -> [u32; 2] {
        // SAFETY: passed on from the caller.
        unsafe { [load_shared(at), load_shared(at + 4)] }
    }
}

/// Who a thread is.
pub mod special {
    use super::*;

    /// First address of shared memory.
    pub const BASE: u32 = 1024;

    /// The same address.
    pub fn opaque(at: u32) -> u32 {
        at
    }
    /// The host's address of a shared address.
    pub fn generic(at: u32) -> u64 {
        current().cta.pointer(at) as u64
    }
    /// This lane's hardware thread.
    pub fn thread() -> u32 {
        current().thread + lanes::lane()
    }
    /// The CTA.
    pub fn block() -> u32 {
        0
    }
    /// The CTA, and its shared memory.
    pub fn place_again() -> (u32, u32) {
        (block(), BASE)
    }
}

/// Lanes of a warp.
pub mod warp {
    use super::*;

    /// Of a consumer warp; the controller has 32, see [`crate::lanes`].
    pub const LANES: u32 = 1;
    /// Consumer warps that a thread stands for.
    pub const CONSUMERS: u32 = 1;

    /// This lane.
    pub fn lane_again() -> u32 {
        lanes::lane()
    }
    /// This warp among the consumers.
    pub fn consumer() -> u32 {
        (current().thread - 128) / 32
    }
    /// The lanes meet.
    pub fn sync() {
        lanes::vote(true);
    }
    /// The lanes in which it holds.
    pub fn ballot(condition: bool) -> u32 {
        lanes::vote(condition)
    }
    /// Whether it holds in any lane.
    pub fn any(condition: bool) -> bool {
        lanes::vote(condition) != 0
    }
    /// Whether it holds in all lanes.
    pub fn all(condition: bool) -> bool {
        lanes::vote(!condition) == 0
    }
    /// The value of lane `lane`.
    pub fn broadcast(value: u32, lane: u32) -> u32 {
        lanes::broadcast(value, lane)
    }
}
