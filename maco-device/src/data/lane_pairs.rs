//! Stores of blocks of eight four-byte elements: two neighbouring lanes exchange halves, so that each store of the warp is 512 contiguous bytes.
//!
//! What is stored does not belong here. A lane's block is two accesses of 16 bytes. Without the exchange the accesses of one store lie 32 bytes apart, and touch
//! half of every sector.

/// Blocks that a warp writes together, one of each lane.
pub const BLOCKS: u32 = 32;
/// Elements of these blocks.
pub const ELEMENTS: u32 = 8 * BLOCKS;

/// Which of the blocks is the one of lane `lane`: of two lanes that exchange, one has a block of the first 512 bytes, the other one of the second.
pub const fn block(lane: u32) -> u32 {
    lane / 2 + lane % 2 * (BLOCKS / 2)
}

/// What lane `lane` gives the lane beside it of its block `w`.
#[cfg_attr(not(target_arch = "nvptx64"), allow(dead_code))]
#[inline(always)]
pub fn given(lane: u32, w: [u32; 8]) -> [u32; 4] {
    let odd = lane % 2 == 1;
    let one = |low: u32, high: u32| if odd { low } else { high };
    [one(w[0], w[4]), one(w[1], w[5]), one(w[2], w[6]), one(w[3], w[7])]
}

/// What lane `lane` stores at its place in the first 512 bytes, and in the second, when it has `got` the other's half.
#[cfg_attr(not(target_arch = "nvptx64"), allow(dead_code))]
#[inline(always)]
pub fn stored(lane: u32, w: [u32; 8], got: [u32; 4]) -> ([u32; 4], [u32; 4]) {
    let odd = lane % 2 == 1;
    let first = |low: u32, got: u32| if odd { got } else { low };
    let second = |high: u32, got: u32| if odd { high } else { got };
    (
        [first(w[0], got[0]), first(w[1], got[1]), first(w[2], got[2]), first(w[3], got[3])],
        [second(w[4], got[0]), second(w[5], got[1]), second(w[6], got[2]), second(w[7], got[3])],
    )
}

#[cfg(test)]
mod tests {
    use super::{BLOCKS, block, given, stored};

    /// Element n of what the warp has written is number n.
    #[test]
    fn every_element_comes_to_its_place() {
        let own = |lane: u32| -> [u32; 8] { std::array::from_fn(|n| block(lane) * 8 + n as u32) };
        let mut memory = [u32::MAX; 8 * BLOCKS as usize];
        for lane in 0..BLOCKS {
            let (first, second) = stored(lane, own(lane), given(lane ^ 1, own(lane ^ 1)));
            let at = 4 * lane as usize;
            memory[at..at + 4].copy_from_slice(&first);
            memory[at + 128..at + 132].copy_from_slice(&second);
        }
        assert!(memory.iter().copied().eq(0..8 * BLOCKS));
    }
}
