//! Reductions of rows against f64, ties, NaN before any number, K beyond the row.
mod support;

use maco::Tensor;
use support::{Number, Numbers, Setup, any_kind, bits, exact, near, poisoned, upload};
use tasks::rows;

on_every_device! {
    bf16_rows up to [40, 5000, 9], edges EDGES;
    f32_rows up to [40, 5000, 9], edges EDGES;
    bf16_routers up to [200, 300, 9], edges EDGES;
    f32_routers up to [200, 300, 9], edges EDGES;
}

/// M, N, K.
const EDGES: [[u64; 3]; 13] = [
    [0, 5, 2],
    [3, 0, 2],
    [1, 1, 3],
    [9, 7, 7],
    [17, 256, 1],
    [3, 1000, 40],
    [5, 2048, 3],
    [2, 4096, 4],
    [3, 4100, 5],
    [2, 9000, 2],
    [1, 20001, 8],
    [19, 2048, 4],
    [9, 8192, 3],
];

/// Whether element `a` at `i` comes before `b` at `j`: NaN first, then from the largest down, equal ones in order.
fn before((a, i): (f64, usize), (b, j): (f64, usize)) -> bool {
    (a.is_nan() && !b.is_nan()) || a > b || ((a == b || a.is_nan() && b.is_nan()) && i < j)
}

/// The columns of each of `m` rows of `n` elements, the largest first.
fn sorted(m: usize, n: usize, value: impl Fn(usize, usize) -> f64) -> Vec<Vec<usize>> {
    let order = |r: usize| {
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(
            |&a, &b| if before((value(r, a), a), (value(r, b), b)) { std::cmp::Ordering::Less } else { std::cmp::Ordering::Greater },
        );
        order
    };
    (0..m).map(order).collect()
}

struct Outputs<E: Number> {
    sums: [Tensor<f32>; 4],
    arg: Tensor<u32>,
    values: Tensor<E>,
    indices: Tensor<u32>,
}

impl<E: Number> Outputs<E> {
    fn bits(&self) -> Vec<Vec<u32>> {
        let sums = self.sums.iter().map(bits);
        sums.chain([bits(&self.arg), bits(&self.values), bits(&self.indices)]).collect()
    }
}

fn check<E: Number>(setup: &Setup, [m, n, k]: [u64; 3], x: &[E], outputs: &Outputs<E>) {
    let (n, k) = (n as usize, k as usize);
    let what = |name: &str| format!("{name} of {m} × {n}, K {k}");
    let value = |row: usize, col: usize| x[row * n + col].to64();
    let row = |row: usize| (0..n).map(move |col| value(row, col));
    let larger = |a: f64, b: f64| if b > a || b.is_nan() { b } else { a };
    let smaller = |a: f64, b: f64| if b < a || b.is_nan() { b } else { a };
    // The documented error of a sum.
    let factor = setup.pick(n as f64 / 256.0 + 16.0, n as f64 / 8.0 + 8.0) * 2f64.powi(-24);
    let error = |at: usize| factor * row(at).map(f64::abs).sum::<f64>();
    let [sum, mean, max, min] = &outputs.sums;
    near(sum, |at| row(at).sum(), 0.0, error, &what("sum_rows"));
    near(mean, |at| row(at).sum::<f64>() / n as f64, 0.0, |at| error(at) / n as f64, &what("mean_rows"));
    exact(max, |at| row(at).fold(f64::NEG_INFINITY, larger) as f32 + 0.0, &what("max_rows"));
    exact(min, |at| row(at).fold(f64::INFINITY, smaller) as f32 + 0.0, &what("min_rows"));
    let sorted = sorted(m as usize, n, value);
    exact(&outputs.arg, |r| sorted[r].first().map_or(u32::MAX, |&at| at as u32), &what("argmax"));
    let nth = |at: usize| sorted[at / k].get(at % k).copied();
    exact(&outputs.indices, |at| nth(at).map_or(u32::MAX, |at| at as u32), &what("indices of top_k"));
    exact(&outputs.values, |at| nth(at).map_or(E::from64(f64::NEG_INFINITY), |col| x[at / k * n + col]), &what("values of top_k"));
}

macro_rules! rows {
    ($name:ident, $kernel:ident, $ty:ty) => {
        fn $name(setup: &Setup, shape @ [m, n, k]: [u64; 3], seed: u64) {
            let mut x: Vec<$ty> = Numbers::new(seed).fill(m * n, any_kind(seed));
            // −0 and 0 are equal: which of them a maximum is, is not promised.
            for v in &mut x {
                if v.to64() == 0.0 {
                    *v = <$ty as Number>::from64(0.0);
                }
            }
            let run = || {
                let plan = rows::$kernel::plan_with(&setup.device, rows::$kernel::Dims { M: m, N: n, K: k }, &setup.options).unwrap();
                let mut outputs = Outputs::<$ty> {
                    sums: [(); 4].map(|()| poisoned(setup, &[m, 1])),
                    arg: poisoned(setup, &[m, 1]),
                    values: poisoned(setup, &[m, k]),
                    indices: poisoned(setup, &[m, k]),
                };
                let [sum, mean, max, min] = &mut outputs.sums;
                let (arg, values, indices) = (&mut outputs.arg, &mut outputs.values, &mut outputs.indices);
                plan.run(&upload(setup, &x, &[m, n]), sum, mean, max, min, arg, values, indices).unwrap();
                outputs
            };
            let outputs = run();
            check(setup, shape, &x, &outputs);
            assert_eq!(outputs.bits(), run().bits(), "other bits in a second run of {shape:?}");
        }
    };
}
rows!(bf16_rows, rows_bf16, maco::bf16);
rows!(f32_rows, rows_f32, f32);

/// The values are those of a softmax in f64, of what `top_k` finds.
fn check_router<E: Number>(setup: &Setup, [m, n, k]: [u64; 3], x: &[E], values: &Tensor<E>, indices: &Tensor<u32>) {
    let (n, k) = (n as usize, k as usize);
    let what = |name: &str| format!("{name} of {m} × {n}, K {k}");
    let value = |row: usize, col: usize| x[row * n + col].to64();
    let sorted = sorted(m as usize, n, value);
    let nth = |at: usize| sorted[at / k].get(at % k).copied();
    exact(indices, |at| nth(at).map_or(u32::MAX, |at| at as u32), &what("indices of softmax_top_k"));
    let largest = |row: usize| (0..n).map(|col| value(row, col)).fold(f64::NEG_INFINITY, |a, b| if b > a || b.is_nan() { b } else { a });
    let soft = |at: usize| match nth(at) {
        Some(col) => {
            let (row, max) = (at / k, largest(at / k));
            (value(row, col) - max).exp() / (0..n).map(|col| (value(row, col) - max).exp()).sum::<f64>()
        }
        None if n == 0 => f64::NAN,
        None if largest(at / k).is_finite() => 0.0,
        None => f64::NAN,
    };
    let sum_error = setup.pick(n as f64 / 256.0 + 16.0, n as f64 / 8.0 + 8.0) * 2f64.powi(-24);
    let below = |at: usize| nth(at).map_or(0.0, |col| (largest(at / k) - value(at / k, col)).abs().min(200.0));
    near(values, soft, sum_error, |at| soft(at) * (below(at) + 4.0) * 2f64.powi(-23), &what("values of softmax_top_k"));
}

macro_rules! routers {
    ($name:ident, $kernel:ident, $ty:ty) => {
        fn $name(setup: &Setup, shape @ [m, n, k]: [u64; 3], seed: u64) {
            let x: Vec<$ty> = Numbers::new(seed).fill(m * n, any_kind(seed));
            let plan = rows::$kernel::plan_with(&setup.device, rows::$kernel::Dims { M: m, N: n, K: k }, &setup.options).unwrap();
            let run = || {
                let (mut values, mut indices) =
                    ([(); 3].map(|()| poisoned::<$ty>(setup, &[m, k])), [(); 3].map(|()| poisoned(setup, &[m, k])));
                plan.run(&upload(setup, &x, &[m, n]), &mut values, &mut indices).unwrap();
                (values, indices)
            };
            let (values, indices) = run();
            for (values, indices) in values.iter().zip(&indices) {
                check_router(setup, shape, &x, values, indices);
            }
            let bits = |(values, indices): &([Tensor<$ty>; 3], [Tensor<u32>; 3])| {
                values.iter().map(bits).chain(indices.iter().map(bits)).collect::<Vec<_>>()
            };
            assert_eq!(bits(&(values, indices)), bits(&run()), "other bits in a second run of {shape:?}");
        }
    };
}
routers!(bf16_routers, router_bf16, maco::bf16);
routers!(f32_routers, router_f32, f32);
