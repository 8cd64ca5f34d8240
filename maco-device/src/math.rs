//! Elementary functions on `f32`: libm on the host, the hardware's approximations on the GPU.

/// eˣ. GPU: `ex2.approx` of x·log₂e, relative error below 2⁻²² + |x| 2⁻²⁴ (PTX ISA §9.7.3.21); below 2⁻¹²⁶ zero.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    return crate::ptx::math::exp2(x * core::f32::consts::LOG2_E);
    #[cfg(not(target_arch = "nvptx64"))]
    x.exp()
}

/// Natural logarithm. GPU: `lg2.approx` times ln 2, error below 2⁻²² (1 + |ln x|) (PTX ISA §9.7.3.20 `lg2`); of what is below 2⁻¹²⁶ that of
/// 0, negative infinity. NaN of negative numbers.
#[inline(always)]
pub fn ln(x: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    return crate::ptx::math::log2(x) * core::f32::consts::LN_2;
    #[cfg(not(target_arch = "nvptx64"))]
    x.ln()
}

/// Hyperbolic tangent: relative error below 2⁻¹⁹. GPU: from [`exp`], and near zero, where that would cancel, the first five terms of its
/// series, which leave 2⁻²⁶.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let far = 1.0 - 2.0 * crate::ptx::math::reciprocal(1.0 + exp(2.0 * x));
        if x > -0.25 && x < 0.25 { tanh_near_zero(x) } else { far }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    x.tanh()
}

/// x − x³/3 + 2x⁵/15 − 17x⁷/315 + 62x⁹/2835.
#[cfg(any(target_arch = "nvptx64", test))]
#[inline(always)]
fn tanh_near_zero(x: f32) -> f32 {
    let s = x * x;
    let series = mul_add(s, mul_add(s, mul_add(s, 62.0 / 2835.0, -17.0 / 315.0), 2.0 / 15.0), -1.0 / 3.0);
    // Not x + x s series: that would make 0 of −0.
    x * mul_add(s, series, 1.0)
}

/// The nearest integer, ties to even; 0 for NaN. |x| is below 2²².
#[inline(always)]
pub fn round(x: f32) -> i32 {
    // Above 2²³ the numbers are the integers: the addition rounds.
    const INTEGERS: f32 = 12_582_912.0;
    // Not a conversion: the GPU makes few of them at a time.
    let integer = (x + INTEGERS).to_bits().wrapping_sub(INTEGERS.to_bits()) as i32;
    if x.is_nan() { 0 } else { integer }
}

/// The larger; NaN if one is.
#[inline(always)]
pub fn max(a: f32, b: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    return crate::ptx::math::max(a, b);
    #[cfg(not(target_arch = "nvptx64"))]
    if b > a || b.is_nan() { b } else { a }
}

/// The smaller; NaN if one is.
#[inline(always)]
pub fn min(a: f32, b: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    return crate::ptx::math::min(a, b);
    #[cfg(not(target_arch = "nvptx64"))]
    if b < a || b.is_nan() { b } else { a }
}

/// `f(0)` to `f(7)`.
#[inline(always)]
pub fn each8<V>(f: impl Fn(i32) -> V) -> [V; 8] {
    [f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7)]
}

/// `f` of eight pairs.
#[inline(always)]
pub fn zip8<A: Copy, B: Copy, V>(a: [A; 8], b: [B; 8], f: impl Fn(A, B) -> V) -> [V; 8] {
    // One literal index after another: a loop would keep the arrays in local memory.
    [f(a[0], b[0]), f(a[1], b[1]), f(a[2], b[2]), f(a[3], b[3]), f(a[4], b[4]), f(a[5], b[5]), f(a[6], b[6]), f(a[7], b[7])]
}

/// 1 / (1 + e⁻ˣ). GPU: `ex2.approx` and `rcp.approx`, relative error below 2⁻²² (1 + |x| / 4).
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    return sigmoid2(x * core::f32::consts::LOG2_E);
    #[cfg(not(target_arch = "nvptx64"))]
    return 1.0 / (1.0 + (-x).exp());
}

/// 1 / (1 + 2⁻ˣ): of x = v log₂e the [`sigmoid`] of v, for whoever has the factor in a constant already. Errors as there.
#[inline(always)]
pub fn sigmoid2(x: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    return crate::ptx::math::reciprocal(1.0 + crate::ptx::math::exp2(-x));
    #[cfg(not(target_arch = "nvptx64"))]
    return 1.0 / (1.0 + (-x).exp2());
}

/// a · b + c. GPU: one rounding (`fma.rn`; rustc never contracts by itself); host: two, since not every x86-64 has the instruction.
#[inline(always)]
pub fn mul_add(a: f32, b: f32, c: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    return core::f32::math::mul_add(a, b, c);
    #[cfg(not(target_arch = "nvptx64"))]
    return a * b + c;
}

/// 1/√x. GPU: `rsqrt.approx`, relative error below 2⁻²² (PTX ISA §9.7.3.19).
#[inline(always)]
pub fn rsqrt(x: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    return crate::ptx::math::rsqrt(x);
    #[cfg(not(target_arch = "nvptx64"))]
    return 1.0 / x.sqrt();
}

/// The nearest number with 10 bits of fraction, ties to even; infinities and NaN stay. So do tensor maps of tf32 as they copy.
#[inline(always)]
pub(crate) fn tf32(value: f32) -> f32 {
    const DROPPED: u32 = 13;
    if !value.is_finite() {
        return value;
    }
    let bits = value.to_bits();
    // A carry out of the fraction is one more of the exponent, up to infinity.
    let up = (1 << (DROPPED - 1)) - 1 + (bits >> DROPPED & 1);
    f32::from_bits(bits.wrapping_add(up) >> DROPPED << DROPPED)
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::{round, tanh_near_zero};

    /// What a GPU computes, but for the errors of its `ex2` and `rcp`.
    #[test]
    fn both_forms_of_tanh_keep_their_bound() {
        for n in 1..=40_000 {
            let x = n as f32 * 0.000_25;
            let found = if x < 0.25 { tanh_near_zero(x) } else { 1.0 - 2.0 / (1.0 + (2.0 * x).exp()) };
            let expected = f64::from(x).tanh();
            assert!((f64::from(found) / expected - 1.0).abs() < 2f64.powi(-20), "tanh {x} = {found}, expected {expected}");
        }
        assert_eq!(tanh_near_zero(-0.0).to_bits(), (-0.0f32).to_bits());
        assert_eq!(tanh_near_zero(1e-40), 1e-40);
    }

    #[test]
    fn integers_are_rounded_to_even() {
        for n in -512..=512 {
            let x = n as f32 * 0.25;
            assert_eq!(round(x), x.round_ties_even() as i32);
        }
        assert_eq!(round(f32::NAN), 0);
    }
}
