//! What goes wrong between ranks: MACO0093 to MACO0097, MACO0099 and MACO0100.

use crate::agree::Variant;
use crate::failure::{Failure, ranks};
use crate::stall::Stall;

/// What went wrong: `MACO0095: what`, then a help line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The environment does not say what this process is in its job.
    #[error("MACO0093: {variable} {fault}\nhelp: {help}")]
    Environment {
        /// The variable.
        variable: &'static str,
        /// What is wrong with it.
        fault: Box<str>,
        /// What to do.
        help: &'static str,
    },
    /// This rank could not get to the others.
    #[error("MACO0094: {what}: {why}\nhelp: {help}")]
    Meeting {
        /// What was tried.
        what: Box<str>,
        /// Why it failed.
        why: Box<str>,
        /// What to do.
        help: &'static str,
    },
    /// The ranks cannot go on together.
    #[error("MACO0095: {0}")]
    Failed(Box<Failure>),
    /// A rank could not do its part.
    #[error(
        "MACO0096: {} failed at `{operation}`, so no rank goes on\nhelp: mend what {} says; the other ranks only repeat it\nbecause: {text}",
        ranks(failed),
        ranks(&failed[..1])
    )]
    Refused {
        /// What the ranks were at.
        operation: Box<str>,
        /// Who failed; never empty.
        failed: Box<[u32]>,
        /// What the first of them says.
        text: Box<str>,
        /// Whether all ranks failed and said the same.
        alike: bool,
    },
    /// Ranks differ in what must be the same.
    #[error(
        "MACO0097: `{operation}` is not the same on all ranks{}\nhelp: every rank must make the same graph with the same sizes and options, in the same order",
        variants.iter().map(|variant| format!("\n  {}: {}", ranks(&variant.ranks), variant.text)).collect::<String>()
    )]
    Differs {
        /// What the ranks were at.
        operation: Box<str>,
        /// The first thing in which they differ, as each has it.
        variants: Box<[Variant]>,
    },
    /// A rank waited in vain inside a channel.
    #[error("MACO0099: {0}")]
    Stalled(Box<Stall>),
    /// Symmetric memory that is not there.
    #[error("MACO0100: {what}\nhelp: {help}")]
    Memory {
        /// What was asked for, and what there is.
        what: Box<str>,
        /// What to do.
        help: &'static str,
    },
}

impl Error {
    /// The stable code, such as 95 for `MACO0095`.
    pub fn code(&self) -> u16 {
        match self {
            Error::Environment { .. } => 93,
            Error::Meeting { .. } => 94,
            Error::Failed(_) => 95,
            Error::Refused { .. } => 96,
            Error::Differs { .. } => 97,
            Error::Stalled(_) => 99,
            Error::Memory { .. } => 100,
        }
    }

    /// Of a rank that is lost, the same with what this one waits for: it is at no operation of the hub, which would know. Other errors say it already.
    #[must_use]
    pub fn while_at(self, operation: &str) -> Error {
        match self {
            Error::Failed(failure) => match *failure {
                Failure::Lost { rank, .. } => Failure::Lost { rank, operation: Some(operation.to_owned()) }.into(),
                other => other.into(),
            },
            other => other,
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        Error::Failed(Box::new(failure))
    }
}
