//! The ranks that run a graph together. How they exchange data does not belong here.

/// Ranks over which tensors are spread: what `#[shard(axis)]`, `.partial(Sum)` and collectives refer to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Communicator {
    ranks: u32,
}

impl Communicator {
    /// One rank: a shard is all of its tensor, a partial sum is the sum, and a collective is a copy.
    pub fn single() -> Communicator {
        Communicator { ranks: 1 }
    }

    /// How many there are.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }
}
