//! Adds the edges that shared buffers need to a plan without workers.

use super::super::candidate_plan::CandidatePlan;
use super::super::{Hazard, Options, PlanError, Relation, events, list_scheduling};
use super::order::Tasks;
use super::share::{self, Edge};
use super::{Temps, in_band};

/// Assigns memory to the temps of `candidate`, and adds the edges that shared buffers need.
///
/// # Errors
/// None that the plan without shared buffers would not have.
pub(in super::super) fn assign(candidate: &mut CandidatePlan, options: &Options) -> Result<Temps, PlanError> {
    let in_band = in_band(candidate.graph.tensors.len(), &candidate.found.relations);
    if !options.share_temps {
        return Ok(share::apart(&tasks(candidate), &in_band));
    }
    let timeline = || list_scheduling::timeline(&candidate.graph, &candidate.calls, &candidate.events, options);
    // A message to a scheduler for each edge would cost more than the wait of a worker.
    let may = options.schedule.schedulers() == 0;
    let (temps, edges) = share::assign(&tasks(candidate), &in_band, if may { Some(&timeline) } else { None });
    if edges.is_empty() {
        return Ok(temps);
    }
    let (relations, set_of, named) = (candidate.found.relations.clone(), candidate.found.set_of.clone(), candidate.found.named.clone());
    if add(candidate, &edges).is_ok() {
        return Ok(temps);
    }
    // Too many waits or signals: without edges there are as many as before.
    (candidate.found.relations, candidate.found.set_of, candidate.found.named) = (relations, set_of, named);
    write_again(candidate)?;
    Ok(share::assign(&tasks(candidate), &in_band, None).0)
}

fn tasks(candidate: &CandidatePlan) -> Tasks<'_> {
    Tasks {
        graph: &candidate.graph,
        calls: &candidate.calls,
        tasks: &candidate.events.tasks,
        waits: &candidate.events.waits,
        signals: &candidate.events.signals,
        counters: candidate.events.counters,
        relations: &candidate.found.relations,
    }
}

/// Adds relations for `edges`, behind those of the same consumer, and writes the events again.
fn add(candidate: &mut CandidatePlan, edges: &[Edge]) -> Result<(), PlanError> {
    let CandidatePlan { graph, regions, found, .. } = candidate;
    for &Edge { before, writer, whole } in edges {
        let from = regions.range(before.access.call).start + before.access.operand;
        let to = regions.range(writer.call).start + writer.operand;
        let set = if whole { found.sets.intern_all(graph, regions, from)? } else { found.sets.intern(graph, regions, from, to, false)? };
        found.relations.push(Relation {
            tensor: before.tensor,
            producer: before.access.call,
            producer_operand: before.access.operand,
            consumer: writer.call,
            consumer_operand: writer.operand,
            hazard: if before.access.way.writes() { Hazard::Waw } else { Hazard::War },
            counters: 0..0,
            waits: 0,
            edges: 0,
            in_band: false,
        });
        found.set_of.push(set);
        found.named.push(None);
    }
    write_again(candidate)
}

/// Writes waits and signals of all tasks anew.
fn write_again(candidate: &mut CandidatePlan) -> Result<(), PlanError> {
    let CandidatePlan { graph, calls, found, order, events, regions } = candidate;
    let mut sorted: Vec<usize> = (0..found.relations.len()).collect();
    sorted.sort_by_key(|&number| found.relations[number].consumer);
    found.set_of = sorted.iter().map(|&number| found.set_of[number]).collect();
    found.named = sorted.iter().map(|&number| found.named[number]).collect();
    found.relations = sorted.iter().map(|&number| found.relations[number].clone()).collect();
    for (relation, &set) in found.relations.iter_mut().zip(&found.set_of) {
        let set = found.sets.get(set);
        (relation.counters, relation.waits, relation.edges) = (set.base..set.base + set.count, 0, 0);
    }
    *events = events::emit(graph, calls, order, regions, found)?;
    Ok(())
}
