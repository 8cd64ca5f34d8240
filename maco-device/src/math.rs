//! Elementary functions on `f32`: libm on the host, the hardware's approximations on the GPU.

/// eˣ. GPU: `ex2.approx` of x·log₂e, relative error below 2⁻²¹ for |x| < 80 (PTX ISA §9.7.3.21).
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    return crate::ptx::math::exp2(x * core::f32::consts::LOG2_E);
    #[cfg(not(target_arch = "nvptx64"))]
    x.exp()
}

/// Hyperbolic tangent, from [`exp`]: absolute error below 2⁻²⁰.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    return 1.0 - 2.0 * crate::ptx::math::reciprocal(1.0 + exp(2.0 * x));
    #[cfg(not(target_arch = "nvptx64"))]
    x.tanh()
}

/// 1 / (1 + e⁻ˣ). GPU: `ex2.approx` and `rcp.approx`, relative error below 2⁻²⁰.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    return crate::ptx::math::reciprocal(1.0 + crate::ptx::math::exp2(x * -core::f32::consts::LOG2_E));
    #[cfg(not(target_arch = "nvptx64"))]
    return 1.0 / (1.0 + (-x).exp());
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
