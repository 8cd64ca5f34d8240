//! The overlaps that options of calls ask for (`.overlap_group("name")`, `.overlap_next()`), and those that no call asks for, as [`Overlap`]s of the graph.
//!
//! Nothing is moved here: see `overlaps`.

use super::{PlanError, Relation, Site};
use crate::ir::{Graph, Overlap};

/// Which collectives wait beside calls that need nothing of them. Results have the same bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OverlapMode {
    /// Those of which the graph, or an option of the call, says so.
    #[default]
    AsSaid,
    /// All, each beside the calls that need nothing of it and of which it needs nothing, unless the graph or the call says otherwise.
    Always,
    /// None, whatever the graph says: for comparison.
    Never,
}

/// Adds them to `graph.overlaps`. `relations` are ordered by consumer.
pub(super) fn lower(graph: &mut Graph, relations: &[Relation], mode: OverlapMode) -> Result<(), PlanError> {
    if mode == OverlapMode::Never {
        graph.overlaps.clear();
        return Ok(());
    }
    let collectives: Vec<u32> =
        (0..graph.calls.len() as u32).filter(|&call| graph.calls[call as usize].task.collective().is_some()).collect();
    for comm in collectives {
        let call = &graph.calls[comm as usize];
        let site = Site { task: call.task.name, call: comm };
        if call.overlap_next {
            graph.overlaps.push(Overlap { compute: vec![comm + 1], comm: vec![comm], waves: None });
        }
        let call = &graph.calls[comm as usize];
        let given = graph.overlaps.iter().any(|overlap| overlap.comm.contains(&comm));
        let group = call.overlap_group.as_deref();
        if group.is_none() && (given || mode == OverlapMode::AsSaid) {
            continue;
        }
        let free = independent(graph, relations, comm);
        let member = |other: &u32| group.is_none() || graph.calls[*other as usize].overlap_group.as_deref() == group;
        let compute: Vec<u32> = free.into_iter().filter(member).collect();
        match (compute.is_empty(), group) {
            (false, _) => graph.overlaps.push(Overlap { compute, comm: vec![comm], waves: None }),
            (true, Some(_)) => {
                return Err(PlanError::Overlap { site, why: "each other call of its group needs what it makes, or makes what it needs" });
            }
            (true, None) => {}
        }
    }
    Ok(())
}

/// The calls that need nothing of `call`, and of which it needs nothing; no collectives.
fn independent(graph: &Graph, relations: &[Relation], call: u32) -> Vec<u32> {
    let mut behind = vec![false; graph.calls.len()];
    let mut before = behind.clone();
    (behind[call as usize], before[call as usize]) = (true, true);
    // A call needs earlier ones only.
    for relation in relations {
        behind[relation.consumer as usize] |= behind[relation.producer as usize];
    }
    for relation in relations.iter().rev() {
        before[relation.producer as usize] |= before[relation.consumer as usize];
    }
    let free = |other: &u32| {
        let index = *other as usize;
        !behind[index] && !before[index] && graph.calls[index].task.collective().is_none()
    };
    (0..graph.calls.len() as u32).filter(free).collect()
}
