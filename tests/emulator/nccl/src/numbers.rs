//! Elements and reductions: in the order of ranks, of floating elements as `f32` and rounded once.

/// Bytes of an element (`ncclDataType_t`); none for those that are not computed with here.
pub fn bytes(element: u32) -> Option<usize> {
    match element {
        0 | 1 => Some(1),
        6 | 9 => Some(2),
        2 | 3 | 7 => Some(4),
        4 | 5 | 8 => Some(8),
        _ => None,
    }
}

/// `ncclRedOp_t`.
const PRODUCT: u32 = 1;
const MAXIMUM: u32 = 2;
const MINIMUM: u32 = 3;
const AVERAGE: u32 = 4;

/// An element as something that is computed with.
trait Number: Copy + PartialOrd {
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn over(self, ranks: usize) -> Self;
}

macro_rules! integers {
    ($($ty:ty)*) => {
        $(impl Number for $ty {
            fn plus(self, other: $ty) -> $ty {
                self.wrapping_add(other)
            }
            fn times(self, other: $ty) -> $ty {
                self.wrapping_mul(other)
            }
            fn over(self, ranks: usize) -> $ty {
                self / ranks as $ty
            }
        })*
    };
}
integers!(i8 u8 i32 u32 i64 u64);

macro_rules! floats {
    ($($ty:ty)*) => {
        $(impl Number for $ty {
            fn plus(self, other: $ty) -> $ty {
                self + other
            }
            fn times(self, other: $ty) -> $ty {
                self * other
            }
            fn over(self, ranks: usize) -> $ty {
                self / ranks as $ty
            }
        })*
    };
}
floats!(f32 f64);

/// One value of those of all ranks.
fn combined<N: Number>(mut values: impl ExactSizeIterator<Item = N>, operation: u32) -> N {
    let ranks = values.len();
    let first = values.next().expect("at least one rank");
    let all = values.fold(first, |all, next| match operation {
        PRODUCT => all.times(next),
        MAXIMUM => {
            if next > all || next.partial_cmp(&next).is_none() {
                next
            } else {
                all
            }
        }
        MINIMUM => {
            if next < all || next.partial_cmp(&next).is_none() {
                next
            } else {
                all
            }
        }
        _ => all.plus(next),
    });
    if operation == AVERAGE { all.over(ranks) } else { all }
}

fn f32_of_f16(bits: u16) -> f32 {
    let (sign, exponent, fraction) = (f32::from(bits >> 15) * -2.0 + 1.0, i32::from(bits >> 10 & 31), f32::from(bits & 0x3FF));
    match exponent {
        0 => sign * fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => sign * f32::INFINITY,
        31 => f32::NAN,
        _ => sign * (1024.0 + fraction) * 2f32.powi(exponent - 25),
    }
}

/// To the nearest, of two the even one.
fn f16_of_f32(value: f32) -> u16 {
    let sign = (value.to_bits() >> 16 & 0x8000) as u16;
    let size = value.abs();
    let steps = |unit: f32| (size / unit).round_ties_even() as u16;
    match size {
        _ if size.is_nan() => sign | 0x7E00,
        _ if size >= 65520.0 => sign | 0x7C00,
        _ if size < 2f32.powi(-14) => sign | steps(2f32.powi(-24)),
        _ => {
            let exponent = (size.to_bits() >> 23) as i32 - 127;
            // A fraction that is rounded up to 2048 carries into the exponent.
            sign | ((((exponent + 14) as u16) << 10) + steps(2f32.powi(exponent - 10)))
        }
    }
}

fn bf16_of_f32(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() { (bits >> 16) as u16 | 0x40 } else { ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16) as u16 }
}

/// Combines the elements of all ranks, which are as many as those of `to`.
pub fn reduce(parts: &[&[u8]], to: &mut [u8], element: u32, operation: u32) {
    macro_rules! each {
        ($size:literal, $read:expr, $write:expr) => {
            for (n, to) in to.chunks_exact_mut($size).enumerate() {
                let value = |part: &&[u8]| $read(part[n * $size..][..$size].try_into().expect("an element"));
                to.copy_from_slice(&$write(combined(parts.iter().map(value), operation)));
            }
        };
    }
    match element {
        0 => each!(1, i8::from_le_bytes, i8::to_le_bytes),
        1 => each!(1, u8::from_le_bytes, u8::to_le_bytes),
        2 => each!(4, i32::from_le_bytes, i32::to_le_bytes),
        3 => each!(4, u32::from_le_bytes, u32::to_le_bytes),
        4 => each!(8, i64::from_le_bytes, i64::to_le_bytes),
        5 => each!(8, u64::from_le_bytes, u64::to_le_bytes),
        6 => each!(2, |bytes| f32_of_f16(u16::from_le_bytes(bytes)), |value| f16_of_f32(value).to_le_bytes()),
        7 => each!(4, f32::from_le_bytes, f32::to_le_bytes),
        8 => each!(8, f64::from_le_bytes, f64::to_le_bytes),
        _ => each!(2, |bytes| f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16), |value| bf16_of_f32(value).to_le_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_come_back_as_they_were() {
        for bits in 0..=u16::MAX {
            let value = f32_of_f16(bits);
            assert!(f16_of_f32(value) == bits || value.is_nan(), "{bits:#x}");
            let wide = f32::from_bits(u32::from(bits) << 16);
            assert!(bf16_of_f32(wide) == bits || wide.is_nan(), "{bits:#x}");
        }
        // Between two: the even one.
        assert_eq!([2049.0, 2051.0, 65519.0, 65520.0].map(f16_of_f32), [0x6800, 0x6802, 0x7BFF, 0x7C00]);
        assert_eq!([257.0, 259.0].map(bf16_of_f32), [0x4380, 0x4382]);
    }

    #[test]
    fn reductions_are_those_of_nccl() {
        let parts = [[1.0f32, -5.0], [2.0, 7.0], [6.0, 1.0]].map(|pair| pair.map(f32::to_le_bytes).concat());
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        for (operation, expected) in [(0, [9.0, 3.0]), (1, [12.0, -35.0]), (2, [6.0, 7.0]), (3, [1.0, -5.0]), (4, [3.0, 1.0])] {
            let mut to = [0; 8];
            reduce(&parts, &mut to, 7, operation);
            assert_eq!(to.to_vec(), expected.map(f32::to_le_bytes).concat(), "operation {operation}");
        }
    }
}
