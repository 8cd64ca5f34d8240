//! Launches of a plan on a GPU. How arguments and descriptors get there is in the files beside this one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use cudarc::driver::sys;
use maco_abi as abi;
use maco_graph::ir::Graph;

use super::binding::Binding;
use super::capture::{Capture, CapturedLaunch, Kept, refuse_while_recording};
use super::context::Context;
use super::events::EventHandle;
use super::launch;
use super::memory::DeviceMemory;
use super::module::Kernel;
use super::plan_memory::PlanMemory;
use super::stream::Stream;
use super::timer;
use super::watchdog::{Captured, Watched};
use crate::abort::Cause;
use crate::arguments::Arguments;
use crate::error::Error;
use crate::lower::Fault;
use crate::plan_core::{Key, PlanCore};
use crate::profile::Profile;
use crate::profile::clock::Moment;
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
    watched: Arc<Watched>,
    /// Tables of `run` and `run_on`.
    own: Binding,
    turn: Mutex<LaunchState>,
    /// The last launch that was captured. Two in one graph must not run at once.
    captured: Mutex<Option<CapturedLaunch>>,
}

#[derive(Default)]
struct LaunchState {
    /// What the tables of `own` were made for.
    key: Option<Key>,
    aborted: Option<Cause>,
    /// Arguments of launches that `run_on` queued.
    kept: RetainedBuffers,
    /// Memory in which launches record, the newest last. Bound arguments may name any of it.
    recordings: Vec<LaunchRecords>,
}

struct LaunchRecords {
    memory: DeviceMemory,
    shape: Shape,
    /// Of one of several ranks: before its launches, on the clock of all.
    before: Option<Moment>,
}

/// Memory that queued work uses, with the event behind that work.
#[derive(Default)]
struct RetainedBuffers(Vec<(Arc<EventHandle>, Vec<Arc<Buffer>>)>);

impl RetainedBuffers {
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
pub(crate) struct QueuedLaunch {
    begin: Arc<EventHandle>,
    end: Arc<EventHandle>,
}

/// Arguments in tables of their own.
pub(crate) struct BoundArguments {
    context: Arc<Context>,
    binding: Binding,
    buffers: Mutex<(Vec<Arc<Buffer>>, RetainedBuffers)>,
    /// The deadline that the tables have.
    deadline_ns: AtomicU64,
    /// Of graphs of another library, which replays them outside of the launch order: behind the last launch in a replay, and behind the last new tables.
    replayed: Arc<EventHandle>,
    rebound: Arc<EventHandle>,
}

impl Executor {
    pub(crate) fn new(context: &Arc<Context>, program: &Program, core: &Arc<PlanCore>) -> Result<Executor, Error> {
        refuse_while_recording(format_args!("planning megakernel `{}`", core.megakernel()))?;
        let _entered = context.enter()?;
        let kernel = Kernel::load(context, program, core.lowered.grid())?;
        let watched = Watched::new(context, core, PlanMemory::new(context, core.megakernel(), &core.lowered)?);
        let own = Binding::new(context, core)?;
        let program = Program { graph: Graph::default(), ..*program };
        let (turn, captured) = (Mutex::default(), Mutex::default());
        Ok(Executor { context: context.clone(), kernel, program, profiled: OnceLock::new(), watched, own, turn, captured })
    }

    /// Launches and waits.
    pub(crate) fn run(&self, core: &PlanCore, arguments: &Arguments<'_>) -> Result<Report, Error> {
        self.refuse_run(core)?;
        let _entered = self.context.enter()?;
        let mut turn = self.turn(core)?;
        let (stream, id) = self.context.launches();
        let flight = self.start(core, &mut turn, arguments, stream, id)?;
        self.wait(&flight)?;
        self.finish(core, &mut turn, &flight)
    }

    /// Launches on `stream`, behind everything launched before on the device.
    pub(crate) fn run_on(&self, core: &PlanCore, arguments: &Arguments<'_>, stream: &Stream) -> Result<QueuedLaunch, Error> {
        let raw = stream.of(&self.context)?;
        let _entered = self.context.enter()?;
        self.refuse_uploads(core, raw)?;
        let mut turn = self.turn(core)?;
        let flight = self.start(core, &mut turn, arguments, raw, stream.id())?;
        turn.kept.add(&self.context, &flight.end, buffers(arguments))?;
        Ok(flight)
    }

    /// Waits for a launch of [`Executor::run_on`].
    pub(crate) fn join(&self, core: &PlanCore, flight: &QueuedLaunch) -> Result<Report, Error> {
        let _entered = self.context.enter()?;
        self.wait(flight)?;
        self.finish(core, &mut self.wait_for_turn(), flight)
    }

    /// Whether a launch has ended.
    pub(crate) fn ended(&self, flight: &QueuedLaunch) -> Result<bool, Error> {
        let _entered = self.context.enter()?;
        flight.end.done(&self.context)
    }

    /// Refuses a run that no graph would repeat.
    fn refuse_run(&self, core: &PlanCore) -> Result<(), Error> {
        refuse_while_recording(format_args!("a run of megakernel `{}`", core.megakernel()))
    }

    /// Refuses new arguments on a stream that is captured, or where it would seem so. The context is entered.
    fn refuse_uploads(&self, core: &PlanCore, stream: sys::CUstream) -> Result<(), Error> {
        // SAFETY: the callers have a live stream of this context.
        match unsafe { Capture::of(&self.context, stream)? } {
            Some(_) => Err(Error::Capturing { megakernel: core.megakernel().into() }),
            None => self.refuse_run(core),
        }
    }

    /// The context is entered.
    fn start(
        &self,
        core: &PlanCore,
        turn: &mut LaunchState,
        arguments: &Arguments<'_>,
        stream: sys::CUstream,
        id: u64,
    ) -> Result<QueuedLaunch, Error> {
        let context = &self.context;
        let tables = match &turn.key {
            Some(key) if key.matches(core, arguments) => None,
            _ => Some(core.bind(arguments, self.memory().arena())?),
        };
        let flight = QueuedLaunch { begin: EventHandle::new(context)?, end: EventHandle::new(context)? };
        let order = context.turn(stream, id)?;
        // SAFETY: a live stream of this context; all launches of the device are in front of it; the plan outlives the launch, since
        // dropping it waits; arguments are borrowed (`run`) or kept (`run_on`) until the launch ends.
        unsafe {
            if let Some((key, tables)) = tables {
                turn.key = None;
                self.own.write(context, core, self.memory(), &tables, stream)?;
                turn.key = Some(key);
            }
            flight.begin.record(context, stream)?;
            self.watched.queue(&flight.end, core.deadline_ns());
            let queued = self.enqueue(core, core.dependent, &self.own, stream);
            flight.end.record(context, stream)?;
            order.end(&flight.end);
            self.ended_if_refused(queued, &flight.end)?;
        }
        Ok(flight)
    }

    /// If something of a launch could not be queued, waits for the rest of it: the kernel may run, and reads what the caller has.
    fn ended_if_refused(&self, queued: Result<(), Error>, end: &Arc<EventHandle>) -> Result<(), Error> {
        if queued.is_err() {
            let _ = end.synchronize(&self.context);
            self.watched.ended(end);
        }
        queued
    }

    /// Queues the kernel, and what NCCL does beside it.
    ///
    /// # Safety
    /// `stream` is a live stream of the context, which is entered; the binding and what its tables name live until the launch has ended.
    unsafe fn enqueue(&self, core: &PlanCore, dependent: bool, binding: &Binding, stream: sys::CUstream) -> Result<(), Error> {
        // SAFETY: passed on from the caller.
        let launch = |dependent| unsafe { launch::enqueue(&self.context, self.kernel(core), core, dependent, binding.launch(), stream) };
        match &core.beside {
            None => launch(dependent),
            // Behind the gates' words it could not begin early.
            // SAFETY: passed on from the caller.
            Some(beside) => unsafe { beside.around(stream, &binding.chunks(), || launch(false)) },
        }
    }

    fn memory(&self) -> &PlanMemory {
        &self.watched.memory
    }

    fn wait(&self, flight: &QueuedLaunch) -> Result<(), Error> {
        flight.end.synchronize(&self.context)?;
        self.watched.ended(&flight.end);
        Ok(())
    }

    fn finish(&self, core: &PlanCore, turn: &mut LaunchState, flight: &QueuedLaunch) -> Result<Report, Error> {
        self.reported(core, turn)?;
        let elapsed = flight.end.since(&flight.begin, &self.context)?;
        Ok(Report { elapsed, tasks: core.plan.tasks.len(), workers: core.lowered.workers })
    }

    /// The error in the black box, which aborts the plan.
    fn reported(&self, core: &PlanCore, turn: &mut LaunchState) -> Result<(), Error> {
        if let Some(cause) = &turn.aborted {
            return Err(cause.aborted(core.megakernel()));
        }
        let Some(report) = self.memory().report() else { return Ok(()) };
        let cause = core.cause(&report, true);
        let error = cause.error(core.megakernel());
        turn.aborted = Some(cause);
        Err(error)
    }

    /// The lock of this plan, unless another thread is running it, or it is aborted.
    fn turn(&self, core: &PlanCore) -> Result<MutexGuard<'_, LaunchState>, Error> {
        let turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(Error::InFlight { megakernel: core.megakernel().into() }),
        };
        match &turn.aborted {
            Some(cause) => Err(cause.aborted(core.megakernel())),
            None => Ok(turn),
        }
    }

    fn wait_for_turn(&self) -> MutexGuard<'_, LaunchState> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error that a run would return at once; also finds what a replayed graph reported.
    pub(crate) fn check(&self, core: &PlanCore) -> Result<(), Error> {
        let _entered = self.context.enter()?;
        self.reported(core, &mut self.wait_for_turn())
    }

    /// Waits for everything launched on the device, then makes counters, state and black box as new.
    pub(crate) fn recover(&self, core: &PlanCore) -> Result<(), Error> {
        refuse_while_recording(format_args!("`recover` of megakernel `{}`", core.megakernel()))?;
        core.recover(|| {
            let mut turn = self.wait_for_turn();
            let _entered = self.context.enter()?;
            self.context.settle()?;
            self.memory().clear(&self.context, &core.lowered)?;
            turn.aborted = None;
            Ok(())
        })
    }

    /// See [`crate::Plan::launched`].
    pub(crate) fn launched(&self, core: &PlanCore, launches: u32) -> Result<(), Error> {
        self.recover(core)?;
        let _turn = self.wait_for_turn();
        self.memory().write_launches(&self.context, &core.lowered, launches)
    }

    /// See [`crate::Plan::fill_temporaries`].
    pub(crate) fn fill_temporaries(&self, core: &PlanCore, byte: u8) -> Result<(), Error> {
        let _turn = self.wait_for_turn();
        let _entered = self.context.enter()?;
        self.context.settle()?;
        self.memory().fill_temporaries(&core.lowered, byte)
    }

    /// Injects a fault into every launch from now on, or none.
    pub(crate) fn inject(&self, core: &PlanCore, fault: Option<Fault>) -> Result<(), Error> {
        let _turn = self.wait_for_turn();
        core.set_fault(fault);
        self.memory().write_tasks(&self.context, &core.lowered, fault)
    }

    /// The kernel that records if launches do, else the ordinary one.
    fn kernel(&self, core: &PlanCore) -> &Kernel {
        if core.profile().0 == 0 { &self.kernel } else { self.profiled.get().unwrap_or(&self.kernel) }
    }

    /// Later launches record so much; without room for any, none do.
    pub(crate) fn profile(&self, core: &PlanCore, shape: Shape) -> Result<(), Error> {
        let mut turn = self.wait_for_turn();
        if shape.room == 0 {
            core.set_profile(0, 0);
            return Ok(());
        }
        let _entered = self.context.enter()?;
        if self.profiled.get().is_none() {
            let kernel = Kernel::load_profiled(&self.context, &self.program, core.lowered.grid())?;
            let none = || Error::NoProfiler { megakernel: core.megakernel().into(), device: self.context.to_string().into() };
            // The lock is held: nobody else sets it.
            let _ = self.profiled.set(kernel.ok_or_else(none)?);
        }
        if turn.recordings.last().is_none_or(|last| last.shape != shape) {
            let what = format!("the profile of megakernel `{}`", core.megakernel());
            let memory = DeviceMemory::zeroed(&self.context, shape.bytes(), &what)?;
            turn.recordings.push(LaunchRecords { memory, shape, before: None });
        }
        if let Some(recording) = turn.recordings.last_mut() {
            recording.before = core.rank.map(|_| timer::moment(&self.context)).transpose()?;
            core.set_profile(recording.memory.address(), shape.room);
        }
        Ok(())
    }

    /// What the last launch recorded.
    pub(crate) fn recorded(&self, core: &PlanCore) -> Result<Profile, Error> {
        let turn = self.wait_for_turn();
        let _entered = self.context.enter()?;
        let none = || Error::NoProfile { megakernel: core.megakernel().into() };
        let recording = turn.recordings.last().ok_or_else(none)?;
        self.context.settle()?;
        let shape = recording.shape;
        let mut profiles = vec![abi::Profile::default(); shape.profiles() as usize];
        let mut records = vec![abi::Record::default(); shape.records() as usize];
        let behind = recording.memory.address() + size_of_val(&*profiles) as u64;
        download(&self.context, &mut profiles, recording.memory.address())?;
        download(&self.context, &mut records, behind)?;
        let mut profile = Profile::of(&core.plan, self.context.to_string(), self.context.roofline());
        let begin = Recorded { profiles: &profiles, records: &records, shape, gpu: true }.fill(&mut profile).ok_or_else(none)?;
        if let (Some(rank), Some(before)) = (core.rank, recording.before) {
            profile.rank = Some(rank.at(begin, profile.elapsed, [before, timer::moment(&self.context)?]));
        }
        Ok(profile)
    }

    /// Tables of their own for `arguments`, on the GPU when this returns.
    pub(crate) fn bind(&self, core: &PlanCore, arguments: &Arguments<'_>) -> Result<BoundArguments, Error> {
        let context = &self.context;
        refuse_while_recording(format_args!("binding arguments of megakernel `{}`", core.megakernel()))?;
        let _entered = context.enter()?;
        let (_, tables) = core.bind(arguments, self.memory().arena())?;
        let binding = Binding::new(context, core)?;
        // SAFETY: a live stream of this context; nothing reads the new tables yet.
        unsafe { binding.write(context, core, self.memory(), &tables, context.copies())? };
        // SAFETY: as above.
        unsafe { context.drain(context.copies())? };
        let buffers = Mutex::new((buffers(arguments), RetainedBuffers::default()));
        let (replayed, rebound) = (EventHandle::new(context)?, EventHandle::new(context)?);
        Ok(BoundArguments { context: context.clone(), binding, buffers, deadline_ns: core.deadline_ns().into(), replayed, rebound })
    }

    /// Queues new tables for bound arguments on `stream`, behind everything launched before.
    pub(crate) fn rebind(&self, core: &PlanCore, bound: &BoundArguments, arguments: &Arguments<'_>, stream: &Stream) -> Result<(), Error> {
        let context = &self.context;
        let raw = stream.of(context)?;
        let _entered = context.enter()?;
        self.refuse_uploads(core, raw)?;
        if core.beside.is_some() && self.watched.is_captured() {
            let what = "a captured launch of it has NCCL exchange the tensors that were bound, and others would not be".into();
            let help = "bind the new arguments, and capture again";
            return Err(Error::Collectives { megakernel: core.megakernel().into(), what, ranks: 2, help });
        }
        let (_, tables) = core.bind(arguments, self.memory().arena())?;
        let mut held = bound.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let written = EventHandle::new(context)?;
        let order = context.turn(raw, stream.id())?;
        // SAFETY: a live stream of this context, behind all launches of the device, those in replays of other libraries too.
        unsafe {
            bound.replayed.hold(context, raw)?;
            bound.binding.write(context, core, self.memory(), &tables, raw)?;
            written.record(context, raw)?;
            bound.rebound.record(context, raw)?;
        }
        order.end(&written);
        bound.deadline_ns.fetch_max(core.deadline_ns(), Ordering::Relaxed);
        let (current, kept) = &mut *held;
        let old = std::mem::replace(current, buffers(arguments));
        kept.add(context, &written, old)
    }

    /// Launches bound arguments on `stream`; in a capture, records nothing but the kernel and keeps `owner` for the graph.
    pub(crate) fn launch_bound(&self, core: &PlanCore, bound: &BoundArguments, stream: &Stream, owner: Kept) -> Result<(), Error> {
        let context = &self.context;
        let raw = stream.of(context)?;
        let _entered = context.enter()?;
        // SAFETY: a live stream of this context.
        if let Some(capture) = unsafe { Capture::of(context, raw)? } {
            let mut last = self.captured.lock().unwrap_or_else(PoisonError::into_inner);
            capture.keep(context, owner)?;
            if let Some(beside) = &core.beside {
                capture.keep(context, beside.in_graph())?;
            }
            let by = if capture.is_own() { Captured::ByMaco } else { Captured::ByAnother };
            self.watched.capture(by, bound.deadline_ns.load(Ordering::Relaxed));
            // SAFETY: as above, asked just now; the graph keeps `owner`, and with it plan, tables and arguments.
            unsafe {
                let ordered = capture.order(context, raw, *last)?;
                let own = by == Captured::ByMaco;
                if !own {
                    bound.rebound.hold_replays(context, raw)?;
                }
                // A launch behind one of another branch waits for all of it, and so does one behind an event.
                self.enqueue(core, core.dependent && own && !ordered, &bound.binding, raw)?;
                if !own {
                    bound.replayed.record_in_replays(context, raw)?;
                }
                *last = Capture::of(context, raw)?.and_then(|capture| capture.last());
            }
            return Ok(());
        }
        self.refuse_run(core)?;
        let _turn = self.turn(core)?;
        let end = EventHandle::new(context)?;
        let order = context.turn(raw, stream.id())?;
        // SAFETY: as above; dropping the plan or the bound arguments waits for the tail of the launch order.
        unsafe {
            self.watched.queue(&end, bound.deadline_ns.load(Ordering::Relaxed));
            let queued = self.enqueue(core, core.dependent, &bound.binding, raw);
            end.record(context, raw)?;
            order.end(&end);
            self.ended_if_refused(queued, &end)
        }
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
