//! Beginnings of copies beside the warps, and waits for groups of them.

use super::*;
use crate::exec::asynchronous::Copy;
use crate::exec::races::Clock;
use crate::exec::tensor::{BYTES, Map};
use crate::exec::{Group, Groups, ILLEGAL_ADDRESS, ILLEGAL_INSTRUCTION, MISALIGNED_ADDRESS, Of};

impl Launch {
    pub(super) unsafe fn load_bulk(&mut self, warp: &Warp, bases: Bases, i: &Inst, of: Of) -> Result<(), Fault> {
        each_lane!(of.2, lane, {
            let of = (of.0, of.1, 1 << lane);
            // SAFETY: slots of the program.
            let (to, from, bytes, mbarrier, chosen) = unsafe {
                let number = |slot| get(bases, slot, 4, lane) as u32;
                let chosen = if i.x as Slot == NONE { None } else { Some(number(i.x as Slot)) };
                (number(i.d), get(bases, i.a, 8, lane), number(i.b), number(i.c), chosen)
            };
            self.bulk_operands(from, bytes)?;
            let (cta, to) = self.shared_range(warp.cta, to, bytes, 16, "bulk copy")?;
            let (barrier_cta, mbarrier) = self.shared_place(mbarrier, warp.cta);
            let (ctas, barrier_ctas) = self.targets(warp, chosen, cta, barrier_cta);
            self.loads(&ctas, to, bytes, &barrier_ctas, mbarrier)?;
            self.reads_global(of, from, bytes)?;
            let clock = self.begin_writes(of, &ctas, to, bytes)?;
            self.begin_copy(Copy::Load { ctas, to, from, bytes, mbarrier, barrier_ctas, clock }, of);
        });
        Ok(())
    }

    pub(super) unsafe fn load_box(&mut self, warp: &Warp, bases: Bases, i: &Inst, of: Of) -> Result<(), Fault> {
        let program = self.program.clone();
        let slot = program.lists[i.x as usize][i.n as usize];
        each_lane!(of.2, lane, {
            let of = (of.0, of.1, 1 << lane);
            // SAFETY: slots of the program.
            let (to, mbarrier, chosen, (map, at)) = unsafe {
                let number = |slot| get(bases, slot, 4, lane) as u32;
                let chosen = if slot == NONE { None } else { Some(number(slot)) };
                (number(i.d), number(i.b), chosen, self.box_operands(bases, i, lane)?)
            };
            let (cta, to) = self.shared_range(warp.cta, to, map.bytes(), 128, "tensor copy")?;
            let (barrier_cta, mbarrier) = self.shared_place(mbarrier, warp.cta);
            let (ctas, barrier_ctas) = self.targets(warp, chosen, cta, barrier_cta);
            self.loads(&ctas, to, map.bytes(), &barrier_ctas, mbarrier)?;
            for (address, bytes) in self.rows(&map, &at)? {
                self.reads_global(of, address, bytes)?;
            }
            let clock = self.begin_writes(of, &ctas, to, map.bytes())?;
            self.begin_copy(Copy::Box { ctas, to, map, at, mbarrier, barrier_ctas, clock }, of);
        });
        Ok(())
    }

    pub(super) unsafe fn store_bulk(&mut self, warp: &mut Warp, bases: Bases, i: &Inst, of: Of) -> Result<(), Fault> {
        each_lane!(of.2, lane, {
            let of = (of.0, of.1, 1 << lane);
            // SAFETY: slots of the program.
            let (to, from, bytes) = unsafe { (get(bases, i.d, 8, lane), get(bases, i.a, 4, lane) as u32, get(bases, i.b, 4, lane) as u32) };
            self.bulk_operands(to, bytes)?;
            let (cta, from) = self.shared_range(warp.cta, from, bytes, 16, "bulk copy")?;
            self.reads_shared(of, cta, from / 16..(from + bytes).div_ceil(16))?;
            self.note_copy(of, to, bytes, true)?;
            self.note_begin(of);
            let group = self.open_group(warp, lane);
            self.begin_copy(Copy::Store { cta, from, to, bytes, group }, of);
        });
        Ok(())
    }

    pub(super) unsafe fn store_box(&mut self, warp: &mut Warp, bases: Bases, i: &Inst, of: Of) -> Result<(), Fault> {
        each_lane!(of.2, lane, {
            let of = (of.0, of.1, 1 << lane);
            // SAFETY: slots of the program.
            let (from, (map, at)) = unsafe { (get(bases, i.d, 4, lane) as u32, self.box_operands(bases, i, lane)?) };
            let (cta, from) = self.shared_range(warp.cta, from, map.bytes(), 128, "tensor copy")?;
            self.reads_shared(of, cta, from / 16..(from + map.bytes()).div_ceil(16))?;
            for (address, bytes) in self.rows(&map, &at)? {
                self.note_copy(of, address, bytes, true)?;
            }
            self.note_begin(of);
            let group = self.open_group(warp, lane);
            self.begin_copy(Copy::StoreBox { cta, from, map, at, group }, of);
        });
        Ok(())
    }

    /// Registers to shared memory, mostly of another CTA of the cluster.
    pub(super) unsafe fn store_async(&mut self, warp: &Warp, bases: Bases, i: &Inst, of: Of) -> Result<(), Fault> {
        let program = self.program.clone();
        let (first, slots) = program.lists[i.x as usize].split_first().unwrap();
        let bytes = i.ty.bytes();
        let count = bytes * slots.len() as u32;
        each_lane!(of.2, lane, {
            // SAFETY: slots of the program.
            let (to, mbarrier, data) = unsafe {
                let mut data = Vec::new();
                for &slot in slots {
                    data.extend_from_slice(&get(bases, slot, i.dw, lane).to_le_bytes()[..bytes as usize]);
                }
                (get(bases, i.a, 4, lane) as u32, get(bases, *first, 4, lane) as u32, data)
            };
            let (cta, to) = self.shared_range(warp.cta, to, count, count, "st.async")?;
            let (barrier_cta, mbarrier) = self.shared_place(mbarrier, warp.cta);
            self.loads(&[cta], to, count, &[barrier_cta], mbarrier)?;
            let clock = self.begin_writes(of, &[cta], to, count)?;
            self.begin_copy(Copy::Shared { cta, to, data, mbarrier, barrier_cta, clock }, (of.0, of.1, 1 << lane));
        });
        Ok(())
    }

    /// From shared memory to that of another CTA of the cluster.
    pub(super) unsafe fn copy_shared(&mut self, warp: &Warp, bases: Bases, i: &Inst, of: Of) -> Result<(), Fault> {
        each_lane!(of.2, lane, {
            // SAFETY: slots of the program.
            let [to, from, bytes, mbarrier] = [i.d, i.a, i.b, i.c].map(|slot| unsafe { get(bases, slot, 4, lane) as u32 });
            if bytes == 0 || bytes % 16 != 0 {
                return Err(Fault::new(MISALIGNED_ADDRESS, format!("bulk copy of {bytes} bytes")));
            }
            let (cta, to) = self.shared_range(warp.cta, to, bytes, 16, "bulk copy")?;
            let (own, from) = self.shared_range(warp.cta, from, bytes, 16, "bulk copy")?;
            let (barrier_cta, mbarrier) = self.shared_place(mbarrier, warp.cta);
            self.loads(&[cta], to, bytes, &[barrier_cta], mbarrier)?;
            self.note_copy_shared(of, own, from, bytes, false)?;
            let clock = self.begin_writes(of, &[cta], to, bytes)?;
            let data = self.ctas[own].shared[from as usize..(from + bytes) as usize].to_vec();
            self.begin_copy(Copy::Shared { cta, to, data, mbarrier, barrier_cta, clock }, (of.0, of.1, 1 << lane));
        });
        Ok(())
    }

    /// `cp.async`, which is done at once.
    pub(super) unsafe fn copy_small(&mut self, warp: &mut Warp, bases: Bases, i: &Inst, of: Of) -> Result<(), Fault> {
        // SAFETY: slots of the program; addresses are checked.
        unsafe {
            each_lane!(of.2, lane, {
                let (address, from, count) = (get(bases, i.d, 4, lane), get(bases, i.a, 8, lane), get(bases, i.b, 4, lane).min(i.n.into()));
                let to = self.reach(warp, Space::Shared, address, i.n.into(), lane)?;
                let (cta, place) = self.shared_place(address as u32, warp.cta);
                self.note_copy_shared(of, cta, place, i.n.into(), true)?;
                self.note_copy(of, from, count as u32, false)?;
                to.write_bytes(0, i.n.into());
                if count > 0 {
                    let from = self.reach(warp, Space::Global, from, i.n.into(), lane)?;
                    std::ptr::copy_nonoverlapping(from, to, count as usize);
                }
            });
        }
        Ok(())
    }

    pub(super) fn commit_copies(&mut self, warp: &mut Warp, mask: u32) {
        let bulk = warp.bulk.get_or_insert_default();
        each_lane!(mask, lane, {
            let groups: &mut Groups = &mut bulk[lane];
            let group = std::mem::take(&mut groups.open);
            groups.committed.push_back(group);
            while groups.committed.front().is_some_and(|group| {
                let done = self.groups.get(group).is_none_or(|group| group.reading == 0 && group.writing == 0);
                if done {
                    self.groups.remove(group);
                }
                done
            }) && groups.committed.len() > 1
            {
                groups.committed.pop_front();
            }
        });
    }

    /// Whether all but the newest groups are read, or written too.
    pub(super) fn copies_done(&self, warp: &Warp, i: &Inst, mask: u32) -> bool {
        let Some(bulk) = &warp.bulk else { return true };
        each_lane!(mask, lane, {
            let committed = &bulk[lane].committed;
            let old = committed.len().saturating_sub(i.n as usize);
            for group in committed.iter().take(old) {
                let state = self.groups.get(group).copied().unwrap_or_default();
                if state.reading > 0 || i.flag == 0 && state.writing > 0 {
                    return false;
                }
            }
        });
        true
    }

    /// CTAs that a copy goes to, and those whose mbarriers it tells.
    fn targets(&self, warp: &Warp, chosen: Option<u32>, cta: usize, barrier_cta: usize) -> (Vec<usize>, Vec<usize>) {
        let Some(chosen) = chosen else { return (vec![cta], vec![barrier_cta]) };
        let first = self.ctas[warp.cta].first;
        let all: Vec<usize> = (0..self.config.cluster as usize).filter(|rank| chosen >> rank & 1 == 1).map(|rank| first + rank).collect();
        (all.clone(), all)
    }

    /// What a copy writes to shared memory as its warp writes it now; what those have who wait for it.
    fn begin_writes(&mut self, of: Of, ctas: &[usize], to: u32, bytes: u32) -> Result<Clock, Fault> {
        for &cta in ctas {
            self.note_copy_shared(of, cta, to, bytes, true)?;
        }
        Ok(self.note_begin(of))
    }

    /// Addresses of a box's rows inside the tensor, and their bytes, where somebody looks at them.
    fn rows(&self, map: &Map, at: &[i32; 5]) -> Result<Vec<(u64, u32)>, String> {
        let mut rows = Vec::new();
        if self.scratch.look {
            map.runs(&at[..map.rank as usize], |_, address, _, inside, _| {
                rows.push((address, inside));
                Ok(())
            })?;
        }
        Ok(rows)
    }

    /// The tensor map of an instruction, and the coordinates of its box.
    unsafe fn box_operands(&self, bases: Bases, i: &Inst, lane: usize) -> Result<(Map, [i32; 5]), Fault> {
        let mut coordinates = [0i32; 5];
        // SAFETY: slots of the program.
        let address = unsafe {
            for (to, &slot) in coordinates.iter_mut().zip(&self.program.lists[i.x as usize][..i.n as usize]) {
                *to = get(bases, slot, 4, lane) as i32;
            }
            get(bases, i.a, 8, lane)
        };
        if !address.is_multiple_of(64) {
            return Err(Fault::new(MISALIGNED_ADDRESS, format!("tensor map at {address:#x}, which is not a multiple of 64")));
        }
        if !crate::memory::usable(self.config.device, address, BYTES as u64) {
            return Err(Fault::new(ILLEGAL_ADDRESS, format!("tensor map at {address:#x}, which is not allocated")));
        }
        // SAFETY: allocated, as was just seen.
        let words = unsafe { *(address as *const [u64; 16]) };
        let map = Map::unpack(&words).ok_or_else(|| Fault::new(ILLEGAL_INSTRUCTION, format!("no tensor map at {address:#x}")))?;
        if map.rank != i.n {
            return Err(Fault::new(ILLEGAL_INSTRUCTION, format!("a copy of rank {} with a tensor map of rank {}", i.n, map.rank)));
        }
        Ok((map, coordinates))
    }

    /// The bulk group that a lane's next copy is of, with one more copy.
    fn open_group(&mut self, warp: &mut Warp, lane: usize) -> u64 {
        let groups: &mut Groups = &mut warp.bulk.get_or_insert_default()[lane];
        if groups.open == 0 {
            self.group_number += 1;
            groups.open = self.group_number;
        }
        let group: &mut Group = self.groups.entry(groups.open).or_default();
        group.reading += 1;
        group.writing += 1;
        groups.open
    }

    fn bulk_operands(&self, global: u64, bytes: u32) -> Result<(), Fault> {
        if !global.is_multiple_of(16) || !bytes.is_multiple_of(16) {
            return Err(Fault::new(
                MISALIGNED_ADDRESS,
                format!("bulk copy of {bytes} bytes at {global:#x}: both have to be multiples of 16"),
            ));
        }
        if bytes == 0 {
            return Err("bulk copy of no bytes".to_string().into());
        }
        self.owned(global, bytes.into())
    }

    /// Checks that a copy may write there, and its mbarriers.
    fn loads(&mut self, ctas: &[usize], to: u32, bytes: u32, barrier_ctas: &[usize], mbarrier: u32) -> Result<(), Fault> {
        for &cta in ctas {
            if let Some(hit) = self.ctas[cta].mbarrier_in(to, bytes) {
                let text = format!("a copy of {bytes} bytes to shared memory at {to:#x} hits the live mbarrier at {hit:#x}");
                return Err(text.into());
            }
        }
        for &cta in barrier_ctas {
            self.with_mbarrier(cta, mbarrier, |_| Ok(()))?;
        }
        Ok(())
    }
}
