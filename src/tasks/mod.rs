//! The built-in task library: each task is usable in any megakernel and on its own.
//!
//! Scheduling, devices and plans do not belong here. Adding a task touches one file.

mod activation;
mod collective;
mod elementwise;
mod expert_routing;
mod gemm;
mod gemv;
mod indexed;
mod layout;
mod lookup;
mod mixture_of_experts;
mod norm;
mod quantised;
mod reduce;
mod rotary;
mod select;

pub use activation::{gelu, relu, sigmoid, silu, silu_mul, tanh};
pub use collective::{
    all_gather, all_reduce, all_reduce_add_rmsnorm, all_reduce_max, all_reduce_mean, all_reduce_min, all_to_all, broadcast, reduce_scatter,
    ring, send,
};
pub use elementwise::{add, bias, copy, mul, scale};
pub use expert_routing::group_rows;
pub use gemm::{
    batched_linear, batched_matmul, batched_matmul_tn, batched_matmul_tt, gated_linear, grouped_gated_linear, grouped_linear, linear,
    matmul, matmul_tn, matmul_tt,
};
pub use gemv::skinny_linear;
pub use indexed::{index_add, index_copy, scatter};
pub use layout::{to_bf16, to_f16, to_f32, transpose};
pub use lookup::{embedding, gather, gather_sum};
pub use mixture_of_experts::experts;
pub use norm::{add_rmsnorm, layernorm, rmsnorm, softmax};
pub use quantised::{dequantise, quantise};
pub use reduce::{max_cols, max_rows, mean_cols, mean_rows, min_cols, min_rows, sum_cols, sum_groups, sum_rows};
pub use rotary::{rope, rope_interleaved};
pub use select::{argmax, softmax_top_k, top_k};
