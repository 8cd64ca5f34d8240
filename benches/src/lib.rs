//! Kernels, peers and rows that the bench binaries share.
pub mod cublas;
pub mod cublaslt;
pub mod decode;
pub mod forced;
pub mod graphs;
pub mod kernels;
pub mod layers;
pub mod matrix;
pub mod memory;
pub mod operations;
pub mod oracle;
pub mod peer;
pub mod pytorch;
pub mod rows;
pub mod tasks;
pub mod timing;
