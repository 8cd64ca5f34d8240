//! How the ranks of symmetric memory stop: control blocks, reports, and who is told. What is stored in the memory does not belong here.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use maco_abi::{LeanElement, LeanOperation, LeanReduction};
use maco_device::channel::{Control, CpuThread, DEADLINE, OTHER_CALL, Operation, Peer, STOPPED_BY_HOST, System, Watch};
use maco_ranks::{Arena, Cause, Error as RanksError, Failure, Group, SharedMemory, Stall};

use super::backing::Backing;
use crate::agreement::own_or_all;
use crate::device::Device;
use crate::error::Error;
use crate::gpu::PeerMemory;

/// How long the report of a rank that has stopped may take to come.
const REPORT: Duration = Duration::from_secs(1);
/// Bytes of each rank for its control block: a page, since GPUs map pages.
const CONTROL: usize = 4096;

const _: () = assert!(size_of::<Control>() <= CONTROL);

/// What channels and buffers of a rank share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) arena: Arena<Backing>,
    /// The control block of each rank, in a memory file of its own, which hosts of all ranks load and store; so does a GPU that of its rank.
    control: Arc<SharedMemory>,
    /// Why this rank has stopped, once it is known.
    error: Mutex<Option<RanksError>>,
}

impl Shared {
    /// See `Communicator::symmetric`.
    pub(super) fn new(group: Arc<Group>, device: &Device, bytes: usize) -> Result<Shared, Error> {
        let kind = if device.is_gpu() { "GPU" } else { "CPU" };
        let possible = device.context().map_or(Ok(()), |context| PeerMemory::check(context, bytes));
        let text = possible.as_ref().err().map(Error::to_string);
        let agreed = group.agree("symmetric memory", &[format!("{bytes} bytes on a {kind}")], text.as_deref().map_or(Ok(()), Err));
        own_or_all(possible, agreed)?;
        let control = Arc::new(group.share(CONTROL)?);
        let memory = Backing::new(&group, device, bytes, &control)?;
        Ok(Shared { arena: Arena::over(group, memory), control, error: Mutex::new(None) })
    }

    pub(super) fn group(&self) -> &Arc<Group> {
        self.arena.group()
    }

    /// Where this rank's memory is.
    pub(super) fn own(&self) -> *mut u8 {
        self.arena.memory().pointer(self.group().rank())
    }

    /// The memory of `rank`.
    pub(super) fn of(&self, rank: u32) -> Peer<u8> {
        // SAFETY: mapped as long as `self` lives, which every executor holds; all accesses are of `.sys` scope, or atomics.
        unsafe { Peer::new(self.arena.memory().pointer(rank)) }
    }

    /// Its address, for kernels of this rank.
    pub(super) fn base(&self, rank: u32) -> u64 {
        self.arena.memory().pointer(rank).addr() as u64
    }

    /// Where kernels of this rank have its control block.
    pub(super) fn control_address(&self) -> u64 {
        match self.arena.memory() {
            Backing::Host(_) => self.control(self.group().rank()).addr() as u64,
            Backing::Gpu(memory) => memory.control(),
        }
    }

    /// The control block of `rank`, for threads of the host.
    fn control(&self, rank: u32) -> *mut Control {
        self.control.pointer(rank).as_ptr().cast()
    }

    pub(super) fn watch(&self) -> Watch {
        let (rank, deadline) = (self.group().rank(), self.group().deadline());
        Watch { control: self.control(rank), rank, deadline_ns: deadline.as_nanos().try_into().unwrap_or(u64::MAX) }
    }

    /// This thread as an executor.
    pub(super) fn system(&self) -> CpuThread<impl Fn() -> u32> {
        CpuThread::new(|| match self.group().try_check() {
            Err(RanksError::Failed(failure)) => match *failure {
                Failure::Lost { rank, .. } => rank + 1,
                _ => 0,
            },
            _ => 0,
        })
    }

    /// Whether the ranks go on.
    pub(super) fn check(&self) -> Result<(), Error> {
        // SAFETY: of this rank, mapped.
        match unsafe { self.system().load4(&raw const (*self.control(self.group().rank())).stop) } {
            0 => Ok(()),
            _ => Err(self.stopped()),
        }
    }

    /// All ranks stop: because of `origin`, which is a rank plus 1, or the host.
    pub(super) fn spread(&self, origin: u32) {
        let system = self.system();
        for rank in 0..self.group().ranks() {
            // SAFETY: (of all) mapped. Who reads the word goes on to read the report of `origin`, which is complete. A rank that stops by itself meanwhile is
            // told of this one instead: both reports are true.
            unsafe {
                let stop = &raw mut (*self.control(rank)).stop;
                if system.load4(stop) == 0 {
                    system.publish(stop, origin);
                }
            }
        }
    }

    /// Why the ranks do not go on: of the rank that stopped first, as far as this one knows. The others are told.
    pub(super) fn stopped(&self) -> Error {
        let mut error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        error.get_or_insert_with(|| self.find()).clone().into()
    }

    fn find(&self) -> RanksError {
        let system = self.system();
        // SAFETY: (of all) mapped words.
        let origin = unsafe { system.load4(&raw const (*self.control(self.group().rank())).stop) };
        std::sync::atomic::fence(Ordering::Acquire);
        let ended = || RanksError::Memory {
            what: "the channels were stopped by a rank (`SymmetricMemory::stop`)".into(),
            help: "make the symmetric memory again to go on",
        };
        if origin == STOPPED_BY_HOST || origin == 0 || origin > self.group().ranks() {
            return ended();
        }
        let control = self.control(origin - 1);
        let until = Instant::now() + REPORT;
        // Another thread of this rank may be at it.
        // SAFETY: as above.
        while unsafe { system.load4(&raw const (*control).complete) } == 0 {
            if Instant::now() >= until {
                return ended();
            }
            std::thread::yield_now();
        }
        system.acquire();
        // SAFETY: as above.
        let stall = unsafe {
            let word = |at: *const u32| system.load4(at);
            let elapsed = (&raw const (*control).elapsed).cast::<u32>();
            let operation = Operation::of(word(&raw const (*control).operation));
            Stall {
                rank: origin - 1,
                operation: operation.map_or("?", name),
                peer: word(&raw const (*control).peer),
                word: Some(word(&raw const (*control).word)).filter(|word| *word != u32::MAX).map(|word| u64::from(word) * 4),
                expected: word(&raw const (*control).expected),
                seen: word(&raw const (*control).seen),
                waited: Duration::from_nanos(u64::from(word(elapsed)) | u64::from(word(elapsed.add(1))) << 32),
                cause: match word(&raw const (*control).cause) {
                    _ if operation == Some(Operation::Trigger) => Cause::Outside,
                    DEADLINE => Cause::Deadline,
                    OTHER_CALL => Cause::OtherCall(other_call(
                        word(&raw const (*control).word),
                        word(&raw const (*control).expected),
                        word(&raw const (*control).seen),
                    )),
                    lost => Cause::Lost(lost - 1),
                },
            }
        };
        self.spread(origin);
        RanksError::Stalled(Box::new(stall))
    }
}

/// What a user calls it.
fn name(operation: Operation) -> &'static str {
    match operation {
        Operation::Wait => "wait",
        Operation::Packets => "receive packets",
        Operation::Credit => "send (for a slot that is free)",
        Operation::Room => "put (for room in the FIFO)",
        Operation::Flush => "flush",
        Operation::Trigger => "put",
        Operation::AllReduce => "all_reduce",
        Operation::AllGather => "all_gather",
        Operation::ReduceScatter => "reduce_scatter",
        Operation::AllToAll => "all_to_all",
        Operation::Broadcast => "broadcast",
    }
}

/// In what two calls of collectives differ: word `word` of what they say, here and there.
fn other_call(word: u32, here: u32, there: u32) -> Box<str> {
    match word {
        0 => format!("{} here, {} there", called(here), called(there)),
        1 => format!("root {here} here, {there} there"),
        2 => format!("{here} elements here, {there} there"),
        _ => format!("{here}·2³² elements and more here, {there}·2³² and more there"),
    }
    .into()
}

/// What a user calls the operation of a collective outside of megakernels, by its code.
pub(crate) fn operation_name(code: u32) -> &'static str {
    LeanOperation::of(code).map_or("?", |operation| match operation {
        LeanOperation::AllReduce => "all_reduce",
        LeanOperation::AllGather => "all_gather",
        LeanOperation::ReduceScatter => "reduce_scatter",
        LeanOperation::AllToAll => "all_to_all",
        LeanOperation::Broadcast => "broadcast",
    })
}

fn called(code: u32) -> String {
    let operation = operation_name(code);
    let element = LeanElement::of(code).map_or("?", |element| match element {
        LeanElement::Bf16 => "bf16",
        LeanElement::F16 => "f16",
        LeanElement::F32 => "f32",
        LeanElement::I32 => "i32",
    });
    match (LeanOperation::of(code), LeanReduction::of(code)) {
        (Some(LeanOperation::AllReduce | LeanOperation::ReduceScatter), Some(by)) => format!("`{operation}` of {element} ({by:?})"),
        _ => format!("`{operation}` of {element}"),
    }
}
