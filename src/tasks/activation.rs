//! Activation functions: tasks of their own, and epilogues by `.then(..)`.

use crate::math::{mul_add, sigmoid};

/// Gaussian error linear unit, tanh form (Hendrycks and Gimpel, 2016): ½ v (1 + tanh(√(2/π) (v + 0.044715 v³))).
///
/// Computed as v · sigmoid(2 √(2/π) (v + 0.044715 v³)), which is the same function with half of the operations.
#[maco_macros::task(crate = crate, elementwise)]
pub fn gelu(v: f32) -> f32 {
    v * sigmoid(v * mul_add(v * v, 0.071_354_81, 1.595_769))
}

/// max(v, 0); NaN stays NaN.
#[maco_macros::task(crate = crate, elementwise)]
pub fn relu(v: f32) -> f32 {
    if v < 0.0 { 0.0 } else { v }
}

/// Sigmoid linear unit: v · sigmoid(v) = v / (1 + e⁻ᵛ).
#[maco_macros::task(crate = crate, elementwise)]
pub fn silu(v: f32) -> f32 {
    v * sigmoid(v)
}
