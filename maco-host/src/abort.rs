//! Why a plan refuses to run until it is recovered.

use std::time::Duration;

use maco_abi::{BlackBox, REPORT_ABSENT, REPORT_BUSY};
use maco_graph::plan::Plan;

use crate::error::Error;
use crate::hang::{Hang, RankWait};

/// What aborted a plan.
#[derive(Clone, Debug)]
pub(crate) enum Cause {
    /// A wait passed its deadline.
    Hang(Hang),
    /// Another rank is lost.
    Ranks(Box<maco_ranks::Error>),
    /// Two launches at once.
    Busy,
    /// CTAs of a launch that did not begin.
    Absent { begun: u32, ctas: u32, waited: Duration },
    /// The body of a task panicked.
    Panicked { task: Box<str>, call: u32, tile: Vec<u32>, message: Box<str> },
    /// The body of a task read outside its region.
    OutsideRegion { task: Box<str>, call: u32, tile: Vec<u32>, parameter: Box<str>, position: (i32, i32), region: [u32; 2] },
}

impl Cause {
    /// What a black box says that is not empty.
    pub(crate) fn of(report: &BlackBox, plan: &Plan, gpu: bool) -> Cause {
        match report.report {
            REPORT_BUSY => Cause::Busy,
            REPORT_ABSENT => Cause::Absent { begun: report.seen, ctas: report.expected, waited: Duration::from_nanos(report.elapsed_ns) },
            _ => Cause::Hang(Hang::new(plan, report, gpu)),
        }
    }

    /// Of a task that waited for another rank, or for one that did.
    pub(crate) fn waiting_for(mut self, peer: Option<RankWait>) -> Cause {
        if let Cause::Hang(hang) = &mut self {
            hang.peer = peer;
        }
        self
    }

    /// The error of the run that failed.
    pub(crate) fn error(&self, megakernel: &str) -> Error {
        let megakernel = megakernel.into();
        match self {
            Cause::Hang(hang) => Error::Hang(Box::new(hang.clone())),
            Cause::Ranks(error) => Error::Ranks(error.clone()),
            Cause::Busy => Error::InFlight { megakernel },
            &Cause::Absent { begun, ctas, waited } => Error::NotBegun { megakernel, begun, ctas, waited },
            Cause::Panicked { task, call, tile, message } => {
                Error::Panicked { megakernel, task: task.clone(), call: *call, tile: tile.clone(), message: message.clone() }
            }
            Cause::OutsideRegion { task, call, tile, parameter, position, region } => Error::OutsideRegion {
                megakernel,
                task: task.clone(),
                call: *call,
                tile: tile.clone(),
                parameter: parameter.clone(),
                position: *position,
                region: *region,
            },
        }
    }

    /// The error of every run after it.
    pub(crate) fn aborted(&self, megakernel: &str) -> Error {
        Error::Aborted { megakernel: megakernel.into(), cause: Box::new(self.error(megakernel)) }
    }
}
