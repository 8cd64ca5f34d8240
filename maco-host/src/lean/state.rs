//! What the calls of a communicator share on one device: memory for messages, the numbers of steps, and who makes the calls in their order.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use maco_abi::{LeanCall, LeanRanks, LeanTensor, LeanWay};
use maco_device::lean;
use maco_ranks::{Block, Group};

use crate::agreement::own_or_all;
use crate::channel::{SymmetricMemory, operation_name};
use crate::device::Device;
use crate::error::Error;
use crate::gpu::{LeanKernel, LeanLaunch, Stream};
use crate::tensor::Buffer;

/// Executors of a GPU's rank, and bytes of a message of each: some 5 MiB for each rank.
const GPU: (u32, u32) = (256, 8 << 10);
/// Those of a CPU's: one thread.
const CPU: (u32, u32) = (1, 64 << 10);

/// How much later than another rank one may learn that a third is lost.
const LEARNING: Duration = Duration::from_millis(100);

/// The states of a communicator, made when the first call needs them.
#[derive(Debug, Default)]
pub(crate) struct LeanStates(Mutex<States>);

#[derive(Debug, Default)]
struct States {
    made: Vec<(Option<Device>, Arc<State>)>,
    /// Those before a recovery, which graphs may still have.
    before: Vec<Weak<State>>,
}

impl LeanStates {
    /// That of a device; all CPUs are one. All ranks call it at the same call.
    pub(super) fn get(&self, group: &Arc<Group>, device: &Device) -> Result<Arc<State>, Error> {
        let key = device.is_gpu().then(|| device.clone());
        let made = &mut self.0.lock().unwrap_or_else(PoisonError::into_inner).made;
        if let Some((_, state)) = made.iter().find(|(known, _)| *known == key) {
            return Ok(state.clone());
        }
        let state = Arc::new(State::new(group, device)?);
        made.push((key, state.clone()));
        Ok(state)
    }

    /// See `Communicator::check_collectives`.
    pub(super) fn check(&self) -> Result<(), Error> {
        let states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        states.made.iter().try_for_each(|(_, state)| state.check())?;
        states.before.iter().filter_map(Weak::upgrade).try_for_each(|state| state.check())
    }

    /// See `Communicator::recover_collectives`.
    pub(super) fn recover(&self, group: &Group) -> Result<(), Error> {
        let mut states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let settled = states.made.iter().try_for_each(|(_, state)| state.settle());
        let text = settled.as_ref().err().map(Error::to_string);
        // Nobody stores into memory that is gone.
        let voted = group.vote("recover collectives", text.as_deref().map_or(Ok(&[]), Err)).map(drop);
        own_or_all(settled, voted)?;
        let ended: Vec<_> = states.made.drain(..).map(|(_, state)| state).collect();
        states.before.retain(|state| state.strong_count() > 0);
        states.before.extend(ended.iter().map(Arc::downgrade));
        drop(states);
        drop(ended);
        Ok(())
    }
}

/// One call, before it is known who makes it.
pub(super) struct Order {
    pub(super) input: LeanTensor,
    pub(super) output: LeanTensor,
    pub(super) count: u64,
    pub(super) code: u32,
    /// Of an element.
    pub(super) bytes: u32,
    pub(super) root: u32,
    /// What the call uses.
    pub(super) buffers: Vec<Arc<Buffer>>,
}

/// A call that was begun.
#[derive(Debug)]
pub(super) enum Ticket {
    Ended(Result<(), Error>),
    /// By the thread of a CPU's rank.
    Thread(Reply),
    /// Of the operation with this name.
    Launch(LeanLaunch, &'static str),
}

/// What the thread says of a call.
#[derive(Debug)]
pub(super) struct Reply {
    result: Receiver<Result<(), Error>>,
    is_there: Arc<AtomicBool>,
}

type Job = Box<dyn FnOnce() + Send>;

/// See above.
pub(super) struct State {
    /// The first to be dropped: it waits for launches, which use the rest.
    way: Way,
    ranks: LeanRanks,
    _block: Block,
    memory: SymmetricMemory,
    group: Arc<Group>,
}

/// What calls on `device` share, before there is memory for them.
fn ranks_on(group: &Group, device: &Device) -> LeanRanks {
    let (executors, message) = if device.is_gpu() { GPU } else { CPU };
    LeanRanks { control: 0, bases: 0, steps: 0, offset: 0, message, executors, rank: group.rank(), ranks: group.ranks() }
}

/// See `Communicator::lean_way`.
pub(super) fn way(group: &Group, device: &Device, code: u32, count: u64, bytes: u32) -> LeanWay {
    let nothing = LeanTensor { address: 0, columns: 1, stride: 0 };
    LeanCall { ranks: ranks_on(group, device), input: nothing, output: nothing, count, deadline_ns: 0, code, root: 0 }.way(bytes)
}

enum Way {
    Host {
        /// What `ranks` points to.
        _bases: Box<[u64]>,
        _steps: Box<[AtomicU32]>,
        /// Whose lock is held makes calls; with a thread, that makes them all.
        thread: Mutex<Option<Sender<Job>>>,
    },
    Gpu(Box<LeanKernel>),
}

impl State {
    fn new(group: &Arc<Group>, device: &Device) -> Result<State, Error> {
        let mut ranks = ranks_on(group, device);
        let bytes = ranks.total() as usize;
        let memory = SymmetricMemory::new(group.clone(), device, bytes)?;
        let block = memory.block("messages of collectives", bytes)?;
        let table = memory.table();
        (ranks.offset, ranks.control) = (block.offset() as u64, table.control);
        let bases = table.bases.into_boxed_slice();
        let way = match device.context() {
            Some(context) => {
                let kernel = LeanKernel::new(context, &bases, ranks.executors);
                let text = kernel.as_ref().err().map(Error::to_string);
                // Nobody goes on alone.
                let voted = group.vote("load the kernel of collectives", text.as_deref().map_or(Ok(&[]), Err)).map(drop);
                let kernel = own_or_all(kernel, voted)?;
                (ranks.bases, ranks.steps) = kernel.tables();
                Way::Gpu(Box::new(kernel))
            }
            None => {
                let steps: Box<[AtomicU32]> = (0..ranks.executors).map(|_| AtomicU32::new(0)).collect();
                (ranks.bases, ranks.steps) = (bases.as_ptr() as u64, steps.as_ptr() as u64);
                Way::Host { _bases: bases, _steps: steps, thread: Mutex::default() }
            }
        };
        Ok(State { group: group.clone(), memory, _block: block, ranks, way })
    }

    fn call(&self, order: &Order) -> LeanCall {
        let deadline_ns = self.group.deadline().as_nanos().try_into().unwrap_or(u64::MAX);
        let Order { input, output, count, code, root, .. } = *order;
        LeanCall { ranks: self.ranks, input, output, count, deadline_ns, code, root }
    }

    /// Makes the call: on a CPU it has ended when this returns, unless a thread makes calls.
    pub(super) fn begin(self: &Arc<State>, order: Order, stream: Option<&Stream>) -> Result<Ticket, Error> {
        match &self.way {
            Way::Gpu(kernel) => self.launch(kernel, order, stream),
            Way::Host { thread, .. } => {
                let thread = thread.lock().unwrap_or_else(PoisonError::into_inner);
                match &*thread {
                    // In its turn, and the caller waits.
                    Some(sender) => Ok(Ticket::Ended(self.received(hand_over(self, sender, order)))),
                    // SAFETY: the lock is held, and there is no thread.
                    None => Ok(Ticket::Ended(unsafe { self.run(&order) })),
                }
            }
        }
    }

    /// Makes the call beside the caller.
    pub(super) fn begin_async(self: &Arc<State>, order: Order) -> Result<Ticket, Error> {
        match &self.way {
            Way::Gpu(kernel) => self.launch(kernel, order, None),
            Way::Host { thread, .. } => {
                let mut thread = thread.lock().unwrap_or_else(PoisonError::into_inner);
                if thread.is_none() {
                    let (sender, jobs) = channel::<Job>();
                    let work = move || jobs.into_iter().for_each(|job| job());
                    let started = std::thread::Builder::new().name("maco-collectives".into()).spawn(work);
                    started.map_err(|source| Error::Threads { worker: 0, workers: 1, source })?;
                    *thread = Some(sender);
                }
                match &*thread {
                    Some(sender) => Ok(Ticket::Thread(hand_over(self, sender, order))),
                    None => unreachable!("just started"),
                }
            }
        }
    }

    fn launch(self: &Arc<State>, kernel: &LeanKernel, order: Order, stream: Option<&Stream>) -> Result<Ticket, Error> {
        self.check()?;
        let call = self.call(&order);
        let executors = call.active(order.bytes);
        // A graph keeps both.
        let owner = Arc::new((self.clone(), order.buffers.clone()));
        // SAFETY: the tables are of this state, which the launch keeps with the tensors; ranks make their calls in one order.
        let launch = unsafe { kernel.launch(call, executors, stream, &order.buffers, owner)? };
        Ok(Ticket::Launch(launch, operation_name(order.code)))
    }

    /// Makes the call on this thread.
    ///
    /// # Safety
    /// Nobody else does meanwhile, and the tensors of `order` are there and used by nobody else.
    unsafe fn run(&self, order: &Order) -> Result<(), Error> {
        self.memory.check()?;
        order.buffers.iter().try_for_each(|buffer| buffer.usable())?;
        let (call, system) = (self.call(order), self.memory.system());
        // SAFETY: the tables are of this state; the rest is the caller's promise.
        unsafe { lean::run_all(&system, &call) }.map_err(|_| self.memory.stopped())
    }

    /// Waits until a call has ended.
    pub(super) fn wait(&self, ticket: Ticket) -> Result<(), Error> {
        match (ticket, &self.way) {
            (Ticket::Ended(result), _) => result,
            (Ticket::Thread(reply), _) => self.received(reply),
            (Ticket::Launch(launch, operation), Way::Gpu(kernel)) => {
                // The kernel does not know of a rank that is lost.
                kernel.wait(&launch, || {
                    if self.group.try_check().is_err() {
                        self.memory.stop();
                    }
                })?;
                let until = Instant::now() + LEARNING;
                loop {
                    match self.check() {
                        // Another host has stopped them, which knows of a lost rank: so will this one in a moment.
                        Err(error) if error.code() == 100 && Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
                        Err(Error::Ranks(lost)) => break Err(lost.while_at(operation).into()),
                        other => break other,
                    }
                }
            }
            (Ticket::Launch(..), Way::Host { .. }) => unreachable!("launches are a GPU's"),
        }
    }

    fn received(&self, reply: Reply) -> Result<(), Error> {
        // A thread that is gone has ended by a panic: the other ranks are told.
        reply.result.recv().unwrap_or_else(|_| {
            self.memory.stop();
            self.memory.check()
        })
    }

    /// Whether a call has ended.
    pub(super) fn is_done(&self, ticket: &Ticket) -> Result<bool, Error> {
        match (ticket, &self.way) {
            (Ticket::Launch(launch, _), Way::Gpu(kernel)) => kernel.is_done(launch),
            (Ticket::Thread(reply), _) => Ok(reply.is_there.load(Ordering::Acquire)),
            _ => Ok(true),
        }
    }

    /// Ends the calls of this rank that are under way, and waits for that.
    fn settle(&self) -> Result<(), Error> {
        self.memory.stop();
        match &self.way {
            Way::Gpu(kernel) => kernel.settle(),
            Way::Host { thread, .. } => {
                if let Some(sender) = &*thread.lock().unwrap_or_else(PoisonError::into_inner) {
                    let (done, ended) = channel();
                    let _ = sender.send(Box::new(move || drop(done)));
                    // Nothing is said: it ends when the job has run, or never will.
                    let _: Result<(), _> = ended.recv();
                }
                Ok(())
            }
        }
    }

    /// Whether the ranks go on.
    fn check(&self) -> Result<(), Error> {
        match self.memory.check() {
            Ok(()) => Ok(()),
            // Why the host has stopped them.
            Err(error @ Error::Ranks(_)) if error.code() == 100 => Err(self.group.try_check().map_or_else(Error::from, |()| error)),
            Err(error) => Err(error),
        }
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "State({:?})", self.memory)
    }
}

/// Has the thread make a call, behind those before.
fn hand_over(state: &Arc<State>, sender: &Sender<Job>, order: Order) -> Reply {
    let (reply, result) = channel();
    let is_there = Arc::new(AtomicBool::new(false));
    let there = is_there.clone();
    let state = state.clone();
    // If the thread is gone, the reply is dropped, which the receiver notices.
    let _ = sender.send(Box::new(move || {
        // SAFETY: this thread makes all calls; the order keeps the tensors, which their owner does not have before the reply.
        let result = unsafe { state.run(&order) };
        // Who waits may drop the communicator and end the process next: the last owner is not this thread, or there would be no farewell.
        drop((order, state));
        let _ = reply.send(result);
        there.store(true, Ordering::Release);
    }));
    Reply { result, is_there }
}
