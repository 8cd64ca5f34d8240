//! Kernels, peers and rows that the bench binaries share.
pub mod cublas;
pub mod kernels;
pub mod rows;
