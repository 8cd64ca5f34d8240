//! What is planned to measure a device: GEMMs, copies and chains in tiles and lists that are forced.

use maco::{CallShape, CompiledGraph, Device, Plan, TaskGraph, bf16};

use super::{CHAIN, STEP};
use crate::tasks::ops;
use crate::{graphs, kernels};

/// Tiles of a GEMM, the one that the tensor cores wait for last.
pub const TILES: [[u64; 2]; 4] = [[64, 128], [128, 128], [64, 256], [128, 256]];
/// Rows of the GEMMs: few, so that each round of tasks has weights of its own.
const GEMM_ROWS: u64 = 256;
/// Columns of a tile of a task that only moves bytes, and rows of its smallest, middle and largest one.
pub const COLUMNS: u64 = 1024;
/// See [`COLUMNS`].
pub const ROWS: [u64; 3] = [4, 16, 64];

/// Rows, columns and depth of a GEMM that has one tile for each worker.
pub fn gemm_extents(workers: u64, tile: [u64; 2], steps: u64) -> [u64; 3] {
    [GEMM_ROWS, workers * tile[0] * tile[1] / GEMM_ROWS, steps * STEP]
}

/// Plans of one GEMM and of [`kernels::CALLS`], and how many rounds of tasks each has.
pub fn gemms(device: &Device, [m, n, k]: [u64; 3], tile: [u64; 2], parts: u32) -> anyhow::Result<[(Plan, f64); 2]> {
    let tile = tile.map(|size| size as u32).to_vec();
    let shape = |call: usize| CallShape { call: call as u32, tile: Some(tile.clone()), split: Some(parts), whole: 0 };
    let options = |calls: usize| crate::options().shapes((0..calls).map(shape).collect());
    let one = kernels::gemm::plan_with(device, kernels::gemm::Dims { M: m, N: n, K: k }, &options(1))?;
    let many = kernels::gemms::plan_with(device, kernels::gemms::Dims { M: m, N: n, K: k }, &options(kernels::CALLS))?;
    let rounds = |plan: &Plan| (plan.clone(), (plan.tasks() as u64).div_ceil(device.workers().into()) as f64);
    Ok([rounds(&one), rounds(&many)])
}

/// A plan of the graph's only call in tiles of so many of all `all` rows, every worker its list.
pub fn listed(device: &Device, mut graph: TaskGraph, rows: u64, all: u64) -> anyhow::Result<CompiledGraph> {
    graph.tile(&[rows as u32, COLUMNS as u32]);
    let tasks = all.div_ceil(rows) as u32;
    // With an assignment no task is claimed.
    let placement = (0..tasks).map(|task| task % device.workers()).collect();
    Ok(graphs::plan(graph, device, &crate::options().placement(placement))?)
}

/// A chain of calls on a tensor in place, a tile of which has [`ROWS`]`[0]` rows.
pub fn chain(device: &Device, rows: u64) -> anyhow::Result<Plan> {
    let tile = [ROWS[0], COLUMNS].map(|size| size as u32).to_vec();
    let shapes = (0..CHAIN as u32).map(|call| CallShape { call, tile: Some(tile.clone()), split: None, whole: 0 }).collect();
    let dims = kernels::updates::Dims { M: rows, N: COLUMNS };
    Ok((*kernels::updates::plan_with(device, dims, &crate::options().shapes(shapes))?).clone())
}

/// y = a + b.
pub fn added(rows: u64) -> TaskGraph {
    let mut graph = TaskGraph::new("add", ops());
    let (a, b) = (graph.input::<bf16>("a", [rows, COLUMNS]), graph.input::<bf16>("b", [rows, COLUMNS]));
    let y = graph.temp::<bf16>("y", [rows, COLUMNS]);
    graph.custom(&maco::tasks::add::SPEC, [a.into(), b.into(), y.into()]);
    graph.output(y, "y");
    graph
}

#[cfg(test)]
mod tests {
    use maco_graph::plan::Entry;

    use super::super::STEPS;
    use super::*;

    const WORKERS: u32 = 4;

    /// The fit takes it for granted.
    #[test]
    fn every_gemm_is_whole_rounds_of_the_tile_that_is_asked_for() {
        let device = Device::cpu_with(WORKERS);
        let workers = u64::from(WORKERS);
        let mut cases = vec![([8, 16 * workers, 4096], [8, 8], 1, 2.0), ([16, 48 * workers, 4096], [16, 16], 1, 3.0)];
        for tile in TILES {
            cases.extend(STEPS.map(|steps| (gemm_extents(workers, tile, steps), tile, 1, 1.0)));
            cases.push((gemm_extents(workers, tile, STEPS[1]), tile, 2, 2.0));
        }
        for (extents, tile, parts, rounds) in cases {
            let plans = gemms(&device, extents, tile, parts).unwrap();
            for ((plan, found), calls) in plans.into_iter().zip([1.0, kernels::CALLS as f64]) {
                let call = &plan.graph().calls[0];
                assert_eq!((found, plan.tasks() as f64), (rounds * calls, found * f64::from(WORKERS)), "{tile:?}");
                assert_eq!((&call.tile[..], call.parts), (&tile.map(|size| size as u32)[..], parts), "{tile:?}");
            }
        }
    }

    #[test]
    fn copies_and_additions_are_listed_and_not_claimed() {
        let device = Device::cpu_with(WORKERS);
        for (graph, rows, all) in [(graphs::copy(4096, COLUMNS), ROWS[1], 4096), (added(320), ROWS[0], 320)] {
            let compiled = listed(&device, graph, rows, all).unwrap();
            let plan = compiled.graph();
            assert_eq!(plan.tasks.len() as u64, all / rows);
            let claims = |worker| plan.lists.entries(worker).any(|entry| matches!(entry, Entry::Drain(_)));
            assert!(!(0..WORKERS as usize).any(claims));
        }
    }

    /// Each task of the chain is for the worker of the one that it waits for.
    #[test]
    fn the_chain_has_a_tile_for_each_worker() {
        let device = Device::cpu_with(WORKERS);
        let plan = chain(&device, ROWS[0] * u64::from(WORKERS)).unwrap();
        assert_eq!(plan.tasks(), CHAIN as usize * WORKERS as usize);
        assert_eq!(f64::from(plan.waves()), CHAIN);
        for worker in 0..WORKERS {
            assert!(plan.graph().lists.of(worker as usize).iter().all(|task| task % WORKERS == worker));
        }
    }
}
