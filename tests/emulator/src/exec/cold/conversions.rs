//! Conversions between types, and values that several registers make up.

use super::*;
use crate::exec::float::flush;

fn round(n: u8) -> Round {
    match n {
        1 => Round::Nearest,
        2 => Round::Zero,
        3 => Round::Down,
        4 => Round::Up,
        5 => Round::Away,
        _ => Round::None,
    }
}

impl Launch {
    pub(in crate::exec) unsafe fn convert(&self, bases: Bases, i: &Inst, mask: u32) -> Result<(), Fault> {
        let (to, from) = (i.ty, i.ty2);
        let how = round(i.n);
        each_lane!(mask, lane, {
            // SAFETY: slots of the program.
            unsafe {
                let bits = get(bases, i.a, i.aw, lane);
                let value: u64 = if matches!(to, Ty::F16x2 | Ty::Bf16x2) {
                    // From two small ones.
                    let small = if from == Ty::E4m3x2 { Ty::E4m3 } else { Ty::E5m2 };
                    let wide = if to == Ty::F16x2 { Ty::F16 } else { Ty::Bf16 };
                    let part = |x: u64| float::narrow(wide, float::widen(small, x & 0xFF), Round::Nearest, 0);
                    part(bits) | part(bits >> 8) << 16
                } else if from.float() && to.float() {
                    let mut x = float::widen(from, bits);
                    if i.flag & F_FTZ != 0 && from == Ty::F32 {
                        x = f64::from(flush(x as f32));
                    }
                    if i.x == 1 {
                        x = float::integral(x, how);
                    }
                    if from == to && i.flag == 0 && i.x == 0 {
                        bits
                    } else {
                        float::narrow(to, x, if how == Round::None { Round::Nearest } else { how }, i.flag)
                    }
                } else if from.float() {
                    let x = float::integral(float::widen(from, bits), how);
                    match to {
                        Ty::S8 => x as i8 as i64 as u64,
                        Ty::S16 => x as i16 as i64 as u64,
                        Ty::S32 => x as i32 as i64 as u64,
                        Ty::S64 => x as i64 as u64,
                        Ty::U8 => u64::from(x as u8),
                        Ty::U16 => u64::from(x as u16),
                        Ty::U32 => u64::from(x as u32),
                        _ => x as u64,
                    }
                } else {
                    // Exact in 128 bits, then rounded once.
                    let exact = if from.signed() { i128::from(sign_extend(from, bits)) } else { i128::from(zero_extend(from, bits)) };
                    if to == Ty::F32 && matches!(how, Round::Nearest | Round::None) {
                        u64::from((exact as f32).to_bits())
                    } else if to == Ty::F64 {
                        (exact as f64).to_bits()
                    } else if to.float() {
                        float::narrow(to, exact as f64, how, i.flag)
                    } else if i.flag & F_SAT != 0 {
                        let size = to.bytes() * 8;
                        let (least, most) = if to.signed() { (-(1 << (size - 1)), (1 << (size - 1)) - 1) } else { (0, (1 << size) - 1) };
                        extend(to, exact.clamp(least, most) as u64)
                    } else {
                        extend(to, exact as u64)
                    }
                };
                set(bases, i.d, i.dw, lane, value);
            }
        });
        Ok(())
    }

    pub(super) unsafe fn convert_pair(&self, bases: Bases, i: &Inst, mask: u32) -> Result<(), Fault> {
        // SAFETY: slots of the program.
        unsafe {
            let how = if i.n == 0 { Round::Nearest } else { round(i.n) };
            if i.ty == Ty::Bf16x2 && how == Round::Nearest && i.flag == 0 {
                let (a, b) = (*bases.at::<Lanes<f32>>(i.a), *bases.at::<Lanes<f32>>(i.b));
                let to = bases.at::<u32>(i.d);
                each_lane!(mask, lane, {
                    *to.add(lane) = u32::from(float::f32_to_bf16(a[lane])) << 16 | u32::from(float::f32_to_bf16(b[lane]));
                });
                return Ok(());
            }
            let (ty, bits) = match i.ty {
                Ty::F16x2 => (Ty::F16, 16),
                Ty::Bf16x2 => (Ty::Bf16, 16),
                Ty::E4m3x2 => (Ty::E4m3, 8),
                Ty::E5m2x2 => (Ty::E5m2, 8),
                ty => return Err(format!("cvt to {ty:?} of two").into()),
            };
            each_lane!(mask, lane, {
                let part = |slot| float::narrow(ty, f64::from(f32::from_bits(get(bases, slot, 4, lane) as u32)), how, i.flag);
                set(bases, i.d, i.dw, lane, part(i.a) << bits | part(i.b));
            });
        }
        Ok(())
    }

    pub(super) unsafe fn pack(&self, bases: Bases, i: &Inst, mask: u32) {
        // SAFETY: slots of the program.
        unsafe {
            let slots = &self.program.lists[i.x as usize];
            each_lane!(mask, lane, {
                let mut value = 0u64;
                for (index, &slot) in slots.iter().enumerate() {
                    let part = get(bases, slot, i.aw, lane);
                    let bits = 8 * u32::from(i.aw);
                    let part = if bits == 64 { part } else { part & ((1 << bits) - 1) };
                    value |= part << (index as u32 * bits);
                }
                set(bases, i.d, i.dw, lane, value);
            });
        }
    }

    pub(super) unsafe fn unpack(&self, bases: Bases, i: &Inst, mask: u32) {
        // SAFETY: slots of the program.
        unsafe {
            let slots = &self.program.lists[i.x as usize];
            let bits = 8 * u32::from(i.dw);
            each_lane!(mask, lane, {
                let value = get(bases, i.a, i.aw, lane);
                for (index, &slot) in slots.iter().enumerate() {
                    if slot != NONE {
                        let part = value >> (index as u32 * bits);
                        set(bases, slot, 4, lane, part & ((1 << bits) - 1));
                    }
                }
            });
        }
    }
}
