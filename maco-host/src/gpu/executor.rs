//! Launches of a plan on a GPU. How arguments and descriptors get there is in the files beside this one.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use cudarc::driver::sys;
use maco_device::abi;
use maco_graph::ir::Graph;

use super::binding::Binding;
use super::context::Context;
use super::events::EventHandle;
use super::launch;
use super::memory::DeviceMemory;
use super::module::Kernel;
use super::plan_memory::PlanMemory;
use super::stream::Stream;
use crate::abort::Cause;
use crate::arguments::Arguments;
use crate::error::Error;
use crate::lower::Fault;
use crate::parts::{Key, Parts};
use crate::profile::Profile;
use crate::profile::record::{Recorded, Shape};
use crate::program::Program;
use crate::report::Report;
use crate::tensor::{Buffer, Rows};

/// A plan on a GPU.
pub(crate) struct Executor {
    context: Arc<Context>,
    kernel: Kernel,
    /// Of the program only what code is loaded from.
    program: Program,
    /// The kernel that records, once somebody has asked for it.
    profiled: OnceLock<Kernel>,
    memory: PlanMemory,
    /// Tables of `run` and `run_on`.
    own: Binding,
    turn: Mutex<Turn>,
}

#[derive(Default)]
struct Turn {
    /// What the tables of `own` were made for.
    key: Option<Key>,
    aborted: Option<Cause>,
    /// Arguments of launches that `run_on` queued.
    kept: Kept,
    /// Memory in which launches record, the newest last. Bound arguments may name any of it.
    recordings: Vec<Recording>,
}

struct Recording {
    memory: DeviceMemory,
    shape: Shape,
}

/// Memory that queued work uses, with the event behind that work.
#[derive(Default)]
struct Kept(Vec<(Arc<EventHandle>, Vec<Arc<Buffer>>)>);

impl Kept {
    fn add(&mut self, context: &Context, until: &Arc<EventHandle>, buffers: Vec<Arc<Buffer>>) -> Result<(), Error> {
        self.0.push((until.clone(), buffers));
        let mut done = 0;
        while done < self.0.len() && self.0[done].0.done(context)? {
            done += 1;
        }
        self.0.drain(..done);
        Ok(())
    }
}

/// A launch that was queued.
#[derive(Debug)]
pub(crate) struct Flight {
    begin: Arc<EventHandle>,
    end: Arc<EventHandle>,
}

/// Arguments in tables of their own.
pub(crate) struct BoundArguments {
    context: Arc<Context>,
    binding: Binding,
    buffers: Mutex<(Vec<Arc<Buffer>>, Kept)>,
}

impl Executor {
    pub(crate) fn new(context: &Arc<Context>, program: &Program, parts: &Parts) -> Result<Executor, Error> {
        let _entered = context.enter()?;
        let kernel = Kernel::load(context, program, parts.lowered.grid())?;
        let memory = PlanMemory::new(context, parts.megakernel(), &parts.lowered)?;
        let own = Binding::new(context, parts)?;
        let program = Program { graph: Graph::default(), ..*program };
        Ok(Executor { context: context.clone(), kernel, program, profiled: OnceLock::new(), memory, own, turn: Mutex::default() })
    }

    /// Launches and waits.
    pub(crate) fn run(&self, parts: &Parts, arguments: &Arguments<'_>) -> Result<Report, Error> {
        let _entered = self.context.enter()?;
        let mut turn = self.turn(parts)?;
        let (stream, id) = self.context.launches();
        let flight = self.start(parts, &mut turn, arguments, stream, id)?;
        self.wait(parts, &flight)?;
        self.finish(parts, &mut turn, &flight)
    }

    /// Launches on `stream`, behind everything launched before on the device.
    pub(crate) fn run_on(&self, parts: &Parts, arguments: &Arguments<'_>, stream: &Stream) -> Result<Flight, Error> {
        let raw = stream.of(&self.context)?;
        let _entered = self.context.enter()?;
        if stream.capturing(&self.context)? {
            return Err(Error::Capturing { megakernel: parts.megakernel().into() });
        }
        let mut turn = self.turn(parts)?;
        let flight = self.start(parts, &mut turn, arguments, raw, stream.id())?;
        turn.kept.add(&self.context, &flight.end, buffers(arguments))?;
        Ok(flight)
    }

    /// Waits for a launch of [`Executor::run_on`].
    pub(crate) fn join(&self, parts: &Parts, flight: &Flight) -> Result<Report, Error> {
        let _entered = self.context.enter()?;
        self.wait(parts, flight)?;
        self.finish(parts, &mut self.wait_for_turn(), flight)
    }

    /// Whether a launch has ended.
    pub(crate) fn ended(&self, flight: &Flight) -> Result<bool, Error> {
        let _entered = self.context.enter()?;
        flight.end.done(&self.context)
    }

    /// The context is entered.
    fn start(&self, parts: &Parts, turn: &mut Turn, arguments: &Arguments<'_>, stream: sys::CUstream, id: u64) -> Result<Flight, Error> {
        let context = &self.context;
        let tables = match &turn.key {
            Some(key) if key.matches(parts, arguments) => None,
            _ => Some(parts.bind(arguments, self.memory.arena())?),
        };
        let flight = Flight { begin: EventHandle::new(context)?, end: EventHandle::new(context)? };
        let order = context.turn(stream, id)?;
        // SAFETY: a live stream of this context; all launches of the device are in front of it; the plan outlives the launch, since
        // dropping it waits; arguments are borrowed (`run`) or kept (`run_on`) until the launch ends.
        unsafe {
            if let Some((key, tables)) = tables {
                turn.key = None;
                self.own.write(context, parts, &self.memory, &tables, stream)?;
                turn.key = Some(key);
            }
            flight.begin.record(context, stream)?;
            launch::enqueue(context, self.kernel(parts), parts, self.own.launch(), stream)?;
            flight.end.record(context, stream)?;
        }
        order.end(&flight.end);
        Ok(flight)
    }

    fn wait(&self, parts: &Parts, flight: &Flight) -> Result<(), Error> {
        launch::wait(&self.context, &flight.begin, &flight.end, parts.deadline_ns(), || self.memory.fingerprint(&self.context))
    }

    fn finish(&self, parts: &Parts, turn: &mut Turn, flight: &Flight) -> Result<Report, Error> {
        self.reported(parts, turn)?;
        let elapsed = flight.end.since(&flight.begin, &self.context)?;
        Ok(Report { elapsed, tasks: parts.plan.tasks.len(), workers: parts.lowered.workers })
    }

    /// The error in the black box, which aborts the plan.
    fn reported(&self, parts: &Parts, turn: &mut Turn) -> Result<(), Error> {
        if let Some(cause) = &turn.aborted {
            return Err(cause.aborted(parts.megakernel()));
        }
        let Some(report) = self.memory.report() else { return Ok(()) };
        let cause = Cause::of(&report, &parts.plan, true);
        let error = cause.error(parts.megakernel());
        turn.aborted = Some(cause);
        Err(error)
    }

    /// The lock of this plan, unless another thread is running it, or it is aborted.
    fn turn(&self, parts: &Parts) -> Result<MutexGuard<'_, Turn>, Error> {
        let turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(Error::InFlight { megakernel: parts.megakernel().into() }),
        };
        match &turn.aborted {
            Some(cause) => Err(cause.aborted(parts.megakernel())),
            None => Ok(turn),
        }
    }

    fn wait_for_turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error that a run would return at once; also finds what a replayed graph reported.
    pub(crate) fn check(&self, parts: &Parts) -> Result<(), Error> {
        let _entered = self.context.enter()?;
        self.reported(parts, &mut self.wait_for_turn())
    }

    /// Waits for everything launched on the device, then makes counters, state and black box as new.
    pub(crate) fn recover(&self, parts: &Parts) -> Result<(), Error> {
        let mut turn = self.wait_for_turn();
        let _entered = self.context.enter()?;
        self.context.settle()?;
        self.memory.clear(&self.context, &parts.lowered)?;
        turn.aborted = None;
        Ok(())
    }

    /// See [`crate::Plan::launched`].
    pub(crate) fn launched(&self, parts: &Parts, launches: u32) -> Result<(), Error> {
        self.recover(parts)?;
        let _turn = self.wait_for_turn();
        self.memory.write_launches(&self.context, &parts.lowered, launches)
    }

    /// See [`crate::Plan::fill_temporaries`].
    pub(crate) fn fill_temporaries(&self, parts: &Parts, byte: u8) -> Result<(), Error> {
        let _turn = self.wait_for_turn();
        let _entered = self.context.enter()?;
        self.context.settle()?;
        self.memory.fill_temporaries(&parts.lowered, byte)
    }

    /// Injects a fault into every launch from now on, or none.
    pub(crate) fn inject(&self, parts: &Parts, fault: Option<Fault>) -> Result<(), Error> {
        let _turn = self.wait_for_turn();
        parts.set_fault(fault);
        self.memory.write_tasks(&self.context, &parts.lowered, fault)
    }

    /// The kernel that records if launches do, else the ordinary one.
    fn kernel(&self, parts: &Parts) -> &Kernel {
        if parts.profile().0 == 0 { &self.kernel } else { self.profiled.get().unwrap_or(&self.kernel) }
    }

    /// Later launches record so much; without room for any, none do.
    pub(crate) fn profile(&self, parts: &Parts, shape: Shape) -> Result<(), Error> {
        let mut turn = self.wait_for_turn();
        if shape.room == 0 {
            parts.set_profile(0, 0);
            return Ok(());
        }
        let _entered = self.context.enter()?;
        if self.profiled.get().is_none() {
            let kernel = Kernel::load_profiled(&self.context, &self.program, parts.lowered.grid())?;
            let none = || Error::NoProfiler { megakernel: parts.megakernel().into(), device: self.context.to_string().into() };
            // The lock is held: nobody else sets it.
            let _ = self.profiled.set(kernel.ok_or_else(none)?);
        }
        if turn.recordings.last().is_none_or(|last| last.shape != shape) {
            let what = format!("the profile of megakernel `{}`", parts.megakernel());
            let memory = DeviceMemory::zeroed(&self.context, shape.bytes(), &what)?;
            turn.recordings.push(Recording { memory, shape });
        }
        if let Some(recording) = turn.recordings.last() {
            parts.set_profile(recording.memory.address(), shape.room);
        }
        Ok(())
    }

    /// What the last launch recorded.
    pub(crate) fn recorded(&self, parts: &Parts) -> Result<Profile, Error> {
        let turn = self.wait_for_turn();
        let _entered = self.context.enter()?;
        let none = || Error::NoProfile { megakernel: parts.megakernel().into() };
        let recording = turn.recordings.last().ok_or_else(none)?;
        self.context.settle()?;
        let shape = recording.shape;
        let mut profiles = vec![abi::Profile::default(); shape.profiles() as usize];
        let mut records = vec![abi::Record::default(); shape.records() as usize];
        let behind = recording.memory.address() + size_of_val(&*profiles) as u64;
        download(&self.context, &mut profiles, recording.memory.address())?;
        download(&self.context, &mut records, behind)?;
        let mut profile = Profile::of(&parts.plan, self.context.to_string(), self.context.roofline());
        let filled = Recorded { profiles: &profiles, records: &records, shape, gpu: true }.fill(&mut profile);
        if filled { Ok(profile) } else { Err(none()) }
    }

    /// Tables of their own for `arguments`, on the GPU when this returns.
    pub(crate) fn bind(&self, parts: &Parts, arguments: &Arguments<'_>) -> Result<BoundArguments, Error> {
        let context = &self.context;
        let _entered = context.enter()?;
        let (_, tables) = parts.bind(arguments, self.memory.arena())?;
        let binding = Binding::new(context, parts)?;
        // SAFETY: a live stream of this context; nothing reads the new tables yet.
        unsafe { binding.write(context, parts, &self.memory, &tables, context.copies())? };
        // SAFETY: as above.
        context.check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(context.copies()) })?;
        Ok(BoundArguments { context: context.clone(), binding, buffers: Mutex::new((buffers(arguments), Kept::default())) })
    }

    /// Queues new tables for bound arguments on `stream`, behind everything launched before.
    pub(crate) fn rebind(&self, parts: &Parts, bound: &BoundArguments, arguments: &Arguments<'_>, stream: &Stream) -> Result<(), Error> {
        let context = &self.context;
        let raw = stream.of(context)?;
        let _entered = context.enter()?;
        if stream.capturing(context)? {
            return Err(Error::Capturing { megakernel: parts.megakernel().into() });
        }
        let (_, tables) = parts.bind(arguments, self.memory.arena())?;
        let mut held = bound.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let written = EventHandle::new(context)?;
        let order = context.turn(raw, stream.id())?;
        // SAFETY: a live stream of this context, behind all launches of the device.
        unsafe {
            bound.binding.write(context, parts, &self.memory, &tables, raw)?;
            written.record(context, raw)?;
        }
        order.end(&written);
        let (current, kept) = &mut *held;
        let old = std::mem::replace(current, buffers(arguments));
        kept.add(context, &written, old)
    }

    /// Launches bound arguments on `stream`; in a capture, records nothing but the kernel and keeps `owner` for the graph.
    pub(crate) fn launch_bound(
        &self,
        parts: &Parts,
        bound: &BoundArguments,
        stream: &Stream,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Result<(), Error> {
        let context = &self.context;
        let raw = stream.of(context)?;
        let _entered = context.enter()?;
        if stream.capturing(context)? {
            // SAFETY: a live stream of this context; the graph keeps `owner`, and with it plan, tables and arguments.
            unsafe { launch::enqueue(context, self.kernel(parts), parts, bound.binding.launch(), raw)? };
            stream.keep(owner);
            return Ok(());
        }
        let _turn = self.turn(parts)?;
        let end = EventHandle::new(context)?;
        let order = context.turn(raw, stream.id())?;
        // SAFETY: as above; dropping the plan or the bound arguments waits for the tail of the launch order.
        unsafe {
            launch::enqueue(context, self.kernel(parts), parts, bound.binding.launch(), raw)?;
            end.record(context, raw)?;
        }
        order.end(&end);
        Ok(())
    }
}

/// Copies plain data from the GPU, behind everything launched so far, and waits.
fn download<T: Copy>(context: &Arc<Context>, to: &mut [T], from: u64) -> Result<(), Error> {
    let bytes = size_of_val(to);
    // SAFETY: the caller's memory was sized for as many values, which are plain words.
    unsafe { context.download(to.as_mut_ptr().cast(), from, Rows { count: 1, bytes, pitch: bytes }) }
}

fn buffers(arguments: &Arguments<'_>) -> Vec<Arc<Buffer>> {
    arguments.tensors.iter().map(|argument| argument.buffer.clone()).collect()
}

impl Drop for Executor {
    fn drop(&mut self) {
        // Launches in flight read the memory that is about to be freed. If the GPU is lost, the memory is leaked instead.
        if let Ok(_entered) = self.context.enter() {
            let _ = self.context.settle();
        }
    }
}

impl Drop for BoundArguments {
    fn drop(&mut self) {
        // As above.
        if let Ok(_entered) = self.context.enter() {
            let _ = self.context.settle();
        }
    }
}
