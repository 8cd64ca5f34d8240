//! How a tensor is spread over the ranks, and which tasks may change it.
//!
//! How communication is done does not belong here.

/// Placement of a tensor across ranks. On one rank all placements hold the same data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Placement {
    /// Every rank holds the same values.
    Replicated,
    /// Every rank holds a range of this axis.
    Sharded(u8),
    /// Every rank holds a summand.
    Partial,
}

impl Placement {
    /// Equality, usable in const evaluation.
    pub const fn same(self, other: Placement) -> bool {
        match (self, other) {
            (Placement::Replicated, Placement::Replicated) | (Placement::Partial, Placement::Partial) => true,
            (Placement::Sharded(a), Placement::Sharded(b)) => a == b,
            _ => false,
        }
    }

    /// As a sentence says it.
    pub const fn words(self) -> &'static str {
        match self {
            Placement::Replicated => "replicated",
            Placement::Sharded(_) => "sharded",
            Placement::Partial => "a partial sum",
        }
    }
}

/// The tasks that change a placement, known by name: they are the library's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Collective {
    /// Partial sums in, replicated out.
    AllReduce,
    /// Partial sums in, sharded out.
    ReduceScatter,
    /// Sharded in, replicated out.
    AllGather,
    /// Sharded in, sharded along another axis out.
    AllToAll,
}

impl Collective {
    /// The collective a task's name stands for.
    pub const fn named(name: &str) -> Option<Collective> {
        match name.as_bytes() {
            b"all_reduce" => Some(Collective::AllReduce),
            b"reduce_scatter" => Some(Collective::ReduceScatter),
            b"all_gather" => Some(Collective::AllGather),
            b"all_to_all" => Some(Collective::AllToAll),
            _ => None,
        }
    }

    /// Whether what it reads may be placed like this.
    pub const fn takes(self, placement: Placement) -> bool {
        match self {
            Collective::AllReduce | Collective::ReduceScatter => matches!(placement, Placement::Partial),
            Collective::AllGather | Collective::AllToAll => matches!(placement, Placement::Sharded(_)),
        }
    }

    /// Whether what it writes may be placed like this.
    pub const fn gives(self, placement: Placement) -> bool {
        match self {
            Collective::AllReduce | Collective::AllGather => matches!(placement, Placement::Replicated),
            Collective::ReduceScatter | Collective::AllToAll => matches!(placement, Placement::Sharded(_)),
        }
    }

    /// What it reads, in words.
    pub const fn input(self) -> &'static str {
        match self {
            Collective::AllReduce | Collective::ReduceScatter => "a partial sum",
            Collective::AllGather | Collective::AllToAll => "sharded",
        }
    }

    /// What it writes, in words.
    pub const fn output(self) -> &'static str {
        match self {
            Collective::AllReduce | Collective::AllGather => "replicated",
            Collective::ReduceScatter | Collective::AllToAll => "sharded",
        }
    }
}
