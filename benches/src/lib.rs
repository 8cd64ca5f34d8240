//! Kernels, peers and rows that the bench binaries share.
use anyhow::Context;

pub mod candidates;
pub mod cublas;
pub mod cublaslt;
pub mod decode;
pub mod experts;
pub mod forced;
pub mod forms;
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
pub mod shapes;
pub mod tasks;
pub mod timing;

/// Writes what the plan's last launch recorded to a file in `folder`, which is made if it is missing: `maco-trace` reads it.
pub fn write_trace(plan: &maco::Plan, folder: &std::path::Path, case: &str) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("`{}` cannot be made", folder.display()))?;
    Ok(plan.profile_report()?.write_chrome(folder.join(format!("{case}.json")))?)
}

/// Of plans that are measured beside launches of kernels: plain launches, as those are. Cooperative ones, the default, begin together or not at
/// all, and each takes a microsecond longer (docs/decisions/0024-dependent-launches.md).
pub fn options() -> maco::PlanOptions {
    maco::PlanOptions::new().cooperative(false)
}
