//! How generated code is called: instances of tasks, and the jump to the one that a descriptor names.

use crate::data::epilogue::Epilogue;
#[cfg(target_arch = "nvptx64")]
use crate::data::epilogue::Identity;
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
    /// Whether it is a task or a graph, and not what stands for a function that is neither.
    #[doc(hidden)]
    const IS_TASK: bool = true;
    /// Runs instance `slot` as role `R` with fused epilogue `T`; instances outside `F` cost no code.
    fn dispatch<R: Role, T: Epilogue, F: Filter>(role: &mut R, task: Task, slot: u32);
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
/// every body, and the products of the largest tiles have none to spare.
pub const fn fuses_elementwise_prologues<C: Callable>(mask: u128) -> bool {
    C::WARP_TASKS == 0 && C::ELEMENTWISE & mask != 0 && C::GEMVS & mask != 0
}

const fn of_caller<C: Callable>(instances: u128, base: u32) -> u128 {
    let own = if C::SLOTS < u128::BITS { instances & ((1 << C::SLOTS) - 1) } else { instances };
    if base < u128::BITS { own << base } else { 0 }
}

/// Runs instance `slot` of a whole megakernel: one jump, however many callables there are and however deep they are nested. Every
/// arm is compiled for its own instance alone.
///
/// `slot` is an instance of `C`: what a plan for `C` puts into a descriptor.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub fn dispatch<C: Callable, R: Role, F: Filter>(role: &mut R, task: Task, slot: u32) {
    macro_rules! jump {
        ($($n:literal)*) => {
            match slot {
                $($n => if const { $n < C::SLOTS && F::MASK >> $n & 1 != 0 } {
                    C::dispatch::<R, Identity, Only<$n>>(role, task, $n)
                } else if const { $n >= C::SLOTS } {
                    // SAFETY: the plan numbers the instances of `C`. A jump without bounds is a jump less.
                    unsafe { core::hint::unreachable_unchecked() }
                })*
                // SAFETY: as above; there are no more than these.
                _ => unsafe { core::hint::unreachable_unchecked() },
            }
        };
    }
    jump!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95 96 97 98 99 100 101 102 103 104 105 106 107 108 109 110 111 112 113 114 115 116 117 118 119 120 121 122 123 124 125 126 127);
}

/// Instance `N`.
#[cfg(target_arch = "nvptx64")]
enum Only<const N: u32> {}

#[cfg(target_arch = "nvptx64")]
impl<const N: u32> Filter for Only<N> {
    const MASK: u128 = 1 << N;
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
