//! A planned megakernel: built once for its sizes, run as often as wanted.

use std::borrow::Borrow;
use std::fmt;
use std::sync::{Arc, Once};
use std::time::Duration;

use maco_graph::plan::{self as graph_plan, Memory, Options};

use crate::agreement;
use crate::arguments::Arguments;
use crate::communicator::Communicator;
use crate::cpu;
use crate::device::Device;
use crate::error::Error;
use crate::exchange::Exchange;
use crate::gpu::{self, Beside, Stream};
use crate::graph_files;
use crate::lower::Fault;
use crate::options::{DEADLINE, PlanOptions, deadline_ns};
use crate::plan_core::PlanCore;
use crate::profile::record::Shape;
use crate::profile::{Profile, RankProfiles};
use crate::program::Program;
use crate::report::Report;
use crate::sm_config::{Resolved, SmConfig};
use crate::tuning;
use crate::ways::WayTable;

/// A megakernel planned for one device and one set of sizes. Cloning gives the same plan.
#[derive(Clone)]
pub struct Plan(Arc<Inner>);

struct Inner {
    // Before `core`: dropping it waits for launches in flight.
    executor: Executor,
    core: Arc<PlanCore>,
}

enum Executor {
    Cpu(Box<cpu::Executor>),
    Gpu(Box<gpu::Executor>),
}

/// Once in a program, on standard error: who measures should not be left to find out.
fn say_that_debug_is_slow() {
    static SAID: Once = Once::new();
    if cfg!(debug_assertions) {
        SAID.call_once(|| eprintln!("note: this is a debug build, which runs tasks on the CPU 25 to 50 times slower than `--release`"));
    }
}

impl Plan {
    /// Plans `program` for `device`: tiles, order, memory, and on a GPU the loaded device code. With a communicator of several ranks
    /// ([`PlanOptions::communicator`]) all ranks do it together: each gets its plan, or all get the same error.
    ///
    /// # Errors
    /// Those of the graph (MACO0001 to MACO0029), MACO0037 to MACO0059 for what the device cannot do, MACO0067 for the file that `MACO_TUNING` names, and
    /// MACO0072; with several ranks MACO0095 when one does not come, MACO0096 when one has an error, MACO0097 when graphs differ; MACO0098 for collectives that
    /// these ranks cannot run.
    pub fn build(device: &Device, program: Program, options: &PlanOptions) -> Result<Plan, Error> {
        let name = program.name;
        Plan::build_from(device, name, || Ok(program), options)
    }

    /// [`Plan::build`] of megakernel `name`, whose graph may turn out to be none: with several ranks, that is an error of all too.
    ///
    /// # Errors
    /// Those of `program` and of [`Plan::build`].
    pub fn build_from(
        device: &Device,
        name: &str,
        program: impl FnOnce() -> Result<Program, Error>,
        options: &PlanOptions,
    ) -> Result<Plan, Error> {
        match options.communicator.as_ref().filter(|communicator| communicator.ranks() > 1) {
            None => {
                let program = program()?;
                Plan::load(device, &program, Plan::core(device, &program, options, true, None)?, None)?.beginning(options)
            }
            Some(communicator) => agreement::together(
                communicator,
                device,
                name,
                program(),
                |program, peers| {
                    let room = communicator.arena().room(communicator.group(), device)?;
                    Plan::core(device, program, options, peers, Some(room as u64))
                },
                |program, core| Plan::load(device, program, core, Some(communicator))?.beginning(options),
            ),
        }
    }

    /// What this rank plans. `peers`: whether kernels of all ranks can exchange tiles. `room`: bytes that there are for messages.
    fn core(device: &Device, program: &Program, options: &PlanOptions, peers: bool, room: Option<u64>) -> Result<PlanCore, Error> {
        let ranks = options.communicator.as_ref().map_or(1, Communicator::ranks);
        let mut graph = program.graph.clone();
        if graph.name.is_empty() {
            graph.name = program.name.into();
        }
        agreement::check_communicator(&graph, options.communicator.as_ref())?;
        agreement::check(&graph, ranks)?;
        let named = if options.tuning.is_none() { tuning::of_environment()? } else { None };
        let tuning = options.tuning.as_ref().or(named.as_ref());
        let table = WayTable::of(device, tuning);
        let mut planned_by = Options {
            ranks,
            via: options.via,
            nccl: device.is_gpu() && ranks > 1,
            // If NCCL may not be chosen, the kernel is, and says why it cannot.
            peers: peers || !options.choose_nccl,
            ways: table.lines(options),
            message_bytes: room,
            ..Options::new(1)
        };
        let beside = graph_plan::uses_nccl(&graph, &planned_by);
        let Resolved { schedule, workers, comm_sms, ranges } = SmConfig::resolve(device, program, options, beside)?;
        if ranks > 1 {
            agreement::check_schedule(&graph, schedule, ranks)?;
        }
        // The first shape of a call has precedence.
        let mut shapes = options.shapes.clone();
        shapes.extend(tuning.iter().flat_map(|tuning| tuning.shapes(&graph, device, workers)));
        planned_by = Options {
            schedule,
            max_tasks: options.max_tasks,
            workers,
            model: tuning.and_then(|tuning| tuning.model_of(device)).unwrap_or_else(|| device.device_model()),
            assignment: options.placement.clone(),
            costs: options.costs.clone(),
            // On a CPU only `.split_k(..)` splits, so that results do not depend on the number of threads.
            split_k: device.is_gpu(),
            shapes,
            // A CPU worker of one thread cannot poll while it runs a task.
            in_band_flags: options.in_band_flags && (device.is_gpu() || options.pipelined),
            fuse_prologues: options.prologues,
            fuse_elementwise: program.fuse_elementwise,
            share_temps: options.share_temps,
            rank: options.communicator.as_ref().map_or(0, Communicator::rank),
            own_share: options.own_share,
            overlap: options.overlap,
            ranges,
            push_tiles: options.push_tiles && ranks > 1 && (device.is_gpu() || options.pipelined),
            ..planned_by
        };
        let planned = graph_plan::plan(graph, &planned_by)?;
        graph_files::write_if_asked(&planned)?;
        let waits_for_ranks = ranks > 1 && planned.graph.calls.iter().any(|call| call.task.collective().is_some());
        let deadline_ns = match (options.deadline, &options.communicator) {
            // It is scaled already.
            (None, Some(communicator)) if waits_for_ranks => communicator.deadline().as_nanos() as u64,
            (deadline, _) => deadline_ns(deadline.unwrap_or(DEADLINE))?,
        };
        let mut core = PlanCore::new(device.clone(), planned, deadline_ns, comm_sms, options)?;
        core.ways = table.texts(options);
        Ok(core)
    }

    /// As its first launch finds it.
    fn beginning(self, options: &PlanOptions) -> Result<Plan, Error> {
        if options.debug {
            self.fill_temporaries(u8::MAX)?;
        }
        if options.profile {
            self.profile(true)?;
        }
        Ok(self)
    }

    /// Loads it. With a communicator all ranks do.
    fn load(device: &Device, program: &Program, mut core: PlanCore, communicator: Option<&Communicator>) -> Result<Plan, Error> {
        if let Some(communicator) = communicator.filter(|_| !core.lowered.messages.is_empty()) {
            let (group, arena) = (communicator.group(), communicator.arena());
            core.exchange = Some(Arc::new(Exchange::new(group, arena, device, core.megakernel(), &core.lowered.messages)?));
        }
        if let (Some(communicator), Some(context)) = (communicator, device.context())
            && !core.lowered.messages.nccl.is_empty()
        {
            let calls = &core.lowered.messages.nccl;
            core.beside =
                Some(Arc::new(Beside::new(context, communicator.group(), communicator.nccl(), core.megakernel(), calls, core.comm_sms)?));
        }
        let core = Arc::new(core);
        let executor = match (device.pool(), device.context()) {
            (Some(pool), _) => {
                say_that_debug_is_slow();
                Executor::Cpu(Box::new(cpu::Executor::new(pool, program.cpu, &core)?))
            }
            (None, Some(context)) => Executor::Gpu(Box::new(gpu::Executor::new(context, program, &core)?)),
            (None, None) => unreachable!("a device is a CPU or a GPU"),
        };
        Ok(Plan(Arc::new(Inner { executor, core })))
    }

    /// The plan itself: text by `Display`, Graphviz by `dot()`, and `json()`.
    pub fn graph(&self) -> &graph_plan::Plan {
        &self.0.core.plan
    }

    /// Number of tasks.
    pub fn tasks(&self) -> usize {
        self.graph().tasks.len()
    }

    /// Number of dependencies between tasks.
    pub fn edges(&self) -> u64 {
        self.graph().edges
    }

    /// Length of the longest chain of dependent tasks.
    pub fn waves(&self) -> u32 {
        self.graph().waves
    }

    /// Workers that run it.
    pub fn workers(&self) -> u32 {
        self.graph().workers
    }

    /// The memory of weights and temps, how much of the temps is in use at the same time, and what it saves that temps share memory
    /// ([`PlanOptions::share_temps`]). Printed as one line.
    ///
    /// Weights are arguments that no task writes; the caller has them. Temps are the plan's, as long as it lives. Not counted are results, partial sums of
    /// split-K, and tables.
    pub fn memory(&self) -> Memory {
        self.graph().memory()
    }

    /// The device it was planned for.
    pub fn device(&self) -> &Device {
        &self.0.core.device
    }

    /// Runs once and waits.
    ///
    /// # Errors
    /// MACO0030 to MACO0036 and MACO0053, MACO0055 for wrong arguments, MACO0046 while another thread runs the plan, MACO0047
    /// when a wait passes the deadline, MACO0066 when a launch that is not cooperative does not get room for all its CTAs, MACO0048 from then
    /// until [`Plan::recover`], MACO0049 to MACO0051 when GPU or task fail, MACO0092 when the body of a task does not end on a CPU.
    pub fn run<'a>(&self, arguments: impl Borrow<Arguments<'a>>) -> Result<Report, Error> {
        match &self.0.executor {
            Executor::Cpu(cpu) => cpu.run(&self.0.core, arguments.borrow()),
            Executor::Gpu(gpu) => gpu.run(&self.0.core, arguments.borrow()),
        }
    }

    /// Queues one run on `stream`, behind everything launched before on the device. On a CPU it has ended when this returns.
    ///
    /// # Errors
    /// Those of [`Plan::run`] that are known before the launch ends; the others come from [`Pending::wait`]. MACO0060 when the
    /// stream is being captured.
    pub fn run_on<'a>(&self, stream: &Stream, arguments: impl Borrow<Arguments<'a>>) -> Result<Pending, Error> {
        let state = match &self.0.executor {
            Executor::Cpu(cpu) => {
                if stream.device() != self.device() {
                    return Err(self.wrong_stream(stream));
                }
                State::Ended(cpu.run(&self.0.core, arguments.borrow())?)
            }
            Executor::Gpu(gpu) => State::Queued(gpu.run_on(&self.0.core, arguments.borrow(), stream)?),
        };
        Ok(Pending { plan: self.clone(), state })
    }

    /// Uploads `arguments` into tables of their own, so that a launch of them uploads nothing: what a CUDA graph captures.
    ///
    /// # Errors
    /// Those of [`Plan::run`] for wrong arguments; MACO0056 on a CPU device.
    pub fn bind<'a>(&self, arguments: impl Borrow<Arguments<'a>>) -> Result<Bound, Error> {
        let arguments = match &self.0.executor {
            Executor::Cpu(_) => return Err(Error::NeedsGpu { what: "binding arguments", device: self.device().to_string().into() }),
            Executor::Gpu(gpu) => gpu.bind(&self.0.core, arguments.borrow())?,
        };
        Ok(Bound(Arc::new(BoundInner { plan: self.clone(), arguments })))
    }

    /// The error that [`Plan::run`] would return at once because an earlier launch was aborted. After a CUDA graph was replayed
    /// and its stream synchronised, this finds what the launches in it reported.
    ///
    /// # Errors
    /// MACO0046, MACO0047 or MACO0066 the first time, MACO0048 after that, MACO0049 when the GPU is lost.
    pub fn check(&self) -> Result<(), Error> {
        match &self.0.executor {
            Executor::Cpu(cpu) => cpu.check(&self.0.core),
            Executor::Gpu(gpu) => gpu.check(&self.0.core),
        }
    }

    /// Makes an aborted plan usable again. Of a plan with collectives all ranks call it, also those whose launches have ended well. Waits for what runs; contents of outputs and state tensors are what the aborted launch
    /// left.
    ///
    /// # Errors
    /// MACO0049 or MACO0050 when the GPU fails, MACO0092 while the body of a task goes on that did not end; of a plan with collectives MACO0095 when a rank does not
    /// come, MACO0096 when one cannot recover.
    pub fn recover(&self) -> Result<(), Error> {
        match &self.0.executor {
            Executor::Cpu(cpu) => cpu.recover(&self.0.core),
            Executor::Gpu(gpu) => gpu.recover(&self.0.core),
        }
    }

    /// Changes how long a wait may last; `MACO_DEADLINE_SCALE` multiplies it. Arguments bound before keep theirs.
    ///
    /// # Errors
    /// MACO0058 when the variable is no positive number, MACO0059 for a deadline out of range.
    pub fn set_deadline(&self, deadline: Duration) -> Result<(), Error> {
        self.0.core.set_deadline_ns(deadline_ns(deadline)?);
        Ok(())
    }

    /// Whether later launches record what every worker and scheduler does and when, for [`Plan::profile_report`]. Off at first. It costs up to 64 MB of
    /// the device's memory, and each task a few stores. Arguments bound before keep what they have. Of one of several ranks on a GPU this waits for what runs,
    /// and so does the report: both look at the GPU's timer.
    ///
    /// # Errors
    /// MACO0062 on a GPU when the program was not built with `MACO_PROFILE=1`; those of loading device code (MACO0041 to MACO0054);
    /// MACO0045 without memory.
    pub fn profile(&self, on: bool) -> Result<(), Error> {
        self.profile_keeping(if on { Shape::of(self.workers(), self.schedulers(), self.tasks()).room } else { 0 })
    }

    /// [`Plan::profile`] with room for so many records of each role of a worker, 16 bytes each; there are three roles, and a task is two
    /// records of one of them. A scheduler has room for as many as one role of all workers that it pushes to. What finds no room is counted,
    /// [`Profile::dropped`]. 0: nothing is recorded.
    ///
    /// # Errors
    /// Those of [`Plan::profile`].
    pub fn profile_keeping(&self, records: u32) -> Result<(), Error> {
        let shape = Shape { workers: self.workers(), schedulers: self.schedulers(), room: records };
        match &self.0.executor {
            Executor::Cpu(cpu) => cpu.profile(&self.0.core, shape),
            Executor::Gpu(gpu) => gpu.profile(&self.0.core, shape),
        }
    }

    fn schedulers(&self) -> u32 {
        self.0.core.lowered.images.len() as u32
    }

    /// What the last launch that recorded has recorded. Waits for what runs.
    ///
    /// # Errors
    /// MACO0063 if there is none, MACO0049 or MACO0050 when the GPU fails.
    pub fn profile_report(&self) -> Result<Profile, Error> {
        match &self.0.executor {
            Executor::Cpu(cpu) => cpu.recorded(&self.0.core),
            Executor::Gpu(gpu) => gpu.recorded(&self.0.core),
        }
    }

    /// [`Plan::profile_report`] of all ranks, on one clock. All ranks call it, behind the same launch, with the communicator that they planned with; each gets all.
    ///
    /// # Errors
    /// Those of [`Plan::profile_report`], MACO0095 when a rank does not come, MACO0096 when one has no profile, MACO0102 for ranks on several hosts.
    pub fn profile_of_ranks(&self, communicator: &Communicator) -> Result<RankProfiles, Error> {
        RankProfiles::gather(communicator.group(), self.0.core.megakernel(), self.profile_report())
    }

    /// Injects a fault into every later launch, or none: how tests provoke a hang. On a GPU all but lost signals need device code that has faults
    /// (`maco_build::Build::faults`). Of arguments bound before, tasks that a worker begins with stay as they were.
    #[doc(hidden)]
    pub fn inject(&self, fault: Option<Fault>) -> Result<(), Error> {
        match &self.0.executor {
            Executor::Cpu(cpu) => cpu.inject(&self.0.core, fault),
            Executor::Gpu(gpu) => gpu.inject(&self.0.core, fault),
        }
    }

    /// Delays waits, loads, stores and signals of every later launch at random, by a seed; 0 for none. Used by both forms of the CPU
    /// executor, and by device code of a delayed build. Arguments bound before keep theirs.
    #[doc(hidden)]
    pub fn set_delays(&self, seed: u32) {
        self.0.core.set_delays(seed);
    }

    /// Sets every byte of temps, partial sums and schedulers' memory to `byte`, for tests that a launch reads nothing there that it has not
    /// written. Waits for running launches.
    ///
    /// The rest of a plan's memory is not changed, because a launch relies on it. These are zero when a launch begins: the abort word, the counters and
    /// tickets of its bank (it zeroes the other bank for the next launch), all ring slots, and the arrival counts of split-K parts. The numbers of
    /// launches begun and ended are equal. Words of in-band flags have the number of an earlier launch. The memory behind the temps on a GPU, for empty
    /// views, and the black box are zero. Descriptors and images of schedulers are written with the plan, tables with the arguments.
    #[doc(hidden)]
    pub fn fill_temporaries(&self, byte: u8) -> Result<(), Error> {
        match &self.0.executor {
            Executor::Cpu(cpu) => cpu.fill_temporaries(&self.0.core, byte),
            Executor::Gpu(gpu) => gpu.fill_temporaries(&self.0.core, byte),
        }
    }

    /// Sets the number of launches to `launches`, none of them aborted: for tests of its wrap-around.
    #[doc(hidden)]
    pub fn launched(&self, launches: u32) -> Result<(), Error> {
        match &self.0.executor {
            Executor::Cpu(cpu) => cpu.launched(&self.0.core, launches),
            Executor::Gpu(gpu) => gpu.launched(&self.0.core, launches),
        }
    }

    fn wrong_stream(&self, stream: &Stream) -> Error {
        self.device().wrong("the stream", stream.device())
    }

    fn gpu(&self) -> &gpu::Executor {
        match &self.0.executor {
            Executor::Gpu(gpu) => gpu,
            Executor::Cpu(_) => unreachable!("only plans on a GPU bind arguments or queue launches"),
        }
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plan(`{}` on {}, {} tasks)", self.0.core.megakernel(), self.device(), self.tasks())
    }
}

/// A run that [`Plan::run_on`] queued. Dropping it does not wait; the plan keeps what the run uses.
#[must_use = "errors of the run come from `wait`"]
#[derive(Debug)]
pub struct Pending {
    plan: Plan,
    state: State,
}

#[derive(Debug)]
enum State {
    Ended(Report),
    Queued(gpu::QueuedLaunch),
}

impl Pending {
    /// Waits for the end of the run.
    ///
    /// # Errors
    /// MACO0046 to MACO0050, as [`Plan::run`].
    pub fn wait(self) -> Result<Report, Error> {
        match &self.state {
            State::Ended(report) => Ok(*report),
            State::Queued(flight) => self.plan.gpu().join(&self.plan.0.core, flight),
        }
    }

    /// Whether the run has ended.
    ///
    /// # Errors
    /// MACO0049 or MACO0050 when the GPU fails.
    pub fn is_done(&self) -> Result<bool, Error> {
        match &self.state {
            State::Ended(_) => Ok(true),
            State::Queued(flight) => self.plan.gpu().ended(flight),
        }
    }
}

/// A plan with arguments that are already on the GPU: launching it uploads nothing.
#[derive(Clone)]
pub struct Bound(Arc<BoundInner>);

struct BoundInner {
    // Dropped first: it waits for its launches.
    arguments: gpu::BoundArguments,
    plan: Plan,
}

impl Bound {
    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.0.plan
    }

    /// Queues one run on `stream`. In a capture only the kernel is recorded; otherwise it runs behind everything launched before
    /// on the device. Errors of the run are found by [`Plan::check`] once the stream is synchronised.
    ///
    /// # Errors
    /// MACO0033 for another device's stream, MACO0048 after an abort, MACO0049 or MACO0050 when the GPU fails.
    pub fn launch_on(&self, stream: &Stream) -> Result<(), Error> {
        let plan = &self.0.plan;
        plan.gpu().launch_bound(&plan.0.core, &self.0.arguments, stream, self.0.clone())
    }

    /// Replaces the arguments, scalars included, for every later launch and replay; queued on `stream`, behind everything
    /// launched before on the device, and behind replays of graphs of other libraries. CUDA graphs that hold the launch see the new ones.
    ///
    /// # Errors
    /// Those of [`Plan::run`] for wrong arguments; MACO0060 when the stream is being captured.
    pub fn rebind_on<'a>(&self, stream: &Stream, arguments: impl Borrow<Arguments<'a>>) -> Result<(), Error> {
        let plan = &self.0.plan;
        plan.gpu().rebind(&plan.0.core, &self.0.arguments, arguments.borrow(), stream)
    }
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bound({:?})", self.0.plan)
    }
}
