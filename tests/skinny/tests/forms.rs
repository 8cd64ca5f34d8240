//! `linear` with few rows (GEMV), in the form that the planner chooses and in each that it has: against `f64`, the same bits at every run, with and
//! without epilogues.
#[path = "../../tasks/tests/support/mod.rs"]
mod support;

use maco::{Device, PlanOptions, Tensor, bf16, f16};
use skinny::kernels::{forms, fused, mixed};
use support::{Number, Numbers, Setup, bits, kind, near, poisoned, upload};

on_every_device! {
    plain_gemvs up to [20, 70, 1500], edges EDGES;
    with_epilogues up to [20, 70, 1500], edges EDGES;
    forms_that_wait_for_each_other up to [20, 33], edges SQUARES;
}

/// M, N, K. The sixth has no more tiles than workers in one form, and more in the other.
const EDGES: [[u64; 3]; 10] =
    [[0, 5, 8], [1, 0, 8], [1, 3, 0], [1, 1, 1], [8, 16, 2048], [10, 54, 1], [9, 17, 2049], [16, 31, 2056], [17, 8, 4100], [20, 40, 999]];

/// M, K.
const SQUARES: [[u64; 2]; 4] = [[1, 1], [5, 40], [16, 24], [17, 40]];

/// The largest error of a sum in `f32`, by blocks or one product after the other.
fn error(k: usize, terms: impl Iterator<Item = f64>) -> f64 {
    (k as f64 + 16.0) * 2f64.powi(-24) * terms.map(f64::abs).sum::<f64>()
}

/// Up to sixteen rows are streamed, if there is anything to do.
fn check_choice(plan: &maco::Plan, m: u64) {
    let rows: Vec<u32> = plan.graph().calls.iter().map(|call| call.tile[0]).collect();
    assert!(m == 0 || (rows[0] <= 16) == (m <= 16), "{m} rows: {rows:?}");
    assert!(rows[1] <= 16 && rows[2] >= 64, "{rows:?}");
}

macro_rules! gemvs {
    ($name:ident, $kernel:ident, $element:ty, $relative:expr, $map:expr) => {
        fn $name(setup: &Setup, [m, n, k]: [u64; 3], seed: u64) {
            let mut numbers = Numbers::new(seed);
            let (x, w): (Vec<$element>, Vec<$element>) = (numbers.fill(m * k, kind(seed)), numbers.fill(n * k, kind(seed)));
            let plan = $kernel::plan_with(&setup.device, $kernel::Dims { M: m, N: n, K: k }, &setup.options).expect("a plan");
            check_choice(&plan, m);
            let (a, b) = (upload(setup, &x, &[m, k]), upload(setup, &w, &[n, k]));
            let [first, second] = [(); 2].map(|()| {
                let [mut chosen, mut streamed, mut staged] = [(); 3].map(|()| poisoned::<$element>(setup, &[m, n]));
                plan.run(&a, &b, &mut chosen, &mut streamed, &mut staged).expect("a run");
                [chosen, streamed, staged]
            });
            let (n, k) = (n as usize, k as usize);
            let terms = |at: usize| (0..k).map(|i| x[at / n * k + i].to64() * w[at % n * k + i].to64()).collect::<Vec<_>>();
            for ((first, second), form) in first.iter().zip(&second).zip(["chosen", "streamed", "staged"]) {
                let what = format!("{m} × {n} × {k}, {form}");
                near(first, |at| $map(terms(at).iter().sum()), $relative, |at| error(k, terms(at).into_iter()), &what);
                assert_eq!(bits(first), bits(second), "{what}: other bits at the second run");
            }
        }
    };
}
gemvs!(plain_gemvs, forms, bf16, 0.0, |sum: f64| sum);
// The error of `tanh`, whose slope is 1 at most.
gemvs!(with_epilogues, fused, f16, 2f64.powi(-19), |sum: f64| if sum.is_nan() { sum } else { sum.max(0.0).tanh() });

/// Small integers, and weights that turn columns: every result is exact.
fn forms_that_wait_for_each_other(setup: &Setup, [m, k]: [u64; 2], seed: u64) {
    let (m, k) = (m as usize, k as usize);
    let mut numbers = Numbers::new(seed);
    let x: Vec<f64> = (0..m * k).map(|_| numbers.below(3) as f64 - 1.0).collect();
    let turned = |x: &[f64]| -> Vec<f64> { (0..m * k).map(|at| x[at / k * k + (at % k + 1) % k]).collect() };
    let w: Vec<f64> = (0..k * k).map(|at| f64::from(u8::from(at % k == (at / k + 1) % k))).collect();
    let (h, y) = (turned(&x), turned(&turned(&x)));
    let z = |at: usize| (0..k).map(|i| h[at / m * k + i] * y[at % m * k + i]).sum::<f64>();
    let plan = mixed::plan_with(&setup.device, mixed::Dims { M: m as u64, K: k as u64 }, &setup.options).expect("a plan");
    let new =
        |data: &[f64], shape: &[u64]| -> Tensor<bf16> { upload(setup, &data.iter().map(|&v| bf16::from64(v)).collect::<Vec<_>>(), shape) };
    let (m, k) = (m as u64, k as u64);
    let (a, b) = (new(&x, &[m, k]), new(&w, &[k, k]));
    for _ in 0..3 {
        let [mut first, mut second] = [(); 2].map(|()| poisoned::<bf16>(setup, &[m, k]));
        let mut last = poisoned::<bf16>(setup, &[m, m]);
        plan.run(&a, &b, &mut first, &mut second, &mut last).expect("a run");
        for (found, expected) in [(&first, &h), (&second, &y)] {
            near(found, |at| expected[at], 0.0, |_| 0.0, &format!("{m} × {k}"));
        }
        near(&last, z, 0.0, |_| 0.0, &format!("{m} × {m} × {k}"));
    }
}

/// One thread adds the products of a sum in the same order in either form.
#[test]
fn on_a_cpu_both_forms_have_the_same_bits() {
    let setup = Setup::new(Device::cpu_with(3), PlanOptions::new());
    for [m, n, k] in EDGES {
        let mut numbers = Numbers::new(m + n + k);
        let (x, w): (Vec<f16>, Vec<f16>) = (numbers.fill(m * k, kind(0)), numbers.fill(n * k, kind(0)));
        let (a, b) = (upload(&setup, &x, &[m, k]), upload(&setup, &w, &[n, k]));
        let [mut chosen, mut streamed, mut staged] = [(); 3].map(|()| poisoned::<f16>(&setup, &[m, n]));
        let plan = fused::plan_with(&setup.device, fused::Dims { M: m, N: n, K: k }, &setup.options).expect("a plan");
        plan.run(&a, &b, &mut chosen, &mut streamed, &mut staged).expect("a run");
        assert_eq!([bits(&chosen), bits(&streamed)], [bits(&staged), bits(&staged)], "{m} × {n} × {k}");
    }
}
