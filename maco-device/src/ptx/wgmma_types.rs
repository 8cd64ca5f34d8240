//! Warpgroup matrix multiply in all its shapes and types (PTX ISA §9.7.16.5.2 `wgmma.mma_async`), for bodies of one's own.
//!
//! Which operands may meet, and when, does not belong here: see `simt/wgmma_queue.rs`. Numbers in the instruction's name are constants of an
//! [`Instruction`], so there is one text for each name, in as many lengths as there are numbers of registers.

use core::arch::asm;

/// Registers of an accumulator, of which an instruction uses the first [`Instruction::REGISTERS`].
pub type Registers = [u32; 128];

/// The numbers of one instruction; those that its name does not have are not looked at.
pub trait Instruction {
    /// A quarter or half of N.
    const REGISTERS: usize;
    /// Columns.
    const N: u32;
    /// Bits of the accumulator's type.
    const SUM: u32;
    /// Whether the product is added to what is there, or takes its place.
    const ADD: bool;
    /// −1: the product is subtracted.
    const SIGN: i32;
    /// Whether the operands are MN-major.
    const ACROSS: (bool, bool);
    /// Bits of exponent and fraction of operands of eight bits.
    const A: (u32, u32);
    /// The same of the second one.
    const B: (u32, u32);
}

/// Nothing; it makes the compiler believe that the register changes here.
#[inline(always)]
pub fn settle(register: &mut u32) {
    // SAFETY: an empty instruction.
    unsafe { asm!("/* {0} */", inout(reg32) * register, options(nostack, preserves_flags)) }
}

/// One text in all lengths. `$from` are the operands before the accumulator's, `$name` and `$end` what is before and behind it.
macro_rules! lengths {
    ($I:ident $d:ident [$($operand:tt)*] $name:literal $end:literal; $($registers:literal [$($i:literal)*])*) => {
        lengths!(@ $I $d [$($operand)*] $name $end; []; $($registers [$($i)*])*)
    };
    (@ $I:ident $d:ident $operands:tt $name:literal $end:literal; [$($done:literal)*];) => {};
    (@ $I:ident $d:ident [$($operand:tt)*] $name:literal $end:literal; [$($done:literal)*]; $registers:literal [$($i:literal)*] $($rest:tt)*) => {
        lengths!(@one $I $d [$($operand)*] $name $end; $registers $($done)* $($i)*);
        lengths!(@ $I $d [$($operand)*] $name $end; [$($done)* $($i)*]; $($rest)*);
    };
    (@one $I:ident $d:ident [$($operand:tt)*] $name:literal $end:literal; $registers:literal $first:literal $($i:literal)*) => {
        if const { $I::REGISTERS == $registers } {
            // SAFETY: a converged warpgroup, descriptors of live shared memory: promised by the caller.
            unsafe {
                asm!(
                    concat!(
                        "{{.reg .pred p; setp.ne.u32 p, {add}, 0; wgmma.mma_async.sync.aligned.m64n{n}", $name,
                        " {{{", $first, "}", $(", {", $i, "}",)* "}}, ", $end, ";}}"
                    ),
                    inout(reg32) $d[$first],
                    $(inout(reg32) $d[$i],)*
                    n = const $I::N,
                    add = const $I::ADD as u32,
                    $($operand)*
                    options(nostack)
                )
            }
        }
    };
}

/// Every length of 32 bits an element: two registers for each four columns.
macro_rules! words {
    ($($head:tt)*) => {
        lengths!($($head)*;
            4 [0 1 2 3] 8 [4 5 6 7] 12 [8 9 10 11] 16 [12 13 14 15] 20 [16 17 18 19] 24 [20 21 22 23] 28 [24 25 26 27] 32 [28 29 30 31]
            36 [32 33 34 35] 40 [36 37 38 39] 44 [40 41 42 43] 48 [44 45 46 47] 52 [48 49 50 51] 56 [52 53 54 55] 60 [56 57 58 59] 64 [60 61 62 63]
            68 [64 65 66 67] 72 [68 69 70 71] 76 [72 73 74 75] 80 [76 77 78 79] 84 [80 81 82 83] 88 [84 85 86 87] 92 [88 89 90 91] 96 [92 93 94 95]
            100 [96 97 98 99] 104 [100 101 102 103] 108 [104 105 106 107] 112 [108 109 110 111]
            116 [112 113 114 115] 120 [116 117 118 119] 124 [120 121 122 123] 128 [124 125 126 127])
    };
}

/// Lengths of accumulators of `f16` that [`words`] has not.
macro_rules! halves {
    ($($head:tt)*) => {
        lengths!($($head)*;
            2 [0 1] 6 [2 3 4 5] 10 [6 7 8 9] 14 [10 11 12 13] 18 [14 15 16 17] 22 [18 19 20 21] 26 [22 23 24 25] 30 [26 27 28 29]
            34 [30 31 32 33] 38 [34 35 36 37] 42 [38 39 40 41] 46 [42 43 44 45] 50 [46 47 48 49] 54 [50 51 52 53] 58 [54 55 56 57] 62 [58 59 60 61])
    };
}

/// Every length of a sum of integers: 8, 24, or a multiple of 16 columns.
macro_rules! integers {
    ($($head:tt)*) => {
        lengths!($($head)*;
            4 [0 1 2 3] 8 [4 5 6 7] 12 [8 9 10 11] 16 [12 13 14 15] 24 [16 17 18 19 20 21 22 23] 32 [24 25 26 27 28 29 30 31]
            40 [32 33 34 35 36 37 38 39] 48 [40 41 42 43 44 45 46 47] 56 [48 49 50 51 52 53 54 55] 64 [56 57 58 59 60 61 62 63]
            72 [64 65 66 67 68 69 70 71] 80 [72 73 74 75 76 77 78 79] 88 [80 81 82 83 84 85 86 87] 96 [88 89 90 91 92 93 94 95]
            104 [96 97 98 99 100 101 102 103] 112 [104 105 106 107 108 109 110 111]
            120 [112 113 114 115 116 117 118 119] 128 [120 121 122 123 124 125 126 127])
    };
}

/// The same with the first operand in shared memory and in registers.
macro_rules! product {
    ($of_shared:ident $of_registers:ident: $name:literal $shared:literal $registers:literal, $lengths:tt, $I:ident $operands:tt [$($first:tt)*]) => {
        /// # Safety
        /// Run by a converged warpgroup behind `wgmma.fence`; `a` and `b` describe tiles in shared memory that stay until the group is
        /// complete; `d` is not touched until then.
        #[inline(always)]
        pub unsafe fn $of_shared<$I: Instruction>(d: &mut Registers, a: u64, b: u64) {
            product!(@ $name $shared, $lengths, $I d $operands, $($first)* a = in(reg64) a, b = in(reg64) b,);
        }
        /// # Safety
        /// As above; `a` is this thread's part of the first operand, which is not written either.
        #[inline(always)]
        pub unsafe fn $of_registers<$I: Instruction>(d: &mut Registers, a: [u32; 4], b: u64) {
            product!(@ $name $registers, $lengths, $I d $operands,
                a0 = in(reg32) a[0], a1 = in(reg32) a[1], a2 = in(reg32) a[2], a3 = in(reg32) a[3], b = in(reg64) b,);
        }
    };
    (@ $name:literal $end:literal, $lengths:tt, $I:ident $d:ident [$($constant:tt)*], $($operand:tt)*) => {
        product!(@each $lengths, $I $d [$($constant)* $($operand)*] $name $end);
    };
    (@each [$($lengths:ident)+], $I:ident $d:ident $operands:tt $name:literal $end:literal) => {
        $($lengths!($I $d $operands $name $end);)+
    };
}

product!(f16_shared f16_registers: "k16.f{sum}.f16.f16" "{a}, {b}, p, {sign}, 1, {ta}, {tb}" "{{{a0}, {a1}, {a2}, {a3}}}, {b}, p, {sign}, 1, {tb}",
    [words halves], I [sum = const I::SUM, sign = const I::SIGN, tb = const I::ACROSS.1 as u32,] [ta = const I::ACROSS.0 as u32,]);
product!(bf16_shared bf16_registers: "k16.f32.bf16.bf16" "{a}, {b}, p, {sign}, 1, {ta}, {tb}" "{{{a0}, {a1}, {a2}, {a3}}}, {b}, p, {sign}, 1, {tb}",
    [words], I [sign = const I::SIGN, tb = const I::ACROSS.1 as u32,] [ta = const I::ACROSS.0 as u32,]);
product!(tf32_shared tf32_registers: "k8.f32.tf32.tf32" "{a}, {b}, p, {sign}, 1" "{{{a0}, {a1}, {a2}, {a3}}}, {b}, p, {sign}, 1",
    [words], I [sign = const I::SIGN,] []);
product!(f8_shared f8_registers: "k32.f{sum}.e{ea}m{fa}.e{eb}m{fb}" "{a}, {b}, p, {sign}, 1" "{{{a0}, {a1}, {a2}, {a3}}}, {b}, p, {sign}, 1",
    [words halves], I [sum = const I::SUM, ea = const I::A.0, fa = const I::A.1, eb = const I::B.0, fb = const I::B.1, sign = const I::SIGN,] []);
product!(s8_s8_shared s8_s8_registers: "k32.s32.s8.s8" "{a}, {b}, p" "{{{a0}, {a1}, {a2}, {a3}}}, {b}, p", [integers], I [] []);
product!(s8_u8_shared s8_u8_registers: "k32.s32.s8.u8" "{a}, {b}, p" "{{{a0}, {a1}, {a2}, {a3}}}, {b}, p", [integers], I [] []);
product!(u8_s8_shared u8_s8_registers: "k32.s32.u8.s8" "{a}, {b}, p" "{{{a0}, {a1}, {a2}, {a3}}}, {b}, p", [integers], I [] []);
product!(u8_u8_shared u8_u8_registers: "k32.s32.u8.u8" "{a}, {b}, p" "{{{a0}, {a1}, {a2}, {a3}}}, {b}, p", [integers], I [] []);
