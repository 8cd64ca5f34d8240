//! The ranks of a launch as one of them sees them: where the memory of each lies. What is exchanged does not belong here.

use super::{FifoProducer, Peer};

/// The ranks of a launch, and which launch it is.
#[derive(Clone, Copy)]
pub struct RankView {
    /// This one.
    pub rank: u32,
    /// How many there are; 1: there is nothing of what follows.
    pub ranks: u32,
    /// The launch's number, of which 16 bits count.
    pub launch: u32,
    /// Where this rank has the symmetric memory of each.
    bases: *const u64,
    /// See [`maco_abi::Ranks::missing`].
    missing: *mut u32,
    /// See [`maco_abi::Ranks::fifo`].
    fifo: *const maco_abi::Fifo,
}

impl RankView {
    /// Of a plan with one rank.
    pub const SINGLE: RankView =
        RankView { rank: 0, ranks: 1, launch: 0, bases: core::ptr::null(), missing: core::ptr::null_mut(), fifo: core::ptr::null() };

    /// What `ranks` says, in launch `launch`.
    ///
    /// # Safety
    /// Its tables are there, and the memory of all ranks is mapped, as long as the view is used. Ranks use that memory by accesses of `.sys` scope, or by atomics of the
    /// CPU.
    #[inline(always)]
    pub const unsafe fn new(ranks: maco_abi::Ranks, launch: u32) -> RankView {
        let maco_abi::Ranks { rank, ranks, bases, missing, fifo } = ranks;
        RankView { rank, ranks, launch, bases: bases as *const u64, missing: missing as *mut u32, fifo: fifo as *const maco_abi::Fifo }
    }

    /// The rank so many behind this one, fewer than there are, around the ring of ranks.
    #[inline(always)]
    pub const fn behind(self, n: u32) -> u32 {
        if self.rank + n < self.ranks { self.rank + n } else { self.rank + n - self.ranks }
    }

    /// The symmetric memory of a peer, or of this rank.
    ///
    /// # Safety
    /// There is a rank of this number.
    #[inline(always)]
    pub(super) unsafe fn peer<T>(self, rank: u32) -> Peer<T> {
        // SAFETY: one for each rank; `new` promises that they are mapped.
        unsafe { Peer::new(self.bases.add(rank as usize).read() as *mut T) }
    }

    /// The place so many bytes into this rank's own symmetric memory.
    #[inline(always)]
    pub(super) fn own(self, offset: u64) -> *mut u8 {
        // SAFETY: as above; this rank is one of them.
        unsafe { (self.bases.add(self.rank as usize).read() + offset) as *mut u8 }
    }

    /// Where this rank's tasks push what its proxy is to do.
    ///
    /// # Safety
    /// The plan has a proxy.
    #[inline(always)]
    pub(super) unsafe fn fifo(self) -> FifoProducer {
        // SAFETY: (of both) `new` promises the tables, and a plan that has a proxy that its FIFO stays mapped; nobody else uses it.
        unsafe {
            let maco_abi::Fifo { ring, head, progress, size, rank } = self.fifo.read();
            FifoProducer::new(Peer::new(ring as *mut u64), head as *mut u32, progress as *const u32, size, rank)
        }
    }

    /// Where it is noted who has not sent tile `tile` of all.
    #[inline(always)]
    pub(super) fn missing(self, tile: u32) -> *mut u32 {
        self.missing.wrapping_add(tile as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_form_a_ring() {
        for ranks in 1..9 {
            for rank in 0..ranks {
                let view = RankView { rank, ranks, ..RankView::SINGLE };
                for n in 0..ranks {
                    assert_eq!(view.behind(n), (rank + n) % ranks);
                }
            }
        }
    }
}
