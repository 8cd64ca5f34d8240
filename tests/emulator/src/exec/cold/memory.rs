//! Parameters, windows of generic addresses, and atomics.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::arithmetic::pick_integer;
use super::*;
use crate::exec::{LOCAL_WINDOW, SHARED_WINDOW};

impl Launch {
    /// Parameters of the entry, the same for all lanes.
    pub(super) unsafe fn load_entry(&self, bases: Bases, i: &Inst, mask: u32) {
        // SAFETY: slots of the program.
        unsafe {
            let slots = &self.program.lists[i.x as usize];
            let size = i.ty.bytes();
            for (index, &slot) in slots.iter().enumerate() {
                let from = (i.a + i.b) as usize + index * size as usize;
                let mut bytes = [0u8; 8];
                bytes[..size as usize].copy_from_slice(&self.config.parameters[from..from + size as usize]);
                let value = extend(i.ty, u64::from_le_bytes(bytes));
                if slot != NONE {
                    each_lane!(mask, lane, { set(bases, slot, i.dw, lane, value) });
                }
            }
        }
    }

    /// Parameters of a call, in the frame: bytes of lane after lane.
    pub(super) unsafe fn access_parameter(&self, bases: Bases, i: &Inst, mask: u32) {
        // SAFETY: slots of the program.
        unsafe {
            let slots = &self.program.lists[i.x as usize];
            let size = i.ty.bytes() as usize;
            each_lane!(mask, lane, {
                let base: *mut u8 = bases.at::<u8>(i.a).add(lane * i.c as usize + i.b as usize);
                for (index, &slot) in slots.iter().enumerate() {
                    let place = base.add(index * size);
                    if slot == NONE {
                        continue;
                    }
                    if i.op == Op::StParam {
                        let value = get(bases, slot, i.dw, lane).to_le_bytes();
                        std::ptr::copy_nonoverlapping(value.as_ptr(), place, size);
                    } else {
                        let mut bytes = [0u8; 8];
                        std::ptr::copy_nonoverlapping(place, bytes.as_mut_ptr(), size);
                        set(bases, slot, i.dw, lane, extend(i.ty, u64::from_le_bytes(bytes)));
                    }
                }
            });
        }
    }

    pub(super) unsafe fn copy_parameter(&self, bases: Bases, i: &Inst, mask: u32) {
        // SAFETY: slots of the program.
        unsafe {
            let size = i.x as usize;
            each_lane!(mask, lane, {
                std::ptr::copy_nonoverlapping(bases.at::<u8>(i.a).add(lane * size), bases.at::<u8>(i.d).add(lane * size), size);
            });
        }
    }

    pub(super) unsafe fn change_window(&self, bases: Bases, i: &Inst, mask: u32) {
        // SAFETY: slots of the program.
        unsafe {
            let window = match i.space {
                Space::Shared => SHARED_WINDOW,
                Space::Local => LOCAL_WINDOW,
                _ => 0,
            };
            each_lane!(mask, lane, {
                let address = get(bases, i.a, i.dw, lane);
                let value = if i.op == Op::ToGeneric {
                    address | window
                } else if window != 0 {
                    address & 0xFFFF_FFFF
                } else {
                    address
                };
                set(bases, i.d, i.dw, lane, value);
            });
        }
    }

    pub(super) unsafe fn is_space(&self, bases: Bases, i: &Inst, mask: u32) {
        // SAFETY: slots of the program.
        unsafe {
            let mut bits = 0;
            each_lane!(mask, lane, {
                let top = get(bases, i.a, 8, lane) >> 32;
                let space = if top == SHARED_WINDOW >> 32 {
                    Space::Shared
                } else if top == LOCAL_WINDOW >> 32 {
                    Space::Local
                } else {
                    Space::Global
                };
                bits |= ((space == i.space) as u32) << lane;
            });
            write_bits(bases, i.d, bits, mask);
        }
    }

    pub(super) unsafe fn map_address(&self, bases: Bases, i: &Inst, mask: u32) -> Result<(), Fault> {
        // SAFETY: slots of the program.
        unsafe {
            each_lane!(mask, lane, {
                let (address, rank) = (get(bases, i.a, i.dw, lane), get(bases, i.b, 4, lane));
                if rank >= u64::from(self.config.cluster) {
                    return Err(format!("mapa to CTA {rank} of a cluster of {}", self.config.cluster).into());
                }
                let place = address & 0xFF_FFFF | (rank + 1) << 24;
                set(bases, i.d, i.dw, lane, if i.space == Space::Shared { place } else { place | SHARED_WINDOW });
            });
        }
        Ok(())
    }

    pub(super) unsafe fn atomic(&mut self, warp: &mut Warp, bases: Bases, i: &Inst, mask: u32) -> Result<(), Fault> {
        let bytes = i.ty.bytes();
        let wide = if bytes == 8 { 8 } else { 4 };
        self.patience = 1;
        each_lane!(mask, lane, {
            // SAFETY: slots of the program; addresses are checked and aligned.
            unsafe {
                let address = Self::address(bases, i, lane);
                let at = self.reach(warp, i.space, address, bytes.into(), lane)?;
                if self.races.on {
                    self.note_atomic(warp, i, address)?;
                }
                let b = get(bases, i.b, wide, lane);
                let c = if i.c == NONE { 0 } else { get(bases, i.c, wide, lane) };
                let ty = i.ty;
                let change = |old: u64| -> u64 {
                    let u = |x: u64| zero_extend(ty, x);
                    match i.n {
                        0 => match ty {
                            Ty::F32 => u64::from((f32::from_bits(old as u32) + f32::from_bits(b as u32)).to_bits()),
                            Ty::F64 => (f64::from_bits(old) + f64::from_bits(b)).to_bits(),
                            Ty::F16x2 | Ty::Bf16x2 => {
                                let half = if ty == Ty::F16x2 { Ty::F16 } else { Ty::Bf16 };
                                let sum = |x: u64, y: u64| {
                                    float::narrow(half, float::widen(half, x & 0xFFFF) + float::widen(half, y & 0xFFFF), Round::Nearest, 0)
                                };
                                sum(old, b) | sum(old >> 16, b >> 16) << 16
                            }
                            _ => old.wrapping_add(b),
                        },
                        1 => {
                            if u(old) >= u(b) {
                                0
                            } else {
                                old + 1
                            }
                        }
                        2 => {
                            if u(old) == 0 || u(old) > u(b) {
                                b
                            } else {
                                old - 1
                            }
                        }
                        3 | 4 => pick_integer(ty, old, b, i.n == 4),
                        5 => old & b,
                        6 => old | b,
                        7 => old ^ b,
                        8 => b,
                        _ => {
                            if u(old) == u(b) {
                                c
                            } else {
                                old
                            }
                        }
                    }
                };
                let old = match bytes {
                    8 => AtomicU64::from_ptr(at.cast())
                        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(change(old)))
                        .unwrap_or(0),
                    4 => u64::from(
                        AtomicU32::from_ptr(at.cast())
                            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(change(old.into()) as u32))
                            .unwrap_or(0),
                    ),
                    _ => return Err(format!("atom of {ty:?}").into()),
                };
                if i.d != NONE {
                    set(bases, i.d, wide, lane, old);
                }
            }
        });
        Ok(())
    }
}
