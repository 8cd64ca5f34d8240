//! Kernels, peers and rows that the bench binaries share.
pub mod cublas;
pub mod cublaslt;
pub mod decode;
pub mod experts;
pub mod forced;
pub mod graphs;
pub mod kernels;
pub mod layers;
pub mod matrix;
pub mod memory;
pub mod mixture;
pub mod operations;
pub mod oracle;
pub mod peer;
pub mod pytorch;
pub mod rows;
pub mod tasks;
pub mod timing;

/// Of plans that are measured beside launches of kernels: plain launches, as those are. Cooperative ones, the default, begin together or not at
/// all, and each takes a microsecond longer (docs/decisions/0024-dependent-launches.md).
pub fn options() -> maco::PlanOptions {
    maco::PlanOptions::new().cooperative(false)
}
