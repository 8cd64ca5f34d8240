//! Instructions that are rare, or long anyway.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::asynchronous::Copy;
use super::float::{self, canonical, flush};
use super::interp::{Bases, Lanes, Then, each_lane};
use super::tensor::{self, Map};
use super::{Barrier, Fault, Group, Groups, ILLEGAL_ADDRESS, Launch, MISALIGNED_ADDRESS, Wait, Warp};
use crate::ptx::inst::*;
use crate::ptx::module::SHARED_START;

fn low(mask: u32) -> usize {
    mask.trailing_zeros() as usize
}

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

/// The value of a lane's register, of so many bytes.
unsafe fn get(bases: Bases, slot: Slot, bytes: u8, lane: usize) -> u64 {
    // SAFETY: a slot of the program.
    unsafe { if bytes == 8 { *bases.at::<u64>(slot).add(lane) } else { u64::from(*bases.at::<u32>(slot).add(lane)) } }
}

unsafe fn set(bases: Bases, slot: Slot, bytes: u8, lane: usize, value: u64) {
    // SAFETY: a slot of the program.
    unsafe {
        match bytes {
            8 => *bases.at::<u64>(slot).add(lane) = value,
            2 => *bases.at::<u32>(slot).add(lane) = value as u32 & 0xFFFF,
            _ => *bases.at::<u32>(slot).add(lane) = value as u32,
        }
    }
}

fn sign_extend(ty: Ty, bits: u64) -> i64 {
    match ty.bytes() {
        1 => i64::from(bits as i8),
        2 => i64::from(bits as i16),
        4 => i64::from(bits as i32),
        _ => bits as i64,
    }
}

fn zero_extend(ty: Ty, bits: u64) -> u64 {
    match ty.bytes() {
        1 => bits & 0xFF,
        2 => bits & 0xFFFF,
        4 => bits & 0xFFFF_FFFF,
        _ => bits,
    }
}

impl Launch {
    /// Packed and half-precision arithmetic.
    pub(super) unsafe fn halves(&mut self, bases: Bases, i: &Inst, mask: u32) {
        let scalar = matches!(i.ty, Ty::F16 | Ty::Bf16);
        let ty = if matches!(i.ty, Ty::F16 | Ty::F16x2) { Ty::F16 } else { Ty::Bf16 };
        each_lane!(mask, lane, {
            // SAFETY: slots of the program.
            unsafe {
                let read = |slot: Slot| if slot == NONE { 0 } else { get(bases, slot, 4, lane) };
                let (a, b, c) = (read(i.a), read(i.b), read(i.c));
                let mut result = 0u64;
                for half in 0..if scalar { 1 } else { 2 } {
                    let part = |x: u64| float::widen(ty, x >> (16 * half) & 0xFFFF);
                    let (x, y, z) = (part(a), part(b), part(c));
                    let value = match i.op {
                        Op::Add => x + y,
                        Op::Sub => x - y,
                        Op::MulLo => x * y,
                        Op::Fma => x.mul_add(y, z),
                        Op::Neg => -x,
                        Op::Abs => x.abs(),
                        Op::Min | Op::Max => pick(x, y, i.op == Op::Max, i.flag & F_NAN != 0),
                        Op::Ex2 => x.exp2(),
                        Op::Tanh => x.tanh(),
                        _ => f64::NAN,
                    };
                    result |= float::narrow(ty, value, Round::Nearest, i.flag) << (16 * half);
                }
                set(bases, i.d, 4, lane, result);
            }
        });
    }

    pub(super) unsafe fn compare_slowly(&mut self, bases: Bases, i: &Inst) -> Result<u32, Fault> {
        // SAFETY: a comparison that the decoder wrote.
        let cmp: Cmp = unsafe { std::mem::transmute(i.n) };
        let mut bits = 0;
        for lane in 0..32 {
            // SAFETY: slots of the program.
            let (a, b) = unsafe { (get(bases, i.a, 4, lane), get(bases, i.b, 4, lane)) };
            let holds = match i.ty {
                Ty::U16 | Ty::B16 => cmp.holds(a as u16, b as u16),
                Ty::S16 => cmp.holds(a as i16, b as i16),
                Ty::F16 | Ty::Bf16 => cmp.holds(float::widen(i.ty, a), float::widen(i.ty, b)),
                _ => return Err(format!("setp of {:?}", i.ty).into()),
            };
            bits |= (holds as u32) << lane;
        }
        Ok(bits)
    }

    /// Anything element-wise that the loop of a turn does not do itself.
    pub(super) unsafe fn slow(&mut self, bases: Bases, i: &Inst, mask: u32) -> Result<(), Fault> {
        if matches!(i.ty, Ty::F16 | Ty::Bf16 | Ty::F16x2 | Ty::Bf16x2) {
            // SAFETY: as here.
            unsafe { self.halves(bases, i, mask) };
            return Ok(());
        }
        let wide = if i.ty.bytes() == 8 { 8 } else { 4 };
        each_lane!(mask, lane, {
            // SAFETY: slots of the program.
            unsafe {
                let read = |slot: Slot, bytes: u8| if slot == NONE { 0 } else { get(bases, slot, bytes, lane) };
                let a = read(i.a, wide);
                let value: u64 = if i.ty == Ty::F32 {
                    let ftz = i.flag & F_FTZ != 0;
                    let f = |bits: u64| {
                        let x = f32::from_bits(bits as u32);
                        if ftz { flush(x) } else { x }
                    };
                    let (x, y, z) = (f(a), f(read(i.b, 4)), f(read(i.c, 4)));
                    let r = match i.op {
                        Op::Div => x / y,
                        Op::Min | Op::Max => pick(x.into(), y.into(), i.op == Op::Max, i.flag & F_NAN != 0) as f32,
                        Op::Neg => -x,
                        Op::Abs => x.abs(),
                        Op::Fma => x.mul_add(y, z),
                        Op::Rcp => 1.0 / x,
                        Op::Sqrt => x.sqrt(),
                        Op::Rsqrt => (1.0 / f64::from(x).sqrt()) as f32,
                        Op::Lg2 => f64::from(x).log2() as f32,
                        Op::Sin => f64::from(x).sin() as f32,
                        Op::Cos => f64::from(x).cos() as f32,
                        Op::Tanh => f64::from(x).tanh() as f32,
                        Op::Ex2 => f64::from(x).exp2() as f32,
                        Op::Copysign => y.copysign(x),
                        op => return Err(format!("{op:?} of {:?}", i.ty).into()),
                    };
                    let mut r = if ftz { flush(r) } else { r };
                    if i.flag & F_SAT != 0 {
                        r = if r.is_nan() { 0.0 } else { r.clamp(0.0, 1.0) };
                    }
                    let bits = if matches!(i.op, Op::Neg | Op::Abs | Op::Copysign) { r.to_bits() } else { canonical(r).to_bits() };
                    u64::from(bits)
                } else if i.ty == Ty::F64 {
                    let f = f64::from_bits;
                    let (x, y) = (f(a), f(read(i.b, 8)));
                    let r = match i.op {
                        Op::Div => x / y,
                        Op::Min | Op::Max => pick(x, y, i.op == Op::Max, false),
                        Op::Neg => -x,
                        Op::Abs => x.abs(),
                        Op::Rcp => 1.0 / x,
                        Op::Sqrt => x.sqrt(),
                        Op::Rsqrt => 1.0 / x.sqrt(),
                        Op::Copysign => y.copysign(x),
                        op => return Err(format!("{op:?} of {:?}", i.ty).into()),
                    };
                    r.to_bits()
                } else {
                    let ty = i.ty;
                    let (s, u) = (|x: u64| sign_extend(ty, x), |x: u64| zero_extend(ty, x));
                    match i.op {
                        Op::Div | Op::Rem => {
                            let b = read(i.b, wide);
                            if u(b) == 0 {
                                // Not defined; the hardware's result is all ones.
                                if i.op == Op::Div { u64::MAX } else { a }
                            } else if ty.signed() {
                                (if i.op == Op::Div { s(a).wrapping_div(s(b)) } else { s(a).wrapping_rem(s(b)) }) as u64
                            } else if i.op == Op::Div {
                                u(a) / u(b)
                            } else {
                                u(a) % u(b)
                            }
                        }
                        Op::MulHi | Op::MadHi => {
                            let b = read(i.b, wide);
                            let bits = ty.bytes() * 8;
                            let high = if ty.signed() {
                                ((i128::from(s(a)) * i128::from(s(b))) >> bits) as u64
                            } else {
                                ((u128::from(u(a)) * u128::from(u(b))) >> bits) as u64
                            };
                            high.wrapping_add(read(i.c, wide))
                        }
                        Op::MadWide => {
                            let (b, c) = (read(i.b, wide), read(i.c, if ty.bytes() == 4 { 8 } else { 4 }));
                            let product = if ty.signed() { s(a).wrapping_mul(s(b)) as u64 } else { u(a).wrapping_mul(u(b)) };
                            product.wrapping_add(c)
                        }
                        Op::Neg => s(a).wrapping_neg() as u64,
                        Op::Abs => s(a).wrapping_abs() as u64,
                        Op::Brev => match ty.bytes() {
                            8 => a.reverse_bits(),
                            _ => u64::from((a as u32).reverse_bits()),
                        },
                        Op::Bfind => {
                            let x = if ty.signed() && s(a) < 0 { u(!a) } else { u(a) };
                            let top = if x == 0 { u32::MAX } else { 63 - x.leading_zeros() };
                            u64::from(if i.n == 1 && x != 0 { ty.bytes() * 8 - 1 - top } else { top })
                        }
                        Op::Bfe => {
                            let (at, bits) = (read(i.b, 4) & 0xFF, read(i.c, 4) & 0xFF);
                            let most = u64::from(ty.bytes() * 8 - 1);
                            let sign = if !ty.signed() || bits == 0 { 0 } else { s(a) as u64 >> (at + bits - 1).min(most) & 1 };
                            let mut r = 0u64;
                            for bit in 0..=most {
                                let value = if bit < bits && at + bit <= most { u(a) >> (at + bit) & 1 } else { sign };
                                r |= value << bit;
                            }
                            r
                        }
                        Op::Bfi => {
                            let (b, at, bits) = (read(i.b, wide), read(i.c, 4) & 0xFF, read(i.x as u32, 4) & 0xFF);
                            let most = u64::from(ty.bytes() * 8);
                            let mut r = u(b);
                            for bit in 0..bits {
                                if at + bit < most {
                                    r = r & !(1 << (at + bit)) | (u(a) >> bit & 1) << (at + bit);
                                }
                            }
                            r
                        }
                        Op::Prmt => {
                            let both = read(i.b, 4) << 32 | a;
                            let selector = read(i.c, 4);
                            let mut r = 0;
                            for byte in 0..4 {
                                let which = selector >> (4 * byte) & 0xF;
                                let mut value = both >> (8 * (which & 7)) & 0xFF;
                                if which & 8 != 0 {
                                    value = if value & 0x80 != 0 { 0xFF } else { 0 };
                                }
                                r |= value << (8 * byte);
                            }
                            r
                        }
                        Op::Lop3 => {
                            let (b, c) = (read(i.b, 4), read(i.c, 4));
                            let mut r = 0;
                            for bit in 0..32 {
                                let index = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | c >> bit & 1;
                                r |= (i.x as u64 >> index & 1) << bit;
                            }
                            r
                        }
                        Op::Dp4a => {
                            let (b, c) = (read(i.b, 4), read(i.c, 4));
                            let byte =
                                |ty: Ty, x: u64, at: u32| if ty.signed() { i32::from((x >> at) as i8) } else { i32::from((x >> at) as u8) };
                            let sum = (0..4).fold(c as i32, |sum, n| sum.wrapping_add(byte(i.ty, a, 8 * n) * byte(i.ty2, b, 8 * n)));
                            sum as u32 as u64
                        }
                        Op::Min => {
                            if ty.signed() {
                                s(a).min(s(read(i.b, wide))) as u64
                            } else {
                                u(a).min(u(read(i.b, wide)))
                            }
                        }
                        Op::Max => {
                            if ty.signed() {
                                s(a).max(s(read(i.b, wide))) as u64
                            } else {
                                u(a).max(u(read(i.b, wide)))
                            }
                        }
                        op => return Err(format!("{op:?} of {:?}", i.ty).into()),
                    }
                };
                let width = match i.op {
                    Op::MadWide => {
                        if i.ty.bytes() == 4 {
                            8
                        } else {
                            4
                        }
                    }
                    Op::Bfind => 4,
                    _ => {
                        if i.ty.bytes() == 2 {
                            2
                        } else {
                            wide
                        }
                    }
                };
                set(bases, i.d, width, lane, value);
            }
        });
        Ok(())
    }

    pub(super) unsafe fn convert(&mut self, bases: Bases, i: &Inst, mask: u32) -> Result<(), Fault> {
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
                } else if to.float() {
                    // Exact in 128 bits, then rounded once.
                    let exact = if from.signed() { i128::from(sign_extend(from, bits)) } else { i128::from(zero_extend(from, bits)) };
                    if to == Ty::F32 && matches!(how, Round::Nearest | Round::None) {
                        u64::from((exact as f32).to_bits())
                    } else if to == Ty::F64 {
                        (exact as f64).to_bits()
                    } else {
                        float::narrow(to, exact as f64, how, i.flag)
                    }
                } else {
                    let value = if from.signed() { i128::from(sign_extend(from, bits)) } else { i128::from(zero_extend(from, bits)) };
                    let size = to.bytes() * 8;
                    let value = if i.flag & F_SAT != 0 {
                        if to.signed() { value.clamp(-(1 << (size - 1)), (1 << (size - 1)) - 1) } else { value.clamp(0, (1 << size) - 1) }
                    } else {
                        value
                    };
                    let value = value as u64;
                    if to.signed() { sign_extend(to, value) as u64 } else { zero_extend(to, value) }
                };
                set(bases, i.d, i.dw, lane, value);
            }
        });
        Ok(())
    }

    pub(super) unsafe fn special(&mut self, warp: &mut Warp, bases: Bases, i: &Inst, mask: u32, steps: u32) {
        let cta = &self.ctas[warp.cta];
        let (block, grid) = (self.config.block, self.config.grid);
        let clusters = |n: u32| n / self.config.cluster;
        let now = self.now + u64::from(steps) * self.tick;
        // SAFETY: a number that the decoder wrote.
        let which: Special = unsafe { std::mem::transmute(i.x as u8) };
        each_lane!(mask, lane, {
            let thread = warp.index * 32 + lane as u32;
            let value: u64 = match which {
                Special::TidX => u64::from(thread % block[0]),
                Special::TidY => u64::from(thread / block[0] % block[1]),
                Special::TidZ => u64::from(thread / block[0] / block[1]),
                Special::NtidX => block[0].into(),
                Special::NtidY => block[1].into(),
                Special::NtidZ => block[2].into(),
                Special::CtaidX => cta.place[0].into(),
                Special::CtaidY => cta.place[1].into(),
                Special::CtaidZ => cta.place[2].into(),
                Special::NctaidX => grid[0].into(),
                Special::NctaidY => grid[1].into(),
                Special::NctaidZ => grid[2].into(),
                Special::Lane => lane as u64,
                Special::Warp => warp.index.into(),
                Special::Nwarp => 64,
                Special::Sm => cta.sm.into(),
                Special::Nsm => self.config.multiprocessors.into(),
                Special::Grid | Special::Zero => 0,
                Special::Clock => now & 0xFFFF_FFFF,
                Special::ClockHi => now >> 32,
                Special::Clock64 => now,
                // The hardware's timer moves in steps of 32 ns.
                Special::Timer => now & !31,
                Special::TimerLo => now & 0xFFFF_FFE0,
                Special::TimerHi => now >> 32,
                Special::MaskEq => 1 << lane,
                Special::MaskLt => (1 << lane) - 1,
                Special::MaskLe => (2 << lane) - 1,
                Special::MaskGt => !((2u64 << lane) - 1) & 0xFFFF_FFFF,
                Special::MaskGe => !((1u64 << lane) - 1) & 0xFFFF_FFFF,
                Special::DynamicShared => self.config.dynamic_shared.into(),
                Special::TotalShared => cta.shared.len() as u64,
                Special::ClusterX | Special::ClusterRank => cta.rank.into(),
                Special::ClusterSize => self.config.cluster.into(),
                Special::ClusterId => clusters(cta.place[0]).into(),
                Special::Clusters => clusters(grid[0]).into(),
            };
            // SAFETY: slots of the program.
            unsafe { set(bases, i.d, i.dw, lane, value) };
        });
    }

    fn shared_place(&self, address: u32, own: usize) -> (usize, u32) {
        if address >> 24 == 0 { (own, address) } else { (self.ctas[own].first + (address >> 24) as usize - 1, address & 0xFF_FFFF) }
    }

    /// An address of shared memory, 32 bits or generic.
    unsafe fn shared_address(&self, bases: Bases, i: &Inst, lane: usize) -> Result<u32, Fault> {
        // SAFETY: slots of the program.
        let base = unsafe { get(bases, i.a, i.aw, lane) };
        let at = base.wrapping_add(i64::from(i.x) as u64);
        if i.aw != 8 {
            return Ok(at as u32);
        }
        if at >> 32 != super::SHARED_WINDOW >> 32 && at >> 32 != 0 {
            return Err(Fault::new(ILLEGAL_ADDRESS, format!("{at:#x} is not an address of shared memory")));
        }
        Ok(at as u32)
    }

    /// Checks a range of shared memory of copies: where it is.
    fn shared_range(&mut self, own: usize, at: u32, bytes: u32, align: u32, what: &str) -> Result<(usize, u32), Fault> {
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

    pub(super) unsafe fn cold(&mut self, at: usize, warp: &mut Warp, bases: Bases, i: &Inst, mask: u32, pc: u32) -> Result<Then, Fault> {
        let program = self.program.clone();
        // SAFETY: (of the whole function) slots of the program.
        unsafe {
            match i.op {
                Op::Pack => {
                    let slots = &program.lists[i.x as usize];
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
                Op::Unpack => {
                    let slots = &program.lists[i.x as usize];
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
                Op::Set => {
                    let bits = match i.ty {
                        Ty::U32 | Ty::B32 | Ty::S32 | Ty::F32 => {
                            let cmp: Cmp = std::mem::transmute(i.n);
                            let mut bits = 0u32;
                            for lane in 0..32 {
                                let (a, b) = (get(bases, i.a, 4, lane), get(bases, i.b, 4, lane));
                                let holds = match i.ty {
                                    Ty::S32 => cmp.holds(a as i32, b as i32),
                                    Ty::F32 => cmp.holds(f32::from_bits(a as u32), f32::from_bits(b as u32)),
                                    _ => cmp.holds(a, b),
                                };
                                bits |= (holds as u32) << lane;
                            }
                            bits
                        }
                        _ => self.compare_slowly(bases, i)?,
                    };
                    each_lane!(mask, lane, {
                        let yes = if i.ty2 == Ty::F32 { 0x3F80_0000 } else { 0xFFFF_FFFF };
                        set(bases, i.d, 4, lane, if bits >> lane & 1 == 1 { yes } else { 0 });
                    });
                }
                Op::CvtPair => {
                    let how = if i.n == 0 { Round::Nearest } else { round(i.n) };
                    if i.ty == Ty::Bf16x2 && how == Round::Nearest && i.flag == 0 {
                        let (a, b) = (*bases.at::<Lanes<f32>>(i.a), *bases.at::<Lanes<f32>>(i.b));
                        let to = bases.at::<u32>(i.d);
                        each_lane!(mask, lane, {
                            *to.add(lane) = u32::from(float::f32_to_bf16(a[lane])) << 16 | u32::from(float::f32_to_bf16(b[lane]));
                        });
                        return Ok(Then::On);
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
                Op::LdEntry => {
                    let slots = &program.lists[i.x as usize];
                    let size = i.ty.bytes();
                    for (index, &slot) in slots.iter().enumerate() {
                        let from = (i.a + i.b) as usize + index * size as usize;
                        let mut bytes = [0u8; 8];
                        bytes[..size as usize].copy_from_slice(&self.config.parameters[from..from + size as usize]);
                        let value =
                            if i.ty.signed() { sign_extend(i.ty, u64::from_le_bytes(bytes)) as u64 } else { u64::from_le_bytes(bytes) };
                        if slot != NONE {
                            each_lane!(mask, lane, { set(bases, slot, i.dw, lane, value) });
                        }
                    }
                }
                Op::LdParam | Op::StParam => {
                    let slots = &program.lists[i.x as usize];
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
                                let value = u64::from_le_bytes(bytes);
                                set(bases, slot, i.dw, lane, if i.ty.signed() { sign_extend(i.ty, value) as u64 } else { value });
                            }
                        }
                    });
                }
                Op::CopyParam => {
                    let size = i.x as usize;
                    each_lane!(mask, lane, {
                        std::ptr::copy_nonoverlapping(bases.at::<u8>(i.a).add(lane * size), bases.at::<u8>(i.d).add(lane * size), size);
                    });
                }
                Op::ToGeneric | Op::FromGeneric => {
                    let window = match i.space {
                        Space::Shared => super::SHARED_WINDOW,
                        Space::Local => super::LOCAL_WINDOW,
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
                Op::IsSpace => {
                    let mut bits = 0;
                    each_lane!(mask, lane, {
                        let top = get(bases, i.a, 8, lane) >> 32;
                        let space = if top == super::SHARED_WINDOW >> 32 {
                            Space::Shared
                        } else if top == super::LOCAL_WINDOW >> 32 {
                            Space::Local
                        } else {
                            Space::Global
                        };
                        bits |= ((space == i.space) as u32) << lane;
                    });
                    let to = bases.at::<u32>(i.d);
                    *to = *to & !mask | bits;
                }
                Op::Mapa => {
                    each_lane!(mask, lane, {
                        let (address, rank) = (get(bases, i.a, i.dw, lane), get(bases, i.b, 4, lane));
                        if rank >= u64::from(self.config.cluster) {
                            return Err(format!("mapa to CTA {rank} of a cluster of {}", self.config.cluster).into());
                        }
                        let place = address & 0xFF_FFFF | (rank + 1) << 24;
                        set(bases, i.d, i.dw, lane, if i.space == Space::Shared { place } else { place | super::SHARED_WINDOW });
                    });
                }
                Op::Atom => self.atomic(warp, bases, i, mask)?,
                Op::BarWarp | Op::WgmmaFence => {}
                Op::ProxyFence => {
                    if self.proxies.on {
                        let now = self.proxies.tick();
                        let fences = warp.fences.get_or_insert_default();
                        each_lane!(mask, lane, {
                            for space in 0..2 {
                                if i.n >> space & 1 == 1 {
                                    fences[space][lane] = now;
                                }
                            }
                        });
                    }
                }
                Op::ActiveMask => each_lane!(mask, lane, { set(bases, i.d, 4, lane, mask.into()) }),
                Op::Elect => {
                    let first = 31 - low(mask.reverse_bits()) as u32;
                    let elected = mask.trailing_zeros();
                    let _ = first;
                    if i.d != NONE {
                        each_lane!(mask, lane, { set(bases, i.d, 4, lane, elected.into()) });
                    }
                    let to = bases.at::<u32>(i.c);
                    *to = *to & !mask | 1 << elected;
                }
                Op::Vote => {
                    let p = *bases.at::<u32>(i.a) & mask;
                    let holds = match i.n {
                        0 => p == mask,
                        1 => p != 0,
                        _ => p == mask || p == 0,
                    };
                    if i.n == 3 {
                        each_lane!(mask, lane, { set(bases, i.d, 4, lane, p.into()) });
                    } else {
                        let to = bases.at::<u32>(i.d);
                        *to = *to & !mask | if holds { mask } else { 0 };
                    }
                }
                Op::Shfl => {
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
                    let p = program.lists[i.x as usize][0];
                    if p != NONE {
                        let to = bases.at::<u32>(p);
                        *to = *to & !mask | found;
                    }
                }
                Op::Match => {
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
                        let to = bases.at::<u32>(i.c);
                        *to = *to & !mask | if all { mask } else { 0 };
                    }
                }
                Op::Redux => {
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
                Op::Sleep => {
                    let most = (0..32).filter(|lane| mask >> lane & 1 == 1).map(|lane| get(bases, i.a, 4, lane)).max().unwrap_or(0);
                    return Ok(Then::Sleep(Wait::Until(self.now + most.max(20))));
                }
                Op::Bar => return self.barrier(warp, bases, i, mask),
                Op::ClusterArrive => {
                    let first = self.ctas[warp.cta].first;
                    if warp.cluster_arrived.is_some() {
                        return Err("barrier.cluster.arrive twice without wait".to_string().into());
                    }
                    let Some(cluster) = self.clusters.get_mut(&first) else { return Err("no cluster".to_string().into()) };
                    warp.cluster_arrived = Some(cluster.generation);
                    cluster.arrived += 1;
                    self.settle_cluster(first);
                }
                Op::ClusterWait => {
                    let Some(generation) = warp.cluster_arrived else {
                        return Err("barrier.cluster.wait before arrive".to_string().into());
                    };
                    if self.clusters[&self.ctas[warp.cta].first].generation == generation {
                        return Ok(Then::Sleep(Wait::Cluster { generation }));
                    }
                    warp.cluster_arrived = None;
                }
                Op::MbarInit | Op::MbarInval | Op::MbarArrive | Op::MbarExpect | Op::MbarComplete => self.mbarrier(warp, bases, i, mask)?,
                Op::MbarWait => {
                    let mut done = 0u32;
                    let mut missing = None;
                    each_lane!(mask, lane, {
                        let address = self.shared_address(bases, i, lane)?;
                        let (cta, place) = self.shared_place(address, warp.cta);
                        let parity = if i.flag == 1 { get(bases, i.b, 4, lane) & 1 == 1 } else { get(bases, i.b, 8, lane) & 1 == 1 };
                        let phase = self.with_mbarrier(cta, place, |state| Ok(state.phase))?;
                        if phase != parity {
                            done |= 1 << lane;
                        } else {
                            missing = Some((place, parity));
                        }
                    });
                    let to = bases.at::<u32>(i.d);
                    *to = *to & !mask | done;
                    if let (0, Some((at, parity)), 1) = (done, missing, i.n) {
                        // Suspended for a while, if the warp is whole.
                        return Ok(Then::Sleep(Wait::Mbarrier { at, parity, until: self.now + 1000 * self.patience }));
                    }
                    if done != mask {
                        return Ok(Then::Yield);
                    }
                }
                Op::MbarPending => return Err("mbarrier.pending_count".to_string().into()),
                Op::BulkLoad | Op::BulkStore | Op::TensorLoad | Op::TensorStore => self.bulk(at, warp, bases, i, mask, pc)?,
                Op::StAsync => {
                    let (first, slots) = program.lists[i.x as usize].split_first().unwrap();
                    let bytes = i.ty.bytes();
                    each_lane!(mask, lane, {
                        let (to, mbarrier) = (get(bases, i.a, 4, lane) as u32, get(bases, *first, 4, lane) as u32);
                        let count = bytes * slots.len() as u32;
                        let (cta, place) = self.shared_range(warp.cta, to, count, count, "st.async")?;
                        let (barrier_cta, barrier) = self.shared_place(mbarrier, warp.cta);
                        let mut data = Vec::new();
                        for &slot in slots {
                            data.extend_from_slice(&get(bases, slot, i.dw, lane).to_le_bytes()[..bytes as usize]);
                        }
                        self.loads(&[cta], place, count, &[barrier_cta], barrier)?;
                        self.begin_copy(Copy::Shared { cta, to: place, data, mbarrier: barrier, barrier_cta }, (at, pc, 1 << lane));
                    });
                }
                Op::BulkShared => {
                    each_lane!(mask, lane, {
                        let (to, from, bytes, mbarrier) = (
                            get(bases, i.d, 4, lane) as u32,
                            get(bases, i.a, 4, lane) as u32,
                            get(bases, i.b, 4, lane) as u32,
                            get(bases, i.c, 4, lane) as u32,
                        );
                        if bytes == 0 || bytes % 16 != 0 {
                            return Err(Fault::new(MISALIGNED_ADDRESS, format!("bulk copy of {bytes} bytes")));
                        }
                        let (cta, place) = self.shared_range(warp.cta, to, bytes, 16, "bulk copy")?;
                        let (own, from) = self.shared_range(warp.cta, from, bytes, 16, "bulk copy")?;
                        let (barrier_cta, barrier) = self.shared_place(mbarrier, warp.cta);
                        self.loads(&[cta], place, bytes, &[barrier_cta], barrier)?;
                        let data = self.ctas[own].shared[from as usize..(from + bytes) as usize].to_vec();
                        self.begin_copy(Copy::Shared { cta, to: place, data, mbarrier: barrier, barrier_cta }, (at, pc, 1 << lane));
                    });
                }
                Op::CpAsync => {
                    each_lane!(mask, lane, {
                        let (to, from, count) =
                            (get(bases, i.d, 4, lane), get(bases, i.a, 8, lane), get(bases, i.b, 4, lane).min(i.n.into()));
                        let to = self.reach(warp, Space::Shared, to, i.n.into(), lane)?;
                        to.write_bytes(0, i.n.into());
                        if count > 0 {
                            let from = self.reach(warp, Space::Global, from, i.n.into(), lane)?;
                            std::ptr::copy_nonoverlapping(from, to, count as usize);
                        }
                    });
                }
                Op::CpAsyncCommit | Op::CpAsyncWait => {}
                Op::BulkCommit => {
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
                Op::BulkWait => {
                    if let Some(bulk) = &warp.bulk {
                        each_lane!(mask, lane, {
                            let committed = &bulk[lane].committed;
                            let old = committed.len().saturating_sub(i.n as usize);
                            for group in committed.iter().take(old) {
                                let state = self.groups.get(group).copied().unwrap_or_default();
                                if state.reading > 0 || i.flag == 0 && state.writing > 0 {
                                    return Ok(Then::Stall);
                                }
                            }
                        });
                    }
                }
                Op::LdMatrix | Op::StMatrix => self.matrices(warp, bases, i)?,
                Op::Mma => {
                    let slots = &program.lists[i.x as usize];
                    super::matrix::mma(i.ty, i.ty2, i.n as usize, slots, (i.aw as usize, i.dw as usize), &|slot| bases.at::<u32>(slot));
                }
                Op::Wgmma => {
                    let product = &program.products[i.x as usize];
                    let a = if product.a == NONE { 0 } else { self.uniform(bases, product.a, mask)? };
                    let b = self.uniform(bases, product.b, mask)?;
                    let p = *bases.at::<u32>(product.scale);
                    if p != 0 && p != u32::MAX {
                        return Err("scale-d of wgmma differs between lanes".to_string().into());
                    }
                    let issued = super::Issued { product: i.x, a, b, add: p != 0, group: warp.product_group };
                    if self.late_products {
                        warp.issued.push(issued);
                    } else {
                        self.product(warp, bases, &issued)?;
                        if self.proxies.on {
                            let touched = std::mem::take(&mut self.scratch.touched);
                            self.reads_shared((at, pc, mask), warp.cta, touched.iter().copied())?;
                            self.scratch.touched = touched;
                            self.scratch.touched.clear();
                        }
                    }
                }
                Op::WgmmaCommit => warp.product_group += 1,
                Op::WgmmaWait => {
                    // Groups up to the newest `n`.
                    let until = warp.product_group.saturating_sub(u32::from(i.n));
                    let count = warp.issued.iter().take_while(|issued| issued.group < until).count();
                    let due: Vec<_> = warp.issued.drain(..count).collect();
                    for issued in due {
                        self.product(warp, bases, &issued)?;
                    }
                }
                _ => self.slow(bases, i, mask)?,
            }
        }
        Ok(Then::On)
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

    unsafe fn product(&mut self, warp: &mut Warp, bases: Bases, issued: &super::Issued) -> Result<(), Fault> {
        let program = self.program.clone();
        let product = &program.products[issued.product as usize];
        let shared = &self.ctas[warp.cta].shared;
        // SAFETY: slots of the program.
        unsafe {
            super::matrix::wgmma(
                product,
                warp.index,
                shared,
                issued.a,
                issued.b,
                issued.add,
                &|slot| bases.at::<u32>(slot),
                &mut self.scratch,
            )?;
        }
        Ok(())
    }

    unsafe fn atomic(&mut self, warp: &mut Warp, bases: Bases, i: &Inst, mask: u32) -> Result<(), Fault> {
        let bytes = i.ty.bytes();
        let wide = if bytes == 8 { 8 } else { 4 };
        self.patience = 1;
        each_lane!(mask, lane, {
            // SAFETY: slots of the program; addresses are checked and aligned.
            unsafe {
                let base = get(bases, i.a, i.aw, lane);
                let address = base.wrapping_add(i64::from(i.x) as u64);
                let at = self.reach(warp, i.space, address, bytes.into(), lane)?;
                let b = get(bases, i.b, wide, lane);
                let c = if i.c == NONE { 0 } else { get(bases, i.c, wide, lane) };
                let ty = i.ty;
                let change = |old: u64| -> u64 {
                    let (s, u) = (|x: u64| sign_extend(ty, x), |x: u64| zero_extend(ty, x));
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
                        3 => {
                            if ty.signed() {
                                s(old).min(s(b)) as u64
                            } else {
                                u(old).min(u(b))
                            }
                        }
                        4 => {
                            if ty.signed() {
                                s(old).max(s(b)) as u64
                            } else {
                                u(old).max(u(b))
                            }
                        }
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

    unsafe fn barrier(&mut self, warp: &mut Warp, bases: Bases, i: &Inst, mask: u32) -> Result<Then, Fault> {
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
                        let to = bases.at::<u32>(i.d);
                        *to = *to & !mask | if i.n == 3 && all || i.n == 4 && any { mask } else { 0 };
                    }
                }
            };
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
            if barrier.arrived == needed {
                super::release(barrier);
                result(barrier);
                return Ok(Then::On);
            }
            if i.n == 1 {
                return Ok(Then::On);
            }
            Ok(Then::Sleep(Wait::Barrier { id: id as u32, generation: barrier.generation }))
        }
    }

    unsafe fn mbarrier(&mut self, warp: &mut Warp, bases: Bases, i: &Inst, mask: u32) -> Result<(), Fault> {
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
                    let word = super::mbarrier::State::new(count).pack();
                    cta.shared[place as usize..place as usize + 8].copy_from_slice(&word.to_le_bytes());
                    continue;
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

    unsafe fn bulk(&mut self, at: usize, warp: &mut Warp, bases: Bases, i: &Inst, mask: u32, pc: u32) -> Result<(), Fault> {
        let program = self.program.clone();
        each_lane!(mask, lane, {
            let of = (at, pc, 1u32 << lane);
            // SAFETY: slots of the program.
            unsafe {
                let tensor = matches!(i.op, Op::TensorLoad | Op::TensorStore);
                let mut coordinates = [0i32; 5];
                let mut map = Map::default();
                if tensor {
                    for (to, &slot) in coordinates.iter_mut().zip(&program.lists[i.x as usize][..i.n as usize]) {
                        *to = get(bases, slot, 4, lane) as i32;
                    }
                    let address = get(bases, i.a, 8, lane);
                    if !address.is_multiple_of(64) {
                        return Err(Fault::new(MISALIGNED_ADDRESS, format!("tensor map at {address:#x}, which is not a multiple of 64")));
                    }
                    if !crate::memory::holds(address, tensor::BYTES as u64) {
                        return Err(Fault::new(ILLEGAL_ADDRESS, format!("tensor map at {address:#x}, which is not allocated")));
                    }
                    let words = *(address as *const [u64; 16]);
                    map = Map::unpack(&words)
                        .ok_or_else(|| Fault::new(super::ILLEGAL_INSTRUCTION, format!("no tensor map at {address:#x}")))?;
                    if map.rank != i.n {
                        return Err(Fault::new(
                            super::ILLEGAL_INSTRUCTION,
                            format!("a copy of rank {} with a tensor map of rank {}", i.n, map.rank),
                        ));
                    }
                }
                let targets = |launch: &Launch, slot: Slot, to: usize, place: u32, mbarrier: u32| -> (Vec<usize>, Vec<usize>, u32, u32) {
                    let (barrier_cta, barrier) = launch.shared_place(mbarrier, warp.cta);
                    if slot == NONE {
                        return (vec![to], vec![barrier_cta], place, barrier);
                    }
                    let chosen = get(bases, slot, 4, lane) as u32;
                    let first = launch.ctas[warp.cta].first;
                    let all: Vec<usize> =
                        (0..launch.config.cluster as usize).filter(|rank| chosen >> rank & 1 == 1).map(|rank| first + rank).collect();
                    (all.clone(), all, place, barrier)
                };
                match i.op {
                    Op::BulkLoad => {
                        let (to, from, bytes, mbarrier) = (
                            get(bases, i.d, 4, lane) as u32,
                            get(bases, i.a, 8, lane),
                            get(bases, i.b, 4, lane) as u32,
                            get(bases, i.c, 4, lane) as u32,
                        );
                        self.bulk_operands(from, bytes)?;
                        let (cta, place) = self.shared_range(warp.cta, to, bytes, 16, "bulk copy")?;
                        let (ctas, barrier_ctas, to, mbarrier) = targets(self, i.x as u32, cta, place, mbarrier);
                        self.loads(&ctas, to, bytes, &barrier_ctas, mbarrier)?;
                        self.reads_global(of, from, bytes)?;
                        self.begin_copy(Copy::Load { ctas, to, from, bytes, mbarrier, barrier_ctas }, of);
                    }
                    Op::TensorLoad => {
                        let (to, mbarrier) = (get(bases, i.d, 4, lane) as u32, get(bases, i.b, 4, lane) as u32);
                        let (cta, place) = self.shared_range(warp.cta, to, map.bytes(), 128, "tensor copy")?;
                        let slot = program.lists[i.x as usize][i.n as usize];
                        let (ctas, barrier_ctas, to, mbarrier) = targets(self, slot, cta, place, mbarrier);
                        self.loads(&ctas, to, map.bytes(), &barrier_ctas, mbarrier)?;
                        if self.proxies.on {
                            let mut runs = Vec::new();
                            map.runs(&coordinates[..map.rank as usize], |_, address, _, inside, _| {
                                runs.push((address, inside));
                                Ok(())
                            })?;
                            for (address, bytes) in runs {
                                self.reads_global(of, address, bytes)?;
                            }
                        }
                        self.begin_copy(Copy::Box { ctas, to, map, at: coordinates, mbarrier, barrier_ctas }, of);
                    }
                    _ => {
                        let bulk = warp.bulk.get_or_insert_default();
                        let groups: &mut Groups = &mut bulk[lane];
                        if groups.open == 0 {
                            self.group_number += 1;
                            groups.open = self.group_number;
                            self.groups.insert(groups.open, Group::default());
                        }
                        let group = groups.open;
                        if let Some(group) = self.groups.get_mut(&group) {
                            group.reading += 1;
                            group.writing += 1;
                        }
                        if i.op == Op::BulkStore {
                            let (to, from, bytes) =
                                (get(bases, i.d, 8, lane), get(bases, i.a, 4, lane) as u32, get(bases, i.b, 4, lane) as u32);
                            self.bulk_operands(to, bytes)?;
                            let (cta, from) = self.shared_range(warp.cta, from, bytes, 16, "bulk copy")?;
                            self.reads_shared(of, cta, from / 16..(from + bytes).div_ceil(16))?;
                            self.begin_copy(Copy::Store { cta, from, to, bytes, group }, of);
                        } else {
                            let from = get(bases, i.d, 4, lane) as u32;
                            let (cta, from) = self.shared_range(warp.cta, from, map.bytes(), 128, "tensor copy")?;
                            self.reads_shared(of, cta, from / 16..(from + map.bytes()).div_ceil(16))?;
                            self.begin_copy(Copy::StoreBox { cta, from, map, at: coordinates, group }, of);
                        }
                    }
                }
            }
        });
        Ok(())
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
        if !crate::memory::holds(global, bytes.into()) {
            return Err(Fault::new(ILLEGAL_ADDRESS, format!("a bulk copy of {bytes} bytes at {global:#x}, which are not allocated")));
        }
        Ok(())
    }

    /// Checks that a copy may write there, and its mbarriers.
    fn loads(&mut self, ctas: &[usize], to: u32, bytes: u32, barrier_ctas: &[usize], mbarrier: u32) -> Result<(), Fault> {
        for &cta in ctas {
            let bits = &self.ctas[cta].mbarriers;
            for unit in to / 8..(to + bytes).div_ceil(8) {
                if bits[unit as usize / 64] >> (unit % 64) & 1 == 1 {
                    return Err(
                        format!("a copy of {bytes} bytes to shared memory at {to:#x} hits the live mbarrier at {:#x}", unit * 8).into()
                    );
                }
            }
        }
        for &cta in barrier_ctas {
            self.with_mbarrier(cta, mbarrier, |_| Ok(()))?;
        }
        Ok(())
    }

    unsafe fn matrices(&mut self, warp: &mut Warp, bases: Bases, i: &Inst) -> Result<(), Fault> {
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

/// The smaller or larger; with one that is not a number the other, unless it is to show.
fn pick(x: f64, y: f64, max: bool, nan: bool) -> f64 {
    if x.is_nan() || y.is_nan() {
        return if nan || x.is_nan() && y.is_nan() {
            f64::NAN
        } else if x.is_nan() {
            y
        } else {
            x
        };
    }
    if x == y {
        // −0 is less than 0.
        return if x.is_sign_negative() == max { y } else { x };
    }
    if (x > y) == max { x } else { y }
}
