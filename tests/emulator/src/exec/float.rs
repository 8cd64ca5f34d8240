//! Floating-point formats that the host does not have.

use std::sync::OnceLock;

use crate::ptx::inst::{F_FTZ, F_RELU, F_SAT, Round, Ty};

pub fn f16_to_f32(bits: u16) -> f32 {
    static TABLE: OnceLock<Vec<f32>> = OnceLock::new();
    TABLE.get_or_init(|| (0..=u16::MAX).map(|bits| small_to_f64(u32::from(bits), 5, 10) as f32).collect())[bits as usize]
}

#[inline(always)]
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

pub fn e4m3_to_f32(bits: u8) -> f32 {
    if bits & 0x7F == 0x7F {
        return f32::NAN;
    }
    let (sign, exponent, fraction) = (bits >> 7, i32::from(bits >> 3 & 15), f32::from(bits & 7));
    let value = if exponent == 0 { fraction * 2f32.powi(-9) } else { (8.0 + fraction) * 2f32.powi(exponent - 10) };
    if sign == 1 { -value } else { value }
}

pub fn e5m2_to_f32(bits: u8) -> f32 {
    f16_to_f32(u16::from(bits) << 8)
}

/// A value with an exponent and a fraction of these widths, as IEEE 754 has them.
fn small_to_f64(bits: u32, exponent_bits: u32, fraction_bits: u32) -> f64 {
    let sign = bits >> (exponent_bits + fraction_bits) & 1;
    let exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
    let fraction = f64::from(bits & ((1 << fraction_bits) - 1));
    let bias = (1 << (exponent_bits - 1)) - 1;
    let scale = 2f64.powi(fraction_bits as i32);
    let value = if exponent == (1 << exponent_bits) - 1 {
        if fraction == 0.0 { f64::INFINITY } else { f64::NAN }
    } else if exponent == 0 {
        fraction / scale * 2f64.powi(1 - bias)
    } else {
        (1.0 + fraction / scale) * 2f64.powi(exponent as i32 - bias)
    };
    if sign == 1 { -value } else { value }
}

/// Rounds to an integer.
pub fn integral(x: f64, round: Round) -> f64 {
    match round {
        Round::Zero => x.trunc(),
        Round::Down => x.floor(),
        Round::Up => x.ceil(),
        _ => x.round_ties_even(),
    }
}

/// Rounds to a format of these widths. `finite`: the largest exponent has values but for the last fraction (e4m3).
fn f64_to_small(x: f64, exponent_bits: u32, fraction_bits: u32, round: Round, saturate: bool, finite: bool) -> u32 {
    let sign = (x.is_sign_negative() as u32) << (exponent_bits + fraction_bits);
    let top = (1u32 << exponent_bits) - 1;
    let bias = (1i32 << (exponent_bits - 1)) - 1;
    if x.is_nan() {
        // The canonical ones of PTX.
        return (1 << (exponent_bits + fraction_bits)) - 1;
    }
    let largest =
        if finite { top << fraction_bits | ((1 << fraction_bits) - 2) } else { ((top - 1) << fraction_bits) | ((1 << fraction_bits) - 1) };
    let infinity = if saturate {
        largest
    } else if finite {
        (1 << (exponent_bits + fraction_bits)) - 1
    } else {
        top << fraction_bits
    };
    let magnitude = x.abs();
    if magnitude.is_infinite() {
        return sign | infinity;
    }
    if magnitude == 0.0 {
        return sign;
    }
    let exponent = ((magnitude.to_bits() >> 52 & 0x7FF) as i32 - 1023).max(1 - bias);
    let scaled = magnitude / 2f64.powi(exponent - fraction_bits as i32);
    let rounded = match round {
        Round::Zero => scaled.trunc(),
        Round::Down => {
            if sign == 0 {
                scaled.floor()
            } else {
                scaled.ceil()
            }
        }
        Round::Up => {
            if sign == 0 {
                scaled.ceil()
            } else {
                scaled.floor()
            }
        }
        Round::Away => (scaled + 0.5).floor(),
        _ => scaled.round_ties_even(),
    } as u32;
    // A fraction with its hidden bit; carries run into the exponent.
    let biased = (exponent + bias) as u32;
    let hidden = 1u32 << fraction_bits;
    let bits = if rounded < hidden { rounded } else { (biased << fraction_bits) + (rounded - hidden) };
    let limit = largest;
    if bits > limit {
        return sign | if matches!(round, Round::Zero) { largest } else { infinity };
    }
    sign | bits
}

pub fn f32_to_f16(x: f32, round: Round) -> u16 {
    f64_to_small(f64::from(x), 5, 10, round, false, false) as u16
}

#[inline]
pub fn f32_to_bf16(x: f32) -> u16 {
    if x.is_nan() {
        return 0x7FFF;
    }
    let bits = x.to_bits();
    ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16) as u16
}

/// Nearest, ties to even.
#[inline]
pub fn f32_to_tf32_even(x: f32) -> f32 {
    if !x.is_finite() {
        return x;
    }
    let bits = x.to_bits();
    f32::from_bits((bits + 0xFFF + (bits >> 13 & 1)) & !0x1FFF)
}

pub fn canonical(x: f32) -> f32 {
    if x.is_nan() { f32::from_bits(0x7FFF_FFFF) } else { x }
}

pub fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0f32.copysign(x) } else { x }
}

/// Value of bits of a scalar floating type.
pub fn widen(ty: Ty, bits: u64) -> f64 {
    match ty {
        Ty::F16 => f64::from(f16_to_f32(bits as u16)),
        Ty::Bf16 => f64::from(bf16_to_f32(bits as u16)),
        Ty::F64 => f64::from_bits(bits),
        Ty::E4m3 => f64::from(e4m3_to_f32(bits as u8)),
        Ty::E5m2 => f64::from(e5m2_to_f32(bits as u8)),
        _ => f64::from(f32::from_bits(bits as u32)),
    }
}

/// Bits of a value in a scalar floating type.
pub fn narrow(ty: Ty, x: f64, round: Round, flag: u8) -> u64 {
    let saturate = flag & F_SAT != 0;
    let x = if flag & F_RELU != 0 && (x < 0.0) { 0.0 } else { x };
    match ty {
        Ty::F16 => {
            let x = if saturate { x.clamp(0.0, 1.0) } else { x };
            f64_to_small(x, 5, 10, round, false, false).into()
        }
        Ty::Bf16 => f64_to_small(x, 8, 7, round, saturate, false).into(),
        Ty::E4m3 => f64_to_small(x, 4, 3, round, true, true).into(),
        Ty::E5m2 => f64_to_small(x, 5, 2, round, true, false).into(),
        Ty::Tf32 => {
            if !x.is_finite() {
                return u64::from(canonical(x as f32).to_bits());
            }
            u64::from(f64_to_small(x, 8, 10, round, saturate, false)) << 13
        }
        Ty::F64 => x.to_bits(),
        _ => {
            let mut y = x as f32;
            // The host rounds to nearest.
            if !matches!(round, Round::None | Round::Nearest) && f64::from(y) != x && y.is_finite() {
                let away = f64::from(y).abs() > x.abs();
                let step = |up: bool, y: f32| f32::from_bits(if up { y.to_bits() + 1 } else { y.to_bits() - 1 });
                y = match round {
                    Round::Zero if away => step(false, y),
                    Round::Down if f64::from(y) > x => step(y < 0.0, y),
                    Round::Up if f64::from(y) < x => step(y > 0.0, y),
                    _ => y,
                };
            }
            if saturate {
                y = if y.is_nan() { 0.0 } else { y.clamp(0.0, 1.0) };
            }
            if flag & F_FTZ != 0 {
                y = flush(y);
            }
            u64::from(canonical(y).to_bits())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_round_trip() {
        for bits in 0..=u16::MAX {
            let x = f16_to_f32(bits);
            assert!(x.is_nan() || f32_to_f16(x, Round::Nearest) == bits);
        }
        for bits in 0..=u8::MAX {
            let (a, b) = (e4m3_to_f32(bits), e5m2_to_f32(bits));
            assert!(a.is_nan() || narrow(Ty::E4m3, a.into(), Round::Nearest, 0) == bits.into(), "{bits:x} {a}");
            assert!(!b.is_finite() || narrow(Ty::E5m2, b.into(), Round::Nearest, 0) == bits.into());
        }
        assert_eq!(f32_to_f16(65520.0, Round::Nearest), 0x7C00);
        assert_eq!(f32_to_f16(65519.0, Round::Nearest), 0x7BFF);
        assert_eq!(f32_to_bf16(1.0), 0x3F80);
        assert_eq!(narrow(Ty::E4m3, 1000.0, Round::Nearest, 0), 0x7E);
    }
}
