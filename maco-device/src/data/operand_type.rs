//! Element types of operands and accumulators of the tensor cores, and which of them go together (PTX ISA §9.7.16.5.2).
//!
//! Where operands lie does not belong here: see `simt/swizzle.rs`.

use crate::data::element::{Element, bf16, f16};
#[cfg(target_arch = "nvptx64")]
use crate::ptx::wgmma_types::{self, Instruction, Registers};

/// A type that `wgmma` multiplies: `bf16`, `f16`, [`Tf32`], [`E4M3`], [`E5M2`], [`S8`] or [`U8`].
#[diagnostic::on_unimplemented(
    message = "MACO0017: the tensor cores do not multiply `{Self}`",
    note = "they multiply `bf16`, `f16`, `Tf32`, `E4M3`, `E5M2`, `S8` and `U8`"
)]
pub trait OperandType: Sized + 'static {
    /// What it is in memory: of eight bits, `i8` has the bits.
    type Element: Element;
    /// Elements of K that one instruction multiplies: 32 bytes.
    const STEP: usize = 32 / size_of::<Self::Element>();
    /// The number that is multiplied.
    fn number(element: Self::Element) -> f32;
    /// Bits of exponent and fraction, of floating-point numbers of eight bits.
    #[doc(hidden)]
    const FORMAT: (u32, u32) = (0, 0);
}

/// A type of 16 bits: the only ones whose operands may lie MN-major, and that `stmatrix` writes.
#[diagnostic::on_unimplemented(
    message = "MACO0017: only operands of 16 bits may lie MN-major, and sums are written as `bf16` or `f16`, not as `{Self}`",
    note = "PTX ISA §9.7.16.5.1: of other types K runs along the rows: transpose while you fill the tile, and use `along`"
)]
pub trait HalfOperandType: OperandType {
    /// Two numbers rounded to nearest, the first one in the low half.
    #[doc(hidden)]
    fn pack(low: f32, high: f32) -> u32;
    #[doc(hidden)]
    fn round(number: f32) -> Self::Element;
}

macro_rules! half {
    ($($type:ident)*) => {$(
        impl OperandType for $type {
            type Element = $type;
            #[inline(always)]
            fn number(element: $type) -> f32 {
                element.value()
            }
        }
        impl HalfOperandType for $type {
            #[inline(always)]
            fn pack(low: f32, high: f32) -> u32 {
                crate::data::element::pack::<$type>(low, high)
            }
            #[inline(always)]
            fn round(number: f32) -> $type {
                $type::element(number)
            }
        }
    )*};
}
half!(bf16 f16);

/// `f32` of which the tensor cores take 8 bits of exponent and 10 of fraction; the 13 bits below are not looked at.
pub enum Tf32 {}

impl OperandType for Tf32 {
    type Element = f32;
    #[inline(always)]
    fn number(element: f32) -> f32 {
        f32::from_bits(element.to_bits() & !0x1fff)
    }
}

/// 4 bits of exponent and 3 of fraction: up to ±448, NaN, no infinities (FP8 formats: Micikevicius et al., 2022).
pub enum E4M3 {}

impl OperandType for E4M3 {
    type Element = i8;
    const FORMAT: (u32, u32) = (4, 3);
    #[inline(always)]
    fn number(element: i8) -> f32 {
        let bits = element as u8 as u32;
        if bits & 0x7f == 0x7f { f32::NAN } else { eight(bits, 3, 7) }
    }
}

/// 5 bits of exponent and 2 of fraction: the upper half of an `f16`, with its infinities and NaN.
pub enum E5M2 {}

impl OperandType for E5M2 {
    type Element = i8;
    const FORMAT: (u32, u32) = (5, 2);
    #[inline(always)]
    fn number(element: i8) -> f32 {
        let bits = element as u8 as u32;
        match bits & 0x7f {
            0x7c => f32::INFINITY.copysign(f32::from_bits(bits << 24)),
            nan if nan > 0x7c => f32::NAN,
            _ => eight(bits, 2, 15),
        }
    }
}

/// A finite number of eight bits, `fraction` of them below the exponent, whose bias is given.
#[inline(always)]
fn eight(bits: u32, fraction: u32, bias: u32) -> f32 {
    // As an `f32` it is a power of two too small, also if it has no leading one.
    let small = f32::from_bits((bits & 0x80) << 24 | (bits & 0x7f) << (23 - fraction));
    small * f32::from_bits((254 - bias) << 23)
}

/// −128 to 127.
pub enum S8 {}

impl OperandType for S8 {
    type Element = i8;
    #[inline(always)]
    fn number(element: i8) -> f32 {
        element.into()
    }
}

/// 0 to 255; `i8` has the bits.
pub enum U8 {}

impl OperandType for U8 {
    type Element = i8;
    #[inline(always)]
    fn number(element: i8) -> f32 {
        (element as u8).into()
    }
}

/// A type in which `wgmma` adds up products: `f32`, `f16` or `i32`.
#[diagnostic::on_unimplemented(
    message = "MACO0017: the tensor cores do not add up in `{Self}`",
    note = "they add up in `f32`, `f16` and, products of integers, `i32`"
)]
pub trait AccElement: Sized + 'static {
    /// What closures see: `f32` of an `f16`.
    type Value: Copy + Default;
    /// Values in a register.
    #[doc(hidden)]
    const PACKED: usize = 1;
    /// Sums of integers have only some of the shapes: 8, 24, and multiples of 16.
    #[doc(hidden)]
    const INTEGERS: bool = false;
    /// Values `2 * pair` and `2 * pair + 1` of a thread.
    #[doc(hidden)]
    #[cfg(target_arch = "nvptx64")]
    fn pair(registers: &Registers, pair: usize) -> (Self::Value, Self::Value);
    #[doc(hidden)]
    #[cfg(target_arch = "nvptx64")]
    fn set_pair(registers: &mut Registers, pair: usize, values: (Self::Value, Self::Value));
    /// A value as it is kept.
    #[doc(hidden)]
    #[cfg(not(target_arch = "nvptx64"))]
    fn kept(value: Self::Value) -> Self::Value {
        value
    }
    /// `sum` and the product of two numbers, or the difference of both.
    #[doc(hidden)]
    #[cfg(not(target_arch = "nvptx64"))]
    fn add(sum: Self::Value, a: f32, b: f32, subtract: bool) -> Self::Value;
}

macro_rules! word {
    ($type:ident, $integers:literal, $of:expr, $bits:expr, $add:expr) => {
        impl AccElement for $type {
            type Value = $type;
            const INTEGERS: bool = $integers;
            #[cfg(target_arch = "nvptx64")]
            #[inline(always)]
            fn pair(registers: &Registers, pair: usize) -> ($type, $type) {
                ($of(registers[2 * pair]), $of(registers[2 * pair + 1]))
            }
            #[cfg(target_arch = "nvptx64")]
            #[inline(always)]
            fn set_pair(registers: &mut Registers, pair: usize, (low, high): ($type, $type)) {
                registers[2 * pair] = $bits(low);
                registers[2 * pair + 1] = $bits(high);
            }
            #[cfg(not(target_arch = "nvptx64"))]
            fn add(sum: $type, a: f32, b: f32, subtract: bool) -> $type {
                $add(sum, a, b, subtract)
            }
        }
    };
}
word!(f32, false, f32::from_bits, f32::to_bits, |sum: f32, a: f32, b: f32, subtract| if subtract { sum - a * b } else { sum + a * b });
word!(i32, true, |bits: u32| bits as i32, |value: i32| value as u32, |sum: i32, a: f32, b: f32, _| sum.wrapping_add(a as i32 * b as i32));

impl AccElement for f16 {
    type Value = f32;
    const PACKED: usize = 2;
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn pair(registers: &Registers, pair: usize) -> (f32, f32) {
        let word = registers[pair];
        (f16::from_bits(word as u16).value(), f16::from_bits((word >> 16) as u16).value())
    }
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn set_pair(registers: &mut Registers, pair: usize, (low, high): (f32, f32)) {
        registers[pair] = <f16 as HalfOperandType>::pack(low, high);
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn kept(value: f32) -> f32 {
        f16::element(value).value()
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn add(sum: f32, a: f32, b: f32, subtract: bool) -> f32 {
        <f32 as AccElement>::add(sum, a, b, subtract)
    }
}

/// Adds up products of an `A` with a `B`.
#[diagnostic::on_unimplemented(
    message = "MACO0017: the tensor cores do not add up products of `{A}` with `{B}` in `{Self}`",
    note = "in `f32`: `bf16`, `f16`, `Tf32` with themselves, and `E4M3`, `E5M2` with both; in `f16`: `f16`, `E4M3`, `E5M2`; in `i32`: `S8`, `U8` with both"
)]
pub trait Products<A: OperandType, B: OperandType>: AccElement {
    /// # Safety
    /// As the functions of `ptx/wgmma_types.rs`.
    #[doc(hidden)]
    #[cfg(target_arch = "nvptx64")]
    unsafe fn of_shared<I: Instruction>(d: &mut Registers, a: u64, b: u64);
    /// # Safety
    /// As the functions of `ptx/wgmma_types.rs`.
    #[doc(hidden)]
    #[cfg(target_arch = "nvptx64")]
    unsafe fn of_registers<I: Instruction>(d: &mut Registers, a: [u32; 4], b: u64);
}

macro_rules! products {
    ($($sum:ident: $a:ident $b:ident, $shared:ident $registers:ident;)*) => {$(
        impl Products<$a, $b> for $sum {
            #[cfg(target_arch = "nvptx64")]
            #[inline(always)]
            unsafe fn of_shared<I: Instruction>(d: &mut Registers, a: u64, b: u64) {
                // SAFETY: passed on from the caller.
                unsafe { wgmma_types::$shared::<I>(d, a, b) }
            }
            #[cfg(target_arch = "nvptx64")]
            #[inline(always)]
            unsafe fn of_registers<I: Instruction>(d: &mut Registers, a: [u32; 4], b: u64) {
                // SAFETY: passed on from the caller.
                unsafe { wgmma_types::$registers::<I>(d, a, b) }
            }
        }
    )*};
}
products! {
    f32: bf16 bf16, bf16_shared bf16_registers;
    f32: f16 f16, f16_shared f16_registers;
    f16: f16 f16, f16_shared f16_registers;
    f32: Tf32 Tf32, tf32_shared tf32_registers;
    f32: E4M3 E4M3, f8_shared f8_registers;
    f32: E4M3 E5M2, f8_shared f8_registers;
    f32: E5M2 E4M3, f8_shared f8_registers;
    f32: E5M2 E5M2, f8_shared f8_registers;
    f16: E4M3 E4M3, f8_shared f8_registers;
    f16: E4M3 E5M2, f8_shared f8_registers;
    f16: E5M2 E4M3, f8_shared f8_registers;
    f16: E5M2 E5M2, f8_shared f8_registers;
    i32: S8 S8, s8_s8_shared s8_s8_registers;
    i32: S8 U8, s8_u8_shared s8_u8_registers;
    i32: U8 S8, u8_s8_shared u8_s8_registers;
    i32: U8 U8, u8_u8_shared u8_u8_registers;
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::*;

    /// Every number of eight bits, by the definition of its format.
    #[test]
    fn numbers_of_eight_bits() {
        let expected = |bits: u32, fraction: u32, bias: i32| {
            let (exponent, rest) = ((bits & 0x7f) >> fraction, f64::from(bits & ((1 << fraction) - 1)) / f64::from(1 << fraction));
            let value = if exponent == 0 { rest * 2f64.powi(1 - bias) } else { (1.0 + rest) * 2f64.powi(exponent as i32 - bias) };
            if bits & 0x80 == 0 { value } else { -value }
        };
        for bits in 0..=255u8 {
            let (four, five) = (E4M3::number(bits as i8), E5M2::number(bits as i8));
            if bits & 0x7f == 0x7f {
                assert!(four.is_nan());
            } else {
                assert_eq!(f64::from(four).to_bits(), expected(bits.into(), 3, 7).to_bits(), "e4m3 {bits:#x}");
            }
            assert_eq!(five.to_bits() & 0x7fff_ffff == 0x7f80_0000, bits & 0x7f == 0x7c);
            let half = f16::from_bits(u16::from(bits) << 8).to_f32();
            assert!(five == half || five.is_nan() && half.is_nan(), "e5m2 {bits:#x}");
        }
        assert_eq!((E4M3::number(0x7e), E4M3::number(1), E5M2::number(0x7b)), (448.0, 2f32.powi(-9), 57344.0));
    }

    #[test]
    fn bits_that_tensor_cores_do_not_see() {
        assert_eq!(Tf32::number(1.0 + f32::EPSILON), 1.0);
        assert_eq!(Tf32::number(-1.5), -1.5);
        assert_eq!((S8::number(-1), U8::number(-1)), (-1.0, 255.0));
    }
}
