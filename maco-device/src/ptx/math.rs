//! Approximate functions (PTX ISA §9.7.3).

use core::arch::asm;

/// 2ˣ, `ex2.approx.ftz`.
#[inline(always)]
pub fn exp2(x: f32) -> f32 {
    let y: f32;
    // SAFETY: register arithmetic only.
    unsafe { asm!("ex2.approx.ftz.f32 {0}, {1};", out(reg32) y, in(reg32) x, options(nostack, pure, nomem)) };
    y
}

/// The larger, NaN if one is: `max.NaN` (PTX ISA §9.7.3.12).
#[inline(always)]
pub fn max(a: f32, b: f32) -> f32 {
    let y: f32;
    // SAFETY: register arithmetic only.
    unsafe { asm!("max.NaN.f32 {0}, {1}, {2};", out(reg32) y, in(reg32) a, in(reg32) b, options(nostack, pure, nomem)) };
    y
}

/// The smaller, NaN if one is: `min.NaN` (PTX ISA §9.7.3.11).
#[inline(always)]
pub fn min(a: f32, b: f32) -> f32 {
    let y: f32;
    // SAFETY: register arithmetic only.
    unsafe { asm!("min.NaN.f32 {0}, {1}, {2};", out(reg32) y, in(reg32) a, in(reg32) b, options(nostack, pure, nomem)) };
    y
}

/// log₂ x, `lg2.approx.ftz`.
#[inline(always)]
pub fn log2(x: f32) -> f32 {
    let y: f32;
    // SAFETY: register arithmetic only.
    unsafe { asm!("lg2.approx.ftz.f32 {0}, {1};", out(reg32) y, in(reg32) x, options(nostack, pure, nomem)) };
    y
}

/// 1/x, `rcp.approx.ftz`.
#[inline(always)]
pub fn reciprocal(x: f32) -> f32 {
    let y: f32;
    // SAFETY: register arithmetic only.
    unsafe { asm!("rcp.approx.ftz.f32 {0}, {1};", out(reg32) y, in(reg32) x, options(nostack, pure, nomem)) };
    y
}

/// 1/√x, `rsqrt.approx.ftz`.
#[inline(always)]
pub fn rsqrt(x: f32) -> f32 {
    let y: f32;
    // SAFETY: register arithmetic only.
    unsafe { asm!("rsqrt.approx.ftz.f32 {0}, {1};", out(reg32) y, in(reg32) x, options(nostack, pure, nomem)) };
    y
}
