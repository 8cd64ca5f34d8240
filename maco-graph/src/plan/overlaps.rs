//! Collectives beside computation that needs nothing of them, where the graph says so ([`crate::ir::Overlap`]).
//!
//! A task that waits for other ranks holds its worker. So those of a collective come behind tasks of what it overlaps with, a share of them behind each wave of these, while
//! those that send stay where they are. Temps that would have such work wait for the collective do not share memory.

use maco_abi::ExchangeTask;

use super::events::Events;
use super::{PlanError, PlannedCall, Relation, Site};
use crate::ir::{Graph, Overlap};

/// What the planner knows of tasks when it orders them.
pub(super) struct Found<'a> {
    pub events: &'a Events,
    pub relations: &'a [Relation],
}

/// Refuses overlaps in which there is nothing to move.
pub(super) fn check(graph: &Graph, relations: &[Relation]) -> Result<(), PlanError> {
    for overlap in &graph.overlaps {
        for &call in &overlap.comm {
            let Some(made) = graph.calls.get(call as usize) else { continue };
            let site = Site { task: made.task.name, call };
            if made.task.collective().is_none() {
                return Err(PlanError::Overlap { site, why: "it is no collective, and waits for no other rank" });
            }
            if beside(graph, &pairs(relations), call, &overlap.compute).is_empty() {
                return Err(PlanError::Overlap { site, why: "each of these calls needs what it makes" });
            }
        }
    }
    Ok(())
}

/// Whether calls that are to compute beside a collective would have to come behind it if one call waited for another, `edge`, as well as those of `pairs`.
pub(super) fn separates(graph: &Graph, pairs: &mut Vec<(u32, u32)>, edge: (u32, u32)) -> bool {
    let count = |pairs: &[(u32, u32)]| -> Vec<usize> {
        let of =
            |overlap: &Overlap| overlap.comm.iter().map(|&call| beside(graph, pairs, call, &overlap.compute).len()).collect::<Vec<_>>();
        graph.overlaps.iter().flat_map(of).collect()
    };
    let without = count(pairs);
    pairs.push(edge);
    let with = count(pairs);
    pairs.pop();
    with != without
}

/// Earlier and later call of each relation.
pub(super) fn pairs(relations: &[Relation]) -> Vec<(u32, u32)> {
    relations.iter().map(|relation| (relation.producer, relation.consumer)).collect()
}

/// Those of `compute` that need nothing of `call`, where the later call of each of `pairs` needs the earlier one.
fn beside(graph: &Graph, pairs: &[(u32, u32)], call: u32, compute: &[u32]) -> Vec<u32> {
    let mut needs = vec![false; graph.calls.len()];
    needs[call as usize] = true;
    loop {
        let mut found = false;
        for &(earlier, later) in pairs {
            let new = needs[earlier as usize] && !needs[later as usize];
            needs[later as usize] |= new;
            found |= new;
        }
        if !found {
            break;
        }
    }
    compute.iter().copied().filter(|&call| needs.get(call as usize) == Some(&false)).collect()
}

/// How late each task is to come at least, of lists in which tasks come as `comes` says; 0 where it does not matter.
pub(super) fn least(graph: &Graph, calls: &[PlannedCall], found: &Found<'_>, workers: u32, comes: &[u32]) -> Vec<u32> {
    let mut least = vec![0; comes.len()];
    let pairs = pairs(found.relations);
    for overlap in &graph.overlaps {
        for &call in &overlap.comm {
            let compute = beside(graph, &pairs, call, &overlap.compute);
            let mut work: Vec<u32> =
                compute.iter().flat_map(|&call| calls[call as usize].tasks.clone()).map(|task| comes[task as usize]).collect();
            work.sort_unstable();
            let waiting = waiting(&calls[call as usize], found.events);
            let waves = overlap.waves.unwrap_or(work.len() as u32 / workers.max(1)).clamp(1, (work.len() as u32).max(1));
            for (n, &task) in (0u64..).zip(&waiting) {
                let wave = ((n + 1) * u64::from(waves)).div_ceil(waiting.len() as u64);
                let end = (wave * work.len() as u64 / u64::from(waves)) as usize;
                if let Some(&last) = end.checked_sub(1).and_then(|last| work.get(last)) {
                    least[task as usize] = least[task as usize].max(last + 1);
                }
            }
        }
    }
    least
}

/// The tasks of a collective that wait for other ranks, and send nothing that those wait for before. Packets are sent and received by one task, which has to come soon.
fn waiting(planned: &PlannedCall, events: &Events) -> Vec<u32> {
    let waits = |task: &u32| {
        let does = planned.exchange_task(task - planned.tasks.start, events.tasks[*task as usize].part);
        matches!(does, Some(ExchangeTask::Receive | ExchangeTask::ReceiveResult | ExchangeTask::Await))
    };
    planned.tasks.clone().filter(waits).collect()
}
