//! The ranks that run a graph together: processes or threads. How they find each other is `maco-ranks`'.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use maco_ranks::{Group, Job};

use crate::channel::SymmetricMemory;
use crate::device::Device;
use crate::error::Error;
use crate::exchange::PlanArena;
use crate::gpu::NcclCommunicators;
use crate::lean::LeanStates;
use crate::options::deadline_ns;
use crate::peer_access::PeerAccess;
use crate::tensor::{IntoShape, Tensor, TensorElement};

/// How long ranks wait for each other where nothing else is said; `MACO_DEADLINE_SCALE` multiplies it. They start one after another.
const DEADLINE: Duration = Duration::from_secs(60);

/// Ranks over which tensors are spread: what `#[shard(axis)]`, `.partial(Sum)` and collectives refer to. Cloning gives the same; with the last clone the rank
/// says farewell to the others.
///
/// All ranks make the same calls in the same order. What goes wrong on one is the same error on all, within [`Communicator::deadline`].
#[derive(Clone)]
pub struct Communicator(Arc<Inner>);

struct Inner {
    group: Arc<Group>,
    arena: PlanArena,
    lean: LeanStates,
    nccl: NcclCommunicators,
    peers: PeerAccess,
}

impl Communicator {
    /// One rank: a shard is all of its tensor, a partial sum is the sum, and a collective is a copy.
    pub fn single() -> Communicator {
        Communicator::of(Group::single())
    }

    /// The ranks of the job that this process belongs to, when all are there: those of `maco launch -n 4 -- program`, of `torchrun`,
    /// `mpirun` or `srun`.
    ///
    /// # Errors
    /// MACO0093 for a variable that is missing or wrong, MACO0094 and MACO0095 when ranks do not meet within 60 s, which `MACO_DEADLINE_SCALE` multiplies;
    /// MACO0058 when that is no number.
    pub fn from_env() -> Result<Communicator, Error> {
        let deadline = Duration::from_nanos(deadline_ns(DEADLINE)?);
        Ok(Communicator::of(Group::join(Job::from_env()?, deadline)?))
    }

    /// Whether a launcher has started this process as a rank, for [`Communicator::from_env`]: `maco launch`, `torchrun`, `mpirun` or `srun`.
    pub fn is_launched() -> bool {
        Job::is_launched()
    }

    /// Runs `run` on `ranks` threads of this process, each of them a rank, and returns what they return in the order of ranks. A panic of one goes on
    /// when all have ended.
    ///
    /// # Errors
    /// MACO0093 for no rank or more than 1024, MACO0094 without threads or sockets, MACO0058.
    pub fn threads<R: Send>(ranks: u32, run: impl Fn(Communicator) -> R + Sync) -> Result<Vec<R>, Error> {
        let deadline = Duration::from_nanos(deadline_ns(DEADLINE)?);
        Ok(maco_ranks::threads(ranks, |group| {
            group.set_deadline(deadline);
            run(Communicator::of(group))
        })?)
    }

    /// Which of the ranks this is, from 0.
    pub fn rank(&self) -> u32 {
        self.0.group.rank()
    }

    /// How many there are.
    pub fn ranks(&self) -> u32 {
        self.0.group.ranks()
    }

    /// Which of the ranks of this host it is, from 0: the number of its GPU, where each has one ([`crate::Device::gpu`]).
    pub fn local_rank(&self) -> u32 {
        self.0.group.local_rank()
    }

    /// How many ranks are on this host.
    pub fn local_ranks(&self) -> u32 {
        self.0.group.local_ranks()
    }

    /// How long this rank waits for the others at a plan, a barrier or the like. The shortest of those that wait counts for all.
    pub fn deadline(&self) -> Duration {
        self.0.group.deadline()
    }

    /// Changes [`Communicator::deadline`], 60 s at first; `MACO_DEADLINE_SCALE` multiplies it.
    ///
    /// # Errors
    /// MACO0058 when the variable is no positive number, MACO0059 for a deadline out of range.
    pub fn set_deadline(&self, deadline: Duration) -> Result<(), Error> {
        self.0.group.set_deadline(Duration::from_nanos(deadline_ns(deadline)?));
        Ok(())
    }

    /// Returns when all ranks have come here.
    ///
    /// # Errors
    /// MACO0095, the same on every rank.
    pub fn barrier(&self) -> Result<(), Error> {
        Ok(self.0.group.barrier()?)
    }

    /// The bytes of all ranks in their order, at most 1 MiB of each: for settings and results, not for tensors.
    ///
    /// # Errors
    /// MACO0095 when a rank does not come, MACO0096 when one gives more; the same on every rank.
    pub fn all_gather_bytes(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        Ok(self.0.group.all_gather(bytes)?)
    }

    /// Whether a rank is known to be lost. Does not wait: for loops in which ranks do not meet.
    ///
    /// # Errors
    /// MACO0095.
    pub fn check(&self) -> Result<(), Error> {
        Ok(self.0.group.check()?)
    }

    /// `bytes` bytes of zeros of each rank that all ranks map: for buffers that are at the same place on all ranks, and for channels. All ranks call it with the
    /// same size, each with its own device: a GPU, or the CPU on all. Several ranks may have one GPU. Ranks of one host have it, threads or processes.
    ///
    /// On GPUs it is memory of `cuMemCreate`, of which a rank's part takes a multiple of 2 MiB, and every GPU must have peer access to every other one.
    ///
    /// # Errors
    /// MACO0095 when a rank does not come, MACO0097 when sizes or kinds of devices differ, MACO0096 when a rank cannot make the memory or map another one's, and
    /// on several hosts; the same on every rank. What all ranks say alike is the error itself: MACO0100 for GPUs without peer access or without memory that can
    /// be shared, MACO0045 for too little memory. The ranks may go on and call it again.
    pub fn symmetric(&self, device: &Device, bytes: usize) -> Result<SymmetricMemory, Error> {
        SymmetricMemory::new(self.0.group.clone(), device, bytes)
    }

    /// A tensor of zeros where other ranks may store: for parameters that are marked `#[symmetric]`. It lies in the memory that the plans' messages have
    /// ([`Communicator::set_message_memory`]), and is a tensor like any other besides. All ranks call it, with the same element and shape; what one has dropped is used again when
    /// all have.
    ///
    /// # Errors
    /// MACO0037 for a bad shape; MACO0100 when there is no room, MACO0097 when ranks differ, MACO0096 when a GPU fails, MACO0095 when a rank does not come; the same on every rank.
    pub fn symmetric_tensor<E: TensorElement>(&self, device: &Device, shape: impl IntoShape) -> Result<Tensor<E>, Error> {
        Tensor::symmetric(self, device, shape)
    }

    /// How many bytes of each rank's symmetric memory are for the messages of all plans together, 64 MiB if it is not set: as many as tensors that ranks exchange have, for
    /// each rank twice, and of small tiles twice as many. All ranks say the same, before the first plan with collectives.
    ///
    /// # Errors
    /// MACO0100 behind that plan: the memory stays as large as it is.
    pub fn set_message_memory(&self, bytes: usize) -> Result<(), Error> {
        if self.0.arena.set_bytes(bytes) {
            return Ok(());
        }
        let what = "the memory for messages was set behind the first plan with collectives, which has made it".into();
        Err(maco_ranks::Error::Memory { what, help: "call `set_message_memory` before that plan" }.into())
    }

    /// Most bytes of [`Communicator::set_message_memory`] that plans have had at once.
    pub fn message_memory_high_water(&self) -> usize {
        self.0.arena.high_water()
    }

    fn of(group: Group) -> Communicator {
        Communicator(Arc::new(Inner {
            group: Arc::new(group),
            arena: PlanArena::default(),
            lean: LeanStates::default(),
            nccl: NcclCommunicators::default(),
            peers: PeerAccess::default(),
        }))
    }

    pub(crate) fn group(&self) -> &Arc<Group> {
        &self.0.group
    }

    /// What collectives outside of megakernels share.
    pub(crate) fn lean(&self) -> &LeanStates {
        &self.0.lean
    }

    /// NCCL's communicators of the plans with calls that go by it.
    pub(crate) fn nccl(&self) -> &NcclCommunicators {
        &self.0.nccl
    }

    /// Whether GPUs have access to each other's memory.
    pub(crate) fn peers(&self) -> &PeerAccess {
        &self.0.peers
    }

    pub(crate) fn arena(&self) -> &PlanArena {
        &self.0.arena
    }
}

impl PartialEq for Communicator {
    /// The same one, or both of one rank.
    fn eq(&self, other: &Communicator) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.ranks() == 1 && other.ranks() == 1
    }
}

impl Eq for Communicator {}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Communicator(rank {} of {})", self.rank(), self.ranks())
    }
}
