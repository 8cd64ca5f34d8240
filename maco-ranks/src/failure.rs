//! Why the ranks of a job cannot go on together. The hub says it to all, so that it is the same on every rank.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What ended the work of the ranks together. Every later operation returns the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    /// Ranks that did not come in time.
    Late {
        /// What was waited for.
        operation: String,
        /// Who did not come.
        missing: Vec<u32>,
        /// The deadline that passed.
        deadline: Duration,
        /// Whose deadline it was.
        of: u32,
    },
    /// A connection that closed without a farewell.
    Lost {
        /// Whose.
        rank: u32,
        /// What the others were waiting for, if they were.
        operation: Option<String>,
    },
    /// A rank that has ended while another one still needs it.
    Ended {
        /// Which.
        rank: u32,
        /// What it is needed for, if that is known.
        operation: Option<String>,
    },
    /// Two ranks at different operations.
    Order {
        /// One rank and where it is.
        one: (u32, String),
        /// The other.
        other: (u32, String),
    },
    /// Two processes with the same rank.
    Twice {
        /// The rank.
        rank: u32,
    },
    /// A rank that was told of another number of ranks.
    Count {
        /// The rank.
        rank: u32,
        /// How many ranks it knows of.
        found: u32,
        /// How many rank 0 knows of.
        expected: u32,
    },
    /// A rank that sent what is no message.
    Garbled {
        /// The rank.
        rank: u32,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let while_at =
            |operation: &Option<String>| operation.as_ref().map_or(String::new(), |name| format!(", while others wait for `{name}`"));
        match self {
            Failure::Late { operation, missing, deadline, of } => write!(
                f,
                "{} did not come to `{operation}` within {}, the deadline of rank {of}\nhelp: see what {} does meanwhile; if it only takes long, raise the deadline",
                ranks(missing),
                seconds(*deadline),
                if missing.len() == 1 { "it" } else { "each of them" },
            ),
            Failure::Lost { rank, operation } => write!(
                f,
                "rank {rank} is gone{}: its connection closed without a farewell\nhelp: it was killed, crashed or called `exit`: see its own output",
                while_at(operation)
            ),
            Failure::Ended { rank, operation } => write!(
                f,
                "rank {rank} has ended{}\nhelp: every rank must make the same calls, and drop its communicator behind the last one",
                while_at(operation)
            ),
            Failure::Order { one, other } => write!(
                f,
                "rank {} is at `{}`, but rank {} at `{}`\nhelp: every rank must make the same calls in the same order",
                one.0, one.1, other.0, other.1
            ),
            Failure::Twice { rank } => write!(
                f,
                "two processes came as rank {rank}\nhelp: each process of a job needs a RANK of its own; another job may use the same MASTER_ADDR and port"
            ),
            Failure::Count { rank, found, expected } => write!(
                f,
                "rank {rank} expects {found} ranks, rank 0 expects {expected}\nhelp: give all processes of a job the same WORLD_SIZE"
            ),
            Failure::Garbled { rank } => {
                write!(
                    f,
                    "rank {rank} sent what is no message of this protocol\nhelp: build the programs of all ranks with the same version of MACO"
                )
            }
        }
    }
}

/// `rank 2`, `ranks 1, 2 and 3`.
pub fn ranks(ranks: &[u32]) -> String {
    match ranks {
        [] => "no rank".into(),
        [rank] => format!("rank {rank}"),
        [rest @ .., last] => {
            let rest: Vec<String> = rest.iter().map(u32::to_string).collect();
            format!("ranks {} and {last}", rest.join(", "))
        }
    }
}

pub(crate) fn seconds(duration: Duration) -> String {
    if duration < Duration::from_secs(1) { format!("{} ms", duration.as_millis()) } else { format!("{:.1} s", duration.as_secs_f64()) }
}
