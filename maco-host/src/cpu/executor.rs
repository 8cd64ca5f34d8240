//! Launches of a plan on the threads of a CPU device.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Instant;

use maco_device::abi::{self, BlackBox, Descriptor, Launch, OP_END, OP_NONE, OPERANDS, State};
use maco_device::protocol::{self, Machine, Outcome, Queue, Run};
use maco_device::{Cpu, Slot, Task};
use maco_graph::spec::TaskKind;

use super::machine::{Bodies, Worker};
use super::pool::Pool;
use crate::abort::Cause;
use crate::arguments::Arguments;
use crate::error::Error;
use crate::hang::{Hang, task_name, tile};
use crate::lower::Tables;
use crate::parts::{Key, Parts};
use crate::program::Dispatch;
use crate::report::Report;
use crate::tensor::HostMemory;

/// Polls of a wait before its deadline counts; the clock is looked at every 64.
const DEADLINE_POLLS: u32 = 256;
/// [`State::abort`] after a panic: no protocol value.
const ABORT_PANIC: u32 = 1 << 16;

/// A plan's memory on the host.
pub(crate) struct Executor {
    pool: Arc<Pool>,
    dispatch: Dispatch,
    arena: HostMemory,
    /// [`State`], then two counter banks.
    state: HostMemory,
    black_box: HostMemory,
    turn: Mutex<Turn>,
}

#[derive(Default)]
struct Turn {
    bound: Option<(Key, Tables)>,
    /// Descriptors and overflow with a fault, in place of the plan's.
    faulty: Option<(Vec<Descriptor>, Vec<u32>)>,
    aborted: Option<Cause>,
}

/// A task whose body panicked, with the panic.
type Panicked = Mutex<Option<(u32, Box<dyn Any + Send>)>>;

impl Executor {
    pub(crate) fn new(pool: &Arc<Pool>, dispatch: Dispatch, parts: &Parts) -> Result<Executor, Error> {
        for call in &parts.plan.graph.calls {
            if call.task.kind == (TaskKind::Simt { cpu: false }) {
                return Err(Error::NoCpuReference { megakernel: parts.megakernel().into(), task: call.task.name.into() });
            }
        }
        let what = |what: &str| format!("the {what} of megakernel `{}`", parts.megakernel());
        let banks = size_of::<State>() as u64 + 2 * 4 * parts.lowered.counters as u64;
        Ok(Executor {
            pool: pool.clone(),
            dispatch,
            arena: HostMemory::zeroed(parts.lowered.arena.bytes, &what("temps"))?,
            state: HostMemory::zeroed(banks, &what("counters"))?,
            black_box: HostMemory::zeroed(size_of::<BlackBox>() as u64, &what("black box"))?,
            turn: Mutex::default(),
        })
    }

    pub(crate) fn run(&self, parts: &Parts, arguments: &Arguments<'_>) -> Result<Report, Error> {
        let mut turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(Error::InFlight { megakernel: parts.megakernel().into() }),
        };
        if let Some(cause) = &turn.aborted {
            return Err(cause.aborted(parts.megakernel()));
        }
        if !turn.bound.as_ref().is_some_and(|(key, _)| key.matches(parts, arguments)) {
            turn.bound = Some(parts.bind(arguments, self.arena.address())?);
        }
        let Turn { bound: Some((_, tables)), faulty, .. } = &*turn else { unreachable!("bound above") };
        let launch = self.launch(parts, tables, faulty.as_ref());
        let panicked = Panicked::default();
        let begin = Instant::now();
        // SAFETY: `launch` names memory of this plan and its arguments, which the caller keeps borrowed; the lock keeps other
        // launches of this plan away, and the pool gives every worker its own number.
        self.pool.run(parts.lowered.workers, &|worker, cpu| unsafe {
            work(&launch, worker, cpu, self.pool.bodies(), self.dispatch, &panicked)
        })?;
        let elapsed = begin.elapsed();
        let panicked = panicked.into_inner().unwrap_or_else(PoisonError::into_inner);
        match self.cause(parts, panicked) {
            None => Ok(Report { elapsed, tasks: parts.plan.tasks.len(), workers: parts.lowered.workers }),
            Some(cause) => {
                let error = cause.error(parts.megakernel());
                turn.aborted = Some(cause);
                Err(error)
            }
        }
    }

    /// What a worker reads.
    fn launch(&self, parts: &Parts, tables: &Tables, faulty: Option<&(Vec<Descriptor>, Vec<u32>)>) -> Launch {
        let lowered = &parts.lowered;
        let (descriptors, overflow) =
            faulty.map_or((&lowered.descriptors, &lowered.overflow), |(descriptors, overflow)| (descriptors, overflow));
        Launch {
            descriptors: descriptors.as_ptr() as u64,
            starts: lowered.starts.as_ptr() as u64,
            views: tables.views.as_ptr() as u64,
            maps: 0,
            scalars: tables.scalars.as_ptr() as u64,
            overflow: overflow.as_ptr() as u64,
            state: self.state.address(),
            black_box: self.black_box.address(),
            counters: lowered.counters,
            workers: lowered.workers,
            tasks: lowered.tasks,
            dynamic: lowered.dynamic as u32,
            deadline_ns: parts.deadline_ns(),
            deadline_polls: DEADLINE_POLLS,
            reserved: 0,
        }
    }

    /// Why the launch that just ended was aborted, if it was.
    fn cause(&self, parts: &Parts, panicked: Option<(u32, Box<dyn Any + Send>)>) -> Option<Cause> {
        if let Some((task, payload)) = panicked {
            let node = &parts.plan.tasks[task as usize];
            return Some(Cause::Panicked {
                task: task_name(&parts.plan, node.call).into(),
                call: node.call,
                tile: tile(&parts.plan, node),
                message: message(&*payload).into(),
            });
        }
        // SAFETY: the workers have left, and the memory holds a black box.
        let report = unsafe { self.black_box.pointer().cast::<BlackBox>().read() };
        (report.report != abi::REPORT_NONE).then(|| Cause::Hang(Hang::new(&parts.plan, &report, false)))
    }

    /// The error that a run would return at once.
    pub(crate) fn check(&self, parts: &Parts) -> Result<(), Error> {
        match &self.wait_for_turn().aborted {
            Some(cause) => Err(cause.aborted(parts.megakernel())),
            None => Ok(()),
        }
    }

    /// Forgets an abort: counters, state and black box are as new.
    pub(crate) fn recover(&self) {
        let mut turn = self.wait_for_turn();
        // SAFETY: the lock keeps launches away.
        unsafe {
            self.state.clear();
            self.black_box.clear();
        }
        turn.aborted = None;
    }

    /// Makes task `task` lose its signals in every launch from now on, or none.
    pub(crate) fn lose_signals(&self, parts: &Parts, task: Option<u32>) {
        self.wait_for_turn().faulty = task.map(|task| parts.lowered.losing_signals(task));
    }

    fn wait_for_turn(&self) -> std::sync::MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A worker's share of a launch.
///
/// # Safety
/// `launch` names live memory that the plan filled for `dispatch`; each worker of the launch calls once.
unsafe fn work(launch: &Launch, worker: u32, cpu: &mut Cpu, bodies: &Bodies, dispatch: Dispatch, panicked: &Panicked) {
    let machine = Worker::new(bodies);
    // SAFETY: the caller promises a live launch; descriptors, views and overflow are not written while it runs.
    unsafe {
        let run = Run::new(&machine, launch, worker);
        run.clear_idle(&machine, worker, launch.workers);
        let mut queue = Queue::new(launch, worker);
        loop {
            let descriptor = (launch.descriptors as *const Descriptor).add(queue.next(&machine, &run) as usize);
            if (*descriptor).op == OP_END || run.aborted(&machine) || protocol::wait(&machine, &run, descriptor) == Outcome::Abort {
                break;
            }
            if (*descriptor).op != OP_NONE {
                let views = launch.views as *const abi::View;
                let slot = Slot {
                    descriptor: *descriptor,
                    views: std::array::from_fn::<_, OPERANDS, _>(|n| *views.add((*descriptor).operand[n] as usize)),
                };
                let task = Task::new(&slot, launch.scalars as *const u32);
                let body = || dispatch(cpu, task, slot.descriptor.op as u32);
                if let Err(payload) = bodies.run(worker, || catch_unwind(AssertUnwindSafe(body))) {
                    *cpu = Cpu::new();
                    panicked.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert((slot.descriptor.task, payload));
                    machine.compare_exchange(&raw mut (*run.state).abort, 0, ABORT_PANIC);
                    break;
                }
            }
            protocol::signal(&machine, &run, descriptor);
        }
        protocol::leave(&machine, run.state, launch.workers);
    }
}

fn message(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("the panic carries no text")
}
