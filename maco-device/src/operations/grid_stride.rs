//! Grid-stride loops over the elements of a tile.

/// Positions of a tile, by rows and by blocks (or elements) of a row, of which a thread takes every so many. Never numbered: a tile may have
/// more than 2³² of them.
#[derive(Clone, Copy)]
pub(crate) struct GridStride {
    across: u32,
    down: u32,
    right: u32,
}

impl GridStride {
    /// Over rows of `across` positions, at least one, by `threads`.
    #[inline(always)]
    pub(crate) fn new(threads: u32, across: u32) -> GridStride {
        GridStride { across, down: threads / across, right: threads % across }
    }

    /// The first position of a thread.
    #[inline(always)]
    pub(crate) fn start(self, thread: u32) -> (u32, u32) {
        (thread / self.across, thread % self.across)
    }

    /// A thread's next position.
    #[inline(always)]
    pub(crate) fn next(self, (row, at): (u32, u32)) -> (u32, u32) {
        let over = (at + self.right >= self.across) as u32;
        (row + self.down + over, at + self.right - over * self.across)
    }
}

#[cfg(test)]
mod tests {
    use super::GridStride;

    /// Every thread's positions, in order, are its numbers among all: also where those exceed 32 bits.
    #[test]
    fn a_walk_of_more_than_32_bits_goes_everywhere_once() {
        for (threads, across) in [(256, 1), (256, 7), (256, 256), (2, 3), (1, 5), (256, 300), (256, (1 << 28) - 1), (256, (1 << 31) - 1)] {
            let walk = GridStride::new(threads, across);
            for thread in [0, 1, threads - 1].into_iter().filter(|&thread| thread < threads) {
                let mut at = walk.start(thread);
                for n in 0..100_000u64 {
                    let number = u64::from(thread) + n * u64::from(threads);
                    assert_eq!(u64::from(at.0) * u64::from(across) + u64::from(at.1), number);
                    assert!(at.1 < across);
                    at = walk.next(at);
                }
            }
            // Far behind: row 20 of the longest rows is number 2³⁵.
            let far = (20, across - 1);
            let (row, at) = walk.next(far);
            let number = |(row, at): (u32, u32)| u64::from(row) * u64::from(across) + u64::from(at);
            assert_eq!(number((row, at)), number(far) + u64::from(threads));
        }
    }
}
