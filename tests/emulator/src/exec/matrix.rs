//! Products of tensor cores: one warp's part of `wgmma`, and `mma`.

use super::float;
use crate::ptx::inst::{Product, Ty};

/// Fields of a matrix descriptor.
struct Descriptor {
    start: u32,
    leading: u32,
    stride: u32,
    /// Bytes of the swizzle, or 16 for none.
    swizzle: u32,
}

impl Descriptor {
    fn new(word: u64) -> Result<Descriptor, String> {
        let field = |shift: u32| ((word >> shift & 0x3FFF) << 4) as u32;
        if word >> 49 & 7 != 0 {
            return Err(format!("matrix descriptor {word:#x} has a base offset"));
        }
        let swizzle = [16, 128, 64, 32][(word >> 62) as usize];
        Ok(Descriptor { start: field(0), leading: field(16), stride: field(32), swizzle })
    }

    /// Address of the first byte of element (`row` of M or N, `k`), of so many bytes.
    #[inline(always)]
    fn place(&self, row: u32, k: u32, element: u32, across: bool) -> u32 {
        let (start, s) = (self.start, self.swizzle);
        let linear = if !across {
            let byte = k * element;
            if s == 16 {
                start + row / 8 * self.stride + row % 8 * 16 + byte / 16 * self.leading + byte % 16
            } else {
                start + row / 8 * self.stride + row % 8 * s + byte
            }
        } else {
            let byte = row * element;
            if s == 16 {
                start + byte / 16 * self.stride + byte % 16 + k / 8 * self.leading + k % 8 * 16
            } else {
                start + byte / s * self.leading + byte % s + k / 8 * self.stride + k % 8 * s
            }
        };
        let mask = s / 16 - 1;
        linear ^ (linear >> 7 & mask) << 4
    }
}

fn element_bytes(ty: Ty) -> u32 {
    match ty {
        Ty::Tf32 => 4,
        Ty::F16 | Ty::Bf16 => 2,
        _ => 1,
    }
}

/// Value of an element; integers are exact in `f32`.
#[inline(always)]
fn value(ty: Ty, bits: u32) -> f32 {
    match ty {
        Ty::F16 => float::f16_to_f32(bits as u16),
        Ty::Bf16 => float::bf16_to_f32(bits as u16),
        // The hardware does not look at the low bits.
        Ty::Tf32 => f32::from_bits(bits & !0x1FFF),
        Ty::E4m3 => float::e4m3_to_f32(bits as u8),
        Ty::E5m2 => float::e5m2_to_f32(bits as u8),
        Ty::S8 => f32::from(bits as u8 as i8),
        _ => f32::from(bits as u8),
    }
}

/// Reads `rows` × `depth` elements, `depth` after `depth` or else transposed.
#[allow(clippy::too_many_arguments)]
fn tile(
    shared: &[u8],
    word: u64,
    first: u32,
    rows: u32,
    depth: u32,
    ty: Ty,
    across: bool,
    by_depth: bool,
    out: &mut Vec<f32>,
    touched: Option<&mut Vec<u32>>,
) -> Result<(), String> {
    let descriptor = Descriptor::new(word)?;
    let element = element_bytes(ty);
    out.clear();
    out.resize((rows * depth) as usize, 0.0);
    if let Some(touched) = touched {
        // A row of K, or of M or N, is 16 bytes or several.
        for row in 0..rows {
            touched.extend((0..depth).map(|k| descriptor.place(first + row, k, element, across) / 16));
        }
        touched.sort_unstable();
        touched.dedup();
    }
    for row in 0..rows {
        for k in 0..depth {
            let at = descriptor.place(first + row, k, element, across) as usize;
            if at < crate::ptx::module::SHARED_START as usize || at + element as usize > shared.len() {
                return Err(format!("wgmma reads shared memory at {at:#x} of {:#x} bytes (descriptor {word:#x})", shared.len()));
            }
            let bits = match element {
                4 => u32::from_le_bytes(shared[at..at + 4].try_into().unwrap()),
                2 => u32::from(u16::from_le_bytes([shared[at], shared[at + 1]])),
                _ => u32::from(shared[at]),
            };
            let index = if by_depth { k * rows + row } else { row * depth + k };
            out[index as usize] = value(ty, bits);
        }
    }
    Ok(())
}

/// Scratch of products, kept to save allocations.
#[derive(Default)]
pub struct Scratch {
    a: Vec<f32>,
    b: Vec<f32>,
    sum: Vec<f32>,
    exact: Vec<i32>,
    /// Numbers of the 16 bytes of shared memory that were read, where that is looked at.
    pub touched: Vec<u32>,
    pub look: bool,
}

/// One warp's 16 rows of a `wgmma`. `lanes(slot)` are the 32 words of a register; `a` and `b` are descriptors.
///
/// # Safety
/// `lanes` gives pointers to 32 words each that nobody else uses.
#[allow(clippy::too_many_arguments, reason = "they are the operands of an instruction")]
pub unsafe fn wgmma(
    product: &Product,
    warp: u32,
    shared: &[u8],
    a: u64,
    b: u64,
    add: bool,
    lanes: &dyn Fn(u32) -> *mut u32,
    scratch: &mut Scratch,
) -> Result<(), String> {
    let n = product.n as usize;
    let depth = 32 / element_bytes(product.a_ty) as usize;
    let Scratch { a: left, b: right, sum, exact, touched, look } = scratch;
    let look = *look;
    if product.a_registers.is_empty() {
        tile(shared, a, 16 * (warp % 4), 16, depth as u32, product.a_ty, product.across.0, false, left, look.then_some(&mut *touched))?;
    } else {
        left.clear();
        left.resize(16 * depth, 0.0);
        let element = element_bytes(product.a_ty) as usize;
        let per = 4 / element;
        for (index, &slot) in product.a_registers.iter().enumerate() {
            for lane in 0..32 {
                // SAFETY: promised by the caller.
                let word = unsafe { *lanes(slot).add(lane) };
                let row = lane / 4 + index % 2 * 8;
                let k = (lane % 4 + index / 2 * 4) * per;
                for part in 0..per {
                    left[row * depth + k + part] = value(product.a_ty, word >> (part * element * 8));
                }
            }
        }
    }
    tile(shared, b, 0, product.n, depth as u32, product.b_ty, product.across.1, true, right, look.then_some(&mut *touched))?;
    let sign = if product.negate.0 != product.negate.1 { -1.0 } else { 1.0 };
    // Register and half of element (row, column).
    let place = |row: usize, col: usize| {
        let lane = row % 8 * 4 + col % 8 / 2;
        if product.sum == Ty::F16 { (col / 8 * 2 + row / 8, lane, col % 2) } else { (col / 8 * 4 + row / 8 * 2 + col % 2, lane, 0) }
    };
    if product.sum == Ty::S32 {
        exact.clear();
        exact.resize(16 * n, 0);
        for row in 0..16 {
            for k in 0..depth {
                let x = left[row * depth + k] as i32;
                for (to, &y) in exact[row * n..(row + 1) * n].iter_mut().zip(&right[k * n..(k + 1) * n]) {
                    *to = to.wrapping_add(x * y as i32);
                }
            }
        }
        for row in 0..16 {
            for col in 0..n {
                let (register, lane, _) = place(row, col);
                // SAFETY: promised by the caller.
                unsafe {
                    let to = lanes(product.d[register]).add(lane);
                    *to = (if add { *to as i32 } else { 0 }).wrapping_add(exact[row * n + col]) as u32;
                }
            }
        }
        return Ok(());
    }
    sum.clear();
    sum.resize(16 * n, 0.0);
    for row in 0..16 {
        let row_sum = &mut sum[row * n..(row + 1) * n];
        for k in 0..depth {
            let x = left[row * depth + k];
            for (to, &y) in row_sum.iter_mut().zip(&right[k * n..(k + 1) * n]) {
                *to += x * y;
            }
        }
    }
    for row in 0..16 {
        for col in 0..n {
            let (register, lane, half) = place(row, col);
            let x = sign * sum[row * n + col];
            // SAFETY: promised by the caller.
            unsafe {
                let to = lanes(product.d[register]).add(lane);
                if product.sum == Ty::F16 {
                    let before = if add { float::f16_to_f32((*to >> (16 * half)) as u16) } else { 0.0 };
                    let bits = u32::from(float::f32_to_f16(before + x, crate::ptx::inst::Round::Nearest));
                    *to = *to & !(0xFFFF << (16 * half)) | bits << (16 * half);
                } else {
                    let before = if add { f32::from_bits(*to) } else { 0.0 };
                    *to = float::canonical(before + x).to_bits();
                }
            }
        }
    }
    Ok(())
}

/// `mma.m16n8k*` with `f32` or `s32` sums. Slots: four of the result, those of both operands, four of the addend.
///
/// # Safety
/// As [`wgmma`].
pub unsafe fn mma(ty: Ty, b_ty: Ty, depth: usize, slots: &[u32], counts: (usize, usize), lanes: &dyn Fn(u32) -> *mut u32) {
    let element = element_bytes(ty) as usize;
    let per = 4 / element;
    let (mut a, mut b) = ([0f32; 16 * 32], [[0f32; 8]; 32]);
    let exact = matches!(ty, Ty::S8 | Ty::U8);
    for index in 0..counts.0 {
        // SAFETY: promised by the caller.
        let words = unsafe { &*lanes(slots[4 + index]).cast::<[u32; 32]>() };
        for (lane, &word) in words.iter().enumerate() {
            for part in 0..per {
                let (row, k) = (lane / 4 + index % 2 * 8, (lane % 4 + index / 2 * 4) * per + part);
                a[row * 32 + k] = value(ty, word >> (part * element * 8));
            }
        }
    }
    for index in 0..counts.1 {
        // SAFETY: as above.
        let words = unsafe { &*lanes(slots[4 + counts.0 + index]).cast::<[u32; 32]>() };
        for (lane, &word) in words.iter().enumerate() {
            for part in 0..per {
                b[(lane % 4 + index * 4) * per + part][lane / 4] = value(b_ty, word >> (part * element * 8));
            }
        }
    }
    // Integers of eight bits and their sums of products are exact in `f32`.
    let mut sums = [[0f32; 8]; 16];
    for (row, sum) in sums.iter_mut().enumerate() {
        for k in 0..depth {
            let x = a[row * 32 + k];
            for (to, y) in sum.iter_mut().zip(&b[k]) {
                *to += x * y;
            }
        }
    }
    for index in 0..4 {
        // SAFETY: as above.
        let before = unsafe { *lanes(slots[4 + counts.0 + counts.1 + index]).cast::<[u32; 32]>() };
        // SAFETY: as above; the words before have been copied.
        let to = unsafe { &mut *lanes(slots[index]).cast::<[u32; 32]>() };
        for lane in 0..32 {
            let sum = sums[lane / 4 + index / 2 * 8][lane % 4 * 2 + index % 2];
            to[lane] = if exact {
                (before[lane] as i32).wrapping_add(sum as i32) as u32
            } else {
                float::canonical(f32::from_bits(before[lane]) + sum).to_bits()
            };
        }
    }
}
