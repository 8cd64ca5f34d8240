//! Two files of kernels: `cargo test` runs each of them on the CPU, and on a GPU where there is one.
pub mod dense;
pub mod readme;
pub mod regions;
