//! Arithmetic, logic and comparisons that the loop of a turn does not do itself.

use super::*;
use crate::exec::float::{canonical, flush};

impl Launch {
    /// Packed and half-precision arithmetic.
    pub(in crate::exec) unsafe fn halves(&self, bases: Bases, i: &Inst, mask: u32) {
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

    pub(in crate::exec) unsafe fn compare_slowly(&self, bases: Bases, i: &Inst) -> Result<u32, Fault> {
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
    pub(in crate::exec) unsafe fn slow(&self, bases: Bases, i: &Inst, mask: u32) -> Result<(), Fault> {
        if matches!(i.ty, Ty::F16 | Ty::Bf16 | Ty::F16x2 | Ty::Bf16x2) {
            // SAFETY: as here.
            unsafe { self.halves(bases, i, mask) };
            return Ok(());
        }
        let wide = if i.ty.bytes() == 8 { 8 } else { 4 };
        let width = match (i.op, i.ty.bytes()) {
            (Op::Bfind, _) => 4,
            (Op::MadWide, bytes) => 2 * bytes as u8,
            (_, 2) => 2,
            _ => wide,
        };
        each_lane!(mask, lane, {
            // SAFETY: slots of the program.
            let read = |slot: Slot, bytes: u8| if slot == NONE { 0 } else { unsafe { get(bases, slot, bytes, lane) } };
            let value = match i.ty {
                Ty::F32 => single(i, read(i.a, 4), read(i.b, 4), read(i.c, 4))?,
                Ty::F64 => double(i, read(i.a, 8), read(i.b, 8))?,
                _ => integer(i, wide, read)?,
            };
            // SAFETY: as above.
            unsafe { set(bases, i.d, width, lane, value) };
        });
        Ok(())
    }

    /// `set`: a comparison into a register of 32 bits.
    pub(super) unsafe fn set_by_comparison(&self, bases: Bases, i: &Inst, mask: u32) -> Result<(), Fault> {
        // SAFETY: slots of the program.
        unsafe {
            let bits = match i.ty {
                Ty::U32 | Ty::B32 => compare::<u32>(bases, i),
                Ty::S32 => compare::<i32>(bases, i),
                Ty::F32 => compare::<f32>(bases, i),
                _ => self.compare_slowly(bases, i)?,
            };
            let yes = if i.ty2 == Ty::F32 { 0x3F80_0000 } else { 0xFFFF_FFFF };
            each_lane!(mask, lane, { set(bases, i.d, 4, lane, if bits >> lane & 1 == 1 { yes } else { 0 }) });
        }
        Ok(())
    }
}

fn single(i: &Inst, a: u64, b: u64, c: u64) -> Result<u64, Fault> {
    let ftz = i.flag & F_FTZ != 0;
    let f = |bits: u64| {
        let x = f32::from_bits(bits as u32);
        if ftz { flush(x) } else { x }
    };
    let (x, y, z) = (f(a), f(b), f(c));
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
    Ok(u64::from(bits))
}

fn double(i: &Inst, a: u64, b: u64) -> Result<u64, Fault> {
    let (x, y) = (f64::from_bits(a), f64::from_bits(b));
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
    Ok(r.to_bits())
}

/// `wide`: bytes of registers of the instruction's type.
fn integer(i: &Inst, wide: u8, read: impl Fn(Slot, u8) -> u64) -> Result<u64, Fault> {
    let (ty, a) = (i.ty, read(i.a, wide));
    let (s, u) = (|x: u64| sign_extend(ty, x), |x: u64| zero_extend(ty, x));
    Ok(match i.op {
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
            let byte = |ty: Ty, x: u64, at: u32| if ty.signed() { i32::from((x >> at) as i8) } else { i32::from((x >> at) as u8) };
            let sum = (0..4).fold(c as i32, |sum, n| sum.wrapping_add(byte(i.ty, a, 8 * n) * byte(i.ty2, b, 8 * n)));
            sum as u32 as u64
        }
        Op::Min | Op::Max => pick_integer(ty, a, read(i.b, wide), i.op == Op::Max),
        op => return Err(format!("{op:?} of {:?}", i.ty).into()),
    })
}

/// The smaller or larger of two integers.
pub(super) fn pick_integer(ty: Ty, a: u64, b: u64, max: bool) -> u64 {
    if ty.signed() {
        let (a, b) = (sign_extend(ty, a), sign_extend(ty, b));
        (if max { a.max(b) } else { a.min(b) }) as u64
    } else {
        let (a, b) = (zero_extend(ty, a), zero_extend(ty, b));
        if max { a.max(b) } else { a.min(b) }
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
