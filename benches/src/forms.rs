//! One GEMM per transposed form and two-byte element type, for `tune_tiles`. That of `linear` and `bf16` is `kernels::gemm`.
use maco::prelude::*;

#[maco::megakernel]
pub fn linear_f16(a: In<f16, M, K>, b: In<f16, N, K>, y: Out<f16, M, N>) {
    linear(a, b, y);
}

#[maco::megakernel]
pub fn matmul_bf16(a: In<bf16, M, K>, b: In<bf16, K, N>, y: Out<bf16, M, N>) {
    matmul(a, b, y);
}

#[maco::megakernel]
pub fn matmul_f16(a: In<f16, M, K>, b: In<f16, K, N>, y: Out<f16, M, N>) {
    matmul(a, b, y);
}

#[maco::megakernel]
pub fn matmul_tn_bf16(a: In<bf16, K, M>, b: In<bf16, K, N>, y: Out<bf16, M, N>) {
    matmul_tn(a, b, y);
}

#[maco::megakernel]
pub fn matmul_tn_f16(a: In<f16, K, M>, b: In<f16, K, N>, y: Out<f16, M, N>) {
    matmul_tn(a, b, y);
}

#[maco::megakernel]
pub fn matmul_tt_bf16(a: In<bf16, K, M>, b: In<bf16, N, K>, y: Out<bf16, M, N>) {
    matmul_tt(a, b, y);
}

#[maco::megakernel]
pub fn matmul_tt_f16(a: In<f16, K, M>, b: In<f16, N, K>, y: Out<f16, M, N>) {
    matmul_tt(a, b, y);
}
