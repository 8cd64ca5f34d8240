//! Megakernels of products with few rows, whose weights are streamed.
pub mod kernels;
