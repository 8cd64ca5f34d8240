//! A plan before its tasks are dealt. Which norms and maps have tasks shows only when it is known what is carried to whom: so there may be several drafts.

use super::dependence::{self, Dependences};
use super::events::{self, Events};
use super::region::Regions;
use super::tiles::Choice;
use super::{Hazard, Options, PlanError, PlannedCall, carried, prologue, schedule};
use crate::ir::Graph;

/// Tasks with what they wait for, in an order, and nobody who runs them.
pub(super) struct Draft {
    pub graph: Graph,
    pub calls: Vec<PlannedCall>,
    pub found: Dependences,
    /// Calls in global order.
    pub order: Vec<u32>,
    pub events: Events,
}

/// The draft with as few tasks of prologues as there can be. `made` are the choices that `calls` follow, and their regions.
pub(super) fn draft(
    graph: Graph,
    calls: Vec<PlannedCall>,
    made: (&[Choice], Regions),
    options: &Options,
    dropped: Option<Hazard>,
) -> Result<Draft, PlanError> {
    let may = options.prologues && options.carried && options.schedule.schedulers() == 0;
    let mut prologues = if may { prologue::candidates(&graph, options.maps) } else { Vec::new() };
    // Each time there are fewer.
    while !prologues.is_empty() {
        let (mut graph, mut calls, mut choices) = (graph.clone(), calls.clone(), made.0.to_vec());
        prologue::fuse(&mut graph, &mut calls, &mut choices, &prologues);
        let regions = prologue::regions(&graph, &choices);
        let draft = Draft::new(graph, calls, &regions, options, dropped)?;
        let carried = prologue::carried(&draft.calls, &prologues, &draft.found);
        if carried.len() == prologues.len() {
            return Ok(draft);
        }
        prologues = carried;
    }
    Draft::new(graph, calls, &made.1, options, dropped)
}

impl Draft {
    fn new(
        graph: Graph,
        mut calls: Vec<PlannedCall>,
        regions: &Regions,
        options: &Options,
        dropped: Option<Hazard>,
    ) -> Result<Draft, PlanError> {
        // A scheduler counts what each of its tasks waits for, so that must be known here.
        let name_rows = options.schedule.schedulers() == 0;
        let mut found = dependence::relate(&graph, &calls, regions, dropped, name_rows)?;
        let order = schedule::number(&graph, &mut calls, &found.relations);
        let events = events::emit(&graph, &calls, &order, regions, &mut found)?;
        if options.carried {
            carried::mark(&graph, &calls, options.schedule, &mut found);
        }
        Ok(Draft { graph, calls, found, order, events })
    }
}
