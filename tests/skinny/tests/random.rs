//! GEMVs against f64: random shapes and numbers, NaN and infinities, the same bits at every run.
#[path = "../../tasks/tests/support/mod.rs"]
mod support;

use maco::{Tensor, bf16, f16};
use skinny::kernels::{half, one};
use support::{Number, Numbers, Setup, bits, kind, near, poisoned, upload};

on_every_device! {
    bf16_gemvs up to [33, 70, 3000], edges EDGES;
    f16_gemvs up to [33, 70, 3000], edges EDGES;
}

/// M, N, K.
const EDGES: [[u64; 3]; 9] =
    [[0, 5, 8], [1, 0, 8], [1, 3, 0], [1, 1, 1], [8, 16, 2048], [9, 17, 2049], [16, 31, 2056], [17, 8, 4100], [33, 40, 999]];

/// Against `f64`: the error of a sum in `f32`, by blocks or one after the other, and one rounding.
fn check<E: Number>([m, n, k]: [u64; 3], x: &[E], w: &[E], y: &Tensor<E>, map: impl Fn(f64) -> f64) {
    let (n, k) = (n as usize, k as usize);
    let terms = |at: usize| (0..k).map(move |i| x[at / n * k + i].to64() * w[at % n * k + i].to64());
    let error = |at: usize| (k as f64 + 16.0) * 2f64.powi(-24) * terms(at).map(f64::abs).sum::<f64>();
    near(y, |at| map(terms(at).sum()), 0.0, error, &format!("{m} × {n} × {k}"));
}

macro_rules! gemvs {
    ($name:ident, $kernel:ident, $element:ty, $map:expr) => {
        fn $name(setup: &Setup, [m, n, k]: [u64; 3], seed: u64) {
            let mut numbers = Numbers::new(seed);
            let (x, w): (Vec<$element>, Vec<$element>) = (numbers.fill(m * k, kind(seed)), numbers.fill(n * k, kind(seed)));
            let plan = $kernel::plan_with(&setup.device, $kernel::Dims { M: m, N: n, K: k }, &setup.options).expect("a plan");
            let (a, b) = (upload(setup, &x, &[m, k]), upload(setup, &w, &[n, k]));
            let [first, second] = [(); 2].map(|()| {
                let mut y = poisoned::<$element>(setup, &[m, n]);
                plan.run(&a, &b, &mut y).expect("a run");
                y
            });
            check([m, n, k], &x, &w, &first, $map);
            assert_eq!(bits(&first), bits(&second), "{m} × {n} × {k}: other bits at the second run");
        }
    };
}
gemvs!(bf16_gemvs, one, bf16, |v| v);
gemvs!(f16_gemvs, half, f16, |v| if v.is_nan() { v } else { v.max(0.0) });
