//! The epilogue's staging memory: which chunk is in which buffer, and how many a consumer has staged.

use crate::shared_memory::CHUNKS;

/// The buffer of the `n`-th chunk of warpgroup `group`.
#[inline(always)]
pub fn buffer(group: u32, n: u32) -> u32 {
    group * (CHUNKS / 2) + n % (CHUNKS / 2)
}

/// The parity of the `n`-th chunk's phases.
#[inline(always)]
pub fn parity(n: u32) -> u32 {
    (n / (CHUNKS / 2)) & 1
}

/// How many chunks a consumer has staged, and how many results wait to be staged: one word, since it is in a register while bodies run.
#[derive(Clone, Copy)]
pub struct Staged(u32);

/// One result that waits.
const WAITING: u32 = 1 << 30;

impl Staged {
    /// Nothing yet, and nothing waits.
    pub const NOTHING: Staged = Staged(0);

    /// Chunks staged so far, counted modulo 2³⁰; 0 only if there was none.
    #[inline(always)]
    pub fn count(self) -> u32 {
        self.0 % WAITING
    }

    /// Results that wait: three at most.
    #[inline(always)]
    pub fn waiting(self) -> u32 {
        self.0 / WAITING
    }

    /// Whether any result waits.
    #[inline(always)]
    pub fn owes(self) -> bool {
        self.0 >= WAITING
    }

    /// Nothing waits: now two results do.
    #[inline(always)]
    pub fn keep_two(&mut self) {
        self.0 |= 2 * WAITING;
    }

    /// One that waited is staged.
    #[inline(always)]
    pub fn took_one(&mut self) {
        self.0 -= WAITING;
    }

    /// One more chunk is staged. Behind the last number comes the first one that has its buffer and parity, and is not 0.
    #[inline(always)]
    pub fn add(&mut self) {
        let next = self.count() + 1;
        let waiting = self.0 & !(WAITING - 1);
        self.0 = waiting | if next == WAITING { CHUNKS } else { next };
    }
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::{Staged, WAITING, buffer, parity};
    use crate::shared_memory::CHUNKS;

    /// Both numbers of the word are kept apart, also where the count begins anew.
    #[test]
    fn counts_and_waits() {
        let mut staged = Staged::NOTHING;
        assert!(!staged.owes() && staged.count() == 0);
        staged.keep_two();
        staged.add();
        assert_eq!((staged.waiting(), staged.count()), (2, 1));
        staged.took_one();
        staged.took_one();
        assert!(!staged.owes() && staged.count() == 1);
        let mut last = Staged(3 * WAITING - 1);
        let (at, phase) = (buffer(1, last.count() + 1), parity(last.count() + 1));
        last.add();
        assert_eq!((last.waiting(), last.count()), (2, CHUNKS));
        assert_eq!((buffer(1, last.count()), parity(last.count())), (at, phase));
    }
}
