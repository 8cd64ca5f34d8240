//! Activations, alone and as epilogues of nothing.
use maco::prelude::*;

#[maco::megakernel]
pub fn elements_bf16(
    both: In<bf16, M, { 2 * N }>,
    product: Out<bf16, M, N>,
    one: Out<bf16, M, N>,
    two: Out<bf16, M, N>,
    three: Out<bf16, M, N>,
    four: Out<bf16, M, N>,
    five: Out<bf16, M, N>,
) {
    silu_mul(both.slice(1, 0..N), both.slice(1, N..2 * N), product);
    relu(both.slice(1, 0..N), one);
    tanh(both.slice(1, 0..N), two);
    sigmoid(both.slice(1, 0..N), three);
    silu(both.slice(1, 0..N), four);
    gelu(both.slice(1, 0..N), five);
}

#[maco::megakernel]
pub fn elements_f32(
    both: In<f32, M, { 2 * N }>,
    product: Out<f32, M, N>,
    one: Out<f32, M, N>,
    two: Out<f32, M, N>,
    three: Out<f32, M, N>,
    four: Out<f32, M, N>,
    five: Out<f32, M, N>,
) {
    silu_mul(both.slice(1, 0..N), both.slice(1, N..2 * N), product);
    relu(both.slice(1, 0..N), one);
    tanh(both.slice(1, 0..N), two);
    sigmoid(both.slice(1, 0..N), three);
    silu(both.slice(1, 0..N), four);
    gelu(both.slice(1, 0..N), five);
}
