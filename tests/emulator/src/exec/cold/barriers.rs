//! Barriers of CTAs and clusters, and mbarriers.

use super::*;
use crate::exec::Barrier;
use crate::exec::mbarrier::State;
use crate::exec::waits::release;

impl Launch {
    pub(super) unsafe fn barrier(&mut self, warp: &mut Warp, bases: Bases, i: &Inst, mask: u32) -> Result<Then, Fault> {
        // SAFETY: slots of the program.
        unsafe {
            let id = get(bases, i.a, 4, low(mask)) as usize;
            let count = if i.b == NONE { 0 } else { get(bases, i.b, 4, low(mask)) as u32 };
            if id > 15 {
                return Err(format!("barrier {id}").into());
            }
            if count % 32 != 0 {
                return Err(format!("barrier {id} for {count} threads").into());
            }
            let result = |barrier: &Barrier| {
                if i.n >= 2 {
                    let (all, any, number) = barrier.last;
                    if i.n == 2 {
                        each_lane!(mask, lane, { set(bases, i.d, 4, lane, number.into()) });
                    } else {
                        write_bits(bases, i.d, if i.n == 3 && all || i.n == 4 && any { mask } else { 0 }, mask);
                    }
                }
            };
            if warp.woken {
                self.note_met(warp, id);
            }
            let cta = &mut self.ctas[warp.cta];
            let live = cta.live_warps * 32;
            let barrier = &mut cta.barriers[id];
            if warp.woken {
                warp.woken = false;
                result(barrier);
                return Ok(Then::On);
            }
            if barrier.arrived == 0 {
                (barrier.count, barrier.all, barrier.any, barrier.number) = (count, true, false, 0);
            } else if barrier.count != count {
                return Err(format!("barrier {id} is used for {} and for {count} threads at once", barrier.count).into());
            }
            barrier.arrived += 32;
            if i.n >= 2 {
                let p = *bases.at::<u32>(i.c) & mask;
                barrier.all &= p == mask;
                barrier.any |= p != 0;
                barrier.number += p.count_ones();
            }
            let needed = if count == 0 { live } else { count };
            if barrier.arrived > needed {
                return Err(format!("barrier {id} has {} threads of {needed}", barrier.arrived).into());
            }
            self.patience = 1;
            let (last, generation) = (barrier.arrived == needed, barrier.generation);
            if last {
                release(barrier);
                result(barrier);
            }
            self.note_coming(warp, id, last);
            if last && i.n != 1 {
                self.note_met(warp, id);
            }
            if last || i.n == 1 {
                return Ok(Then::On);
            }
            Ok(Then::Sleep(Wait::Barrier { id: id as u32, generation }))
        }
    }

    pub(super) fn arrive_at_cluster(&mut self, warp: &mut Warp) -> Result<(), Fault> {
        let first = self.ctas[warp.cta].first;
        if warp.cluster_arrived.is_some() {
            return Err("barrier.cluster.arrive twice without wait".to_string().into());
        }
        let Some(cluster) = self.clusters.get_mut(&first) else { return Err("no cluster".to_string().into()) };
        warp.cluster_arrived = Some(cluster.generation);
        cluster.arrived += 1;
        self.settle_cluster(first);
        self.note_cluster(warp, true);
        Ok(())
    }

    pub(super) fn wait_for_cluster(&mut self, warp: &mut Warp) -> Result<Then, Fault> {
        let Some(generation) = warp.cluster_arrived else {
            return Err("barrier.cluster.wait before arrive".to_string().into());
        };
        if self.clusters[&self.ctas[warp.cta].first].generation == generation {
            return Ok(Then::Sleep(Wait::Cluster { generation }));
        }
        warp.cluster_arrived = None;
        self.note_cluster(warp, false);
        Ok(Then::On)
    }

    pub(super) unsafe fn mbarrier(&mut self, warp: &mut Warp, bases: Bases, i: &Inst, mask: u32) -> Result<(), Fault> {
        self.patience = 1;
        each_lane!(mask, lane, {
            // SAFETY: slots of the program.
            unsafe {
                let address = self.shared_address(bases, i, lane)?;
                let (cta, place) = self.shared_place(address, warp.cta);
                let operand = if i.b == NONE { None } else { Some(get(bases, i.b, 4, lane) as u32) };
                if i.op == Op::MbarInit {
                    let (cta, place) = self.shared_range(warp.cta, address, 8, 8, "mbarrier.init")?;
                    let count = operand.unwrap_or(0);
                    if count == 0 || count >= 1 << 20 {
                        return Err(format!("mbarrier.init with {count} arrivals").into());
                    }
                    let cta = &mut self.ctas[cta];
                    cta.mbarriers[place as usize / 512] |= 1 << (place / 8 % 64);
                    let word = State::new(count).pack();
                    cta.shared[place as usize..place as usize + 8].copy_from_slice(&word.to_le_bytes());
                    continue;
                }
                if matches!(i.op, Op::MbarArrive | Op::MbarComplete) {
                    self.note_arrival(warp, cta, place);
                }
                let phase = self.with_mbarrier(cta, place, |state| {
                    let phase = state.phase;
                    match i.op {
                        Op::MbarExpect => state.expect(operand.unwrap_or(0))?,
                        Op::MbarComplete => state.complete(operand.unwrap_or(0))?,
                        Op::MbarArrive if i.flag & 1 != 0 => {
                            state.expect(operand.unwrap_or(0))?;
                            state.arrive(1)?;
                        }
                        Op::MbarArrive => {
                            let count = operand.unwrap_or(1);
                            if i.flag & 2 != 0 {
                                state.expected = state.expected.checked_sub(count).ok_or("arrive_drop below zero")?;
                            }
                            state.arrive(count)?;
                        }
                        _ => {}
                    }
                    Ok(phase)
                })?;
                if i.op == Op::MbarInval {
                    let cta = &mut self.ctas[cta];
                    cta.mbarriers[place as usize / 512] &= !(1 << (place / 8 % 64));
                    cta.shared[place as usize..place as usize + 8].fill(0xFF);
                }
                if i.d != NONE {
                    set(bases, i.d, 8, lane, phase.into());
                }
            }
        });
        Ok(())
    }

    pub(super) unsafe fn wait_for_mbarrier(&mut self, warp: &mut Warp, bases: Bases, i: &Inst, mask: u32) -> Result<Then, Fault> {
        // SAFETY: slots of the program.
        unsafe {
            let mut done = 0u32;
            let mut missing = None;
            each_lane!(mask, lane, {
                let address = self.shared_address(bases, i, lane)?;
                let (cta, place) = self.shared_place(address, warp.cta);
                let parity = get(bases, i.b, if i.flag == 1 { 4 } else { 8 }, lane) & 1 == 1;
                let phase = self.with_mbarrier(cta, place, |state| Ok(state.phase))?;
                if phase != parity {
                    done |= 1 << lane;
                    self.note_waited(warp, cta, place);
                } else {
                    missing = Some((place, parity));
                }
            });
            write_bits(bases, i.d, done, mask);
            if let (0, Some((at, parity)), 1) = (done, missing, i.n) {
                // Suspended for a while, if the warp is whole.
                return Ok(Then::Sleep(Wait::Mbarrier { at, parity, until: self.now + 1000 * self.patience }));
            }
            Ok(if done == mask { Then::On } else { Then::Yield })
        }
    }
}
