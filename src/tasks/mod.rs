//! The built-in task library: each task is usable in any megakernel and on its own.
//!
//! Scheduling, devices and plans do not belong here. Adding a task touches one file.

mod activation;
mod collective;
mod elementwise;
mod norm;
mod product;
mod skinny;

pub use activation::{gelu, relu, silu};
pub use collective::all_reduce;
pub use elementwise::{add, bias, copy, mul, scale};
pub use norm::{rmsnorm, softmax, sum_rows};
pub use product::{linear, matmul};
pub use skinny::{skinny_linear, skinny_linear_add, skinny_linear_mul};
