//! Why a plan refuses to run until it is recovered.

use crate::error::Error;
use crate::hang::Hang;

/// What aborted a plan.
#[derive(Clone, Debug)]
pub(crate) enum Cause {
    /// A wait passed its deadline.
    Hang(Hang),
    /// Two launches at once.
    Busy,
    /// The body of a task panicked.
    Panicked { task: Box<str>, call: u32, tile: Vec<u32>, message: Box<str> },
}

impl Cause {
    /// The error of the run that failed.
    pub(crate) fn error(&self, megakernel: &str) -> Error {
        let megakernel = megakernel.into();
        match self {
            Cause::Hang(hang) => Error::Hang(Box::new(hang.clone())),
            Cause::Busy => Error::InFlight { megakernel },
            Cause::Panicked { task, call, tile, message } => {
                Error::Panicked { megakernel, task: task.clone(), call: *call, tile: tile.clone(), message: message.clone() }
            }
        }
    }

    /// The error of every run after it.
    pub(crate) fn aborted(&self, megakernel: &str) -> Error {
        Error::Aborted { megakernel: megakernel.into(), cause: Box::new(self.error(megakernel)) }
    }
}
