//! Which call waits for which, and why. How that is found does not belong here: see `dependencies`.

use std::fmt;
use std::ops::Range;

/// Why a later call waits for an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hazard {
    /// Read after write.
    Raw,
    /// Write after read.
    War,
    /// Write after write.
    Waw,
    /// The graph says so, whatever they access: [`crate::ir::Phase`].
    Phase,
}

impl Hazard {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Hazard::Raw => "read after write",
            Hazard::War => "write after read",
            Hazard::Waw => "write after write",
            Hazard::Phase => "phase",
        }
    }
}

impl fmt::Display for Hazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One call's access to a tensor waits for an earlier call's, tile by tile; of a phase all of its tasks wait for all of the earlier call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    /// Index into the graph's tensors. Of a phase it is what the earlier call writes.
    pub tensor: u32,
    /// Earlier call.
    pub producer: u32,
    /// Which of its tensor parameters.
    pub producer_operand: u32,
    /// Later call.
    pub consumer: u32,
    /// Which of its tensor parameters.
    pub consumer_operand: u32,
    /// Why.
    pub hazard: Hazard,
    /// Counters the producer's tiles fill; shared by all relations that cut the producer's region alike.
    pub counters: Range<u32>,
    /// Waits of the consumer's tasks that come from it.
    pub waits: u32,
    /// Pairs of tasks it orders directly: the needs of those waits summed.
    pub edges: u64,
    /// In-band flags: each element is stored together with a flag, which the consumer's tasks poll. They do not wait for these counters before
    /// they begin. Such an edge acquires nothing but the elements, so no other ordering follows from it.
    pub in_band: bool,
}
