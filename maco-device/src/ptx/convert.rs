//! Conversions (PTX ISA §9.7.9.21 `cvt`).

use core::arch::asm;

/// Rounds two `f32` to nearest even and packs them as `bf16x2`, `low` in the low half.
#[inline(always)]
pub fn pack_bf16(low: f32, high: f32) -> u32 {
    let packed: u32;
    // SAFETY: register arithmetic only.
    unsafe { asm!("cvt.rn.bf16x2.f32 {0}, {1}, {2};", out(reg32) packed, in(reg32) high, in(reg32) low, options(nostack, pure, nomem)) };
    packed
}

/// Rounds two `f32` to nearest even and packs them as `f16x2`, `low` in the low half.
#[inline(always)]
pub fn pack_f16(low: f32, high: f32) -> u32 {
    let packed: u32;
    // SAFETY: register arithmetic only.
    unsafe { asm!("cvt.rn.f16x2.f32 {0}, {1}, {2};", out(reg32) packed, in(reg32) high, in(reg32) low, options(nostack, pure, nomem)) };
    packed
}

/// Widens `f16` bits.
#[inline(always)]
pub fn f16_to_f32(bits: u16) -> f32 {
    let value: f32;
    // SAFETY: register arithmetic only.
    unsafe { asm!("cvt.f32.f16 {0}, {1};", out(reg32) value, in(reg16) bits, options(nostack, pure, nomem)) };
    value
}
