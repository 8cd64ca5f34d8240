//! Softmax and norms.
use maco::prelude::*;

#[maco::megakernel]
pub fn norms_bf16(
    x: In<bf16, M, N>,
    residual: In<bf16, M, N>,
    weight: In<bf16, N>,
    bias: In<bf16, N>,
    epsilon: f32,
    soft: Out<bf16, M, N>,
    rms: Out<bf16, M, N>,
    layer: Out<bf16, M, N>,
    sum: Out<bf16, M, N>,
    added: Out<bf16, M, N>,
) {
    softmax(x, soft);
    rmsnorm(x, weight, rms, epsilon);
    layernorm(x, weight, bias, layer, epsilon);
    add_rmsnorm(x, residual, weight, sum, added, epsilon);
}

#[maco::megakernel]
pub fn norms_f16(
    x: In<f16, M, N>,
    residual: In<f16, M, N>,
    weight: In<f16, N>,
    bias: In<f16, N>,
    epsilon: f32,
    soft: Out<f16, M, N>,
    rms: Out<f16, M, N>,
    layer: Out<f16, M, N>,
    sum: Out<f16, M, N>,
    added: Out<f16, M, N>,
) {
    softmax(x, soft);
    rmsnorm(x, weight, rms, epsilon);
    layernorm(x, weight, bias, layer, epsilon);
    add_rmsnorm(x, residual, weight, sum, added, epsilon);
}

#[maco::megakernel]
pub fn norms_f32(
    x: In<f32, M, N>,
    residual: In<f32, M, N>,
    weight: In<f32, N>,
    bias: In<f32, N>,
    epsilon: f32,
    soft: Out<f32, M, N>,
    rms: Out<f32, M, N>,
    layer: Out<f32, M, N>,
    sum: Out<f32, M, N>,
    added: Out<f32, M, N>,
) {
    softmax(x, soft);
    rmsnorm(x, weight, rms, epsilon);
    layernorm(x, weight, bias, layer, epsilon);
    add_rmsnorm(x, residual, weight, sum, added, epsilon);
}
