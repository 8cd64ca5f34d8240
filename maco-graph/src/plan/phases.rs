//! Collectives that begin behind other calls because the graph says so ([`crate::ir::Phase`]).
//!
//! Each is a relation whose one counter all tasks of the earlier call signal, and every task of the collective waits for. No GEMM sends tiles of such a collective, and what
//! it stands behind keeps tasks of its own.

use super::{Defect, Plan, PlanError, Site};
use crate::ir::Graph;

/// Refuses phases of what is no collective, and behind calls that are not before.
pub(super) fn check(graph: &Graph) -> Result<(), PlanError> {
    for phase in &graph.phases {
        for &call in &phase.comm {
            let found = graph.calls.get(call as usize);
            let site = Site { task: found.map_or("?", |call| call.task.name), call };
            if found.is_none_or(|call| call.task.collective().is_none()) {
                return Err(PlanError::Phase { site, why: "it is no collective".into() });
            }
            if let Some(late) = phase.behind.iter().find(|&&before| before >= call) {
                return Err(PlanError::Phase { site, why: format!("call #{late} does not come before it").into() });
            }
        }
    }
    Ok(())
}

/// The calls that `call` begins behind by what the graph says, in program order.
pub(super) fn behind(graph: &Graph, call: u32) -> Vec<u32> {
    let phases = graph.phases.iter().filter(|phase| phase.comm.contains(&call));
    let mut behind: Vec<u32> = phases.flat_map(|phase| phase.behind.iter().copied()).collect();
    behind.sort_unstable();
    behind.dedup();
    behind
}

/// Whether a phase begins behind `call`.
pub(super) fn is_before(graph: &Graph, call: u32) -> bool {
    graph.phases.iter().any(|phase| phase.behind.contains(&call))
}

impl Plan {
    /// Whether every task of a phase waits for a counter that all tasks of each call before it signal. That waits are for all signals, and go back in one order, is proved
    /// elsewhere.
    pub(super) fn verify_phases(&self) -> Result<(), Defect> {
        let mut signals = vec![0; self.counters as usize];
        for call in 0..self.calls.len() as u32 {
            for before in behind(&self.graph, call) {
                let defect = Defect::Phase { call, before };
                let (Some(of), own) = (self.calls.get(before as usize), &self.calls[call as usize]) else { return Err(defect) };
                if own.pushed_by.is_some() || self.calls.iter().any(|call| call.prologue == Some(before)) {
                    return Err(defect);
                }
                signals.fill(0);
                of.tasks.clone().flat_map(|task| self.signals_of(task)).for_each(|&counter| signals[counter as usize] += 1);
                let all = of.tasks.len();
                let waits = |task: u32| self.waits_of(task).iter().any(|wait| signals[wait.counter as usize] == all);
                if all > 0 && !own.tasks.clone().all(waits) {
                    return Err(defect);
                }
            }
        }
        Ok(())
    }
}
