//! A plan before its tasks are assigned to workers. Prologue fusion depends on which edges have in-band flags, and these on what is fused: so several
//! candidates may be tried.

use super::dependencies::{self, Dependencies};
use super::events::{self, Events};
use super::region::Regions;
use super::tile_selection::Choice;
use super::{Hazard, Options, PlanError, PlannedCall, in_band_flags, phases, prologue_fusion, schedule};
use crate::ir::Graph;

/// Tasks in global order, with their waits and signals, without workers.
pub(super) struct CandidatePlan {
    pub graph: Graph,
    pub calls: Vec<PlannedCall>,
    pub found: Dependencies,
    /// Calls in global order.
    pub order: Vec<u32>,
    pub events: Events,
    /// What its calls touch.
    pub regions: Regions,
}

/// The candidate with most fused prologues. `selection` has the tiles of `calls`, and their regions.
pub(super) fn choose(
    graph: Graph,
    calls: Vec<PlannedCall>,
    selection: (&[Choice], Regions),
    options: &Options,
    dropped: Option<Hazard>,
) -> Result<CandidatePlan, PlanError> {
    let may = options.fuse_prologues && options.in_band_flags && options.schedule.schedulers() == 0;
    let mut prologues = if may { prologue_fusion::candidates(&graph, options.fuse_elementwise) } else { Vec::new() };
    // What a phase begins behind has tasks that end.
    prologues.retain(|&call| !phases::is_before(&graph, call));
    // Ends: each round has fewer prologues.
    while !prologues.is_empty() {
        let (mut graph, mut calls, mut choices) = (graph.clone(), calls.clone(), selection.0.to_vec());
        prologue_fusion::fuse(&mut graph, &mut calls, &mut choices, &prologues);
        let regions = prologue_fusion::regions(&graph, &choices);
        let candidate = CandidatePlan::new(graph, calls, regions, options, dropped)?;
        let in_band = prologue_fusion::in_band(&candidate.calls, &prologues, &candidate.found);
        if in_band.len() == prologues.len() {
            return Ok(candidate);
        }
        prologues = in_band;
    }
    CandidatePlan::new(graph, calls, selection.1, options, dropped)
}

impl CandidatePlan {
    fn new(
        graph: Graph,
        mut calls: Vec<PlannedCall>,
        regions: Regions,
        options: &Options,
        dropped: Option<Hazard>,
    ) -> Result<CandidatePlan, PlanError> {
        // A scheduler counts what each of its tasks waits for, so that must be known here.
        let name_rows = options.schedule.schedulers() == 0;
        let mut found = dependencies::relate(&graph, &calls, &regions, dropped, name_rows)?;
        let order = schedule::number(&graph, &mut calls, &found.relations);
        let events = events::emit(&graph, &calls, &order, &regions, &mut found)?;
        if options.in_band_flags {
            in_band_flags::mark(&graph, &calls, options.schedule, &mut found);
        }
        Ok(CandidatePlan { graph, calls, found, order, events, regions })
    }
}
