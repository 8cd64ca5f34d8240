//! The part of a plan that both executors use.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use maco_abi::{BlackBox, REPORT_STUCK};
use maco_graph::plan::Plan;

use crate::abort::Cause;
use crate::arguments::{Arguments, Placed, ScalarArgument};
use crate::communicator::Communicator;
use crate::device::Device;
use crate::error::Error;
use crate::exchange::{Exchange, lost_at_last};
use crate::gpu::Beside;
use crate::hang::{RankWait, task_name, tile};
use crate::lower::{Fault, Lowered, MessagePlaces, Tables};
use crate::options::PlanOptions;
use crate::profile::RankClock;
use crate::signature::Signature;

/// A plan with its lowering, and the settings of its launches.
#[derive(Debug)]
pub(crate) struct PlanCore {
    pub(crate) device: Device,
    pub(crate) plan: Plan,
    pub(crate) lowered: Lowered,
    pub(crate) signature: Signature,
    /// Which of several ranks it is of; their profiles have a clock in common.
    pub(crate) rank: Option<RankClock>,
    /// What goes to other ranks and comes from them.
    pub(crate) exchange: Option<Arc<Exchange>>,
    /// What NCCL exchanges beside it.
    pub(crate) beside: Option<Arc<Beside>>,
    /// Tiles are copied by TMA, or by a model of it.
    pub(crate) staging: bool,
    /// A GPU is asked for room for all CTAs at once.
    pub(crate) cooperative: bool,
    /// A launch may begin before the kernel before it has ended.
    pub(crate) dependent: bool,
    /// Multiprocessors that NCCL has, if it runs beside the kernel.
    pub(crate) comm_sms: u32,
    /// The table of ways of collectives, and who may be chosen: what all ranks must have alike.
    pub(crate) ways: Vec<String>,
    deadline_ns: AtomicU64,
    delays: AtomicU32,
    /// Where launches record, 0 for nowhere, and how many records a role has there.
    profile: Mutex<(u64, u32)>,
    /// The fault that tests inject into launches.
    fault: Mutex<Option<Fault>>,
}

/// The arguments and settings that were last checked and bound; equal ones need neither again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Key {
    tensors: Vec<Placed>,
    scalars: Vec<ScalarArgument>,
    deadline_ns: u64,
    delays: u32,
    profile: (u64, u32),
    fault: Option<Fault>,
}

impl Key {
    /// Whether `arguments` are those of this key; allocates nothing.
    pub(crate) fn matches(&self, core: &PlanCore, arguments: &Arguments<'_>) -> bool {
        self.deadline_ns == core.deadline_ns()
            && self.delays == core.delays()
            && self.profile == core.profile()
            && self.fault == core.fault()
            && self.scalars == arguments.scalars
            && self.tensors.len() == arguments.tensors.len()
            && self
                .tensors
                .iter()
                .zip(&arguments.tensors)
                .all(|(known, argument)| *known == argument.placed && *argument.device() == core.device)
    }
}

impl PlanCore {
    pub(crate) fn new(device: Device, plan: Plan, deadline_ns: u64, options: &PlanOptions) -> Result<PlanCore, Error> {
        let ranks = options.communicator.as_ref().map_or(1, Communicator::ranks);
        let lowered = Lowered::new(&plan, ranks, options.look_ahead)?;
        lowered.check(&plan.graph)?;
        let signature = Signature::new(&plan.graph)?;
        let staging = device.is_gpu() || options.pipelined;
        let (cooperative, dependent) = (options.cooperative, options.dependent_launch);
        let (deadline_ns, delays, profile) = (AtomicU64::new(deadline_ns), AtomicU32::new(0), Mutex::new((0, 0)));
        let fault = Mutex::new(None);
        Ok(PlanCore {
            device,
            plan,
            lowered,
            signature,
            rank: options.communicator.as_ref().and_then(RankClock::of),
            exchange: None,
            beside: None,
            staging,
            cooperative,
            dependent,
            comm_sms: options.comm_sms,
            ways: Vec::new(),
            deadline_ns,
            delays,
            profile,
            fault,
        })
    }

    pub(crate) fn megakernel(&self) -> &str {
        &self.plan.graph.name
    }

    pub(crate) fn deadline_ns(&self) -> u64 {
        self.deadline_ns.load(Ordering::Relaxed)
    }

    pub(crate) fn set_deadline_ns(&self, deadline_ns: u64) {
        self.deadline_ns.store(deadline_ns, Ordering::Relaxed);
    }

    /// Seed of the delays that tests ask for; 0 for none.
    pub(crate) fn delays(&self) -> u32 {
        self.delays.load(Ordering::Relaxed)
    }

    pub(crate) fn set_delays(&self, seed: u32) {
        self.delays.store(seed, Ordering::Relaxed);
    }

    /// Address of the memory in which launches record, 0 for none, and how many records of each role of a worker it has room for.
    pub(crate) fn profile(&self) -> (u64, u32) {
        *self.profile.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_profile(&self, address: u64, records: u32) {
        *self.profile.lock().unwrap_or_else(PoisonError::into_inner) = (address, records);
    }

    /// See [`crate::Plan::inject`].
    pub(crate) fn fault(&self) -> Option<Fault> {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_fault(&self, fault: Option<Fault>) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// The wait for another rank that a launch did not get through, which has ended with this report: that of the task that was stuck, else the first one, behind
    /// which it may be. Behind an abort tasks begin whose inputs never came, and wait in vain, too: those come later.
    pub(crate) fn missing(&self, report: &BlackBox) -> Option<RankWait> {
        let missing = self.exchange.as_ref()?.missing();
        let of = |task: u32| {
            let node = self.plan.tasks.get(task as usize)?;
            let word = *missing.get(self.lowered.messages.tile(task, node.coord)? as usize)?;
            let rank = word.checked_sub(1)?;
            Some(RankWait { task: task_name(&self.plan, node.call), call: node.call, tile: tile(&self.plan, node), rank })
        };
        let stuck = (report.report == REPORT_STUCK).then_some(report.task);
        stuck.and_then(of).or_else(|| (0..self.plan.tasks.len() as u32).find_map(of))
    }

    /// Why a launch was aborted that has ended with this report. Of one that hung while a rank is lost that is the cause, whoever this rank waited for: kernels do not
    /// know of ranks, and who waits for a rank that waits would not name the one that is lost.
    pub(crate) fn cause(&self, report: &BlackBox, gpu: bool) -> Cause {
        let group = self.exchange.as_ref().map(|exchange| exchange.group()).or(self.beside.as_ref().map(|beside| beside.group()));
        let lost = || lost_at_last(group?);
        match Cause::of(report, &self.plan, gpu) {
            hang @ Cause::Hang(_) => match lost() {
                Some(lost) => Cause::Ranks(Box::new(lost.while_at(&self.waits(report)))),
                None => hang.waiting_for(self.missing(report)),
            },
            other => other,
        }
    }

    /// What a launch waited for that has ended with this report because a rank is lost.
    pub(crate) fn waits(&self, report: &BlackBox) -> String {
        let megakernel = self.megakernel();
        match self.missing(report) {
            Some(RankWait { task, call, tile, rank }) => {
                format!("task {task} tile {tile:?} (call #{call}) in megakernel {megakernel}, for rank {rank}")
            }
            None => format!("megakernel {megakernel}"),
        }
    }

    /// [`maco_abi::Launch::ranks`].
    pub(crate) fn ranks(&self) -> u64 {
        self.exchange.as_ref().map_or(0, |exchange| exchange.table())
    }

    /// Clears what an aborted launch has left: `own`, and what ranks sent each other.
    pub(crate) fn recover(&self, own: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        match &self.exchange {
            // Ranks number their launches alike.
            Some(exchange) => exchange.clear(self.megakernel(), own),
            None => own(),
        }?;
        // All that is exchanged has ended, on this rank and by the votes on all.
        self.beside.as_ref().map_or(Ok(()), |beside| beside.again())
    }

    /// Checks arguments and makes their tables; `arena` is the address of the temps.
    pub(crate) fn bind(&self, arguments: &Arguments<'_>, arena: u64) -> Result<(Key, Tables), Error> {
        self.signature.check(&self.device, arguments)?;
        if let Some(exchange) = &self.exchange {
            exchange.check_symmetric(&self.plan.graph, arguments)?;
        }
        let tensors: Vec<Placed> = arguments.tensors.iter().map(|argument| argument.placed).collect();
        let mut messages = self.exchange.as_ref().map_or(MessagePlaces::default(), |exchange| exchange.places());
        messages.gates = self.beside.as_ref().map_or(0, |beside| beside.gates());
        let tables = self.lowered.bind(&self.plan.graph, arena, messages, &tensors, &arguments.scalars, self.staging)?;
        let scalars = arguments.scalars.clone();
        let (deadline_ns, delays, profile, fault) = (self.deadline_ns(), self.delays(), self.profile(), self.fault());
        Ok((Key { tensors, scalars, deadline_ns, delays, profile, fault }, tables))
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::sync::atomic::AtomicU32;
    use std::time::{Duration, Instant};

    use maco_abi::{REPORT_BUSY, REPORT_DEADLINE, Ranks};
    use maco_graph::ir::{Call, Graph, Tensor, TensorKind, View};
    use maco_graph::plan::{Options, plan};
    use maco_graph::spec::{
        Access, Axis, Collective, DimSpec, Element, ElementSpec, Index, Param, Placement, Reduction, TaskKind, TaskSpec, TensorParam,
    };

    use super::*;

    const fn matrix(name: &'static str, access: Access) -> Param {
        let (dims, region) = (&[DimSpec::Symbol(0), DimSpec::Symbol(1)], &[Index::Tile(0), Index::Tile(1)]);
        Param::Tensor(TensorParam { name, access, element: ElementSpec::Fixed(Element::F32), dims, region, staged: false })
    }

    static SUM: TaskSpec = TaskSpec {
        name: "sum",
        kind: TaskKind::Collective(Collective::AllReduce(Reduction::Sum)),
        axes: &[Axis { name: "i", tiles: &[8] }, Axis { name: "j", tiles: &[8] }],
        dims: &["M", "N"],
        equal: &[],
        gemv: None,
        elements: &[],
        params: &[matrix("x", Access::Read), matrix("y", Access::Write)],
    };

    /// The plan of a sum of one tile over all ranks.
    fn summed(communicator: &Communicator) -> PlanCore {
        let tensor = |name: &str, kind| Tensor {
            name: name.into(),
            kind,
            element: Element::F32,
            shape: [8, 8].into(),
            placement: Placement::Replicated,
        };
        let tensors = vec![tensor("x", TensorKind::In), tensor("y", TensorKind::Out)];
        let call = Call::new(&SUM, (0..).zip(&tensors).map(|(index, tensor)| View::whole(index, tensor)).collect());
        let graph = Graph { name: "sums".into(), tensors, calls: vec![call], ..Graph::default() };
        let (device, options) = (Device::cpu_with(1), PlanOptions::new().communicator(communicator.clone()));
        let mut core = PlanCore::new(device.clone(), plan(graph, &Options::new(1)).unwrap(), 1_000_000, &options).unwrap();
        let (group, arena) = (communicator.group(), communicator.arena());
        core.exchange = Some(Arc::new(Exchange::new(group, arena, &device, "sums", &core.lowered.messages).unwrap()));
        core
    }

    /// As a launch on a GPU ends, which does not know of ranks that are lost: at its deadline. Rank 0 has waited for rank 1, which waits for rank 2.
    #[test]
    fn a_hang_while_a_rank_is_lost_names_that_rank() {
        let run = |communicator: Communicator| {
            let (rank, core) = (communicator.rank(), summed(&communicator));
            let of = |report| core.cause(&BlackBox { report, task: 0, ..BlackBox::EMPTY }, true).error("sums").to_string();
            // SAFETY: the table of this process's ranks, which lives as long as the plan: a word for each tile, of which there is one.
            let missing = unsafe { AtomicU32::from_ptr((*(core.ranks() as *const Ranks)).missing as *mut u32) };
            missing.store(rank + 2, Ordering::Relaxed);
            if rank < 2 {
                let text = of(REPORT_DEADLINE);
                assert!(text.starts_with("MACO0047: hang in megakernel `sums`: task `sum` tile [0, 0] (call #0) "), "{text}");
                assert!(text.contains(&format!(" signals: it waits for rank {} (worker 0", rank + 1)), "{text}");
            }
            communicator.barrier().unwrap();
            if rank == 2 {
                // Its connection closes while a panic unwinds it: without a farewell.
                let gone = (core, communicator);
                let _: Result<(), _> = catch_unwind(AssertUnwindSafe(move || {
                    let _gone = gone;
                    resume_unwind(Box::new(()))
                }));
                return;
            }
            let until = Instant::now() + Duration::from_secs(20);
            while communicator.check().is_ok() {
                assert!(Instant::now() < until, "nobody hears of it");
                std::thread::yield_now();
            }
            let text = of(REPORT_DEADLINE);
            let waits = format!("`task sum tile [0, 0] (call #0) in megakernel sums, for rank {}`", rank + 1);
            assert!(text.starts_with(&format!("MACO0095: rank 2 is gone, while others wait for {waits}: ")), "{text}");
            // What was no hang has nothing to do with it.
            assert!(of(REPORT_BUSY).starts_with("MACO0046: "), "{}", of(REPORT_BUSY));
        };
        Communicator::threads(3, run).unwrap();
    }
}
