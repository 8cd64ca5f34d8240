//! Activation functions: tasks of their own, and epilogues by `.then(..)`.
//!
//! In flight: as the tasks of `elementwise.rs`.
//!
//! Errors are those of `f32` arithmetic on a GPU, before the rounding to the element. A sigmoid smaller than 2⁻¹²⁶ may be zero, since e⁻ᵛ is infinite
//! there as in PyTorch, and so is what it is multiplied with. NaN stays NaN, and infinities give what the formula gives, as in PyTorch.

use crate::math::{mul_add, sigmoid as logistic, sigmoid2};
use crate::prelude::*;

/// Gaussian error linear unit, tanh form (Hendrycks and Gimpel, 2016): ½ v (1 + tanh(√(2/π) (v + 0.044715 v³))).
///
/// Computed as v · sigmoid(2 √(2/π) (v + 0.044715 v³)), which is the same function with half of the operations, by powers of two.
/// Error: relative 2⁻²⁰ (1 + |v|³ / 16), and 2⁻¹²⁶ |v|. NaN stays NaN; −∞ gives NaN, as in PyTorch.
#[maco_macros::task(crate = crate, elementwise)]
pub fn gelu(v: f32) -> f32 {
    // 2 √(2/π) log₂e, and that times 0.044715.
    v * sigmoid2(v * mul_add(v * v, 0.102_943_24, 2.302_208_2))
}

/// max(v, 0). Exact; NaN stays NaN, and −0.
#[maco_macros::task(crate = crate, elementwise)]
pub fn relu(v: f32) -> f32 {
    if v < 0.0 { 0.0 } else { v }
}

/// Sigmoid linear unit: v · sigmoid(v) = v / (1 + e⁻ᵛ). Error: relative 2⁻²¹ (1 + |v| / 4), and 2⁻¹²⁶ |v|. NaN stays NaN; −∞ gives NaN.
#[maco_macros::task(crate = crate, elementwise)]
pub fn silu(v: f32) -> f32 {
    v * logistic(v)
}

/// 1 / (1 + e⁻ᵛ). Error: relative 2⁻²¹ (1 + |v| / 4), and 2⁻¹²⁶. NaN stays NaN; infinities give 0 and 1.
#[maco_macros::task(crate = crate, elementwise)]
pub fn sigmoid(v: f32) -> f32 {
    logistic(v)
}

/// Hyperbolic tangent. Relative error: 2⁻¹⁹. NaN stays NaN; infinities give −1 and 1.
#[maco_macros::task(crate = crate, elementwise)]
pub fn tanh(v: f32) -> f32 {
    math::tanh(v)
}

/// y = silu(gate) · up (Shazeer, 2020). Of one projection \[M, 2 H\] the two are `h.slice(1, 0..H)` and `h.slice(1, H..2 * H)`.
///
/// Error: rounding to E, relative 2⁻²¹ (1 + |gate| / 4), and 2⁻¹²⁶ |gate · up|. NaN and infinities as in [`silu`] and the product.
#[maco_macros::task(crate = crate, tile(i = 4 | 16 | 64, j = 1024), E in [bf16, f16, f32])]
pub fn silu_mul(cta: &mut Cta, #[read(i, j)] gate: Tensor<E, M, N>, #[read(i, j)] up: Tensor<E, M, N>, #[write(i, j)] y: Tensor<E, M, N>) {
    cta.zip((gate, up), y, |(gate, up)| gate * logistic(gate) * up)
}

/// `.then(silu_mul(up))`: silu(v) · up, where the sum is the gate.
impl Combine for silu_mul {
    #[inline(always)]
    fn combine(gate: f32, up: f32) -> f32 {
        gate * logistic(gate) * up
    }
}
