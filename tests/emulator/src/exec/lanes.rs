//! Element-wise work: all lanes at once, so that the compiler makes vectors of it.

use super::float::{canonical, flush};
use super::registers::{Bases, Lanes, put};
use crate::ptx::inst::*;

#[inline(always)]
pub(super) unsafe fn one<A: Copy, D: Copy + Default>(b: Bases, i: &Inst, mask: u32, f: impl Fn(A) -> D) {
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
pub(super) unsafe fn two<A: Copy, B: Copy, D: Copy + Default>(b: Bases, i: &Inst, mask: u32, f: impl Fn(A, B) -> D) {
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
pub(super) unsafe fn three<A: Copy, B: Copy, C: Copy, D: Copy + Default>(b: Bases, i: &Inst, mask: u32, f: impl Fn(A, B, C) -> D) {
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
pub(super) unsafe fn compare<T: Copy + PartialOrd>(b: Bases, i: &Inst) -> u32 {
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
pub(super) unsafe fn float2(bases: Bases, i: &Inst, mask: u32, f: impl Fn(f32, f32) -> f32) {
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
