//! WGMMA of SIMT bodies (PTX ISA §9.7.16 `wgmma`): a warpgroup queues products, commits groups of them, and waits for groups.
//!
//! Where operands lie, and which thread has which element of an accumulator, does not belong here: see `swizzle.rs`, `acc.rs`.

#[cfg(target_arch = "nvptx64")]
use core::marker::PhantomData;

use crate::data::operand_type::{AccElement, OperandType, Products};
#[cfg(target_arch = "nvptx64")]
use crate::ptx::{
    wgmma,
    wgmma_types::{Instruction, Registers},
};
use crate::simt::acc::{Acc, Fragments};
use crate::simt::swizzle::SharedOperand;
use crate::simt::warpgroup::Warpgroup;

/// Most instructions of a call: 512 bytes of K.
const MOST: usize = 16;

impl Warpgroup<'_> {
    /// Runs `f`, which queues products that are added to `acc`; when it returns, all of them are made. The whole warpgroup comes here.
    ///
    /// ```
    /// # use maco_device::{Acc, Scratch, Simt, bf16};
    /// # let mut scratch = Scratch::<16384>::new();
    /// # let cta = Simt::alone_with(&mut scratch);
    /// let (a, b) = (cta.swizzled::<bf16, 0, 64, 64>(), cta.swizzled::<bf16, 8192, 64, 64>());
    /// // .. threads fill both ..
    /// # for at in 0..64 * 64 { a.write(at / 64, at % 64, bf16::from_f32(1.0)); b.write(at / 64, at % 64, bf16::from_f32(0.5)); }
    /// cta.sync_copies();
    /// let warpgroup = cta.warpgroup();
    /// let mut acc = Acc::<f32, 64>::zeros();
    /// warpgroup.multiply(&mut acc, |queue| queue.add(a.along(0), b.along(0)));
    /// acc.for_each(&warpgroup, |_, _, sum| assert_eq!(sum, 32.0));
    /// ```
    ///
    /// While `f` runs nobody sees the sum, and registers that are operand A stay. Two sums at a time: one call inside the other's closure; groups
    /// are those of the warpgroup, so that [`Queue::wait`] waits for those of both.
    ///
    /// What `f` reads of scratch was written through another proxy: between writing and here lies a [`Warpgroup::sync_copies`] or
    /// [`Simt::sync_copies`](crate::Simt::sync_copies), which the PTX lint wants to see. Loops in `f` run at least once in the
    /// compiler's eyes (`loop`), or it makes each product wait for the one before (C7515).
    #[inline(always)]
    pub fn multiply<'p, T: AccElement, const N: usize>(&self, acc: &'p mut Acc<T, N>, f: impl FnOnce(&mut Queue<'p, T, N>)) {
        #[cfg(target_arch = "nvptx64")]
        acc.settle();
        let mut queue = Queue { acc };
        f(&mut queue);
        #[cfg(target_arch = "nvptx64")]
        {
            // The group may be empty behind a wait of `f`: ptxas would put a fence of its own there (C7519).
            wgmma::fence();
            wgmma::commit();
            wgmma::wait::<0>();
            queue.acc.settle();
        }
    }
}

/// Products of a warpgroup on their way into a sum: see [`Warpgroup::multiply`].
pub struct Queue<'p, T: AccElement, const N: usize> {
    acc: &'p mut Acc<T, N>,
}

impl<'p, T: AccElement, const N: usize> Queue<'p, T, N> {
    /// Queues `acc += a · bᵀ`: 64 rows of `a`, `N` of `b`, over all of their K, which is the same, a multiple of 32 bytes and at most 512.
    #[inline(always)]
    pub fn add<A: OperandA<'p>, B: SharedOperand>(&mut self, a: A, b: B)
    where
        T: Products<A::Type, B::Type>,
    {
        self.queue::<A, B, true, 1>(a, b);
    }

    /// Queues `acc = a · bᵀ`, whatever was there.
    #[inline(always)]
    pub fn set<A: OperandA<'p>, B: SharedOperand>(&mut self, a: A, b: B)
    where
        T: Products<A::Type, B::Type>,
    {
        self.queue::<A, B, false, 1>(a, b);
    }

    /// Queues `acc -= a · bᵀ`. Not of integers.
    #[inline(always)]
    pub fn subtract<A: OperandA<'p>, B: SharedOperand>(&mut self, a: A, b: B)
    where
        T: Products<A::Type, B::Type>,
    {
        const { assert!(!T::INTEGERS, "MACO0017: the tensor cores do not subtract products of integers") };
        self.queue::<A, B, true, -1>(a, b);
    }

    /// Closes a group of what was queued.
    #[inline(always)]
    pub fn commit(&mut self) {
        #[cfg(target_arch = "nvptx64")]
        wgmma::commit();
    }

    /// Waits for all groups of the warpgroup but the `PENDING` newest ones: what those read of scratch may be overwritten when all its threads
    /// have come here.
    #[inline(always)]
    pub fn wait<const PENDING: u32>(&mut self) {
        const { assert!(PENDING <= 7, "MACO0017: at most seven groups stay behind") };
        #[cfg(target_arch = "nvptx64")]
        wgmma::wait::<PENDING>();
    }

    #[inline(always)]
    fn queue<A: OperandA<'p>, B: SharedOperand, const ADD: bool, const SIGN: i32>(&mut self, a: A, b: B)
    where
        T: Products<A::Type, B::Type>,
    {
        const {
            assert!(A::K == B::K, "MACO0017: the operands of a product have the same K");
            assert!(
                B::K > 0 && B::K.is_multiple_of(B::Type::STEP) && B::K <= MOST * B::Type::STEP,
                "MACO0017: K of a product is a multiple of 32 bytes, at most 512"
            );
        }
        #[cfg(target_arch = "nvptx64")]
        {
            let (a, b) = (a.source(), b.descriptor(N as u32));
            wgmma::fence();
            let registers = &mut self.acc.registers;
            macro_rules! steps {
                ($($n:literal)*) => {$(
                    if const { $n < B::K / B::Type::STEP } {
                        let at = b.after(B::step($n)).word();
                        // SAFETY: a token of the whole warpgroup, behind the fence; tiles in the body's scratch, of which as many rows as are
                        // read, and registers: both stay until `multiply` has waited, in which nobody else has the sum.
                        unsafe {
                            if const { $n == 0 && !ADD } {
                                A::queue::<T, B::Type, Numbers<T, (A, &'p ()), B, N, false, SIGN>, $n>(registers, a, at);
                            } else {
                                A::queue::<T, B::Type, Numbers<T, (A, &'p ()), B, N, true, SIGN>, $n>(registers, a, at);
                            }
                        }
                    }
                )*};
            }
            steps!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        }
        #[cfg(not(target_arch = "nvptx64"))]
        for (at, sum) in self.acc.elements.iter_mut().enumerate() {
            let (row, col) = ((at / N) as u32, (at % N) as u32);
            if !ADD {
                *sum = T::Value::default();
            }
            for k in 0..B::K as u32 {
                *sum = T::add(*sum, A::Type::number(a.number(row, k)), B::Type::number(b.element(col, k)), SIGN < 0);
                if (k as usize + 1).is_multiple_of(B::Type::STEP) {
                    *sum = T::kept(*sum);
                }
            }
        }
    }
}

/// What operand A of a product may be: rows of a tile ([`Along`](crate::Along)), columns of one ([`Across`](crate::Across)), or
/// registers that outlive the queue (`&`[`Fragments`]).
pub trait OperandA<'p>: Copy {
    /// What it is multiplied as.
    type Type: OperandType;
    /// Elements of K.
    const K: usize;
    #[doc(hidden)]
    const ACROSS: bool;
    /// Where instructions find it.
    #[doc(hidden)]
    #[cfg(target_arch = "nvptx64")]
    type Source: Copy;
    #[doc(hidden)]
    #[cfg(target_arch = "nvptx64")]
    fn source(self) -> Self::Source;
    /// # Safety
    /// As the functions of `ptx/wgmma_types.rs`.
    #[doc(hidden)]
    #[cfg(target_arch = "nvptx64")]
    unsafe fn queue<T: Products<Self::Type, B>, B: OperandType, I: Instruction, const STEP: usize>(
        registers: &mut Registers,
        source: Self::Source,
        b: u64,
    );
    #[doc(hidden)]
    #[cfg(not(target_arch = "nvptx64"))]
    fn number(self, row: u32, k: u32) -> <Self::Type as OperandType>::Element;
}

impl<F: SharedOperand> OperandA<'_> for F {
    type Type = F::Type;
    const K: usize = F::K;
    const ACROSS: bool = F::ACROSS;
    #[cfg(target_arch = "nvptx64")]
    type Source = wgmma::Descriptor;
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn source(self) -> wgmma::Descriptor {
        self.descriptor(crate::simt::acc::ROWS)
    }
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    unsafe fn queue<T: Products<F::Type, B>, B: OperandType, I: Instruction, const STEP: usize>(
        registers: &mut Registers,
        source: wgmma::Descriptor,
        b: u64,
    ) {
        // SAFETY: passed on from the caller.
        unsafe { T::of_shared::<I>(registers, source.after(F::step(STEP as u32)).word(), b) }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn number(self, row: u32, k: u32) -> <F::Type as OperandType>::Element {
        self.element(row, k)
    }
}

impl<'p, F: OperandType, const STEPS: usize> OperandA<'p> for &'p Fragments<F, STEPS> {
    type Type = F;
    const K: usize = STEPS * F::STEP;
    const ACROSS: bool = false;
    #[cfg(target_arch = "nvptx64")]
    type Source = &'p Fragments<F, STEPS>;
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn source(self) -> Self {
        self
    }
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    unsafe fn queue<T: Products<F, B>, B: OperandType, I: Instruction, const STEP: usize>(registers: &mut Registers, source: Self, b: u64) {
        // SAFETY: passed on from the caller.
        unsafe { T::of_registers::<I>(registers, source.words[STEP], b) }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn number(self, row: u32, k: u32) -> F::Element {
        self.elements[row as usize * STEPS * F::STEP + k as usize]
    }
}

/// The numbers of an instruction of a product of `A` with `B`.
#[cfg(target_arch = "nvptx64")]
struct Numbers<T, A, B, const N: usize, const ADD: bool, const SIGN: i32>(PhantomData<(T, A, B)>);

#[cfg(target_arch = "nvptx64")]
impl<'p, T: AccElement, A: OperandA<'p>, B: SharedOperand, const N: usize, const ADD: bool, const SIGN: i32> Instruction
    for Numbers<T, (A, &'p ()), B, N, ADD, SIGN>
{
    const REGISTERS: usize = Acc::<T, N>::REGISTERS;
    const N: u32 = N as u32;
    const SUM: u32 = 32 / T::PACKED as u32;
    const ADD: bool = ADD;
    const SIGN: i32 = SIGN;
    const ACROSS: (bool, bool) = (A::ACROSS, B::ACROSS);
    const A: (u32, u32) = <A::Type as OperandType>::FORMAT;
    const B: (u32, u32) = <B::Type as OperandType>::FORMAT;
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::*;
    use crate::data::element::{Element, bf16, f16};
    use crate::data::operand_type::{E4M3, S8, U8};
    use crate::simt::Simt;
    use crate::simt::smem::Scratch;

    /// Rows by rows, by columns, and from registers: of numbers that show where they were.
    #[test]
    fn every_way_to_a_product() {
        let mut scratch = Scratch::<32768>::new();
        let cta = Simt::alone_with(&mut scratch);
        let (a, b) = (cta.swizzled::<bf16, 0, 64, 64>(), cta.swizzled::<bf16, 8192, 64, 64>());
        let (across, out) = (cta.swizzled::<bf16, 16384, 64, 64>(), cta.swizzled::<f16, 24576, 64, 64>());
        let value = |row: u32, k: u32| ((row * 7 + k * 3) % 11) as f32 - 5.0;
        for row in 0..64 {
            for k in 0..64 {
                a.write(row, k, bf16::from_f32(value(row, k)));
                across.write(k, row, bf16::from_f32(value(row, k)));
                b.write(row, k, bf16::from_f32(value(row + 64, k)));
            }
        }
        let expected = |row: u32, col: u32| (0..64).map(|k| value(row, k) * value(col + 72, k)).sum::<f32>();
        let warpgroup = cta.warpgroup();
        let fragments = Fragments::<bf16, 4>::load(&warpgroup, a.along(0));
        let mut acc = Acc::<f32, 24>::zeros();
        warpgroup.multiply(&mut acc, |queue| queue.add(a.along(0), b.along(8)));
        acc.for_each(&warpgroup, |row, col, sum| assert_eq!(sum, expected(row, col), "{row} {col}"));
        warpgroup.multiply(&mut acc, |queue| {
            queue.subtract(across.across(0), b.along(8));
            queue.commit();
            queue.wait::<0>();
        });
        acc.for_each(&warpgroup, |_, _, sum| assert_eq!(sum, 0.0));
        warpgroup.multiply(&mut acc, |queue| {
            queue.add(&fragments, b.along(8));
            queue.set(&fragments, b.along(8));
        });
        acc.for_each(&warpgroup, |row, col, sum| assert_eq!(sum, expected(row, col), "{row} {col}"));
        // 2048 and more have no odd numbers in `f16`.
        acc.map(&warpgroup, |row, col, _| if (row, col) == (63, 23) { 2049.0 } else { (row * 24 + col) as f32 });
        acc.store(&warpgroup, out, 0, 40);
        assert_eq!((out.read(63, 63).to_f32(), out.read(2, 41).to_f32()), (2048.0, 49.0));
        let mut half = Acc::<f16, 8>::zeros();
        half.map(&warpgroup, |_, _, _| 1.0 / 3.0);
        half.for_each(&warpgroup, |_, _, value| assert_eq!(value, f16::element(1.0 / 3.0).to_f32()));
    }

    #[test]
    fn integers_and_numbers_of_eight_bits() {
        let mut scratch = Scratch::<12288>::new();
        let cta = Simt::alone_with(&mut scratch);
        let (a, b) = (cta.swizzled::<U8, 0, 64, 128>(), cta.swizzled::<S8, 8192, 32, 128>());
        for at in 0..64 * 128 {
            a.write(at / 128, at % 128, -1);
            if at < 32 * 128 {
                b.write(at / 128, at % 128, -(at as i32 / 128) as i8);
            }
        }
        let warpgroup = cta.warpgroup();
        let mut acc = Acc::<i32, 16>::zeros();
        warpgroup.multiply(&mut acc, |queue| queue.add(a.along(0), b.along(16)));
        acc.for_each(&warpgroup, |_, col, sum| assert_eq!(sum, -255 * 128 * (col as i32 + 16)));
        // The same bits are NaN.
        let (a, b) = (cta.swizzled::<E4M3, 0, 64, 128>(), cta.swizzled::<E4M3, 8192, 32, 128>());
        let mut acc = Acc::<f32, 8>::zeros();
        a.write(3, 5, 0x38);
        let warpgroup = cta.warpgroup();
        warpgroup.multiply(&mut acc, |queue| queue.add(a.along(0), b.along(0)));
        acc.for_each(&warpgroup, |_, _, sum| assert!(sum.is_nan()));
    }

    /// The columns of a sum as K of the next one.
    #[test]
    fn a_sum_is_operand_a() {
        let mut scratch = Scratch::<8192>::new();
        let cta = Simt::alone_with(&mut scratch);
        let b = cta.swizzled_by::<bf16, 0, 8, 32, 64>();
        for at in 0..8 * 32 {
            b.write(at / 32, at % 32, bf16::from_f32(if at % 32 == at / 32 + 4 { 1.0 } else { 0.0 }));
        }
        let warpgroup = cta.warpgroup();
        let mut acc = Acc::<f32, 32>::zeros();
        acc.map(&warpgroup, |row, col, _| (row + 2 * col) as f32);
        let a = acc.fragments::<bf16, 2>();
        let mut moved = Acc::<f32, 8>::zeros();
        warpgroup.multiply(&mut moved, |queue| queue.add(&a, b.along(0)));
        moved.for_each(&warpgroup, |row, col, value| assert_eq!(value, (row + 2 * (col + 4)) as f32));
    }

    #[test]
    #[should_panic = "of a `Smem`"]
    fn rows_beyond_the_tile() {
        let mut scratch = Scratch::<16384>::new();
        let cta = Simt::alone_with(&mut scratch);
        let (a, b) = (cta.swizzled::<bf16, 0, 64, 64>(), cta.swizzled::<bf16, 8192, 16, 64>());
        let warpgroup = cta.warpgroup();
        warpgroup.multiply(&mut Acc::<f32, 16>::zeros(), |queue| queue.add(a.along(0), b.along(8)));
    }
}
