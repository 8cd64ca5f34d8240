//! What the lanes of a warp do together: votes, exchanges, reductions.

use super::*;

impl Launch {
    pub(super) unsafe fn elect(&self, bases: Bases, i: &Inst, mask: u32) {
        // SAFETY: slots of the program.
        unsafe {
            let elected = mask.trailing_zeros();
            if i.d != NONE {
                each_lane!(mask, lane, { set(bases, i.d, 4, lane, elected.into()) });
            }
            write_bits(bases, i.c, 1 << elected, mask);
        }
    }

    pub(super) unsafe fn vote(&self, bases: Bases, i: &Inst, mask: u32) {
        // SAFETY: slots of the program.
        unsafe {
            let p = *bases.at::<u32>(i.a) & mask;
            let holds = match i.n {
                0 => p == mask,
                1 => p != 0,
                _ => p == mask || p == 0,
            };
            if i.n == 3 {
                each_lane!(mask, lane, { set(bases, i.d, 4, lane, p.into()) });
            } else {
                write_bits(bases, i.d, if holds { mask } else { 0 }, mask);
            }
        }
    }

    pub(super) unsafe fn exchange(&self, bases: Bases, i: &Inst, mask: u32) -> Result<(), Fault> {
        // SAFETY: slots of the program.
        unsafe {
            let (from, operand, limit) = (*bases.at::<Lanes<u32>>(i.a), *bases.at::<Lanes<u32>>(i.b), *bases.at::<Lanes<u32>>(i.c));
            let mut result = [0u32; 32];
            let mut found = 0u32;
            each_lane!(mask, lane, {
                let own = lane as u32;
                let (b, segment, clamp) = (operand[lane] & 31, limit[lane] >> 8 & 31, limit[lane] & 31);
                let most = (own & segment) | (clamp & !segment);
                let least = own & segment;
                let (source, inside) = match i.n {
                    0 => (own.wrapping_sub(b), own as i32 - b as i32 >= most as i32),
                    1 => (own + b, own + b <= most),
                    2 => (own ^ b, (own ^ b) <= most),
                    _ => (least | (b & !segment), (least | (b & !segment)) <= most),
                };
                let source = if inside { source } else { own };
                if mask >> source & 1 == 0 {
                    return Err(format!("shfl reads lane {source}, which does not take part").into());
                }
                found |= (inside as u32) << lane;
                result[lane] = from[source as usize];
            });
            each_lane!(mask, lane, { set(bases, i.d, 4, lane, result[lane].into()) });
            let p = self.program.lists[i.x as usize][0];
            if p != NONE {
                write_bits(bases, p, found, mask);
            }
        }
        Ok(())
    }

    pub(super) unsafe fn find_equals(&self, bases: Bases, i: &Inst, mask: u32) {
        // SAFETY: slots of the program.
        unsafe {
            let bytes = if i.ty.bytes() == 8 { 8 } else { 4 };
            let mut all = true;
            let first = get(bases, i.a, bytes, low(mask));
            each_lane!(mask, lane, { all &= get(bases, i.a, bytes, lane) == first });
            let mut result = [0u32; 32];
            each_lane!(mask, lane, {
                let own = get(bases, i.a, bytes, lane);
                each_lane!(mask, other, {
                    if get(bases, i.a, bytes, other) == own {
                        result[lane] |= 1 << other;
                    }
                });
                if i.n == 1 {
                    result[lane] = if all { mask } else { 0 };
                }
            });
            each_lane!(mask, lane, { set(bases, i.d, 4, lane, result[lane].into()) });
            if i.c != NONE {
                write_bits(bases, i.c, if all { mask } else { 0 }, mask);
            }
        }
    }

    pub(super) unsafe fn reduce(&self, bases: Bases, i: &Inst, mask: u32) {
        // SAFETY: slots of the program.
        unsafe {
            let mut result = *bases.at::<u32>(i.a).add(low(mask));
            each_lane!(mask & (mask - 1), lane, {
                let x = *bases.at::<u32>(i.a).add(lane);
                result = match (i.n, i.ty.signed()) {
                    (0, _) => result.wrapping_add(x),
                    (1, false) => result.min(x),
                    (1, true) => (result as i32).min(x as i32) as u32,
                    (2, false) => result.max(x),
                    (2, true) => (result as i32).max(x as i32) as u32,
                    (3, _) => result & x,
                    (4, _) => result | x,
                    _ => result ^ x,
                };
            });
            each_lane!(mask, lane, { set(bases, i.d, 4, lane, result.into()) });
        }
    }
}
