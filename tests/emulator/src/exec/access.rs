//! Accesses of memory, each of them checked: where its address leads, loads and stores.

use super::registers::{Bases, each_lane, get, set};
use super::{Fault, ILLEGAL_ADDRESS, LOCAL_WINDOW, Launch, MISALIGNED_ADDRESS, SHARED_WINDOW, Warp};
use crate::memory::{Allocation, Kind};
use crate::ptx::inst::*;
use crate::ptx::module::SHARED_START;

impl Launch {
    /// Host address of bytes that the program names.
    #[inline(always)]
    pub(super) fn reach(&mut self, warp: &mut Warp, space: Space, address: u64, bytes: u64, lane: usize) -> Result<*mut u8, Fault> {
        if address & (bytes - 1) != 0 {
            self.failed = lane as u32;
            return Err(Fault::new(MISALIGNED_ADDRESS, format!("{bytes} bytes at {address:#x} are not aligned ({space:?})")));
        }
        if space == Space::Shared {
            let found = self.reach_shared(warp.cta, address, bytes);
            if found.is_err() {
                self.failed = lane as u32;
            }
            return found;
        }
        if address >= self.last.0 && address + bytes <= self.last.1 && space != Space::Local {
            return Ok(address as *mut u8);
        }
        self.reach_far(warp, space, address, bytes, lane)
    }

    #[inline(always)]
    pub(super) fn reach_shared(&mut self, own: usize, address: u64, bytes: u64) -> Result<*mut u8, Fault> {
        let mut cta = own;
        let mut at = address;
        if address >> 24 != 0 {
            // Of a CTA of the cluster.
            let rank = (address >> 24) as usize - 1;
            if address >> 32 != 0 || rank >= self.config.cluster as usize {
                return Err(Fault::new(ILLEGAL_ADDRESS, format!("shared address {address:#x}")));
            }
            cta = self.ctas[own].first + rank;
            at = address & 0xFF_FFFF;
            if self.ctas[cta].live_warps == 0 {
                return Err(Fault::new(
                    ILLEGAL_ADDRESS,
                    format!("shared memory of CTA {rank} of the cluster, which has ended, at {at:#x}"),
                ));
            }
        }
        let shared = &mut self.ctas[cta].shared;
        if at < u64::from(SHARED_START) || at + bytes > shared.len() as u64 {
            return Err(Fault::new(
                ILLEGAL_ADDRESS,
                format!("{bytes} bytes of shared memory at {at:#x} lie outside {SHARED_START:#x}..{:#x}", shared.len()),
            ));
        }
        Ok(&raw mut shared[at as usize])
    }

    #[cold]
    fn reach_far(&mut self, warp: &mut Warp, space: Space, address: u64, bytes: u64, lane: usize) -> Result<*mut u8, Fault> {
        self.failed = lane as u32;
        if space == Space::Generic && address >> 32 == SHARED_WINDOW >> 32 {
            let found = self.reach_shared(warp.cta, address & 0xFFFF_FFFF, bytes)?;
            self.failed = 32;
            return Ok(found);
        }
        if space == Space::Local || space == Space::Generic && address >> 32 == LOCAL_WINDOW >> 32 {
            let size = u64::from(self.program.local);
            let at = address & 0xFFFF_FFFF;
            if at + bytes > size {
                return Err(Fault::new(ILLEGAL_ADDRESS, format!("{bytes} bytes of local memory at {at:#x} lie outside {size:#x}")));
            }
            self.failed = 32;
            return Ok(&raw mut warp.local[lane * size as usize + at as usize]);
        }
        match crate::memory::find(address) {
            Some(found) if !found.usable_by(self.config.device) => Err(Fault::new(ILLEGAL_ADDRESS, self.denied(&found, address))),
            Some(found) if address + bytes <= found.end => {
                self.last = (found.start, found.end);
                self.failed = 32;
                Ok(address as *mut u8)
            }
            Some(found) => Err(Fault::new(
                ILLEGAL_ADDRESS,
                format!("{bytes} bytes at {address:#x} pass the end of an allocation {:#x}..{:#x}", found.start, found.end),
            )),
            None => Err(Fault::new(ILLEGAL_ADDRESS, format!("{bytes} bytes at {address:#x} are not allocated"))),
        }
    }

    /// Why the launch's device may not use an allocation.
    fn denied(&self, found: &Allocation, address: u64) -> String {
        let (own, owner) = (self.config.device, found.device);
        let why = if found.kind == Kind::Mapped { "no cuMemSetAccess for it" } else { "no peer access was enabled" };
        format!("device {own} may not use memory of device {owner} at {address:#x}: {why}")
    }

    #[inline(always)]
    pub(super) unsafe fn address(bases: Bases, i: &Inst, lane: usize) -> u64 {
        // SAFETY: slots of the program.
        unsafe {
            let at = get(bases, i.a, i.aw, lane).wrapping_add(i64::from(i.x) as u64);
            if i.aw == 8 { at } else { at & 0xFFFF_FFFF }
        }
    }

    #[inline(always)]
    pub(super) unsafe fn load(&mut self, warp: &mut Warp, bases: Bases, i: &Inst, mask: u32) -> Result<(), Fault> {
        let bytes = i.ty.bytes();
        // SAFETY: slots of the program; addresses are checked.
        unsafe {
            self.note_lanes(warp, i, mask, bytes * u32::from(i.n), false, |lane| Self::address(bases, i, lane))?;
            if i.n == 1 && bytes == 4 && i.dw == 4 {
                let to = bases.at::<u32>(i.d);
                each_lane!(mask, lane, {
                    let from = self.reach(warp, i.space, Self::address(bases, i, lane), 4, lane)?;
                    *to.add(lane) = from.cast::<u32>().read_volatile();
                });
                return Ok(());
            }
            let program: *const Program = &*self.program;
            let single = [i.d];
            let slots: &[Slot] = if i.n == 1 { &single } else { &(&(*program).lists)[i.d as usize] };
            each_lane!(mask, lane, {
                let from = self.reach(warp, i.space, Self::address(bases, i, lane), u64::from(bytes) * u64::from(i.n), lane)?;
                for (index, &slot) in slots.iter().enumerate() {
                    let from = from.add(index * bytes as usize);
                    let value: u64 = match (bytes, i.ty.signed()) {
                        (1, false) => u64::from(*from),
                        (1, true) => *from.cast::<i8>() as i64 as u64,
                        (2, false) => u64::from(*from.cast::<u16>()),
                        (2, true) => *from.cast::<i16>() as i64 as u64,
                        (4, false) => u64::from(from.cast::<u32>().read_volatile()),
                        (4, true) => *from.cast::<i32>() as i64 as u64,
                        _ => from.cast::<u64>().read_volatile(),
                    };
                    if slot == NONE {
                        continue;
                    }
                    set(bases, slot, i.dw, lane, value);
                }
            });
        }
        Ok(())
    }

    #[inline(always)]
    pub(super) unsafe fn store(&mut self, warp: &mut Warp, bases: Bases, i: &Inst, mask: u32) -> Result<(), Fault> {
        let bytes = i.ty.bytes();
        self.patience = 1;
        // SAFETY: slots of the program; addresses are checked.
        unsafe {
            self.note_lanes(warp, i, mask, bytes * u32::from(i.n), true, |lane| Self::address(bases, i, lane))?;
            let program: *const Program = &*self.program;
            let single = [i.d];
            let slots: &[Slot] = if i.n == 1 { &single } else { &(&(*program).lists)[i.d as usize] };
            each_lane!(mask, lane, {
                let address = Self::address(bases, i, lane);
                let to = self.reach(warp, i.space, address, u64::from(bytes) * u64::from(i.n), lane)?;
                if i.space == Space::Shared || address >> 32 == SHARED_WINDOW >> 32 {
                    self.no_mbarrier(warp.cta, address as u32, bytes * u32::from(i.n))?;
                    if self.proxies.on {
                        self.wrote_shared(warp, lane, address as u32, bytes * u32::from(i.n));
                    }
                } else if self.proxies.on {
                    self.wrote_global(warp, lane, address, bytes * u32::from(i.n));
                }
                for (index, &slot) in slots.iter().enumerate() {
                    let to = to.add(index * bytes as usize);
                    let value = get(bases, slot, i.dw, lane);
                    match bytes {
                        1 => *to = value as u8,
                        2 => *to.cast::<u16>() = value as u16,
                        4 => to.cast::<u32>().write_volatile(value as u32),
                        _ => to.cast::<u64>().write_volatile(value),
                    }
                }
            });
        }
        Ok(())
    }

    /// The CTA of an address of shared memory, and the place there.
    #[inline(always)]
    pub(super) fn shared_place(&self, address: u32, own: usize) -> (usize, u32) {
        if address >> 24 == 0 { (own, address) } else { (self.ctas[own].first + (address >> 24) as usize - 1, address & 0xFF_FFFF) }
    }

    /// An address of shared memory, 32 bits or generic.
    pub(super) unsafe fn shared_address(&self, bases: Bases, i: &Inst, lane: usize) -> Result<u32, Fault> {
        // SAFETY: slots of the program.
        let at = unsafe { Self::address(bases, i, lane) };
        if i.aw != 8 {
            return Ok(at as u32);
        }
        if at >> 32 != SHARED_WINDOW >> 32 && at >> 32 != 0 {
            return Err(Fault::new(ILLEGAL_ADDRESS, format!("{at:#x} is not an address of shared memory")));
        }
        Ok(at as u32)
    }

    /// Checks a range of shared memory of copies: where it is.
    pub(super) fn shared_range(&mut self, own: usize, at: u32, bytes: u32, align: u32, what: &str) -> Result<(usize, u32), Fault> {
        if !at.is_multiple_of(align) {
            return Err(Fault::new(MISALIGNED_ADDRESS, format!("{what}: shared address {at:#x} is not a multiple of {align}")));
        }
        let (cta, place) = self.shared_place(at, own);
        let size = self.ctas.get(cta).map_or(0, |cta| cta.shared.len() as u32);
        if place < SHARED_START || place.checked_add(bytes).is_none_or(|end| end > size) {
            return Err(Fault::new(
                ILLEGAL_ADDRESS,
                format!("{what}: {bytes} bytes of shared memory at {place:#x} lie outside {SHARED_START:#x}..{size:#x}"),
            ));
        }
        Ok((cta, place))
    }

    /// Refuses writes over a live mbarrier.
    #[inline(always)]
    pub(super) fn no_mbarrier(&self, own: usize, at: u32, bytes: u32) -> Result<(), Fault> {
        let (cta, at) = self.shared_place(at, own);
        match self.ctas[cta].mbarrier_in(at, bytes) {
            Some(_) => Err(format!("a store of {bytes} bytes to shared memory at {at:#x} hits a live mbarrier").into()),
            None => Ok(()),
        }
    }
}
