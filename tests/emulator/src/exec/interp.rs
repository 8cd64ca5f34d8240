//! The turn of a warp: decoded instructions, each for all lanes that stand there.
//!
//! Lanes that part go on by the lowest counter, so that they meet again behind branches and loops; now and then another group is
//! chosen, so that lanes which wait for others do not keep these from running.

use super::float::{canonical, f16_to_f32, flush};
use super::lanes::{compare, float2, one, three, two};
use super::registers::{Bases, Lanes, each_lane, low, put, write_bits};
use super::{Fault, ILLEGAL_INSTRUCTION, Launch, Wait, Warp};
use crate::ptx::inst::*;

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

impl Launch {
    /// Lets a warp run for about `quantum` instructions; how many it was. 0: it could do nothing.
    pub(super) fn turn(&mut self, at: usize, quantum: u32) -> Result<u32, Fault> {
        let program = self.program.clone();
        let code = &program.code[..];
        // SAFETY: boxes do not move, and no other reference to this warp is used while the turn lasts but in `cold`, which is given it.
        let warp: &mut Warp = unsafe { &mut *std::ptr::from_mut(&mut *self.warps[at]) };
        let bases = Bases::new(warp.frame.as_mut_ptr().cast(), program.constants.as_ptr() as *mut u8);
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
                    return Err(self.located(fault, (at, pc, warp.parked)));
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
                if self.counts.on() && warp.cta == 0 {
                    self.counts.note(warp.index, pc, code.len());
                }
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
                            Ty::F32 => float2(bases, i, m, |x, y| x + y),
                            Ty::U16 | Ty::S16 | Ty::B16 => two(bases, i, m, |x: u32, y: u32| x.wrapping_add(y) & 0xFFFF),
                            Ty::F64 => two(bases, i, m, |x: f64, y: f64| x + y),
                            Ty::B64 | Ty::U64 | Ty::S64 => two(bases, i, m, u64::wrapping_add),
                            Ty::F16 | Ty::Bf16 | Ty::F16x2 | Ty::Bf16x2 => self.halves(bases, i, m),
                            _ => two(bases, i, m, u32::wrapping_add),
                        },
                        Op::Sub => match i.ty {
                            Ty::F32 => float2(bases, i, m, |x, y| x - y),
                            Ty::U16 | Ty::S16 | Ty::B16 => two(bases, i, m, |x: u32, y: u32| x.wrapping_sub(y) & 0xFFFF),
                            Ty::F64 => two(bases, i, m, |x: f64, y: f64| x - y),
                            Ty::B64 | Ty::U64 | Ty::S64 => two(bases, i, m, u64::wrapping_sub),
                            Ty::F16 | Ty::Bf16 | Ty::F16x2 | Ty::Bf16x2 => self.halves(bases, i, m),
                            _ => two(bases, i, m, u32::wrapping_sub),
                        },
                        Op::MulLo => match i.ty {
                            Ty::F32 => float2(bases, i, m, |x, y| x * y),
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
                            (Ty::F32, Ty::F16) => one(bases, i, m, |x: u32| f16_to_f32(x as u16)),
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
                            self.load(warp, bases, i, m).map_err(|fault| self.located(fault, (at, pc, m)))?;
                            if i.flag & F_RELAXED != 0 && steps > 24 {
                                leave!(mask, pc + 1);
                                useful += 1;
                                break 'group;
                            }
                        }
                        Op::St => self.store(warp, bases, i, m).map_err(|fault| self.located(fault, (at, pc, m)))?,
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
                                        return Err(
                                            self.located(Fault::from(format!("brx.idx {index} of {}", targets.len())), (at, pc, 1 << lane))
                                        );
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
                            return Err(self.located(Fault::new(ILLEGAL_INSTRUCTION, "trap"), (at, pc, m)));
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
                            match self.cold(at, warp, bases, i, mask, pc).map_err(|fault| self.located(fault, (at, pc, mask)))? {
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
                        _ => match self.cold(at, warp, bases, i, m, pc).map_err(|fault| self.located(fault, (at, pc, m)))? {
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
}
