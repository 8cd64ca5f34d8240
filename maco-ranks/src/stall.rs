//! A wait inside a channel that ended without what was waited for. How it ended so does not belong here.

use std::fmt;
use std::time::Duration;

use crate::failure::seconds;

/// Who waited for what, and why in vain. It stops the channels of all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Who waited.
    pub rank: u32,
    /// At what: `wait`, `receive packets`, …
    pub operation: &'static str,
    /// Who should have done something.
    pub peer: u32,
    /// Where the word is that was polled: bytes from the beginning of the waiting rank's symmetric memory, if it is there.
    pub word: Option<u64>,
    /// The number that the word should have reached.
    pub expected: u32,
    /// The number that it had.
    pub seen: u32,
    /// How long the wait lasted.
    pub waited: Duration,
    /// Why it ended.
    pub cause: Cause,
}

/// Why a wait ended in vain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its deadline passed.
    Deadline,
    /// This rank is gone: it was killed, or crashed.
    Lost(u32),
    /// Nobody could have done it: it is outside of the symmetric memory.
    Outside,
    /// The peer makes another call: in what they differ.
    OtherCall(Box<str>),
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stall { rank, operation, peer, word, expected, seen, waited, cause } = self;
        if *cause == Cause::Outside {
            return write!(
                f,
                "the proxy of rank {rank} was handed a copy to rank {peer} that is not inside the symmetric memory\nhelp: see the offsets and sizes of what `put` is called with"
            );
        }
        if let Cause::OtherCall(difference) = cause {
            return write!(
                f,
                "rank {rank} is at `{operation}`, and rank {peer} at another call: {difference}\nhelp: all ranks make the same calls in the same order, with the same sizes, elements and operations"
            );
        }
        let place = word.map_or(String::new(), |word| format!(", in the word at byte {word} of its symmetric memory"));
        let whom = if rank == peer { "its proxy".to_owned() } else { format!("rank {peer}") };
        write!(
            f,
            "rank {rank} waited {} at `{operation}` for {whom}: expected number {expected}{place}, found {seen}; ",
            seconds(*waited)
        )?;
        match cause {
            Cause::Lost(lost) => {
                write!(f, "rank {lost} is gone\nhelp: it was killed, crashed or called `exit`: see its own output")
            }
            _ => write!(
                f,
                "the deadline passed\nhelp: see what {whom} does meanwhile: it may not have made the call that this one waits for; if it only takes long, raise the deadline"
            ),
        }
    }
}
