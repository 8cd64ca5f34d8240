//! Launches of a plan on the threads of a CPU device.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Instant;

use maco_device::abi::{
    self, BULK_ROWS, BlackBox, Descriptor, EXTRA_BYTES, LAUNCH, LOST_ARRIVE, Launch, OP_NONE, OPERANDS, REPORT_STUCK, STAGED, State,
    TensorMap,
};
use maco_device::modelled::{Delays, tensor_map};
use maco_device::protocol::{self, Look, Machine, Outcome, Patience, Run};
use maco_device::{Cpu, OutsideRegion, Slot, Task};
use maco_graph::spec::TaskKind;

use super::machine::{Bodies, Worker};
use super::pipeline::Pipeline;
use super::pool::Pool;
use crate::abort::Cause;
use crate::arguments::Arguments;
use crate::error::Error;
use crate::hang::{parameter, task_name, tile};
use crate::lower::{BoxShape, Fault, Image, Lowered, Tables, TensorMapRequest};
use crate::plan_core::{Key, PlanCore};
use crate::profile::Profile;
use crate::profile::record::{Recorded, Shape};
use crate::program::Dispatch;
use crate::report::Report;
use crate::tensor::HostMemory;

/// Polls of a wait before its deadline counts; the clock is looked at every 64.
const DEADLINE_POLLS: u32 = 256;
/// [`State::abort`] after a panic: no protocol value.
pub(super) const ABORT_PANIC: u32 = 1 << 16;

/// A plan's memory on the host.
pub(crate) struct Executor {
    pool: Arc<Pool>,
    dispatch: Dispatch,
    arena: HostMemory,
    /// Partial sums of split-K, not initialised.
    partials: HostMemory,
    /// [`State`], two counter banks, the rings, then arrival counts of split-K parts.
    state: HostMemory,
    black_box: HostMemory,
    turn: Mutex<LaunchState>,
}

struct LaunchState {
    bound: Option<(Key, Tables)>,
    code: TaskTables,
    pipeline: Option<Pipeline>,
    /// What copies read and write, in the order of the tables.
    maps: Vec<TensorMap>,
    aborted: Option<Cause>,
    /// What launches record.
    recording: Option<LaunchRecords>,
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
    images: Vec<Image>,
    /// Memory of the schedulers.
    memory: Vec<Vec<u32>>,
    shares: Vec<abi::SchedulerPartition>,
}

impl TaskTables {
    fn new(lowered: &Lowered, fault: Option<Fault>) -> TaskTables {
        let (descriptors, overflow, images) = lowered.with(fault);
        let mut memory: Vec<Vec<u32>> = images.iter().map(|image| image.words.clone()).collect();
        let share = |(image, memory): (&Image, &mut Vec<u32>)| abi::SchedulerPartition {
            image: image.words.as_ptr() as u64,
            memory: memory.as_mut_ptr() as u64,
            names: image.names.as_ptr() as u64,
            ..image.header
        };
        let shares = images.iter().zip(&mut memory).map(share).collect();
        TaskTables { descriptors, overflow, images, memory, shares }
    }
}

/// A task whose body panicked, with the panic.
pub(super) type Panicked = Mutex<Option<(u32, Box<dyn Any + Send>)>>;

impl Executor {
    pub(crate) fn new(pool: &Arc<Pool>, dispatch: Dispatch, core: &PlanCore) -> Result<Executor, Error> {
        for call in &core.plan.graph.calls {
            if matches!(call.task.kind, TaskKind::Simt { cpu: false, .. }) {
                return Err(Error::NoCpuReference { megakernel: core.megakernel().into(), task: call.task.name.into() });
            }
        }
        let what = |what: &str| format!("the {what} of megakernel `{}`", core.megakernel());
        let lowered = &core.lowered;
        let words = size_of::<State>() as u64 + 2 * 4 * lowered.counters as u64 + 4 * (lowered.ring_words() + lowered.arrival_words());
        Ok(Executor {
            pool: pool.clone(),
            dispatch,
            arena: HostMemory::zeroed(core.lowered.arena.bytes, &what("temps"))?,
            partials: HostMemory::zeroed(lowered.partial_bytes(), &what("partial sums"))?,
            state: HostMemory::zeroed(words, &what("counters"))?,
            black_box: HostMemory::zeroed(size_of::<BlackBox>() as u64, &what("black box"))?,
            turn: Mutex::new(LaunchState {
                bound: None,
                code: TaskTables::new(lowered, None),
                pipeline: core.staging.then(|| Pipeline::new(lowered.workers)),
                maps: Vec::new(),
                aborted: None,
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
        if let Some(cause) = &turn.aborted {
            return Err(cause.aborted(core.megakernel()));
        }
        if !turn.bound.as_ref().is_some_and(|(key, _)| key.matches(core, arguments)) {
            let (key, tables) = core.bind(arguments, self.arena.address())?;
            turn.maps = tables.maps.iter().map(modelled).collect();
            turn.bound = Some((key, tables));
        }
        let LaunchState { bound: Some((_, tables)), code, pipeline, maps, .. } = &mut *turn else { unreachable!("bound above") };
        for (memory, image) in code.memory.iter_mut().zip(&code.images) {
            memory.copy_from_slice(&image.words);
        }
        let launch = self.launch(core, tables, maps, code);
        let panicked = Panicked::default();
        let begin = Instant::now();
        match pipeline {
            // SAFETY: `launch` names memory of this plan and its arguments, which the caller keeps borrowed; the lock keeps other
            // launches of this plan away, and the pool gives every worker and scheduler its own number.
            None => self.pool.run(launch.workers + launch.schedulers, &|number, cpu| unsafe {
                match number.checked_sub(launch.workers) {
                    None => run_worker(&launch, number, cpu, self.pool.bodies(), self.dispatch, &panicked),
                    Some(scheduler) => run_scheduler(&launch, scheduler, self.pool.bodies()),
                }
            })?,
            // SAFETY: as above.
            Some(pipeline) => unsafe { pipeline.run(&self.pool, &launch, self.dispatch, &panicked)? },
        }
        let elapsed = begin.elapsed();
        let panicked = panicked.into_inner().unwrap_or_else(PoisonError::into_inner);
        match self.cause(core, panicked) {
            None => Ok(Report { elapsed, tasks: core.plan.tasks.len(), workers: core.lowered.workers }),
            Some(cause) => {
                let error = cause.error(core.megakernel());
                turn.aborted = Some(cause);
                Err(error)
            }
        }
    }

    /// What a worker reads.
    fn launch(&self, core: &PlanCore, tables: &Tables, maps: &[TensorMap], code: &TaskTables) -> Launch {
        let lowered = &core.lowered;
        let rings = self.state.address() + size_of::<State>() as u64 + 2 * 4 * lowered.counters as u64;
        Launch {
            descriptors: code.descriptors.as_ptr() as u64,
            starts: lowered.starts.as_ptr() as u64,
            views: tables.views.as_ptr() as u64,
            maps: maps.as_ptr() as u64,
            scalars: tables.scalars.as_ptr() as u64,
            overflow: code.overflow.as_ptr() as u64,
            state: self.state.address(),
            black_box: self.black_box.address(),
            partitions: code.shares.as_ptr() as u64,
            rings,
            counters: lowered.counters,
            workers: lowered.workers,
            tasks: lowered.tasks,
            schedule: lowered.mode(),
            schedulers: code.shares.len() as u32,
            // Threads are not scarce: a spare warp is a thread of its own here.
            spare: 0,
            deadline_ns: core.deadline_ns(),
            deadline_polls: DEADLINE_POLLS,
            delays: core.delays(),
            profile: core.profile().0,
            records: core.profile().1,
            executors: lowered.workers + code.shares.len() as u32,
            partials: self.partials.address(),
            arrived: rings + 4 * lowered.ring_words(),
            in_band: self.arena.address(),
            in_band_words: self.arena.address() + lowered.arena.words.start,
            in_band_bytes: lowered.arena.in_band_bytes,
            reserved: 0,
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
        let report = unsafe { self.black_box.pointer().cast::<BlackBox>().read() };
        (report.report != abi::REPORT_NONE).then(|| Cause::of(&report, &core.plan, false))
    }

    /// Later launches record so much; without room for any, none do.
    pub(crate) fn profile(&self, core: &PlanCore, shape: Shape) -> Result<(), Error> {
        let mut turn = self.wait_for_turn();
        if shape.room == 0 {
            core.set_profile(0, 0);
            return Ok(());
        }
        let what = format!("the profile of megakernel `{}`", core.megakernel());
        let memory = HostMemory::zeroed(shape.bytes(), &what)?;
        core.set_profile(memory.address(), shape.room);
        turn.recording = Some(LaunchRecords { memory, shape });
        Ok(())
    }

    /// What the last launch recorded.
    pub(crate) fn recorded(&self, core: &PlanCore) -> Result<Profile, Error> {
        let turn = self.wait_for_turn();
        let mut profile = Profile::of(&core.plan, core.device.to_string(), None);
        let filled = turn.recording.as_ref().is_some_and(|recording| {
            let shape = recording.shape;
            let (profiles, records) = (shape.profiles() as usize, shape.records() as usize);
            let first = recording.memory.pointer().cast::<abi::Profile>();
            // SAFETY: the memory was sized for these, is zeroed or was written by those who record, and the lock keeps launches away.
            let (profiles, records) =
                unsafe { (std::slice::from_raw_parts(first, profiles), std::slice::from_raw_parts(first.add(profiles).cast(), records)) };
            Recorded { profiles, records, shape, gpu: false }.fill(&mut profile)
        });
        if filled { Ok(profile) } else { Err(Error::NoProfile { megakernel: core.megakernel().into() }) }
    }

    /// The error that a run would return at once.
    pub(crate) fn check(&self, core: &PlanCore) -> Result<(), Error> {
        match &self.wait_for_turn().aborted {
            Some(cause) => Err(cause.aborted(core.megakernel())),
            None => Ok(()),
        }
    }

    /// Clears an abort: counters, state, in-band flags and black box are as new.
    pub(crate) fn recover(&self, core: &PlanCore) {
        let mut turn = self.wait_for_turn();
        // SAFETY: the lock keeps launches away.
        unsafe {
            self.state.clear();
            self.black_box.clear();
            self.write_words(core, 0);
        }
        turn.aborted = None;
    }

    /// Writes the words of temps with in-band flags as the launch before number `launches` left them.
    ///
    /// # Safety
    /// No launch runs.
    unsafe fn write_words(&self, core: &PlanCore, launches: u32) {
        let arena = &core.lowered.arena;
        let words = arena.words_behind(launches);
        // SAFETY: the words are a part of the arena, at a multiple of its alignment; the caller promises exclusive access.
        unsafe { self.arena.pointer().add(arena.words.start as usize).cast::<u32>().copy_from_nonoverlapping(words.as_ptr(), words.len()) };
    }

    /// See [`crate::Plan::launched`].
    pub(crate) fn launched(&self, core: &PlanCore, launches: u32) {
        self.recover(core);
        let _turn = self.wait_for_turn();
        // SAFETY: the lock keeps launches away, and the memory begins with the state.
        unsafe {
            let state = self.state.pointer().cast::<State>();
            state.write(State { left: launches.wrapping_mul(LAUNCH), begun: launches.wrapping_mul(LAUNCH), ..state.read() });
            self.write_words(core, launches);
        }
    }

    /// See [`crate::Plan::fill_temporaries`].
    pub(crate) fn fill_temporaries(&self, core: &PlanCore, byte: u8) {
        let mut turn = self.wait_for_turn();
        // SAFETY: temps lie before the words of in-band flags, partial sums have all of their memory, and the lock keeps launches away.
        unsafe {
            self.arena.fill(core.lowered.arena.words.start, byte);
            self.partials.fill(core.lowered.partial_bytes(), byte);
        }
        turn.code.memory.iter_mut().for_each(|memory| memory.fill(u32::from_ne_bytes([byte; 4])));
    }

    /// Injects a fault into every launch from now on, or none.
    pub(crate) fn inject(&self, core: &PlanCore, fault: Option<Fault>) {
        self.wait_for_turn().code = TaskTables::new(&core.lowered, fault);
    }

    fn wait_for_turn(&self) -> std::sync::MutexGuard<'_, LaunchState> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs one worker of a launch.
///
/// # Safety
/// `launch` names live memory that the plan filled for `dispatch`; each worker of the launch calls once.
unsafe fn run_worker(launch: &Launch, worker: u32, cpu: &mut Cpu, bodies: &Bodies, dispatch: Dispatch, panicked: &Panicked) {
    let machine = Worker::new(bodies);
    let mut tails = [0u8; maco_graph::plan::MAX_SCHEDULERS as usize];
    // SAFETY: passed on from the caller; descriptors, views and scalars are not written while the launch runs.
    Delays::new(launch.delays, worker, 0).enter(|| unsafe {
        protocol::work(&machine, launch, worker, &mut tails, |run, descriptor| {
            if (*descriptor).op != OP_NONE {
                let views = (launch.views as *const abi::View).add((*descriptor).views as usize);
                let slot = Slot { descriptor: *descriptor, views: views.cast::<[abi::View; OPERANDS]>().read() };
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
                let body = || maco_device::giving_up(&give_up, || dispatch(cpu, task, slot.descriptor.op as u32));
                if let Err(payload) = bodies.run(worker, || catch_unwind(AssertUnwindSafe(body))) {
                    *cpu = Cpu::new();
                    panicked.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert((slot.descriptor.task, payload));
                    machine.compare_exchange(&raw mut (*run.state).abort, 0, ABORT_PANIC);
                    return Outcome::Abort;
                }
            }
            let flags = (*descriptor).flags;
            if flags & LOST_ARRIVE != 0 || flags & EXTRA_BYTES != 0 && flags & (STAGED | BULK_ROWS) != 0 {
                // One thread is both loader and consumers: either fault is a task that does not end.
                hang(&machine, run, (*descriptor).task);
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
    use maco_graph::spec::{Access, Axis, DimSpec, Element, ElementSpec, Index, Param, Placement, TaskSpec, TensorParam};

    use super::*;
    use crate::device::Device;
    use crate::options::PlanOptions;

    const fn matrix(name: &'static str, access: Access, dims: &'static [DimSpec], region: &'static [Index]) -> Param {
        Param::Tensor(TensorParam { name, access, element: ElementSpec::Fixed(Element::Bf16), dims, region, staged: false })
    }

    /// A GEMV.
    static PRODUCT: TaskSpec = TaskSpec {
        name: "product",
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
    fn products() -> Graph {
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
        let call = |operands: [u32; 3]| Call {
            task: &PRODUCT,
            slot: 0,
            element: 0,
            operands: operands.iter().map(|&index| View::whole(index, &tensors[index as usize])).collect(),
            scalars: vec![],
            tile: None,
            fused: vec![],
            priority: 0,
            split: None,
            drain: false,
        };
        let calls = vec![call([0, 1, 4]), call([4, 2, 3])];
        Graph { name: "products".into(), tensors, scalars: vec![], calls }
    }

    /// Temps and schedulers' memory are filled; words of in-band flags, counters and images are not.
    #[test]
    fn fill_temporaries_keeps_flags_and_counters() {
        for schedule in [Schedule::Static, Schedule::Schedulers(2)] {
            let device = Device::cpu_with(2);
            let planned = plan(products(), &Options { schedule, ..Options::new(2) }).unwrap();
            let core = PlanCore::new(device.clone(), planned, 1_000_000_000, &PlanOptions::new()).unwrap();
            let executor = Executor::new(device.pool().unwrap(), |_, _, _| {}, &core).unwrap();
            executor.fill_temporaries(&core, 0xa5);
            let lowered = &core.lowered;
            let held = |memory: &HostMemory, bytes: u64| {
                // SAFETY: the memory was sized so, and no launch runs.
                unsafe { std::slice::from_raw_parts(memory.pointer(), bytes as usize) }.to_vec()
            };
            let arena = held(&executor.arena, lowered.arena.bytes);
            let (temps, words) = arena.split_at(lowered.arena.words.start as usize);
            assert!(temps.len() >= 128 && temps.iter().all(|&byte| byte == 0xa5));
            assert_eq!((words.len() as u64, words.is_empty()), (2 * u64::from(lowered.arena.in_band_bytes), schedule != Schedule::Static));
            assert!(words.iter().all(|&byte| byte == 0));
            let counted = size_of::<State>() as u64 + 8 * u64::from(lowered.counters) + 4 * lowered.ring_words();
            assert!(held(&executor.state, counted).iter().all(|&byte| byte == 0));
            assert!(held(&executor.black_box, size_of::<BlackBox>() as u64).iter().all(|&byte| byte == 0));
            let turn = executor.wait_for_turn();
            assert_eq!(turn.code.memory.len() as u32, schedule.schedulers());
            assert!(turn.code.memory.iter().flatten().all(|&word| word == 0xa5a5_a5a5));
            for (image, planned) in turn.code.images.iter().zip(&lowered.images) {
                assert_eq!(image.words, planned.words);
            }
        }
    }
}
