//! Split-K of a call: how many tasks compute each tile. Tiles are counted in task order.

/// The first `whole` tiles have one task each, the others `parts` tasks, each for a part of K.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SplitK {
    pub whole: u32,
    pub parts: u32,
}

impl SplitK {
    /// Every tile by one task.
    pub const ONE: SplitK = SplitK { whole: 0, parts: 1 };

    /// Tasks of tile `tile`.
    pub fn of(self, tile: u32) -> u32 {
        if tile < self.whole { 1 } else { self.parts }
    }

    /// The tile of the `n`-th task, and how many tasks it has.
    pub fn tile_of(self, n: u32) -> (u32, u32) {
        if n < self.whole { (n, 1) } else { (self.whole + (n - self.whole) / self.parts, self.parts) }
    }

    /// Tasks of so many tiles, at least `whole`.
    pub fn tasks(self, tiles: u64) -> u64 {
        let whole = u64::from(self.whole);
        whole.saturating_add((tiles - whole).saturating_mul(self.parts.into()))
    }

    /// Tasks per tile, if all tiles have the same number.
    pub fn even(self) -> Option<u32> {
        (self.whole == 0).then_some(self.parts)
    }
}
