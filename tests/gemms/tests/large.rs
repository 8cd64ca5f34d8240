//! GEMMs of which an operand or the result has more than 2³¹ elements: on a GPU. The same with few elements on the CPU, which shows that the numbers are
//! right.
//!
//! Operands are made on the device, x[m, k] = a[m] b[k] and w[n, k] = c[n] d[k], so y[m, n] = a[m] c[n] Σ b d. All factors are small whole numbers, the sum
//! is 16, and every result is a whole number below 256: exact in bf16. What lies elsewhere has other factors.
#[path = "../../tasks/tests/support/mod.rs"]
mod support;

use gemms::large;
use maco::{Tensor, TensorElement, bf16};
use support::{Numbers, Setup, exact, upload};

/// Σ b d.
const SUM: f32 = 16.0;

/// Small numbers, none of them 0.
fn factors(numbers: &mut Numbers, count: u64) -> Vec<f32> {
    (0..count).map(|_| [-3.0, -2.0, -1.0, 1.0, 2.0, 3.0][numbers.below(6) as usize]).collect()
}

/// b and d, of ±1: products of neighbours cancel, but for 16 elements that are spread over all, so that each part of a sum counts.
fn signs(numbers: &mut Numbers, count: u64) -> (Vec<f32>, Vec<f32>) {
    assert!(count >= 16 && count.is_multiple_of(16));
    let mut sign = || if numbers.below(2) == 0 { 1.0 } else { -1.0f32 };
    let b: Vec<f32> = (0..count).map(|_| sign()).collect();
    let mut product: Vec<f32> = (0..count / 2).flat_map(|_| [1.0, -1.0].map(|v| v * sign())).collect();
    // Both of a pair have the first one's sign, so that they cancel.
    product.chunks_exact_mut(2).for_each(|pair| pair[1] = -pair[0]);
    // Eight pairs of ones.
    let each = (count / 8) as usize;
    (0..8).for_each(|n| product[n * each..n * each + 2].fill(1.0));
    let d = b.iter().zip(&product).map(|(b, product)| b * product).collect();
    (b, d)
}

/// First rows or columns of pieces that are looked at: the ends, around powers of two, and some between.
fn positions(extent: u64, size: u64) -> Vec<u64> {
    let powers = (4..40).map(|n| 1u64 << n).flat_map(|power| [power - size, power]);
    powers.chain((1..5).map(|n| extent / 5 * n)).chain([0]).filter(|at| at + size <= extent).chain([extent - size]).collect()
}

/// Pieces of `y`, of so many rows in all, are `expected`.
fn pieces(setup: &Setup, y: &mut Tensor<bf16>, [rows, cols]: [u64; 2], expected: impl Fn(u64, u64) -> f32, what: &str) {
    let (base, stride, size) = (y.as_mut_ptr(), y.row_stride(), 8.min(rows).min(cols));
    for row in positions(rows, size) {
        for col in positions(cols, size) {
            // SAFETY: a piece of `y`, which nobody else uses meanwhile.
            let piece =
                unsafe { Tensor::from_raw(&setup.device, base.add((row * stride + col) as usize), [size, size], stride) }.expect("a piece");
            let at = |n: usize| bf16::from_f32(expected(row + n as u64 / size, col + n as u64 % size));
            exact(&piece, at, &format!("{what} from ({row}, {col}) on"));
        }
    }
}

/// Zeros on the device, if there is room.
fn zeros<E: TensorElement>(setup: &Setup, shape: impl maco::IntoShape) -> Option<Tensor<E>> {
    if_room(setup.device.zeros(shape))
}

/// What has been made; none where there is too little memory for it.
fn if_room<T>(made: Result<T, maco::Error>) -> Option<T> {
    match made {
        Ok(made) => Some(made),
        Err(error) if error.code() == 45 => {
            eprintln!("left out: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

macro_rules! gemm {
    ($name:ident) => {
        /// Nothing where there is too little memory.
        fn $name(setup: &Setup, [m, n, k]: [u64; 3]) -> Option<()> {
            let mut numbers = Numbers::new(m ^ n ^ k);
            let [a, c, e, f] = [m, n, m, n].map(|count| factors(&mut numbers, count));
            let (b, d) = signs(&mut numbers, k);
            let dims = large::$name::Dims { M: m, K: k, N: n };
            let plan = if_room(large::$name::plan_with(&setup.device, dims, &setup.options))?;
            let (mut x, mut w, mut r) = (zeros(setup, [m, k])?, zeros(setup, [n, k])?, zeros(setup, [m, n])?);
            let (mut y, mut z) = (zeros(setup, [m, n])?, zeros(setup, [m, n])?);
            let (mut sums, mut sums_with_r) = (zeros(setup, [m, 1])?, zeros(setup, [m, 1])?);
            let of = |data: &[f32]| upload(setup, data, &[data.len() as u64]);
            let ([a_there, b_there, c_there], [d_there, e_there, f_there]) = ([of(&a), of(&b), of(&c)], [of(&d), of(&e), of(&f)]);
            plan.run(
                &a_there,
                &b_there,
                &c_there,
                &d_there,
                &e_there,
                &f_there,
                &mut x,
                &mut w,
                &mut r,
                &mut y,
                &mut z,
                &mut sums,
                &mut sums_with_r,
            )
            .expect("a run");
            let (sum_c, sum_f) = (c.iter().sum::<f32>(), f.iter().sum::<f32>());
            // Whole numbers below 2²⁴ in every order.
            exact(&sums, |row| a[row] * SUM * sum_c, "sums of rows");
            exact(&sums_with_r, |row| a[row] * SUM * sum_c + e[row] * sum_f, "sums of rows with r");
            let product = |row: u64, col: u64| a[row as usize] * c[col as usize] * SUM;
            pieces(setup, &mut y, [m, n], product, "the product");
            pieces(setup, &mut z, [m, n], |row, col| product(row, col) + e[row as usize] * f[col as usize], "the product with r");
            Some(())
        }
    };
}
gemm!(whole);
gemm!(split);

/// G, T, N, K, X.
fn experts_of(setup: &Setup, [g, t, n, k, x]: [u64; 5]) -> Option<()> {
    let mut numbers = Numbers::new(g ^ n ^ k);
    // The last expert too, and the first one; other groups have any.
    let expert: Vec<u32> = (0..g).map(|group| if group < 2 { (x - 1) * (1 - group) } else { numbers.below(x) } as u32).collect();
    let [a, c, e, f] = [g * t, x * n, g * t, n].map(|count| factors(&mut numbers, count));
    let (b, d) = signs(&mut numbers, k);
    let dims = large::experts_of::Dims { G: g, T: t, K: k, X: x, N: n };
    let plan = if_room(large::experts_of::plan_with(&setup.device, dims, &setup.options))?;
    let (mut rows, mut weights, mut r) = (zeros(setup, [g, t, k])?, zeros(setup, [x, n, k])?, zeros(setup, [g, t, n])?);
    let (mut y, mut z) = (zeros(setup, [g, t, n])?, zeros(setup, [g, t, n])?);
    let of = |data: &[f32]| upload(setup, data, &[data.len() as u64]);
    let (a_there, c_there, e_there) = (upload(setup, &a, &[g, t]), upload(setup, &c, &[x, n]), upload(setup, &e, &[g, t]));
    let experts = upload(setup, &expert, &[g]);
    plan.run(&experts, &a_there, &of(&b), &c_there, &of(&d), &e_there, &of(&f), &mut rows, &mut weights, &mut r, &mut y, &mut z)
        .expect("a run");
    let product = |row: u64, col: u64| a[row as usize] * c[expert[(row / t) as usize] as usize * n as usize + col as usize] * SUM;
    pieces(setup, &mut y, [g * t, n], product, "the experts' product");
    pieces(setup, &mut z, [g * t, n], |row, col| product(row, col) + e[row as usize] * f[col as usize], "the experts' product with r");
    Some(())
}

#[test]
fn the_numbers_are_right() {
    for setup in [Setup::plain(2), Setup::pipelined(2)] {
        for shape in [[130, 264, 64], [72, 40, 320], [8, 8, 16]] {
            whole(&setup, shape).expect("memory");
            split(&setup, shape).expect("memory");
        }
        for shape in [[3, 130, 264, 64, 2], [5, 8, 40, 128, 4]] {
            experts_of(&setup, shape).expect("memory");
        }
    }
}

/// More than 2³¹ elements, with rows and columns that do not end with a tile.
fn is_large(rows: u64, cols: u64) {
    assert!(rows * cols > 1 << 31, "{rows} × {cols}");
}

#[test]
#[ignore = "gpu"]
fn gpu_results_of_more_than_2_to_31_elements() {
    let [m, n] = [131_208, 16_392];
    is_large(m, n);
    let _ = whole(&Setup::gpu(), [m, n, 64]);
}

#[test]
#[ignore = "gpu"]
fn gpu_operands_of_more_than_2_to_31_elements() {
    let [m, k] = [2056, (1 << 20) + 64];
    is_large(m, k);
    let _ = whole(&Setup::gpu(), [m, 264, k]);
    // The other operand.
    let _ = whole(&Setup::gpu(), [136, m, k]);
}

#[test]
#[ignore = "gpu"]
fn gpu_operands_of_more_than_2_to_31_elements_in_parts() {
    let [m, k] = [2056, (1 << 20) + 64];
    is_large(m, k);
    let _ = split(&Setup::gpu(), [m, 264, k]);
    let _ = split(&Setup::gpu(), [136, m, k]);
}

#[test]
#[ignore = "gpu"]
fn gpu_results_of_more_than_2_to_31_elements_in_parts() {
    let [m, n] = [131_208, 16_392];
    is_large(m, n);
    let _ = split(&Setup::gpu(), [m, n, 512]);
}

#[test]
#[ignore = "gpu"]
fn gpu_experts_of_more_than_2_to_31_elements() {
    let [x, n, k] = [33, 8200, 8192];
    is_large(x * n, k);
    let _ = experts_of(&Setup::gpu(), [5, 136, n, k, x]);
}

#[test]
#[ignore = "gpu"]
fn gpu_experts_results_of_more_than_2_to_31_elements() {
    let [g, t, n] = [2056, 128, 8200];
    is_large(g * t, n);
    let _ = experts_of(&Setup::gpu(), [g, t, n, 64, 3]);
}
