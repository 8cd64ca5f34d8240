//! Results of other elements than the operands, in every form, against `f64`: each sum is rounded once.
#[path = "../../tasks/tests/support/mod.rs"]
mod support;
mod turned;

use gemms::casts::{narrowed, planes, widened};
use maco::{Tensor, bf16, f16};
use support::{Kind, Number, Numbers, Setup, near, poisoned, upload};
use turned::{turned, turned_planes};

on_every_device! {
    wider up to [150, 300, 200], edges FORMS;
    narrower up to [150, 300, 200], edges FORMS;
    of_planes up to [4, 140, 260, 130], edges PLANES;
}

/// M, N, K.
const FORMS: [[u64; 3]; 6] = [[0, 8, 8], [8, 0, 8], [8, 8, 0], [1, 1, 1], [128, 256, 64], [129, 257, 100]];
/// G, T, N, K.
const PLANES: [[u64; 4]; 5] = [[0, 8, 8, 8], [1, 1, 1, 1], [3, 64, 128, 64], [2, 130, 70, 65], [3, 5, 8, 0]];

/// The numbers of a matrix.
fn values<E: Number>(data: &[E]) -> Vec<f64> {
    data.iter().map(|value| value.to64()).collect()
}

/// y = x · wᵀ of rows of K: the error of a sum in `f32`, and one rounding. `weights` is the row of `w` that makes element (row, col).
fn check<E: Number>(y: &Tensor<E>, x: &[f64], w: &[f64], n: u64, k: u64, weights: impl Fn(usize, usize) -> usize, what: &str) {
    let (n, k) = (n as usize, k as usize);
    let terms = |at: usize| {
        let (x, w) = (&x[at / n * k..][..k], &w[weights(at / n, at % n) * k..][..k]);
        x.iter().zip(w).map(|(x, w)| x * w)
    };
    let error = |at: usize| (k as f64 + 16.0) * 2f64.powi(-24) * terms(at).map(f64::abs).sum::<f64>();
    near(y, |at| terms(at).sum(), 0.0, error, what);
}

fn wider(setup: &Setup, [m, n, k]: [u64; 3], seed: u64) {
    let mut numbers = Numbers::new(seed);
    let (x, w): (Vec<bf16>, Vec<bf16>) = (numbers.fill(m * k, Kind::Plain), numbers.fill(n * k, Kind::Plain));
    let plan = widened::plan_with(&setup.device, widened::Dims { M: m, K: k, N: n }, &setup.options).expect("a plan");
    let (a, b) = (upload(setup, &x, &[m, k]), upload(setup, &w, &[n, k]));
    let (at, bt) = (upload(setup, &turned(&x, m, k), &[k, m]), upload(setup, &turned(&w, n, k), &[k, n]));
    let mut y: [Tensor<f32>; 4] = std::array::from_fn(|_| poisoned(setup, &[m, n]));
    let [nt, nn, tn, tt] = &mut y;
    plan.run(&a, &at, &b, &bt, nt, nn, tn, tt).expect("a run");
    for (y, name) in y.iter().zip(["linear", "matmul", "matmul_tn", "matmul_tt"]) {
        check(y, &values(&x), &values(&w), n, k, |_, col| col, &format!("{name} {m} × {n} × {k}"));
    }
}

fn narrower(setup: &Setup, [m, n, k]: [u64; 3], seed: u64) {
    let mut numbers = Numbers::new(seed);
    // What tf32 holds.
    let mut fill = |count: u64| -> Vec<f32> { numbers.fill::<f16>(count, Kind::Plain).iter().map(|value| value.to_f32()).collect() };
    let (x, w) = (fill(m * k), fill(n * k));
    let plan = narrowed::plan_with(&setup.device, narrowed::Dims { M: m, K: k, N: n }, &setup.options).expect("a plan");
    let (a, b) = (upload(setup, &x, &[m, k]), upload(setup, &w, &[n, k]));
    let (at, bt) = (upload(setup, &turned(&x, m, k), &[k, m]), upload(setup, &turned(&w, n, k), &[k, n]));
    let mut y: [Tensor<bf16>; 2] = std::array::from_fn(|_| poisoned(setup, &[m, n]));
    let mut z: [Tensor<f16>; 2] = std::array::from_fn(|_| poisoned(setup, &[m, n]));
    let ([nt, tn], [nn, tt]) = (&mut y, &mut z);
    plan.run(&a, &at, &b, &bt, nt, nn, tn, tt).expect("a run");
    let (x, w) = (values(&x), values(&w));
    check(&y[0], &x, &w, n, k, |_, col| col, &format!("linear {m} × {n} × {k}"));
    check(&z[0], &x, &w, n, k, |_, col| col, &format!("matmul {m} × {n} × {k}"));
    check(&y[1], &x, &w, n, k, |_, col| col, &format!("matmul_tn {m} × {n} × {k}"));
    check(&z[1], &x, &w, n, k, |_, col| col, &format!("matmul_tt {m} × {n} × {k}"));
}

fn of_planes(setup: &Setup, [g, t, n, k]: [u64; 4], seed: u64) {
    let mut numbers = Numbers::new(seed);
    let (x, w): (Vec<f16>, Vec<f16>) = (numbers.fill(g * t * k, Kind::Plain), numbers.fill(g * n * k, Kind::Plain));
    let expert: Vec<u32> = (0..g).map(|_| numbers.below(g) as u32).collect();
    let plan = planes::plan_with(&setup.device, planes::Dims { G: g, T: t, K: k, N: n }, &setup.options).expect("a plan");
    let (e, a, at) = (upload(setup, &expert, &[g]), upload(setup, &x, &[g, t, k]), upload(setup, &turned_planes(&x, t, k), &[g, k, t]));
    let (b, bt) = (upload(setup, &w, &[g, n, k]), upload(setup, &turned_planes(&w, n, k), &[g, k, n]));
    let [mut nt, mut tt, mut named] = [(); 3].map(|()| poisoned::<f32>(setup, &[g, t, n]));
    let [mut nn, mut tn] = [(); 2].map(|()| poisoned::<bf16>(setup, &[g, t, n]));
    plan.run(&e, &a, &at, &b, &bt, &mut nt, &mut nn, &mut tn, &mut tt, &mut named).expect("a run");
    let (x, w, rows, cols) = (values(&x), values(&w), t as usize, n as usize);
    let own = |row: usize, col: usize| row / rows * cols + col;
    check(&nt, &x, &w, n, k, own, &format!("batched_linear {g} × {t} × {n} × {k}"));
    check(&nn, &x, &w, n, k, own, &format!("batched_matmul {g} × {t} × {n} × {k}"));
    check(&tn, &x, &w, n, k, own, &format!("batched_matmul_tn {g} × {t} × {n} × {k}"));
    check(&tt, &x, &w, n, k, own, &format!("batched_matmul_tt {g} × {t} × {n} × {k}"));
    check(&named, &x, &w, n, k, |row, col| expert[row / rows] as usize * cols + col, &format!("grouped_linear {g} × {t} × {n} × {k}"));
}
