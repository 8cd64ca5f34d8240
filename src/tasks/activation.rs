//! Activation functions: tasks of their own, and epilogues by `.then(..)`.

use crate::math::{exp, tanh};

/// Gaussian error linear unit, tanh form (Hendrycks and Gimpel, 2016): ½ v (1 + tanh(√(2/π) (v + 0.044715 v³))).
#[maco_macros::task(crate = crate, elementwise)]
pub fn gelu(v: f32) -> f32 {
    0.5 * v * (1.0 + tanh(0.797_884_6 * (v + 0.044715 * v * v * v)))
}

/// max(v, 0); NaN stays NaN.
#[maco_macros::task(crate = crate, elementwise)]
pub fn relu(v: f32) -> f32 {
    if v < 0.0 { 0.0 } else { v }
}

/// Sigmoid linear unit: v / (1 + e⁻ᵛ).
#[maco_macros::task(crate = crate, elementwise)]
pub fn silu(v: f32) -> f32 {
    v / (1.0 + exp(-v))
}
