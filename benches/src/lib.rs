//! Kernels, peers and rows that the bench binaries share.
pub mod cublas;
pub mod dispatch;
pub mod kernels;
pub mod rows;
