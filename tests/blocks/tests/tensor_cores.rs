//! Products that bodies ask the tensor cores for: every type, width and layout against the same sums of integers, which are exact.
//!
//! Takes half a minute: a CPU multiplies number by number what the tensor cores do at once, for every type and width.
#[path = "../../tasks/tests/support/mod.rs"]
mod support;

use blocks::tensor_cores as kernels;
use maco::{E4M3, E5M2, OperandType, S8, Tensor, U8, bf16, f16};
use support::{Number, Numbers, Setup, bits, exact, poisoned, upload};

on_every_device! {
    bf16_products up to [200, 200], edges SHAPES;
    f16_products up to [200, 200], edges SHAPES;
    tf32_products up to [200, 200], edges SHAPES;
    fp8_products up to [200, 200], edges SHAPES;
    integer_products up to [200, 400], edges SHAPES;
    every_width up to [200, 64], edges WIDTHS;
}

/// M, K: parts of a block of rows, of a step of K, and more than one of either.
const SHAPES: [[u64; 2]; 8] = [[0, 8], [1, 1], [64, 16], [65, 65], [128, 64], [129, 129], [130, 32], [257, 100]];
const WIDTHS: [[u64; 2]; 4] = [[1, 1], [64, 64], [130, 64], [256, 33]];
/// Rows of w.
const ROWS: u64 = 256;

/// Row `row` of x times row `col` of w.
fn dot<X: Copy>(k: u64, (x, w): (&[X], &[X]), (row, col): (usize, usize), a: impl Fn(X) -> f32, b: impl Fn(X) -> f32) -> f64 {
    let of = |data: &[X], row: usize| data[row * k as usize..][..k as usize].to_vec();
    of(x, row).into_iter().zip(of(w, col)).map(|(x, w)| f64::from(a(x)) * f64::from(b(w))).sum()
}

/// Which sum column `at` of y belongs to, and which of its columns it is.
fn part(widths: &[u32], at: usize) -> (usize, usize) {
    let mut rest = at;
    let part = widths.iter().position(|&width| match rest.checked_sub(width as usize) {
        Some(left) => {
            rest = left;
            false
        }
        None => true,
    });
    (part.expect("inside y"), rest)
}

macro_rules! products {
    ($name:ident, $kernel:ident, $x:ident $y:ident, $widths:ident, $number:expr, $pair:expr) => {
        fn $name(setup: &Setup, shape @ [m, k]: [u64; 2], seed: u64) {
            let mut numbers = Numbers::new(seed);
            let number: fn(&mut Numbers) -> $x = $number;
            let [x, w]: [Vec<$x>; 2] = [m * k, ROWS * k].map(|count| (0..count).map(|_| number(&mut numbers)).collect());
            let n = u64::from(kernels::$widths.iter().sum::<u32>());
            let dims = kernels::$kernel::Dims { M: m, K: k, R: ROWS, N: n };
            let plan = kernels::$kernel::plan_with(&setup.device, dims, &setup.options).unwrap();
            let (dx, dw) = (upload(setup, &x, &[m, k]), upload(setup, &w, &[ROWS, k]));
            let run = || {
                let mut y = poisoned::<$y>(setup, &[m, n]);
                plan.run(&dx, &dw, &mut y).unwrap();
                y
            };
            let y = run();
            let expected = |at: usize| {
                let (part, col) = part(&kernels::$widths, at % n as usize);
                let pair: fn(usize) -> (fn($x) -> f32, fn($x) -> f32) = $pair;
                let (a, b) = pair(part);
                $y::from64(dot(k, (&x, &w), (at / n as usize, col), a, b))
            };
            // Sums of nothing may be −0 in either.
            let plus = |value: $y| if value.to64() == 0.0 { $y::from64(0.0) } else { value };
            let found: Tensor<$y> = upload(setup, &y.download().unwrap().into_iter().map(plus).collect::<Vec<_>>(), &[m, n]);
            exact(&found, |at| plus(expected(at)), &format!("{} of {shape:?}", stringify!($name)));
            assert_eq!(bits(&y), bits(&run()), "{shape:?}: other bits at the second run");
        }
    };
}
/// −2 to 2.
fn small<E: Number>(numbers: &mut Numbers) -> E {
    E::from64(numbers.below(5) as f64 - 2.0)
}
/// Bits that are small numbers, or halves of them, in both formats.
fn eight(numbers: &mut Numbers) -> i8 {
    [0, 0x38, 0x40, 0x3c, 0xb8, 0xc0, 0xbc][numbers.below(7) as usize] as u8 as i8
}
products!(bf16_products, products_bf16, bf16 f32, BF16, small, |_| (bf16::to_f32, bf16::to_f32));
products!(f16_products, products_f16, f16 f32, F16, small, |_| (f16::to_f32, f16::to_f32));
products!(tf32_products, products_tf32, f32 f32, TF32, small, |_| (|v| v, |v| v));
products!(fp8_products, products_fp8, i8 f32, FP8, eight, |part| match part % 4 {
    0 => (E4M3::number, E4M3::number),
    1 => (E4M3::number, E5M2::number),
    2 => (E5M2::number, E4M3::number),
    _ => (E5M2::number, E5M2::number),
});
products!(integer_products, products_integers, i8 i32, INTEGERS, |numbers| numbers.below(256) as u8 as i8, |part| match part % 4 {
    0 => (S8::number, S8::number),
    1 => (S8::number, U8::number),
    2 => (U8::number, S8::number),
    _ => (U8::number, U8::number),
});

fn every_width(setup: &Setup, shape @ [m, k]: [u64; 2], seed: u64) {
    // One step of K.
    let (k, n) = (k.min(64), 32);
    let mut numbers = Numbers::new(seed);
    let [x, w]: [Vec<bf16>; 2] = [m * k, ROWS * k].map(|count| (0..count).map(|_| small(&mut numbers)).collect());
    let (dx, dw) = (upload(setup, &x, &[m, k]), upload(setup, &w, &[ROWS, k]));
    let mut y = poisoned::<f32>(setup, &[m, n]);
    macro_rules! run {
        ($($kernel:ident)*) => {$(
            let dims = kernels::$kernel::Dims { M: m, K: k, R: ROWS, N: n };
            kernels::$kernel::plan_with(&setup.device, dims, &setup.options).unwrap().run(&dx, &dw, &mut y).unwrap();
        )*};
    }
    run!(products_widths0 products_widths1 products_widths2 products_widths3 products_widths4 products_widths5 products_widths6 products_widths7);
    let product: Vec<f64> =
        (0..(m * ROWS) as usize).map(|at| dot(k, (&x, &w), (at / ROWS as usize, at % ROWS as usize), bf16::to_f32, bf16::to_f32)).collect();
    let expected = |at: usize| {
        let (block, width) = (at / n as usize / 64 * 64, at % n as usize * 8 + 8);
        let rows = block..(block + 64).min(m as usize);
        let weighted = |row: usize, col: usize| product[row * ROWS as usize + col] * ((row - block + col) % 2 + 1) as f64;
        let sum: f64 = rows.map(|row| (0..width).map(|col| weighted(row, col)).sum::<f64>()).sum();
        sum as f32 + 0.0
    };
    let found: Vec<f32> = y.download().unwrap().into_iter().map(|v| v + 0.0).collect();
    exact(&upload(setup, &found, &[m, n]), expected, &format!("widths of {shape:?}"));
}
