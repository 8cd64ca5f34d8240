//! Launches of a plan on the threads of a CPU device.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use maco_abi::{
    self as abi, BULK_ROWS, BlackBox, Descriptor, EXTRA_BYTES, InjectedFault, LAUNCH, LOST_ARRIVE, Launch, OP_NONE, OPERANDS, REPORT_STUCK,
    STAGED, State, TensorMap, ViewEntry,
};
use maco_device::modelled::{Delays, tensor_map};
use maco_device::protocol::{self, Look, Machine, Outcome, Patience, Run, faults};
use maco_device::{Cpu, OutsideRegion, Slot, Task};

use super::machine::{Bodies, Endless, Watch, Worker};
use super::pipeline::Pipeline;
use super::pool::{Ended, Pool};
use crate::abort::Cause;
use crate::arguments::Arguments;
use crate::error::Error;
use crate::exchange::Exchange;
use crate::hang::{Hang, parameter, task_name, tile};
use crate::lower::{BoxShape, Fault, Image, Tables, TensorMapRequest};
use crate::plan_core::{Key, PlanCore};
use crate::profile::Profile;
use crate::profile::clock::Moment;
use crate::profile::record::{Recorded, Shape};
use crate::program::Dispatch;
use crate::report::Report;
use crate::tensor::{Buffer, HostMemory};

/// Polls of a wait before its deadline counts; the clock is looked at every 64.
const DEADLINE_POLLS: u32 = 256;
/// [`State::abort`] after a panic: no protocol value.
pub(super) const ABORT_PANIC: u32 = 1 << 16;

/// A body computes for so many deadlines until it counts as endless, and for [`PATIENCE`] at least: a task may take long on a CPU.
const ENDLESS: u32 = 20;
const PATIENCE: Duration = Duration::from_secs(5);

/// A plan on the threads of a CPU device.
pub(crate) struct Executor {
    pool: Arc<Pool>,
    dispatch: Dispatch,
    memory: Arc<PlanMemory>,
    turn: Mutex<LaunchState>,
}

/// A plan's memory on the host.
struct PlanMemory {
    arena: HostMemory,
    /// Partial sums of split-K, not initialised.
    partials: HostMemory,
    /// [`State`], two counter banks, the rings, then arrival counts of split-K parts.
    state: HostMemory,
    black_box: HostMemory,
}

struct LaunchState {
    bound: Option<(Key, Arc<Bound>)>,
    code: Arc<TaskTables>,
    pipeline: Option<Arc<Pipeline>>,
    aborted: Option<Cause>,
    /// The body that never ended. Its thread uses all that the plan has, so the plan is of no use any more.
    lost: Option<Hang>,
    /// What launches record.
    recording: Option<Arc<LaunchRecords>>,
}

/// The tables of one set of arguments.
struct Bound {
    tables: Tables,
    /// What copies read and write, in the order of the tables.
    tensor_maps: Vec<TensorMap>,
}

/// Memory of a plan's records.
struct LaunchRecords {
    memory: HostMemory,
    shape: Shape,
}

/// The tables of a plan that workers and schedulers read.
struct TaskTables {
    descriptors: Vec<Descriptor>,
    overflow: Vec<u32>,
    starts: Vec<u32>,
    images: Vec<Image>,
    /// What tests inject: an array, so that it has an address as the others have.
    fault: [InjectedFault; 1],
    /// Memory of the schedulers.
    memory: Vec<HostMemory>,
    partitions: Vec<abi::SchedulerPartition>,
}

impl TaskTables {
    fn new(core: &PlanCore, fault: Option<Fault>) -> Result<TaskTables, Error> {
        let (descriptors, overflow) = core.lowered.with(fault);
        let (images, fault) = (core.lowered.images.clone(), [core.lowered.injected(fault)]);
        let what = format!("the schedulers of megakernel `{}`", core.megakernel());
        let memory = images.iter().map(|image| HostMemory::zeroed(size_of_val(&*image.words) as u64, &what));
        let memory = memory.collect::<Result<Vec<_>, Error>>()?;
        let partition = |(image, memory): (&Image, &HostMemory)| abi::SchedulerPartition {
            image: image.words.as_ptr() as u64,
            memory: memory.address(),
            names: image.names.as_ptr() as u64,
            ..image.header
        };
        let partitions = images.iter().zip(&memory).map(partition).collect();
        Ok(TaskTables { descriptors, overflow, starts: core.lowered.starts.clone(), images, fault, memory, partitions })
    }
}

/// A launch, with all that its threads use: a thread that never ends keeps it.
pub(super) struct Flight {
    pub(super) launch: Launch,
    pub(super) dispatch: Dispatch,
    pub(super) bodies: Bodies,
    pub(super) panicked: Panicked,
    pipeline: Option<Arc<Pipeline>>,
    /// What the addresses in `launch` are of.
    _memory: Arc<PlanMemory>,
    _code: Arc<TaskTables>,
    _bound: Arc<Bound>,
    _recording: Option<Arc<LaunchRecords>>,
    _arguments: Vec<Arc<Buffer>>,
    _exchange: Option<Arc<Exchange>>,
}

impl Flight {
    fn threads(&self) -> u32 {
        let workers = self.launch.workers;
        self.launch.schedulers + if self.pipeline.is_some() { Pipeline::threads(workers) } else { workers }
    }

    /// What one thread of the launch does.
    ///
    /// # Safety
    /// The plan filled the memory that the launch names for its dispatch. Nobody else launches it, and each thread calls once.
    unsafe fn run_thread(&self, number: u32, cpu: &mut Cpu) {
        // SAFETY: passed on from the caller; the memory lives as long as the flight.
        unsafe {
            match (number.checked_sub(self.threads() - self.launch.schedulers), &self.pipeline) {
                (Some(scheduler), _) => run_scheduler(&self.launch, scheduler, &self.bodies),
                (None, Some(pipeline)) => pipeline.run_thread(self, number),
                (None, None) => run_worker(self, number, cpu),
            }
        }
    }

    /// Has all threads leave that still look.
    fn abort(&self) {
        // SAFETY: the memory begins with the state, and lives.
        unsafe { Worker::new(&self.bodies).compare_exchange(&raw mut (*(self.launch.state as *mut State)).abort, 0, REPORT_STUCK) };
    }
}

/// A task whose body panicked, with the panic.
pub(super) type Panicked = Mutex<Option<(u32, Box<dyn Any + Send>)>>;

impl Executor {
    pub(crate) fn new(pool: &Arc<Pool>, dispatch: Dispatch, core: &PlanCore) -> Result<Executor, Error> {
        for call in &core.plan.graph.calls {
            if !call.task.runs_on_cpu() {
                return Err(Error::NoCpuReference { megakernel: core.megakernel().into(), task: call.task.name.into() });
            }
        }
        let what = |what: &str| format!("the {what} of megakernel `{}`", core.megakernel());
        let lowered = &core.lowered;
        let words = size_of::<State>() as u64 + 2 * 4 * lowered.counters as u64 + 4 * (lowered.ring_words() + lowered.arrival_words());
        Ok(Executor {
            pool: pool.clone(),
            dispatch,
            memory: Arc::new(PlanMemory {
                arena: HostMemory::zeroed(core.lowered.arena.bytes, &what("temps"))?,
                partials: HostMemory::zeroed(lowered.partial_bytes(), &what("partial sums"))?,
                state: HostMemory::zeroed(words, &what("counters"))?,
                black_box: HostMemory::zeroed(size_of::<BlackBox>() as u64, &what("black box"))?,
            }),
            turn: Mutex::new(LaunchState {
                bound: None,
                code: Arc::new(TaskTables::new(core, None)?),
                pipeline: core.staging.then(|| Arc::new(Pipeline::new(lowered.workers))),
                aborted: None,
                lost: None,
                recording: None,
            }),
        })
    }

    pub(crate) fn run(&self, core: &PlanCore, arguments: &Arguments<'_>) -> Result<Report, Error> {
        let mut turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(Error::InFlight { megakernel: core.megakernel().into() }),
        };
        turn.usable()?;
        if let Some(cause) = &turn.aborted {
            return Err(cause.aborted(core.megakernel()));
        }
        arguments.tensors.iter().try_for_each(|argument| argument.buffer.usable())?;
        let bound = match &turn.bound {
            Some((key, bound)) if key.matches(core, arguments) => bound.clone(),
            _ => {
                let (key, tables) = core.bind(arguments, self.memory.arena.address())?;
                let bound = Arc::new(Bound { tensor_maps: tables.tensor_maps.iter().map(modelled).collect(), tables });
                turn.bound.insert((key, bound)).1.clone()
            }
        };
        let flight = Arc::new(self.flight(core, &mut turn, bound, arguments));
        let theirs = flight.clone();
        // SAFETY: the flight keeps what its launch names; the caller has the arguments borrowed, or else they are lost (below); the
        // lock keeps other launches of this plan away, and the pool gives every thread its own number.
        let job = Arc::new(move |number: u32, cpu: &mut Cpu| unsafe { theirs.run_thread(number, cpu) });
        let mut watch = Watch::new(PATIENCE.max(Duration::from_nanos(core.deadline_ns()).saturating_mul(ENDLESS)));
        let mut endless = None;
        let begin = Instant::now();
        let mut lost = None;
        let ended = self.pool.run(flight.threads(), job, || {
            if let (None, Some(exchange)) = (&lost, &core.exchange) {
                lost = exchange.lost();
                if lost.is_some() {
                    // Tasks that wait for it end.
                    flight.abort();
                }
            }
            endless = watch.look(&flight.bodies);
            endless.is_some()
        })?;
        let elapsed = begin.elapsed();
        if let (Ended::GivenUp, Some(endless)) = (ended, endless) {
            flight.abort();
            return Err(turn.lose(core, arguments, endless));
        }
        let panicked = flight.panicked.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A launch that has ended needs nobody any more.
        let lost = lost.filter(|_| self.is_aborted()).map(|error| Cause::Ranks(Box::new(error.while_at(&core.waits(&BlackBox::EMPTY)))));
        match lost.or_else(|| self.cause(core, panicked)) {
            None => Ok(Report { elapsed, tasks: core.plan.tasks.len(), workers: core.lowered.workers }),
            Some(cause) => {
                let error = cause.error(core.megakernel());
                turn.aborted = Some(cause);
                Err(error)
            }
        }
    }

    /// A launch that is about to begin.
    fn flight(&self, core: &PlanCore, turn: &mut LaunchState, bound: Arc<Bound>, arguments: &Arguments<'_>) -> Flight {
        let code = turn.code.clone();
        for (memory, image) in code.memory.iter().zip(&code.images) {
            // SAFETY: the memory has the size of the image, and no launch of the plan runs.
            unsafe { memory.pointer().cast::<u32>().copy_from_nonoverlapping(image.words.as_ptr(), image.words.len()) };
        }
        let launch = self.launch(core, &bound, &code);
        if let Some(pipeline) = &mut turn.pipeline {
            // The launch before has ended, and nobody has its flight.
            let pipeline = Arc::get_mut(pipeline).expect("a plan of which a launch goes on is lost");
            // SAFETY: the launch names memory of the plan.
            unsafe { pipeline.begin(&launch) };
        }
        let pipeline = turn.pipeline.clone();
        let threads = if pipeline.is_some() { Pipeline::threads(launch.workers) } else { launch.workers };
        Flight {
            launch,
            dispatch: self.dispatch,
            bodies: Bodies::new(threads),
            panicked: Panicked::default(),
            pipeline,
            _memory: self.memory.clone(),
            _code: code,
            _bound: bound,
            _recording: turn.recording.clone(),
            _arguments: arguments.tensors.iter().map(|argument| argument.buffer.clone()).collect(),
            _exchange: core.exchange.clone(),
        }
    }

    /// Whether the launch that has ended was aborted.
    fn is_aborted(&self) -> bool {
        // SAFETY: the workers have left, and the memory begins with the state.
        unsafe { self.memory.state.pointer().cast::<State>().read().abort != 0 }
    }

    /// What a worker reads.
    fn launch(&self, core: &PlanCore, Bound { tables, tensor_maps }: &Bound, code: &TaskTables) -> Launch {
        let (lowered, memory) = (&core.lowered, &self.memory);
        let rings = memory.state.address() + size_of::<State>() as u64 + 2 * 4 * lowered.counters as u64;
        Launch {
            descriptors: code.descriptors.as_ptr() as u64,
            starts: code.starts.as_ptr() as u64,
            views: tables.views.as_ptr() as u64,
            tensor_maps: tensor_maps.as_ptr() as u64,
            scalars: tables.scalars.as_ptr() as u64,
            overflow: code.overflow.as_ptr() as u64,
            state: memory.state.address(),
            black_box: memory.black_box.address(),
            partitions: code.partitions.as_ptr() as u64,
            rings,
            counters: lowered.counters,
            workers: lowered.workers,
            tasks: lowered.tasks,
            schedule: lowered.mode(),
            schedulers: code.partitions.len() as u32,
            // Threads are not scarce: a spare warp is a thread of its own here.
            spare: 0,
            deadline_ns: core.deadline_ns(),
            deadline_polls: DEADLINE_POLLS,
            delays: core.delays(),
            profile: core.profile().0,
            records: core.profile().1,
            executors: lowered.workers + code.partitions.len() as u32,
            partials: memory.partials.address(),
            arrived: rings + 4 * lowered.ring_words(),
            in_band: memory.arena.address(),
            in_band_words: memory.arena.address() + lowered.arena.words.start,
            in_band_bytes: lowered.arena.in_band_bytes,
            reserved: 0,
            fault: code.fault.as_ptr() as u64,
            ranks: core.ranks(),
        }
    }

    /// Why the launch that just ended was aborted, if it was.
    fn cause(&self, core: &PlanCore, panicked: Option<(u32, Box<dyn Any + Send>)>) -> Option<Cause> {
        if let Some((task, payload)) = panicked {
            let node = &core.plan.tasks[task as usize];
            if let Some(&OutsideRegion { operand, position, region }) = payload.downcast_ref() {
                return Some(Cause::OutsideRegion {
                    task: task_name(&core.plan, node.call).into(),
                    call: node.call,
                    tile: tile(&core.plan, node),
                    parameter: parameter(&core.plan, node.call, operand).into(),
                    position,
                    region,
                });
            }
            return Some(Cause::Panicked {
                task: task_name(&core.plan, node.call).into(),
                call: node.call,
                tile: tile(&core.plan, node),
                message: message(&*payload).into(),
            });
        }
        // SAFETY: the workers have left, and the memory holds a black box.
        let report = unsafe { self.memory.black_box.pointer().cast::<BlackBox>().read() };
        (report.report != abi::REPORT_NONE).then(|| core.cause(&report, false))
    }

    /// Later launches record so much; without room for any, none do.
    pub(crate) fn profile(&self, core: &PlanCore, shape: Shape) -> Result<(), Error> {
        let mut turn = self.wait_for_turn()?;
        if shape.room == 0 {
            core.set_profile(0, 0);
            return Ok(());
        }
        let what = format!("the profile of megakernel `{}`", core.megakernel());
        let memory = HostMemory::zeroed(shape.bytes(), &what)?;
        core.set_profile(memory.address(), shape.room);
        turn.recording = Some(Arc::new(LaunchRecords { memory, shape }));
        Ok(())
    }

    /// What the last launch recorded.
    pub(crate) fn recorded(&self, core: &PlanCore) -> Result<Profile, Error> {
        let turn = self.wait_for_turn()?;
        let mut profile = Profile::of(&core.plan, core.device.to_string(), None);
        let begin = turn.recording.as_ref().and_then(|recording| {
            let shape = recording.shape;
            let (profiles, records) = (shape.profiles() as usize, shape.records() as usize);
            let first = recording.memory.pointer().cast::<abi::Profile>();
            // SAFETY: the memory was sized for these, is zeroed or was written by those who record, and the lock keeps launches away.
            let (profiles, records) =
                unsafe { (std::slice::from_raw_parts(first, profiles), std::slice::from_raw_parts(first.add(profiles).cast(), records)) };
            Recorded { profiles, records, shape, gpu: false }.fill(&mut profile)
        });
        let begin = begin.ok_or_else(|| Error::NoProfile { megakernel: core.megakernel().into() })?;
        // The clock of the threads does not drift from the host's.
        profile.rank = core.rank.zip(Moment::of_threads()).map(|(rank, now)| rank.at(begin, profile.elapsed, [now; 2]));
        Ok(profile)
    }

    /// The error that a run would return at once.
    pub(crate) fn check(&self, core: &PlanCore) -> Result<(), Error> {
        match &self.wait_for_turn()?.aborted {
            Some(cause) => Err(cause.aborted(core.megakernel())),
            None => Ok(()),
        }
    }

    /// Clears an abort: counters, state, in-band flags and black box are as new.
    pub(crate) fn recover(&self, core: &PlanCore) -> Result<(), Error> {
        core.recover(|| {
            let mut turn = self.wait_for_turn()?;
            // SAFETY: the lock keeps launches away.
            unsafe {
                self.memory.state.clear();
                self.memory.black_box.clear();
                self.write_words(core, 0);
            }
            turn.aborted = None;
            Ok(())
        })
    }

    /// Writes the words of temps with in-band flags as the launch before number `launches` left them.
    ///
    /// # Safety
    /// No launch runs.
    unsafe fn write_words(&self, core: &PlanCore, launches: u32) {
        let arena = &core.lowered.arena;
        let words = arena.words_behind(launches);
        let at = self.memory.arena.pointer().wrapping_add(arena.words.start as usize).cast::<u32>();
        // SAFETY: the words are a part of the arena, at a multiple of its alignment; the caller promises exclusive access.
        unsafe { at.copy_from_nonoverlapping(words.as_ptr(), words.len()) };
    }

    /// See [`crate::Plan::launched`].
    pub(crate) fn launched(&self, core: &PlanCore, launches: u32) -> Result<(), Error> {
        self.recover(core)?;
        let _turn = self.wait_for_turn()?;
        // SAFETY: the lock keeps launches away, and the memory begins with the state.
        unsafe {
            let state = self.memory.state.pointer().cast::<State>();
            state.write(State { left: launches.wrapping_mul(LAUNCH), begun: launches.wrapping_mul(LAUNCH), ..state.read() });
            self.write_words(core, launches);
        }
        Ok(())
    }

    /// See [`crate::Plan::fill_temporaries`].
    pub(crate) fn fill_temporaries(&self, core: &PlanCore, byte: u8) -> Result<(), Error> {
        let turn = self.wait_for_turn()?;
        // SAFETY: temps lie before the words of in-band flags, partial sums and images have all of their memory, and the lock keeps launches away.
        unsafe {
            self.memory.arena.fill(core.lowered.arena.words.start, byte);
            self.memory.partials.fill(core.lowered.partial_bytes(), byte);
            for (memory, image) in turn.code.memory.iter().zip(&turn.code.images) {
                memory.fill(size_of_val(&*image.words) as u64, byte);
            }
        }
        Ok(())
    }

    /// Injects a fault into every launch from now on, or none.
    pub(crate) fn inject(&self, core: &PlanCore, fault: Option<Fault>) -> Result<(), Error> {
        self.wait_for_turn()?.code = Arc::new(TaskTables::new(core, fault)?);
        Ok(())
    }

    /// The state of the plan while no launch of it runs.
    ///
    /// # Errors
    /// MACO0092 if one runs for ever.
    fn wait_for_turn(&self) -> Result<MutexGuard<'_, LaunchState>, Error> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        turn.usable()?;
        Ok(turn)
    }
}

impl LaunchState {
    fn usable(&self) -> Result<(), Error> {
        self.lost.as_ref().map_or(Ok(()), |hang| Err(Error::Endless(Box::new(hang.clone()))))
    }

    /// Gives up the plan and the tensors that a thread goes on to use.
    fn lose(&mut self, core: &PlanCore, arguments: &Arguments<'_>, endless: Endless) -> Error {
        let Endless { worker, task, ran } = endless;
        // The threads of a pipelined worker are numbered through.
        let worker = worker / (self.pipeline.as_ref().map_or(1, |_| Pipeline::threads(1)));
        let elapsed_ns = ran.as_nanos() as u64;
        let report = BlackBox { report: REPORT_STUCK, task, worker, elapsed_ns, ..BlackBox::EMPTY };
        let hang = Hang::new(&core.plan, &report, false);
        arguments.tensors.iter().for_each(|argument| argument.buffer.lose(&hang));
        self.lost = Some(hang.clone());
        Error::Endless(Box::new(hang))
    }
}

/// Runs one worker of a launch.
///
/// # Safety
/// The launch names live memory that the plan filled for its dispatch; each worker of it calls once.
unsafe fn run_worker(flight: &Flight, worker: u32, cpu: &mut Cpu) {
    let Flight { launch, bodies, panicked, .. } = flight;
    let machine = Worker::new(bodies);
    let mut tails = [0u8; maco_abi::MAX_SCHEDULERS as usize];
    // SAFETY: passed on from the caller; descriptors, views and scalars are not written while the launch runs.
    Delays::new(launch.delays, worker, 0).enter(|| unsafe {
        protocol::work(&machine, launch, worker, &mut tails, |run, descriptor| {
            if (*descriptor).op != OP_NONE {
                let views = (launch.views as *const ViewEntry).add((*descriptor).views as usize);
                let slot = Slot { descriptor: *descriptor, views: views.cast::<[ViewEntry; OPERANDS]>().read() };
                let task = Task::new(&slot, launch);
                // A body that polls an in-band flag does not compute: the deadline of its wait counts.
                let patience = Cell::new(Patience::new());
                let give_up = || {
                    let mut waited = patience.get();
                    let look = bodies.idle(worker, || waited.look(&machine, run));
                    if look == Look::Late {
                        waited.report(&machine, run, BlackBox { report: REPORT_STUCK, task: slot.descriptor.task, ..BlackBox::EMPTY });
                    }
                    patience.set(waited);
                    look == Look::Abort
                };
                let body = || maco_device::giving_up(&give_up, || (flight.dispatch)(cpu, task, slot.descriptor.op as u32));
                if let Err(payload) = bodies.run(worker, slot.descriptor.task, || catch_unwind(AssertUnwindSafe(body))) {
                    *cpu = Cpu::new();
                    panicked.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert((slot.descriptor.task, payload));
                    machine.compare_exchange(&raw mut (*run.state).abort, 0, ABORT_PANIC);
                    return Outcome::Abort;
                }
            }
            let Descriptor { flags, task, .. } = *descriptor;
            let hits = |kind| faults::hit(launch, kind, || task);
            if hits(LOST_ARRIVE) || hits(EXTRA_BYTES) && flags.has(STAGED | BULK_ROWS) {
                // One thread is both loader and consumers: either fault is a task that does not end.
                hang(&machine, run, task);
                return Outcome::Abort;
            }
            Outcome::Ready
        });
    });
}

/// A task that does not end: its worker reports it past the deadline.
///
/// # Safety
/// `run` is a live launch.
unsafe fn hang(machine: &Worker, run: &Run, task: u32) {
    let mut patience = Patience::new();
    loop {
        // SAFETY: passed on from the caller.
        match unsafe { patience.look(machine, run) } {
            Look::Again => {}
            // SAFETY: as above.
            Look::Late => unsafe { patience.report(machine, run, BlackBox { report: REPORT_STUCK, task, ..BlackBox::EMPTY }) },
            Look::Abort => return,
        }
    }
}

/// Runs one scheduler of a launch.
///
/// # Safety
/// `launch` names live memory; each scheduler of the launch calls once, and its memory holds its image.
pub(super) unsafe fn run_scheduler(launch: &Launch, number: u32, bodies: &Bodies) {
    let machine = Worker::new(bodies);
    // SAFETY: passed on from the caller.
    Delays::new(launch.delays, launch.workers + number, 0).enter(|| unsafe { protocol::attend(&machine, launch, number) });
}

fn modelled(map: &TensorMapRequest) -> TensorMap {
    let BoxShape { rows, rounds, pieces, .. } = map.boxes;
    tensor_map(map.address, map.extents, map.strides, map.element.bytes(), (rows, pieces), rounds)
}

fn message(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("the panic carries no text")
}

#[cfg(test)]
mod tests {
    use maco_graph::ir::{Call, Graph, Tensor, TensorKind, View};
    use maco_graph::plan::{Options, Schedule, plan};
    use maco_graph::spec::{Access, Axis, DimSpec, Element, ElementSpec, Index, Param, Placement, TaskKind, TaskSpec, TensorParam};

    use super::*;
    use crate::device::Device;
    use crate::options::PlanOptions;

    const fn matrix(name: &'static str, access: Access, dims: &'static [DimSpec], region: &'static [Index]) -> Param {
        Param::Tensor(TensorParam { name, access, element: ElementSpec::Fixed(Element::Bf16), dims, region, staged: false })
    }

    /// A GEMV.
    static GEMM: TaskSpec = TaskSpec {
        name: "gemm",
        kind: TaskKind::Gemv { operand_b: 1, operand_a: Some(0) },
        axes: &[Axis { name: "i", tiles: &[8] }, Axis { name: "j", tiles: &[8] }],
        dims: &["M", "N", "K"],
        equal: &[],
        gemv: None,
        elements: &[],
        params: &[
            matrix("x", Access::Read, &[DimSpec::Symbol(0), DimSpec::Symbol(2)], &[Index::Tile(0), Index::All]),
            matrix("w", Access::Read, &[DimSpec::Symbol(1), DimSpec::Symbol(2)], &[Index::Tile(1), Index::All]),
            matrix("y", Access::Write, &[DimSpec::Symbol(0), DimSpec::Symbol(1)], &[Index::Tile(0), Index::Tile(1)]),
        ],
    };

    /// x → wide → y, with `wide` a temp.
    fn gemms() -> Graph {
        let tensor = |name: &str, kind, shape: [u64; 2]| Tensor {
            name: name.into(),
            kind,
            element: Element::Bf16,
            shape: shape.into(),
            placement: Placement::Replicated,
        };
        let tensors = vec![
            tensor("x", TensorKind::In, [1, 16]),
            tensor("up", TensorKind::In, [64, 16]),
            tensor("down", TensorKind::In, [16, 64]),
            tensor("y", TensorKind::Out, [1, 16]),
            tensor("wide", TensorKind::Temp, [1, 64]),
        ];
        let call =
            |operands: [u32; 3]| Call::new(&GEMM, operands.iter().map(|&index| View::whole(index, &tensors[index as usize])).collect());
        let calls = vec![call([0, 1, 4]), call([4, 2, 3])];
        Graph { name: "gemms".into(), tensors, calls, ..Graph::default() }
    }

    /// Temps and schedulers' memory are filled; words of in-band flags, counters and images are not.
    #[test]
    fn fill_temporaries_keeps_flags_and_counters() {
        for schedule in [Schedule::Static, Schedule::Schedulers(2)] {
            let device = Device::cpu_with(2);
            let planned = plan(gemms(), &Options { schedule, ..Options::new(2) }).unwrap();
            let core = PlanCore::new(device.clone(), planned, 1_000_000_000, 1, &PlanOptions::new()).unwrap();
            let executor = Executor::new(device.pool().unwrap(), |_, _, _| {}, &core).unwrap();
            executor.fill_temporaries(&core, 0xa5).unwrap();
            let lowered = &core.lowered;
            let held = |memory: &HostMemory, bytes: u64| {
                // SAFETY: the memory was sized so, and no launch runs.
                unsafe { std::slice::from_raw_parts(memory.pointer(), bytes as usize) }.to_vec()
            };
            let memory = &executor.memory;
            let arena = held(&memory.arena, lowered.arena.bytes);
            let (temps, words) = arena.split_at(lowered.arena.words.start as usize);
            assert!(temps.len() >= 128 && temps.iter().all(|&byte| byte == 0xa5));
            assert_eq!((words.len() as u64, words.is_empty()), (2 * u64::from(lowered.arena.in_band_bytes), schedule != Schedule::Static));
            assert!(words.iter().all(|&byte| byte == 0));
            let counted = size_of::<State>() as u64 + 8 * u64::from(lowered.counters) + 4 * lowered.ring_words();
            assert!(held(&memory.state, counted).iter().all(|&byte| byte == 0));
            assert!(held(&memory.black_box, size_of::<BlackBox>() as u64).iter().all(|&byte| byte == 0));
            let turn = executor.wait_for_turn().unwrap();
            assert_eq!(turn.code.memory.len() as u32, schedule.schedulers());
            for ((memory, image), planned) in turn.code.memory.iter().zip(&turn.code.images).zip(&lowered.images) {
                assert!(held(memory, size_of_val(&*image.words) as u64).iter().all(|&byte| byte == 0xa5));
                assert_eq!(image.words, planned.words);
            }
        }
    }
}
