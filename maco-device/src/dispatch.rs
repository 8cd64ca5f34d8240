//! How generated code is called: instances of tasks, and the jump to the one that a descriptor names.

#[cfg_attr(not(target_arch = "nvptx64"), allow(dead_code, reason = "the host runs each instance by its own code"))]
mod instance;
#[cfg(target_arch = "nvptx64")]
mod jump;

pub use instance::{Instance, Instances, body_id};
#[cfg(target_arch = "nvptx64")]
pub use jump::{ChosenEpilogue, Gemms, NotGemms, dispatch, gemm_shape, is_gemm};

use crate::data::epilogue::{Epilogue, WithEpilogue};
use crate::data::task::Task;
use crate::role::Role;

/// Anything a megakernel calls: a task, or a group of calls. The macros implement it.
pub trait Callable {
    /// Instances: the dense numbers `0..SLOTS`.
    const SLOTS: u32;
    /// Which argument of a call is a result of another element than the signature says, if it is one; [`usize::MAX`]: none is.
    const RESULT: usize = usize::MAX;
    /// The instances whose bodies one warp runs, as [`Filter::MASK`]; of a task, all or none. What that takes, no other kernel has in its code.
    const WARP_TASKS: u128 = 0;
    /// The instances that map one tensor, value by value, to one of the same element of two bytes, and do nothing else, as [`Filter::MASK`].
    const ELEMENTWISE: u128 = 0;
    /// The instances that are GEMVs and nothing else, which may have such a task as an elementwise prologue.
    const GEMVS: u128 = 0;
    /// Whether ranks exchange tiles in it: then its GEMMs may send theirs, which no other kernel has in its code.
    const COLLECTIVES: bool = false;
    /// What of its instances' code is the same.
    const INSTANCES: Instances = Instances::NONE;
    /// Whether it is a task or a graph, and not what stands for a function that is neither.
    #[doc(hidden)]
    const IS_TASK: bool = true;
    /// Runs instance `slot` as role `R` with fused epilogue `T`; instances outside `F` cost no code.
    fn dispatch<R: Role, T: Epilogue, F: Filter>(role: &mut R, task: Task, slot: u32);
    /// Does `what` with the epilogue of instance `slot`, a GEMM with the fused epilogue `T`.
    #[inline(always)]
    fn with_epilogue<W: WithEpilogue, T: Epilogue, F: Filter>(_: u32, _: W) -> W::Output {
        W::none()
    }
}

/// [`Callable::WARP_TASKS`] of callee `C`, whose first instance is `base`, as that of its caller.
pub const fn warp_tasks<C: Callable>(base: u32) -> u128 {
    of_caller::<C>(C::WARP_TASKS, base)
}

/// The same of [`Callable::ELEMENTWISE`].
pub const fn elementwise<C: Callable>(base: u32) -> u128 {
    of_caller::<C>(C::ELEMENTWISE, base)
}

/// The same of [`Callable::GEMVS`].
pub const fn gemvs<C: Callable>(base: u32) -> u128 {
    of_caller::<C>(C::GEMVS, base)
}

/// Whether GEMVs of `C` have elementwise prologues, of the instances in `mask`: what the planner goes by, and who has the code for it.
/// Beside tasks of one warp there are none. What a consumer asks about those before a body keeps all predicates busy, so one question more costs a register in
/// every body, and the GEMMs of the largest tiles have none to spare.
pub const fn fuses_elementwise_prologues<C: Callable>(mask: u128) -> bool {
    C::WARP_TASKS == 0 && C::ELEMENTWISE & mask != 0 && C::GEMVS & mask != 0
}

const fn of_caller<C: Callable>(instances: u128, base: u32) -> u128 {
    let own = if C::SLOTS < u128::BITS { instances & ((1 << C::SLOTS) - 1) } else { instances };
    if base < u128::BITS { own << base } else { 0 }
}

/// The instances a megakernel uses, known at compile time.
pub trait Filter {
    /// Bit `n`: instance `n` is used.
    const MASK: u128;
}

/// What is used of a callee whose first instance is `BASE`.
pub struct After<F, const BASE: u32>(core::marker::PhantomData<F>);

impl<F: Filter, const BASE: u32> Filter for After<F, BASE> {
    const MASK: u128 = if BASE < u128::BITS { F::MASK >> BASE } else { 0 };
}

/// Every instance.
pub enum All {}

impl Filter for All {
    const MASK: u128 = u128::MAX;
}
