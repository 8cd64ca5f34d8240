//! Kernels, peers and rows that the bench binaries share.
use anyhow::Context;

pub mod branches;
pub mod candidates;
pub mod cublas;
pub mod cublaslt;
pub mod decode;
pub mod device_costs;
pub mod exchanges;
pub mod experts;
pub mod forced_shapes;
pub mod forms;
pub mod gates;
pub mod graphs;
pub mod kernels;
pub mod layers;
pub mod matrix;
pub mod memory;
pub mod mixture;
pub mod nccl;
pub mod operations;
pub mod oracle;
pub mod outside;
pub mod overlaps;
pub mod peer;
pub mod pytorch;
pub mod rank_clock;
pub mod rows;
pub mod shapes;
pub mod tasks;
pub mod timing;
pub mod tuning_file;
pub mod ways;

/// How the first collective of a plan goes, and who chose it: `one-shot, sent by #1 (model)`.
pub fn way(plan: &maco::Plan) -> String {
    let plan = plan.graph();
    let exchanged = (0..plan.calls.len() as u32).find_map(|call| plan.exchange(call));
    exchanged.unwrap_or_default()
}

/// Launches of which the last one is recorded behind the others.
const BEFORE_TRACE: usize = 20;

/// Has the plan record, and writes what it did by itself, and behind launches that nobody waited for between, to two files in `folder`, which is made if it is
/// missing: `maco-trace` reads them. `launch` queues one, of what was bound since the plan records.
pub fn write_traces(
    plan: &maco::Plan,
    stream: &maco::Stream,
    folder: &std::path::Path,
    case: &str,
    mut launch: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let case = case.replace(' ', "-");
    std::fs::create_dir_all(folder).with_context(|| format!("`{}` cannot be made", folder.display()))?;
    for (launches, file) in [(1, format!("{case}.json")), (BEFORE_TRACE, format!("{case}-behind.json"))] {
        for _ in 0..launches {
            launch()?;
        }
        stream.synchronize()?;
        plan.profile_report()?.write_chrome(folder.join(file))?;
    }
    Ok(())
}

/// Of plans that are measured beside launches of kernels: plain launches, as those are. Cooperative ones, the default, begin together or not at
/// all, and each takes a microsecond longer (docs/decisions/0024-programmatic-dependent-launch-by-default.md).
pub fn options() -> maco::PlanOptions {
    maco::PlanOptions::new().cooperative(false)
}
