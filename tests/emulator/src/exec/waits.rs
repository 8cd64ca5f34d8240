//! What warps wait for, and when it is there.

use super::mbarrier::State;
use super::{Barrier, Cta, Launch};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wait {
    None,
    Until(u64),
    Barrier { id: u32, generation: u32 },
    Mbarrier { at: u32, parity: bool, until: u64 },
    Cluster { generation: u32 },
}

impl Launch {
    /// Ends the cluster's barrier if all that live have arrived.
    pub(super) fn settle_cluster(&mut self, first: usize) {
        let live: u32 = self.ctas[first..first + self.config.cluster as usize].iter().map(|cta| cta.live_warps).sum();
        if let Some(cluster) = self.clusters.get_mut(&first)
            && cluster.arrived > 0
            && cluster.arrived >= live
        {
            cluster.arrived = 0;
            cluster.generation += 1;
        }
    }

    /// Whether the warp's wait is over.
    pub(super) fn ready(&mut self, at: usize) -> bool {
        let warp = &mut self.warps[at];
        let over = match warp.wait {
            Wait::None => return warp.live != 0,
            Wait::Until(until) => self.now >= until,
            Wait::Barrier { id, generation } => {
                let over = self.ctas[warp.cta].barriers[id as usize].generation != generation;
                warp.woken = over;
                over
            }
            Wait::Mbarrier { at, parity, until } => {
                let shared = &self.ctas[warp.cta].shared;
                let word = u64::from_le_bytes(shared[at as usize..at as usize + 8].try_into().unwrap());
                self.now >= until || State::unpack(word).phase != parity
            }
            Wait::Cluster { generation } => self.clusters[&self.ctas[warp.cta].first].generation != generation,
        };
        if over {
            warp.wait = Wait::None;
        }
        over
    }

    /// Moves the clock to the next event; whether there is one.
    pub(super) fn jump(&mut self) -> bool {
        let mut next = self.copies.peek().map(|copy| copy.due);
        for &at in &self.active {
            let warp = &self.warps[at];
            let until = match warp.wait {
                Wait::Until(until) | Wait::Mbarrier { until, .. } => until,
                Wait::Barrier { id, generation } if self.ctas[warp.cta].barriers[id as usize].generation != generation => self.now + 1,
                Wait::Cluster { generation } if self.clusters[&self.ctas[warp.cta].first].generation != generation => self.now + 1,
                _ => continue,
            };
            next = Some(next.map_or(until, |next| next.min(until)));
        }
        match next {
            Some(next) => {
                if self.copies.is_empty() {
                    self.patience = (self.patience * 2).min(1000);
                }
                self.now = self.now.max(next);
                true
            }
            None => false,
        }
    }
}

/// Ends barriers of all threads that only threads which have ended are missing from.
pub(super) fn release_without_count(cta: &mut Cta) {
    let live = cta.live_warps * 32;
    for barrier in &mut cta.barriers {
        if barrier.count == 0 && barrier.arrived > 0 && barrier.arrived >= live {
            release(barrier);
        }
    }
}

pub(super) fn release(barrier: &mut Barrier) {
    barrier.last = (barrier.all, barrier.any, barrier.number);
    barrier.generation = barrier.generation.wrapping_add(1);
    barrier.arrived = 0;
    barrier.count = 0;
}
