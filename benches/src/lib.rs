//! Kernels, peers and rows that the bench binaries share.
pub mod cublas;
pub mod decode;
pub mod graphs;
pub mod kernels;
pub mod matrix;
pub mod oracle;
pub mod peer;
pub mod rows;
pub mod tasks;
pub mod timing;
