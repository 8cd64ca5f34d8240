//! Collectives of a warp of one lane.

/// Lanes of a warp.
pub const LANES: u32 = 1;

/// This lane.
pub fn lane() -> u32 {
    0
}

pub fn lane_again() -> u32 {
    0
}

/// Consumer warps that a thread stands for.
pub const CONSUMERS: u32 = 4;

/// The first of the consumer warps that this thread stands for.
pub fn consumer() -> u32 {
    (super::special::thread() - 128) / 32
}

pub fn sync() {}

/// Lanes for which `condition` holds.
pub fn ballot(condition: bool) -> u32 {
    condition as u32
}

/// Whether `condition` holds in any lane.
pub fn any(condition: bool) -> bool {
    condition
}

/// Whether `condition` holds in all lanes.
pub fn all(condition: bool) -> bool {
    condition
}

/// The value of lane `lane`, of which there is one.
pub fn broadcast(value: u32, _: u32) -> u32 {
    value
}

/// Lanes that have the same value.
pub fn matching(_: u32) -> u32 {
    1
}
