//! Instructions of tensor cores, and loads and stores of their operands.

use super::*;
use crate::exec::{Issued, matrix};

impl Launch {
    pub(super) unsafe fn multiply(&self, bases: Bases, i: &Inst) {
        // SAFETY: slots of the program.
        unsafe {
            let slots = &self.program.lists[i.x as usize];
            matrix::mma(i.ty, i.ty2, i.n as usize, slots, (i.aw as usize, i.dw as usize), &|slot| bases.at::<u32>(slot));
        }
    }

    /// Issues a `wgmma`.
    pub(super) unsafe fn issue(&mut self, warp: &mut Warp, bases: Bases, i: &Inst, of: Of) -> Result<(), Fault> {
        let (program, mask) = (self.program.clone(), of.2);
        // SAFETY: slots of the program.
        unsafe {
            let product = &program.products[i.x as usize];
            let a = if product.a == NONE { 0 } else { self.uniform(bases, product.a, mask)? };
            let b = self.uniform(bases, product.b, mask)?;
            let p = *bases.at::<u32>(product.scale);
            if p != 0 && p != u32::MAX {
                return Err("scale-d of wgmma differs between lanes".to_string().into());
            }
            let issued = Issued { product: i.x, a, b, add: p != 0, group: warp.product_group };
            if self.late_products {
                warp.issued.push(issued);
            } else {
                self.product(warp, bases, &issued)?;
                if self.scratch.look {
                    let touched = std::mem::take(&mut self.scratch.touched);
                    self.reads_shared(of, warp.cta, touched.iter().copied())?;
                    self.scratch.touched = touched;
                    self.scratch.touched.clear();
                }
            }
        }
        Ok(())
    }

    /// Computes what was issued, but for the newest `n` groups.
    pub(super) unsafe fn wait_for_products(&mut self, warp: &mut Warp, bases: Bases, n: u8) -> Result<(), Fault> {
        let until = warp.product_group.saturating_sub(u32::from(n));
        let count = warp.issued.iter().take_while(|issued| issued.group < until).count();
        let due: Vec<_> = warp.issued.drain(..count).collect();
        for issued in due {
            // SAFETY: slots of the program.
            unsafe { self.product(warp, bases, &issued)? };
        }
        Ok(())
    }

    unsafe fn uniform(&self, bases: Bases, slot: Slot, mask: u32) -> Result<u64, Fault> {
        // SAFETY: a slot of the program.
        let first = unsafe { get(bases, slot, 8, low(mask)) };
        each_lane!(mask, lane, {
            // SAFETY: as above.
            if unsafe { get(bases, slot, 8, lane) } != first {
                return Err("a matrix descriptor differs between lanes".to_string().into());
            }
        });
        Ok(first)
    }

    unsafe fn product(&mut self, warp: &mut Warp, bases: Bases, issued: &Issued) -> Result<(), Fault> {
        let program = self.program.clone();
        let product = &program.products[issued.product as usize];
        let shared = &self.ctas[warp.cta].shared;
        // SAFETY: slots of the program.
        unsafe {
            matrix::wgmma(product, warp.index, shared, issued.a, issued.b, issued.add, &|slot| bases.at::<u32>(slot), &mut self.scratch)?;
        }
        Ok(())
    }

    pub(super) unsafe fn matrices(&mut self, warp: &mut Warp, bases: Bases, i: &Inst, of: Of) -> Result<(), Fault> {
        let program = self.program.clone();
        let slots = &program.lists[i.x as usize];
        // SAFETY: slots of the program; addresses are checked.
        unsafe {
            let offset = *bases.at::<u32>(i.c);
            for (matrix, &slot) in slots.iter().enumerate() {
                let mut rows = [std::ptr::null_mut::<u8>(); 8];
                for (row, to) in rows.iter_mut().enumerate() {
                    let address = (get(bases, i.a, i.aw, matrix * 8 + row) as u32).wrapping_add(offset);
                    *to = self.reach(warp, Space::Shared, address.into(), 16, matrix * 8 + row)?;
                    if self.races.on {
                        let (cta, at) = self.shared_place(address, warp.cta);
                        self.note_copy_shared(of, cta, at, 16, i.op == Op::StMatrix)?;
                    }
                    if i.op == Op::StMatrix {
                        self.no_mbarrier(warp.cta, address, 16)?;
                        if self.proxies.on {
                            // Which lane's data it is does not matter: fences are made by whole warps.
                            self.wrote_shared(warp, matrix * 8 + row, address, 16);
                        }
                    }
                }
                for lane in 0..32 {
                    let register = bases.at::<u32>(slot).add(lane);
                    for half in 0..2 {
                        let (mut row, mut col) = (lane / 4, lane % 4 * 2 + half);
                        if i.flag == 1 {
                            (row, col) = (col, row);
                        }
                        let place = rows[row].cast::<u16>().add(col);
                        if i.op == Op::LdMatrix {
                            *register = *register & !(0xFFFF << (16 * half)) | u32::from(*place) << (16 * half);
                        } else {
                            *place = (*register >> (16 * half)) as u16;
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
