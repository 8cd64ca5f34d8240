//! Collectives outside of megakernels: `communicator.all_reduce(&mut x)`. What an executor does of a call is `maco-device`'s, and launches are in `gpu`.

mod state;

use std::fmt;
use std::sync::Arc;

use maco_abi::{LeanElement, LeanOperation, LeanReduction, LeanTensor, LeanWay, lean_code};
use maco_device::{bf16, f16};
use maco_ranks::Error as RanksError;

pub(crate) use state::LeanStates;
use state::{Order, State, Ticket};

use crate::communicator::Communicator;
use crate::device::Device;
use crate::error::Error;
use crate::gpu::Stream;
use crate::tensor::{BufferFault, Tensor, TensorElement};

/// How the values of all ranks become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// Their sum; of integers with wrap.
    Sum,
    /// Their sum divided by the number of ranks; of integers without what is behind the point.
    Mean,
    /// The greatest; if one is not a number, that.
    Max,
    /// The least; if one is not a number, that.
    Min,
}

mod sealed {
    pub trait Sealed {
        const CODE: maco_abi::LeanElement;
    }
}

/// An element that ranks exchange outside of megakernels: `bf16`, `f16`, `f32` or `i32`.
pub trait RankElement: TensorElement + sealed::Sealed {}

macro_rules! elements {
    ($($ty:ty => $code:ident),+) => {$(
        impl sealed::Sealed for $ty {
            const CODE: LeanElement = LeanElement::$code;
        }
        impl RankElement for $ty {}
    )+};
}
elements!(bf16 => Bf16, f16 => F16, f32 => F32, i32 => I32);

/// A collective that was begun: [`Communicator::all_reduce_async`]. Dropping it does not end it: the other ranks still need this one.
#[must_use = "the tensor comes back from `wait`"]
pub struct Collecting<E> {
    ticket: Ticket,
    state: Arc<State>,
    x: Tensor<E>,
}

impl<E: RankElement> Collecting<E> {
    /// Waits for the result.
    ///
    /// # Errors
    /// As of [`Communicator::all_reduce`].
    pub fn wait(self) -> Result<Tensor<E>, Error> {
        self.state.wait(self.ticket)?;
        Ok(self.x)
    }

    /// Whether it has ended, well or not.
    ///
    /// # Errors
    /// MACO0049 or MACO0050 when the GPU fails.
    pub fn is_done(&self) -> Result<bool, Error> {
        self.state.is_done(&self.ticket)
    }
}

impl<E: RankElement> fmt::Debug for Collecting<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Collecting({:?})", self.x)
    }
}

/// Collectives of one kernel each, on tensors of a CPU or of a GPU. All ranks make the same calls in the same order, with the same sizes, elements and operations.
///
/// Elements travel as they are stored, are combined in `f32`, of integers exactly, in the order of ranks, and are rounded once: all ranks have the same bits in every
/// run. The first call makes the memory for messages, which is a call of all ranks too, and cannot be captured. Those that are named `_on` are queued on a stream.
///
/// What goes wrong is MACO0099 on every rank, with the rank and what it waited for: a rank that makes another call, or none by the communicator's deadline. MACO0095
/// is for a rank that is lost. After one of them all calls return it, until all ranks have called [`Communicator::recover_collectives`]. MACO0035 for tensors of other sizes than the operation asks for, and MACO0033 on another device.
impl Communicator {
    /// Makes `x` the sum of what all ranks have in it.
    ///
    /// # Errors
    /// See above; those of [`Communicator::symmetric`] at the first call, and on a GPU MACO0043 without device code, MACO0049 and MACO0050 when it fails.
    pub fn all_reduce<E: RankElement>(&self, x: &mut Tensor<E>) -> Result<(), Error> {
        self.all_reduce_by(x, Reduce::Sum)
    }

    /// The same with another operation.
    ///
    /// # Errors
    /// As of [`Communicator::all_reduce`].
    pub fn all_reduce_by<E: RankElement>(&self, x: &mut Tensor<E>, by: Reduce) -> Result<(), Error> {
        self.call(None, x.device(), reduced(x, by))
    }

    /// Begins it and returns at once: the tensor comes back when it is waited for. Calls that come later wait for it. On a GPU it is queued behind what was launched
    /// before; on a CPU a thread does it.
    ///
    /// # Errors
    /// As of [`Communicator::all_reduce`], those of the exchange by [`Collecting::wait`].
    pub fn all_reduce_async<E: RankElement>(&self, x: Tensor<E>, by: Reduce) -> Result<Collecting<E>, Error> {
        let state = self.lean().get(self.group(), x.device())?;
        let ticket = state.begin_async(reduced(&x, by))?;
        Ok(Collecting { ticket, state, x })
    }

    /// Queues it on `stream`, behind everything launched before on the device; in a capture of a CUDA graph it is recorded, and each replay is a call of this
    /// rank. Errors of the exchange come from [`Communicator::check_collectives`] once the stream is synchronised. On a CPU it has ended when this returns.
    ///
    /// # Errors
    /// As of [`Communicator::all_reduce`]; MACO0033 for a stream of another device, MACO0090 if the first call is in a capture.
    pub fn all_reduce_on<E: RankElement>(&self, stream: &Stream, x: &mut Tensor<E>, by: Reduce) -> Result<(), Error> {
        self.call(Some(stream), x.device(), reduced(x, by))
    }

    /// Makes part r of `y` what rank r has in `x`; `y` has as many elements as all `x` together.
    ///
    /// # Errors
    /// As of [`Communicator::all_reduce`].
    pub fn all_gather<E: RankElement>(&self, x: &Tensor<E>, y: &mut Tensor<E>) -> Result<(), Error> {
        self.call(None, x.device(), self.gathered(x, y)?)
    }

    /// [`Communicator::all_gather`] on a stream, as [`Communicator::all_reduce_on`] is queued, or recorded.
    ///
    /// # Errors
    /// As of [`Communicator::all_reduce_on`].
    pub fn all_gather_on<E: RankElement>(&self, stream: &Stream, x: &Tensor<E>, y: &mut Tensor<E>) -> Result<(), Error> {
        self.call(Some(stream), x.device(), self.gathered(x, y)?)
    }

    /// Makes `y` the reduction of what all ranks have in this rank's part of `x`, which has a part of the size of `y` for each rank.
    ///
    /// # Errors
    /// As of [`Communicator::all_reduce`].
    pub fn reduce_scatter<E: RankElement>(&self, x: &Tensor<E>, y: &mut Tensor<E>, by: Reduce) -> Result<(), Error> {
        self.call(None, x.device(), self.scattered(x, y, by)?)
    }

    /// [`Communicator::reduce_scatter`] on a stream, as [`Communicator::all_reduce_on`] is queued, or recorded.
    ///
    /// # Errors
    /// As of [`Communicator::all_reduce_on`].
    pub fn reduce_scatter_on<E: RankElement>(&self, stream: &Stream, x: &Tensor<E>, y: &mut Tensor<E>, by: Reduce) -> Result<(), Error> {
        self.call(Some(stream), x.device(), self.scattered(x, y, by)?)
    }

    /// Makes part r of `y` what rank r has in this rank's part of its `x`.
    ///
    /// # Errors
    /// As of [`Communicator::all_reduce`]; MACO0035 too for tensors that cannot be divided by the number of ranks.
    pub fn all_to_all<E: RankElement>(&self, x: &Tensor<E>, y: &mut Tensor<E>) -> Result<(), Error> {
        self.call(None, x.device(), self.transposed(x, y)?)
    }

    /// [`Communicator::all_to_all`] on a stream, as [`Communicator::all_reduce_on`] is queued, or recorded.
    ///
    /// # Errors
    /// As of [`Communicator::all_to_all`] and [`Communicator::all_reduce_on`].
    pub fn all_to_all_on<E: RankElement>(&self, stream: &Stream, x: &Tensor<E>, y: &mut Tensor<E>) -> Result<(), Error> {
        self.call(Some(stream), x.device(), self.transposed(x, y)?)
    }

    /// Makes `x` what rank `root` has in it.
    ///
    /// # Errors
    /// As of [`Communicator::all_reduce`]; MACO0100 when there is no such rank.
    pub fn broadcast<E: RankElement>(&self, x: &mut Tensor<E>, root: u32) -> Result<(), Error> {
        self.call(None, x.device(), self.told(x, root)?)
    }

    /// [`Communicator::broadcast`] on a stream, as [`Communicator::all_reduce_on`] is queued, or recorded.
    ///
    /// # Errors
    /// As of [`Communicator::broadcast`] and [`Communicator::all_reduce_on`].
    pub fn broadcast_on<E: RankElement>(&self, stream: &Stream, x: &mut Tensor<E>, root: u32) -> Result<(), Error> {
        self.call(Some(stream), x.device(), self.told(x, root)?)
    }

    /// Whether the ranks go on: what collectives have waited for in vain that nobody waited for on the host, such as those in replays of CUDA graphs. Does not wait.
    ///
    /// # Errors
    /// MACO0099 with the wait, MACO0095 when a rank is lost.
    pub fn check_collectives(&self) -> Result<(), Error> {
        self.lean().check()
    }

    /// Ends collectives that are under way, and begins anew: a call of all ranks, after an error. Graphs with collectives are to be captured again;
    /// while one of before exists, [`Communicator::check_collectives`] still says the error.
    ///
    /// # Errors
    /// MACO0095 when a rank is lost, MACO0049 and MACO0050 when the GPU fails.
    pub fn recover_collectives(&self) -> Result<(), Error> {
        self.lean().recover(self.group())
    }

    /// How a call of `operation` whose parts have so many elements sends its messages: for benchmarks, which name what was chosen. Nothing is called.
    #[doc(hidden)]
    pub fn lean_way<E: RankElement>(&self, device: &Device, operation: LeanOperation, part: usize) -> LeanWay {
        state::way(self.group(), device, lean_code(operation, LeanReduction::Sum, E::CODE), part as u64, size_of::<E>() as u32)
    }

    /// Makes a call on tensors of `device`: it has ended when this returns, or is queued on `stream`.
    fn call(&self, stream: Option<&Stream>, device: &Device, order: Order) -> Result<(), Error> {
        if let Some(stream) = stream
            && stream.device() != device
        {
            return Err(device.wrong("the stream", stream.device()));
        }
        let state = self.lean().get(self.group(), device)?;
        match (state.begin(order, stream)?, stream) {
            (Ticket::Launch(..), Some(_)) => Ok(()),
            (ticket, _) => state.wait(ticket),
        }
    }

    fn gathered<E: RankElement>(&self, x: &Tensor<E>, y: &Tensor<E>) -> Result<Order, Error> {
        both(x, y, [x.len(), x.len() * self.ranks() as usize])?;
        Ok(order(x, y, LeanOperation::AllGather, Reduce::Sum, x.len()))
    }

    fn scattered<E: RankElement>(&self, x: &Tensor<E>, y: &Tensor<E>, by: Reduce) -> Result<Order, Error> {
        both(x, y, [y.len() * self.ranks() as usize, y.len()])?;
        Ok(order(x, y, LeanOperation::ReduceScatter, by, y.len()))
    }

    fn transposed<E: RankElement>(&self, x: &Tensor<E>, y: &Tensor<E>) -> Result<Order, Error> {
        let part = x.len().div_ceil(self.ranks() as usize);
        both(x, y, [part * self.ranks() as usize; 2])?;
        Ok(order(x, y, LeanOperation::AllToAll, Reduce::Sum, part))
    }

    fn told<E: RankElement>(&self, x: &Tensor<E>, root: u32) -> Result<Order, Error> {
        if root >= self.ranks() {
            let what = format!("a broadcast by rank {root} of {} ranks", self.ranks()).into();
            return Err(RanksError::Memory { what, help: "ranks count from 0" }.into());
        }
        Ok(Order { root, ..order(x, x, LeanOperation::Broadcast, Reduce::Sum, x.len()) })
    }
}

/// Two tensors of one device have so many elements.
fn both<E: RankElement>(x: &Tensor<E>, y: &Tensor<E>, expected: [usize; 2]) -> Result<(), Error> {
    for (tensor, expected) in [x, y].into_iter().zip(expected) {
        if tensor.len() != expected {
            let fault = BufferFault::Elements { expected: expected as u64, found: tensor.len() as u64 };
            return Err(Error::Buffer { element: E::ELEMENT.name(), shape: tensor.layout().shape, fault });
        }
    }
    if x.device() == y.device() { Ok(()) } else { Err(x.device().wrong("the result", y.device())) }
}

fn reduced<E: RankElement>(x: &Tensor<E>, by: Reduce) -> Order {
    order(x, x, LeanOperation::AllReduce, by, x.len())
}

/// A call on these tensors, in which a part has so many elements.
fn order<E: RankElement>(x: &Tensor<E>, y: &Tensor<E>, operation: LeanOperation, by: Reduce, part: usize) -> Order {
    let by = match by {
        Reduce::Sum => LeanReduction::Sum,
        Reduce::Mean => LeanReduction::Mean,
        Reduce::Max => LeanReduction::Max,
        Reduce::Min => LeanReduction::Min,
    };
    Order {
        input: tensor(x),
        output: tensor(y),
        count: part as u64,
        code: lean_code(operation, by, E::CODE),
        bytes: size_of::<E>() as u32,
        root: 0,
        buffers: vec![x.buffer().clone(), y.buffer().clone()],
    }
}

fn tensor<E: TensorElement>(tensor: &Tensor<E>) -> LeanTensor {
    let layout = tensor.layout();
    let stride = if layout.contiguous() { 0 } else { layout.row_stride };
    LeanTensor { address: tensor.as_ptr() as u64, columns: layout.shape.columns().max(1), stride }
}
