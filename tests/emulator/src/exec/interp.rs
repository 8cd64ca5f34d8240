//! The turn of a warp: decoded instructions, each for all lanes that stand there.
//!
//! Lanes that part go on by the lowest counter, so that they meet again behind branches and loops; now and then another group is
//! chosen, so that lanes which wait for others do not keep these from running.

use super::float::{canonical, flush};
use super::{Fault, ILLEGAL_ADDRESS, Launch, MISALIGNED_ADDRESS, Wait};
use crate::ptx::inst::*;
use crate::ptx::module::SHARED_START;

pub(super) type Lanes<T> = [T; 32];

/// What an instruction outside the loop of a turn says.
pub(super) enum Then {
    /// On to the next one.
    On,
    /// These lanes try again in a later turn.
    Stall,
    /// The warp waits, and does the instruction again.
    Sleep(Wait),
    /// On, but let others run first.
    Yield,
}

#[derive(Clone, Copy)]
pub(super) struct Bases([*mut u8; 2]);

impl Bases {
    /// # Safety
    /// `slot` is one of the program's.
    #[inline(always)]
    pub unsafe fn at<T>(self, slot: Slot) -> *mut T {
        // SAFETY: promised by the caller.
        unsafe { self.0[(slot >> 31) as usize].add((slot & !CONSTANT) as usize).cast() }
    }
}

#[inline(always)]
unsafe fn put<T: Copy>(to: *mut Lanes<T>, values: &Lanes<T>, mask: u32) {
    // SAFETY: (of the whole function) slots of the program.
    unsafe {
        if mask == u32::MAX {
            *to = *values;
        } else {
            let mut rest = mask;
            while rest != 0 {
                let lane = rest.trailing_zeros() as usize;
                (*to)[lane] = values[lane];
                rest &= rest - 1;
            }
        }
    }
}

#[inline(always)]
unsafe fn one<A: Copy, D: Copy + Default>(b: Bases, i: &Inst, mask: u32, f: impl Fn(A) -> D) {
    // SAFETY: slots of the program.
    unsafe {
        let x: Lanes<A> = *b.at::<Lanes<A>>(i.a);
        let mut r = [D::default(); 32];
        for lane in 0..32 {
            r[lane] = f(x[lane]);
        }
        put(b.at(i.d), &r, mask);
    }
}

#[inline(always)]
unsafe fn two<A: Copy, B: Copy, D: Copy + Default>(b: Bases, i: &Inst, mask: u32, f: impl Fn(A, B) -> D) {
    // SAFETY: slots of the program.
    unsafe {
        let x: Lanes<A> = *b.at::<Lanes<A>>(i.a);
        let y: Lanes<B> = *b.at::<Lanes<B>>(i.b);
        let mut r = [D::default(); 32];
        for lane in 0..32 {
            r[lane] = f(x[lane], y[lane]);
        }
        put(b.at(i.d), &r, mask);
    }
}

#[inline(always)]
unsafe fn three<A: Copy, B: Copy, C: Copy, D: Copy + Default>(b: Bases, i: &Inst, mask: u32, f: impl Fn(A, B, C) -> D) {
    // SAFETY: slots of the program.
    unsafe {
        let x: Lanes<A> = *b.at::<Lanes<A>>(i.a);
        let y: Lanes<B> = *b.at::<Lanes<B>>(i.b);
        let z: Lanes<C> = *b.at::<Lanes<C>>(i.c);
        let mut r = [D::default(); 32];
        for lane in 0..32 {
            r[lane] = f(x[lane], y[lane], z[lane]);
        }
        put(b.at(i.d), &r, mask);
    }
}

#[inline(always)]
unsafe fn compare<T: Copy + PartialOrd>(b: Bases, i: &Inst) -> u32 {
    // SAFETY: slots of the program.
    unsafe {
        let x: Lanes<T> = *b.at::<Lanes<T>>(i.a);
        let y: Lanes<T> = *b.at::<Lanes<T>>(i.b);
        let cmp: Cmp = std::mem::transmute(i.n);
        macro_rules! bits {
            ($f:expr) => {{
                let mut bits = 0u32;
                for lane in 0..32 {
                    bits |= ($f(x[lane], y[lane]) as u32) << lane;
                }
                bits
            }};
        }
        match cmp {
            Cmp::Eq => bits!(|x: T, y: T| x == y),
            Cmp::Neu => bits!(|x: T, y: T| x != y),
            Cmp::Lt => bits!(|x: T, y: T| x < y),
            Cmp::Le => bits!(|x: T, y: T| x <= y),
            Cmp::Gt => bits!(|x: T, y: T| x > y),
            Cmp::Ge => bits!(|x: T, y: T| x >= y),
            other => bits!(|x: T, y: T| other.holds(x, y)),
        }
    }
}

#[inline(always)]
unsafe fn write_bits(b: Bases, slot: Slot, bits: u32, mask: u32) {
    // SAFETY: slots of the program.
    unsafe {
        let to = b.at::<u32>(slot);
        *to = *to & !mask | bits & mask;
    }
}

#[inline(always)]
fn low(mask: u32) -> usize {
    mask.trailing_zeros() as usize
}

macro_rules! each_lane {
    ($mask:expr, $lane:ident, $body:block) => {{
        let mut rest: u32 = $mask;
        while rest != 0 {
            let $lane = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            $body
        }
    }};
}
pub(super) use each_lane;

impl Launch {
    /// Lets a warp run for about `quantum` instructions; how many it was. 0: it could do nothing.
    pub(super) fn turn(&mut self, at: usize, quantum: u32) -> Result<u32, Fault> {
        let program = self.program.clone();
        let code = &program.code[..];
        // SAFETY: boxes do not move, and no other reference to this warp is used while the turn lasts but in `cold`, which is given it.
        let warp: &mut super::Warp = unsafe { &mut *std::ptr::from_mut(&mut *self.warps[at]) };
        let bases = Bases([warp.frame.as_mut_ptr().cast(), program.constants.as_ptr() as *mut u8]);
        // 64-byte alignment is not needed: all accesses are of the elements' alignment.
        self.last = (0, 0);
        warp.stalled = 0;
        warp.turns += 1;
        let mut steps = 0u32;
        let mut useful = 0u32;
        let mut choose = warp.turns & 7 == 0;
        'group: loop {
            let runnable = warp.live & !warp.parked & !warp.stalled;
            if runnable == 0 {
                if warp.live != 0 && warp.stalled == 0 {
                    let pc = warp.pc[low(warp.parked)];
                    let lanes: Vec<String> = (0..32usize)
                        .filter(|lane| warp.live >> lane & 1 == 1)
                        .map(|lane| format!("{lane}:{}", code[warp.pc[lane] as usize].line))
                        .collect();
                    let fault = Fault::from(format!(
                        "lanes of a warp wait for each other at different instructions (lane:PTX line): {}",
                        lanes.join(" ")
                    ));
                    return Err(self.located(fault, at, pc, warp.parked));
                }
                break;
            }
            let mut pc = u32::MAX;
            each_lane!(runnable, lane, { pc = pc.min(warp.pc[lane]) });
            if choose {
                choose = false;
                let mut pick = self.random.below(runnable.count_ones());
                each_lane!(runnable, lane, {
                    if pick == 0 {
                        pc = warp.pc[lane];
                        break;
                    }
                    pick -= 1;
                });
            }
            let (mut mask, mut next) = (0u32, u32::MAX);
            each_lane!(runnable, lane, {
                let other = warp.pc[lane];
                if other == pc {
                    mask |= 1 << lane;
                } else if other > pc {
                    next = next.min(other);
                }
            });
            macro_rules! leave {
                ($mask:expr, $pc:expr) => {{
                    let to = $pc;
                    each_lane!($mask, lane, { warp.pc[lane] = to });
                }};
            }
            loop {
                if pc >= next || steps >= quantum {
                    leave!(mask, pc);
                    if steps >= quantum {
                        break 'group;
                    }
                    continue 'group;
                }
                let i = &code[pc as usize];
                steps += 1;
                let mut m = mask;
                if i.guard != NONE {
                    // SAFETY: a slot of the program.
                    let guard = unsafe { *bases.at::<u32>(i.guard) };
                    m &= if i.guard_not { !guard } else { guard };
                    if m == 0 {
                        pc += 1;
                        continue;
                    }
                }
                // SAFETY: slots of the program, with registers of the sizes that the decoder has seen to.
                unsafe {
                    match i.op {
                        Op::Nop => {}
                        Op::Mov => match i.dw {
                            1 => write_bits(bases, i.d, *bases.at::<u32>(i.a), m),
                            8 => put(bases.at(i.d), &*bases.at::<Lanes<u64>>(i.a), m),
                            _ => put(bases.at(i.d), &*bases.at::<Lanes<u32>>(i.a), m),
                        },
                        Op::Add => match i.ty {
                            Ty::F32 => self.float2(bases, i, m, |x, y| x + y),
                            Ty::U16 | Ty::S16 | Ty::B16 => two(bases, i, m, |x: u32, y: u32| x.wrapping_add(y) & 0xFFFF),
                            Ty::F64 => two(bases, i, m, |x: f64, y: f64| x + y),
                            Ty::B64 | Ty::U64 | Ty::S64 => two(bases, i, m, u64::wrapping_add),
                            Ty::F16 | Ty::Bf16 | Ty::F16x2 | Ty::Bf16x2 => self.halves(bases, i, m),
                            _ => two(bases, i, m, u32::wrapping_add),
                        },
                        Op::Sub => match i.ty {
                            Ty::F32 => self.float2(bases, i, m, |x, y| x - y),
                            Ty::U16 | Ty::S16 | Ty::B16 => two(bases, i, m, |x: u32, y: u32| x.wrapping_sub(y) & 0xFFFF),
                            Ty::F64 => two(bases, i, m, |x: f64, y: f64| x - y),
                            Ty::B64 | Ty::U64 | Ty::S64 => two(bases, i, m, u64::wrapping_sub),
                            Ty::F16 | Ty::Bf16 | Ty::F16x2 | Ty::Bf16x2 => self.halves(bases, i, m),
                            _ => two(bases, i, m, u32::wrapping_sub),
                        },
                        Op::MulLo => match i.ty {
                            Ty::F32 => self.float2(bases, i, m, |x, y| x * y),
                            Ty::U16 | Ty::S16 | Ty::B16 => two(bases, i, m, |x: u32, y: u32| x.wrapping_mul(y) & 0xFFFF),
                            Ty::F64 => two(bases, i, m, |x: f64, y: f64| x * y),
                            Ty::B64 | Ty::U64 | Ty::S64 => two(bases, i, m, u64::wrapping_mul),
                            Ty::F16 | Ty::Bf16 | Ty::F16x2 | Ty::Bf16x2 => self.halves(bases, i, m),
                            _ => two(bases, i, m, u32::wrapping_mul),
                        },
                        Op::MulWide => match i.ty {
                            Ty::S32 => two(bases, i, m, |x: i32, y: i32| i64::from(x) * i64::from(y)),
                            Ty::U16 => two(bases, i, m, |x: u32, y: u32| (x & 0xFFFF) * (y & 0xFFFF)),
                            Ty::S16 => two(bases, i, m, |x: u32, y: u32| i32::from(x as i16) * i32::from(y as i16)),
                            _ => two(bases, i, m, |x: u32, y: u32| u64::from(x) * u64::from(y)),
                        },
                        Op::MadLo => match i.ty {
                            Ty::U16 | Ty::S16 => three(bases, i, m, |x: u32, y: u32, z: u32| x.wrapping_mul(y).wrapping_add(z) & 0xFFFF),
                            Ty::U64 | Ty::S64 => three(bases, i, m, |x: u64, y: u64, z: u64| x.wrapping_mul(y).wrapping_add(z)),
                            _ => three(bases, i, m, |x: u32, y: u32, z: u32| x.wrapping_mul(y).wrapping_add(z)),
                        },
                        Op::Fma => match i.ty {
                            Ty::F32 => {
                                if i.flag & (F_FTZ | F_SAT) != 0 {
                                    self.slow(bases, i, m)?;
                                } else {
                                    three(bases, i, m, |x: f32, y: f32, z: f32| canonical(x.mul_add(y, z)));
                                }
                            }
                            Ty::F64 => three(bases, i, m, |x: f64, y: f64, z: f64| x.mul_add(y, z)),
                            _ => self.halves(bases, i, m),
                        },
                        Op::And => match i.ty {
                            Ty::Pred => write_bits(bases, i.d, *bases.at::<u32>(i.a) & *bases.at::<u32>(i.b), m),
                            Ty::B64 => two(bases, i, m, |x: u64, y: u64| x & y),
                            _ => two(bases, i, m, |x: u32, y: u32| x & y),
                        },
                        Op::Or => match i.ty {
                            Ty::Pred => write_bits(bases, i.d, *bases.at::<u32>(i.a) | *bases.at::<u32>(i.b), m),
                            Ty::B64 => two(bases, i, m, |x: u64, y: u64| x | y),
                            _ => two(bases, i, m, |x: u32, y: u32| x | y),
                        },
                        Op::Xor => match i.ty {
                            Ty::Pred => write_bits(bases, i.d, *bases.at::<u32>(i.a) ^ *bases.at::<u32>(i.b), m),
                            Ty::B64 => two(bases, i, m, |x: u64, y: u64| x ^ y),
                            _ => two(bases, i, m, |x: u32, y: u32| x ^ y),
                        },
                        Op::Not => match i.ty {
                            Ty::Pred => write_bits(bases, i.d, !*bases.at::<u32>(i.a), m),
                            Ty::B64 => one(bases, i, m, |x: u64| !x),
                            Ty::B16 => one(bases, i, m, |x: u32| !x & 0xFFFF),
                            _ => one(bases, i, m, |x: u32| !x),
                        },
                        Op::Shl => match i.ty.bytes() {
                            8 => two(bases, i, m, |x: u64, y: u32| if y > 63 { 0 } else { x << y }),
                            2 => two(bases, i, m, |x: u32, y: u32| if y > 15 { 0 } else { x << y & 0xFFFF }),
                            _ => two(bases, i, m, |x: u32, y: u32| if y > 31 { 0 } else { x << y }),
                        },
                        Op::Shr => match i.ty {
                            Ty::S64 => two(bases, i, m, |x: i64, y: u32| x >> y.min(63)),
                            Ty::S32 => two(bases, i, m, |x: i32, y: u32| x >> y.min(31)),
                            Ty::S16 => two(bases, i, m, |x: u32, y: u32| (x as i16 >> y.min(15)) as u16 as u32),
                            Ty::U64 | Ty::B64 => two(bases, i, m, |x: u64, y: u32| if y > 63 { 0 } else { x >> y }),
                            Ty::U16 | Ty::B16 => two(bases, i, m, |x: u32, y: u32| if y > 15 { 0 } else { (x & 0xFFFF) >> y }),
                            _ => two(bases, i, m, |x: u32, y: u32| if y > 31 { 0 } else { x >> y }),
                        },
                        Op::Selp => {
                            let p = *bases.at::<u32>(i.c);
                            if i.dw == 8 {
                                let (x, y) = (*bases.at::<Lanes<u64>>(i.a), *bases.at::<Lanes<u64>>(i.b));
                                let r: Lanes<u64> = std::array::from_fn(|l| if p >> l & 1 == 1 { x[l] } else { y[l] });
                                put(bases.at(i.d), &r, m);
                            } else {
                                let (x, y) = (*bases.at::<Lanes<u32>>(i.a), *bases.at::<Lanes<u32>>(i.b));
                                let r: Lanes<u32> = std::array::from_fn(|l| if p >> l & 1 == 1 { x[l] } else { y[l] });
                                put(bases.at(i.d), &r, m);
                            }
                        }
                        Op::Setp => {
                            let mut bits = match i.ty {
                                Ty::U32 | Ty::B32 => compare::<u32>(bases, i),
                                Ty::S32 => compare::<i32>(bases, i),
                                Ty::U64 | Ty::B64 => compare::<u64>(bases, i),
                                Ty::S64 => compare::<i64>(bases, i),
                                Ty::F32 => compare::<f32>(bases, i),
                                Ty::F64 => compare::<f64>(bases, i),
                                _ => self.compare_slowly(bases, i)?,
                            };
                            let mut other = !bits;
                            if i.c != NONE {
                                let c = *bases.at::<u32>(i.c);
                                let join = |x: u32| match i.aw {
                                    1 => x & c,
                                    2 => x | c,
                                    _ => x ^ c,
                                };
                                (bits, other) = (join(bits), join(other));
                            }
                            if i.d != NONE {
                                write_bits(bases, i.d, bits, m);
                            }
                            if i.x as u32 != NONE {
                                write_bits(bases, i.x as u32, other, m);
                            }
                        }
                        Op::Cvt => match (i.ty, i.ty2) {
                            (Ty::U64 | Ty::S64 | Ty::B64, Ty::U32 | Ty::B32) if i.aw == 4 => one(bases, i, m, |x: u32| u64::from(x)),
                            (Ty::S64 | Ty::U64, Ty::S32) if i.aw == 4 => one(bases, i, m, |x: i32| i64::from(x)),
                            (Ty::U32 | Ty::S32 | Ty::B32, Ty::U64 | Ty::S64 | Ty::B64) if i.dw == 4 && i.flag == 0 => {
                                one(bases, i, m, |x: u64| x as u32)
                            }
                            (Ty::U32 | Ty::S32, Ty::U16) if i.dw == 4 => one(bases, i, m, |x: u32| x & 0xFFFF),
                            (Ty::F32, Ty::F16) => one(bases, i, m, |x: u32| super::float::f16_to_f32(x as u16)),
                            (Ty::F32, Ty::S32) if i.n == Round::Nearest as u8 => one(bases, i, m, |x: i32| x as f32),
                            (Ty::F32, Ty::U32) if i.n == Round::Nearest as u8 => one(bases, i, m, |x: u32| x as f32),
                            _ => self.convert(bases, i, m)?,
                        },
                        Op::Min | Op::Max => {
                            let max = i.op == Op::Max;
                            match i.ty {
                                Ty::U32 => two(bases, i, m, |x: u32, y: u32| if max { x.max(y) } else { x.min(y) }),
                                Ty::S32 => two(bases, i, m, |x: i32, y: i32| if max { x.max(y) } else { x.min(y) }),
                                Ty::U64 => two(bases, i, m, |x: u64, y: u64| if max { x.max(y) } else { x.min(y) }),
                                Ty::S64 => two(bases, i, m, |x: i64, y: i64| if max { x.max(y) } else { x.min(y) }),
                                Ty::U16 => two(bases, i, m, |x: u32, y: u32| if max { x.max(y) } else { x.min(y) }),
                                Ty::S16 => two(bases, i, m, |x: u32, y: u32| {
                                    let (x, y) = (x as i16, y as i16);
                                    (if max { x.max(y) } else { x.min(y) }) as u16 as u32
                                }),
                                _ => self.slow(bases, i, m)?,
                            }
                        }
                        Op::Bfe => match i.ty {
                            Ty::U32 => three(bases, i, m, |x: u32, at: u32, bits: u32| {
                                let (at, bits) = (at & 0xFF, bits & 0xFF);
                                let shifted = if at > 31 { 0 } else { x >> at };
                                if bits > 31 { shifted } else { shifted & ((1 << bits) - 1) }
                            }),
                            _ => self.slow(bases, i, m)?,
                        },
                        Op::Popc => match i.ty.bytes() {
                            8 => one(bases, i, m, |x: u64| x.count_ones()),
                            _ => one(bases, i, m, |x: u32| x.count_ones()),
                        },
                        Op::Clz => match i.ty.bytes() {
                            8 => one(bases, i, m, |x: u64| x.leading_zeros()),
                            _ => one(bases, i, m, |x: u32| x.leading_zeros()),
                        },
                        Op::ShfL | Op::ShfR => {
                            let (left, wrap) = (i.op == Op::ShfL, i.n == 1);
                            three(bases, i, m, |x: u32, y: u32, c: u32| {
                                let count = if wrap { c & 31 } else { c.min(32) };
                                let both = u64::from(y) << 32 | u64::from(x);
                                if left { ((both << count) >> 32) as u32 } else { (both >> count) as u32 }
                            });
                        }
                        Op::Ex2 if i.ty == Ty::F32 => one(bases, i, m, |x: f32| {
                            let x = flush(x);
                            canonical(flush(f64::from(x).exp2() as f32))
                        }),
                        Op::Neg => match i.ty {
                            Ty::F32 => one(bases, i, m, |x: u32| x ^ 0x8000_0000),
                            Ty::S32 => one(bases, i, m, |x: u32| x.wrapping_neg()),
                            Ty::S64 => one(bases, i, m, |x: u64| x.wrapping_neg()),
                            Ty::S16 => one(bases, i, m, |x: u32| x.wrapping_neg() & 0xFFFF),
                            _ => self.slow(bases, i, m)?,
                        },
                        Op::Special => self.special(warp, bases, i, m, steps),
                        Op::Ld => {
                            self.load(warp, bases, i, m).map_err(|fault| self.located(fault, at, pc, m))?;
                            if i.flag == 1 && steps > 24 {
                                leave!(mask, pc + 1);
                                useful += 1;
                                break 'group;
                            }
                        }
                        Op::St => self.store(warp, bases, i, m).map_err(|fault| self.located(fault, at, pc, m))?,
                        Op::Bra => {
                            let target = i.x as u32;
                            if m == mask {
                                pc = target;
                            } else {
                                leave!(m, target);
                                leave!(mask & !m, pc + 1);
                                useful += 1;
                                continue 'group;
                            }
                            continue;
                        }
                        Op::Call => {
                            let back = [pc + 1; 32];
                            put(bases.at(i.a), &back, m);
                            leave!(m, i.x as u32);
                            leave!(mask & !m, pc + 1);
                            useful += 1;
                            continue 'group;
                        }
                        Op::Ret => {
                            let back = *bases.at::<Lanes<u32>>(i.a);
                            each_lane!(m, lane, { warp.pc[lane] = back[lane] });
                            leave!(mask & !m, pc + 1);
                            useful += 1;
                            continue 'group;
                        }
                        Op::Brx => {
                            let targets = &program.lists[i.x as usize];
                            let index = *bases.at::<Lanes<u32>>(i.a);
                            leave!(mask & !m, pc + 1);
                            for (lane, &index) in index.iter().enumerate() {
                                if m >> lane & 1 == 1 {
                                    let Some(&target) = targets.get(index as usize) else {
                                        return Err(self.located(
                                            Fault::from(format!("brx.idx {index} of {}", targets.len())),
                                            at,
                                            pc,
                                            1 << lane,
                                        ));
                                    };
                                    warp.pc[lane] = target;
                                }
                            }
                            useful += 1;
                            continue 'group;
                        }
                        Op::Exit => {
                            leave!(mask & !m, pc + 1);
                            leave!(m, pc);
                            warp.live &= !m;
                            useful += 1;
                            continue 'group;
                        }
                        Op::Trap => {
                            leave!(mask, pc);
                            return Err(self.located(Fault::new(LAUNCH_FAILED_BY_TRAP, "trap"), at, pc, m));
                        }
                        Op::Vote
                        | Op::Shfl
                        | Op::Match
                        | Op::Redux
                        | Op::Elect
                        | Op::BarWarp
                        | Op::Bar
                        | Op::LdMatrix
                        | Op::StMatrix
                        | Op::Mma
                        | Op::Wgmma
                        | Op::WgmmaFence
                        | Op::WgmmaCommit
                        | Op::WgmmaWait
                        | Op::ClusterArrive
                        | Op::ClusterWait => {
                            // Collectives: all lanes that are meant have to come.
                            if m != mask {
                                leave!(mask & !m, pc + 1);
                                mask = m;
                                next = next.min(pc + 1);
                            }
                            let needed = match i.op {
                                Op::Vote | Op::Match | Op::Redux | Op::Elect | Op::BarWarp => {
                                    (*bases.at::<Lanes<u32>>(i.b))[low(m)] & warp.live
                                }
                                Op::Shfl => (*bases.at::<Lanes<u32>>(program.lists[i.x as usize][1]))[low(m)] & warp.live,
                                _ => warp.live,
                            };
                            let mut here = mask;
                            each_lane!(warp.parked, lane, {
                                if warp.pc[lane] == pc {
                                    here |= 1 << lane;
                                }
                            });
                            if here & needed != needed {
                                leave!(mask, pc);
                                warp.parked |= mask;
                                continue 'group;
                            }
                            warp.parked &= !here;
                            mask = here;
                            match self.cold(at, warp, bases, i, mask, pc).map_err(|fault| self.located(fault, at, pc, mask))? {
                                Then::On => {}
                                Then::Sleep(wait) => {
                                    leave!(mask, pc);
                                    warp.wait = wait;
                                    break 'group;
                                }
                                Then::Stall => {
                                    leave!(mask, pc);
                                    warp.stalled |= mask;
                                    continue 'group;
                                }
                                Then::Yield => {
                                    leave!(mask, pc + 1);
                                    useful += 1;
                                    break 'group;
                                }
                            }
                        }
                        _ => match self.cold(at, warp, bases, i, m, pc).map_err(|fault| self.located(fault, at, pc, m))? {
                            Then::On => {}
                            Then::Sleep(wait) => {
                                // Only a warp that has not parted sleeps as a whole.
                                let again = !matches!(wait, Wait::Until(_) | Wait::Mbarrier { .. });
                                leave!(mask, if again { pc } else { pc + 1 });
                                if mask == warp.live {
                                    warp.wait = wait;
                                } else if again {
                                    warp.stalled |= mask;
                                    continue 'group;
                                }
                                useful += !again as u32;
                                break 'group;
                            }
                            Then::Stall => {
                                leave!(mask, pc);
                                warp.stalled |= m;
                                leave!(mask & !m, pc + 1);
                                continue 'group;
                            }
                            Then::Yield => {
                                leave!(mask, pc + 1);
                                useful += 1;
                                break 'group;
                            }
                        },
                    }
                }
                useful += 1;
                pc += 1;
            }
        }
        self.instructions += u64::from(useful);
        Ok(if useful == 0 { 0 } else { steps.max(1) })
    }

    #[inline(always)]
    unsafe fn float2(&mut self, bases: Bases, i: &Inst, mask: u32, f: impl Fn(f32, f32) -> f32) {
        // SAFETY: slots of the program.
        unsafe {
            if i.flag & (F_FTZ | F_SAT) == 0 {
                two(bases, i, mask, |x: f32, y: f32| canonical(f(x, y)));
            } else {
                let (ftz, sat) = (i.flag & F_FTZ != 0, i.flag & F_SAT != 0);
                two(bases, i, mask, |x: f32, y: f32| {
                    let mut r = if ftz { flush(f(flush(x), flush(y))) } else { f(x, y) };
                    if sat {
                        r = if r.is_nan() { 0.0 } else { r.clamp(0.0, 1.0) };
                    }
                    canonical(r)
                });
            }
        }
    }

    /// Host address of bytes that the program names.
    #[inline(always)]
    pub(super) fn reach(&mut self, warp: &mut super::Warp, space: Space, address: u64, bytes: u64, lane: usize) -> Result<*mut u8, Fault> {
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
    fn reach_far(&mut self, warp: &mut super::Warp, space: Space, address: u64, bytes: u64, lane: usize) -> Result<*mut u8, Fault> {
        self.failed = lane as u32;
        if space == Space::Generic && address >> 32 == super::SHARED_WINDOW >> 32 {
            let found = self.reach_shared(warp.cta, address & 0xFFFF_FFFF, bytes)?;
            self.failed = 32;
            return Ok(found);
        }
        if space == Space::Local || space == Space::Generic && address >> 32 == super::LOCAL_WINDOW >> 32 {
            let size = u64::from(self.program.local);
            let at = address & 0xFFFF_FFFF;
            if at + bytes > size {
                return Err(Fault::new(ILLEGAL_ADDRESS, format!("{bytes} bytes of local memory at {at:#x} lie outside {size:#x}")));
            }
            self.failed = 32;
            return Ok(&raw mut warp.local[lane * size as usize + at as usize]);
        }
        match crate::memory::find(address) {
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

    #[inline(always)]
    unsafe fn address(bases: Bases, i: &Inst, lane: usize) -> u64 {
        // SAFETY: slots of the program.
        unsafe {
            let base = if i.aw == 8 { *bases.at::<u64>(i.a).add(lane) } else { u64::from(*bases.at::<u32>(i.a).add(lane)) };
            let at = base.wrapping_add(i64::from(i.x) as u64);
            if i.aw == 8 { at } else { at & 0xFFFF_FFFF }
        }
    }

    #[inline(always)]
    unsafe fn load(&mut self, warp: &mut super::Warp, bases: Bases, i: &Inst, mask: u32) -> Result<(), Fault> {
        let bytes = i.ty.bytes();
        // SAFETY: slots of the program; addresses are checked.
        unsafe {
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
                    match i.dw {
                        8 => *bases.at::<u64>(slot).add(lane) = value,
                        2 => *bases.at::<u32>(slot).add(lane) = value as u32 & 0xFFFF,
                        _ => *bases.at::<u32>(slot).add(lane) = value as u32,
                    }
                }
            });
        }
        Ok(())
    }

    #[inline(always)]
    unsafe fn store(&mut self, warp: &mut super::Warp, bases: Bases, i: &Inst, mask: u32) -> Result<(), Fault> {
        let bytes = i.ty.bytes();
        self.patience = 1;
        // SAFETY: slots of the program; addresses are checked.
        unsafe {
            let program: *const Program = &*self.program;
            let single = [i.d];
            let slots: &[Slot] = if i.n == 1 { &single } else { &(&(*program).lists)[i.d as usize] };
            each_lane!(mask, lane, {
                let address = Self::address(bases, i, lane);
                let to = self.reach(warp, i.space, address, u64::from(bytes) * u64::from(i.n), lane)?;
                if i.space == Space::Shared || address >> 32 == super::SHARED_WINDOW >> 32 {
                    self.no_mbarrier(warp.cta, address as u32, bytes * u32::from(i.n))?;
                    if self.proxies.on {
                        self.wrote_shared(warp, lane, address as u32, bytes * u32::from(i.n));
                    }
                } else if self.proxies.on {
                    self.wrote_global(warp, lane, address, bytes * u32::from(i.n));
                }
                for (index, &slot) in slots.iter().enumerate() {
                    let to = to.add(index * bytes as usize);
                    let value = if i.dw == 8 { *bases.at::<u64>(slot).add(lane) } else { u64::from(*bases.at::<u32>(slot).add(lane)) };
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

    /// Refuses writes over a live mbarrier.
    #[inline(always)]
    pub(super) fn no_mbarrier(&self, own: usize, at: u32, bytes: u32) -> Result<(), Fault> {
        let cta = &self.ctas[if at >> 24 == 0 { own } else { self.ctas[own].first + (at >> 24) as usize - 1 }];
        let at = at & 0xFF_FFFF;
        for unit in at / 8..=(at + bytes - 1) / 8 {
            if cta.mbarriers[unit as usize / 64] >> (unit % 64) & 1 == 1 {
                return Err(format!("a store of {bytes} bytes to shared memory at {at:#x} hits a live mbarrier").into());
            }
        }
        Ok(())
    }
}

/// What a trap ends a launch with.
const LAUNCH_FAILED_BY_TRAP: u32 = super::ILLEGAL_INSTRUCTION;
