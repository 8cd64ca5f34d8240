//! How a tensor is spread over the ranks, and which tasks may change it.
//!
//! How communication is done does not belong here.

/// How the partial results of all ranks become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// The greatest.
    Max,
    /// The least.
    Min,
    /// Something of the user's.
    Other,
}

impl Reduction {
    /// The one of this name: `Sum` of `.partial(Sum)` and `cta.all_reduce(x, y, Sum)`.
    pub fn named(name: &str) -> Option<Reduction> {
        Some(match name {
            "Sum" => Reduction::Sum,
            "Mean" => Reduction::Mean,
            "Max" => Reduction::Max,
            "Min" => Reduction::Min,
            _ => return None,
        })
    }

    /// What a rank's part of it is called.
    const fn partial(self) -> &'static str {
        match self {
            Reduction::Sum => "a partial sum",
            Reduction::Mean => "a part of a mean",
            Reduction::Max => "a partial maximum",
            Reduction::Min => "a partial minimum",
            Reduction::Other => "a partial result",
        }
    }

    /// Whether it reduces parts of `other`: the mean is of sums too.
    const fn reduces(self, other: Reduction) -> bool {
        self as u8 == other as u8 || matches!((self, other), (Reduction::Mean, Reduction::Sum) | (Reduction::Other, _))
    }
}

/// Placement of a tensor across ranks. On one rank all placements hold the same data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Placement {
    /// Every rank holds the same values.
    Replicated,
    /// Every rank holds a range of this axis.
    Sharded(u8),
    /// Every rank holds a part of a result, which is reduced so.
    Partial(Reduction),
}

impl Placement {
    /// Equality, usable in const evaluation.
    pub const fn same(self, other: Placement) -> bool {
        match (self, other) {
            (Placement::Replicated, Placement::Replicated) => true,
            (Placement::Partial(a), Placement::Partial(b)) => a as u8 == b as u8,
            (Placement::Sharded(a), Placement::Sharded(b)) => a == b,
            _ => false,
        }
    }

    /// As a sentence says it.
    pub const fn words(self) -> &'static str {
        match self {
            Placement::Replicated => "replicated",
            Placement::Sharded(_) => "sharded",
            Placement::Partial(reduction) => reduction.partial(),
        }
    }
}

/// What ranks do together in a task: the operation of its body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Collective {
    /// Partial results in, replicated out.
    AllReduce(Reduction),
    /// Partial results in, sharded out.
    ReduceScatter(Reduction),
    /// Sharded in, replicated out.
    AllGather,
    /// Sharded in, sharded along another axis out.
    AllToAll,
    /// One rank's out, replicated.
    Broadcast,
    /// From one rank to another.
    Send,
    /// From each rank to the next.
    Ring,
    /// A user's own exchange: each task of a plane with the task of the plane's rank.
    Channel(Channel),
}

/// How the words of a user's exchange get to the other rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Channel {
    /// This rank stores or loads the other one's memory, and signals.
    Memory,
    /// The same, with a flag in each word.
    Packet,
    /// A proxy copies, and signals.
    Port,
    /// This rank stores the other one's result, which lies in symmetric memory, and signals.
    Symmetric,
}

impl Channel {
    /// The channel of a body of this kind.
    pub fn named(kind: &str) -> Option<Channel> {
        Some(match kind {
            "MemoryChannel" => Channel::Memory,
            "PacketChannel" => Channel::Packet,
            "PortChannel" => Channel::Port,
            "SymmetricChannel" => Channel::Symmetric,
            _ => return None,
        })
    }

    /// As a sentence says it.
    pub const fn words(self) -> &'static str {
        match self {
            Channel::Memory => "a memory channel",
            Channel::Packet => "a packet channel",
            Channel::Port => "a port channel",
            Channel::Symmetric => "a symmetric channel",
        }
    }
}

impl Collective {
    /// The operation of this name, which has its `reduction`.
    pub fn named(name: &str, reduction: Reduction) -> Option<Collective> {
        Some(match name {
            "all_reduce" => Collective::AllReduce(reduction),
            "all_reduce_add_rmsnorm" => Collective::AllReduce(Reduction::Sum),
            "reduce_scatter" => Collective::ReduceScatter(reduction),
            "all_gather" => Collective::AllGather,
            "all_to_all" => Collective::AllToAll,
            "broadcast" => Collective::Broadcast,
            "send" => Collective::Send,
            "ring" => Collective::Ring,
            _ => return None,
        })
    }

    /// Whether in each launch each rank hears of all that it sends to.
    pub const fn is_answered(self) -> bool {
        matches!(self, Collective::AllReduce(_) | Collective::ReduceScatter(_) | Collective::AllGather | Collective::AllToAll)
    }

    /// Whether NCCL can do it beside the kernel: all but reductions and exchanges of the user's own.
    pub const fn by_nccl(self) -> bool {
        !matches!(self, Collective::AllReduce(Reduction::Other) | Collective::ReduceScatter(Reduction::Other) | Collective::Channel(_))
    }

    /// Which tensor parameter has a plane for each rank, if one has: the input or the result.
    pub const fn planes(self) -> Option<Planes> {
        match self {
            Collective::ReduceScatter(_) => Some(Planes::Input),
            Collective::AllGather | Collective::Channel(_) => Some(Planes::Result),
            Collective::AllToAll => Some(Planes::Both),
            Collective::AllReduce(_) | Collective::Broadcast | Collective::Send | Collective::Ring => None,
        }
    }

    /// Whether what ranks exchange, the first tensor that it reads, may be placed like this.
    pub const fn takes(self, placement: Placement) -> bool {
        match (self, placement) {
            (Collective::AllReduce(reduction) | Collective::ReduceScatter(reduction), Placement::Partial(of)) => reduction.reduces(of),
            (Collective::AllGather | Collective::AllToAll, Placement::Sharded(_)) => true,
            (Collective::Broadcast | Collective::Send | Collective::Ring, Placement::Replicated | Placement::Sharded(_)) => true,
            (Collective::Channel(_), _) => true,
            _ => false,
        }
    }

    /// Whether what it writes may be placed like this.
    pub const fn gives(self, placement: Placement) -> bool {
        match self {
            Collective::AllReduce(_) | Collective::AllGather | Collective::Broadcast => matches!(placement, Placement::Replicated),
            Collective::ReduceScatter(_) | Collective::AllToAll => matches!(placement, Placement::Sharded(_)),
            Collective::Send | Collective::Ring => matches!(placement, Placement::Replicated | Placement::Sharded(_)),
            Collective::Channel(_) => true,
        }
    }

    /// What it reads, in words.
    pub const fn input(self) -> &'static str {
        match self {
            Collective::AllReduce(reduction) | Collective::ReduceScatter(reduction) => reduction.partial(),
            Collective::AllGather | Collective::AllToAll => "sharded",
            Collective::Broadcast | Collective::Send | Collective::Ring => "no partial result",
            Collective::Channel(_) => "anything",
        }
    }

    /// What it writes, in words.
    pub const fn output(self) -> &'static str {
        match self {
            Collective::AllReduce(_) | Collective::AllGather | Collective::Broadcast => "replicated",
            Collective::ReduceScatter(_) | Collective::AllToAll => "sharded",
            Collective::Send | Collective::Ring => "no partial result",
            Collective::Channel(_) => "anything",
        }
    }
}

/// Which parameters of a collective have a plane for each rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planes {
    /// What it reads.
    Input,
    /// What it writes.
    Result,
    /// Both.
    Both,
}
