//! GEMMs of `f32`, which the tensor cores multiply as tf32: in every form, against f64 and against the rounding that is promised.
mod gate;
#[path = "../../tasks/tests/support/mod.rs"]
mod support;
mod turned;

use gate::gated;
use gemms::kernels::{batched_f32, chain_f32, forms_f32, gated_f32, grouped_f32, mixed};
use maco::{Tensor, bf16};
use support::{Kind, Number, Numbers, Setup, bits, exact, kind, near, poisoned, upload};
use turned::{turned, turned_planes};

on_every_device! {
    every_form up to [150, 300, 200], edges FORMS;
    roundings up to [150, 300, 200], edges FORMS;
    gates up to [150, 200, 100], edges FORMS;
    batches up to [4, 140, 260, 130], edges BATCHES;
    groups up to [5, 130, 260, 130, 4], edges GROUPS;
    chains up to [150, 300, 200], edges FORMS;
    elements up to [150, 200, 100], edges FORMS;
}

/// M, N, K.
const FORMS: [[u64; 3]; 7] = [[0, 8, 8], [8, 0, 8], [8, 8, 0], [1, 1, 1], [128, 256, 64], [129, 257, 100], [65, 127, 33]];
/// B, M, N, K.
const BATCHES: [[u64; 4]; 5] = [[0, 8, 8, 8], [1, 1, 1, 1], [3, 64, 128, 32], [2, 130, 70, 65], [3, 5, 8, 0]];
/// G, T, N, K, X.
const GROUPS: [[u64; 5]; 7] =
    [[0, 8, 8, 8, 2], [2, 0, 8, 8, 2], [3, 8, 8, 8, 0], [1, 1, 1, 1, 1], [4, 128, 256, 64, 3], [3, 130, 70, 65, 2], [2, 5, 8, 0, 2]];

/// Of a product of two numbers that are rounded to tf32 each, relative.
const ROUNDED: f64 = 1.001 / 1024.0;

/// A sum of products, and what it may be off before it is rounded; `unit` for each product.
fn dot(k: u64, unit: f64, terms: impl Iterator<Item = f64>) -> (f64, f64) {
    let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
    (sum, (unit + (k as f64 + 16.0) * 2f64.powi(-24)) * size)
}

/// Rows of `x` with rows of `w`, all of `k` elements.
fn products<E: Number>(x: &[E], w: &[E], n: u64, k: u64, unit: f64) -> impl Fn(usize) -> (f64, f64) {
    let (n, step) = (n as usize, k as usize);
    move |at| dot(k, unit, x[at / n * step..][..step].iter().zip(&w[at % n * step..][..step]).map(|(x, w)| x.to64() * w.to64()))
}

/// The nearest number with 10 bits of fraction, ties to even; by arithmetic, not on bits as the executors do.
fn tf32(value: f32) -> f32 {
    let exponent = if value.is_normal() { f64::from(value).abs().log2().floor() as i32 } else { -126 };
    // The distance between two of them: 2^-136 and below has no reciprocal in `f32`, but one in `f64`.
    let unit = 2f64.powi(exponent - 10);
    if value.is_finite() { ((f64::from(value) / unit).round_ties_even() * unit) as f32 } else { value }
}

#[test]
fn the_reference_rounds() {
    for (value, rounded) in [
        (1.0, 1.0),
        (1.0 + 2f32.powi(-11), 1.0),
        (1.0 + 3.0 * 2f32.powi(-11), 1.0 + 2f32.powi(-9)),
        (1.0 + 2f32.powi(-11) + 2f32.powi(-20), 1.0 + 2f32.powi(-10)),
        (-(2.0 - 2f32.powi(-12)), -2.0),
        (f32::MAX, f32::INFINITY),
        (f32::NEG_INFINITY, f32::NEG_INFINITY),
        (2f32.powi(-137), 0.0),
        (2f32.powi(-136), 2f32.powi(-136)),
    ] {
        assert_eq!(tf32(value), rounded, "{value}");
    }
}

/// Runs all forms, twice, and gives the results.
fn run(setup: &Setup, [m, n, k]: [u64; 3], x: &[f32], w: &[f32]) -> Vec<(Tensor<f32>, String)> {
    let plan = forms_f32::plan_with(&setup.device, forms_f32::Dims { M: m, K: k, N: n }, &setup.options).expect("a plan");
    let (a, b) = (upload(setup, x, &[m, k]), upload(setup, w, &[n, k]));
    let (at, bt) = (upload(setup, &turned(x, m, k), &[k, m]), upload(setup, &turned(w, n, k), &[k, n]));
    assert!((0..5).all(|call| plan.graph().workload(call).flops == 2 * m * n * k));
    let [first, second] = [(); 2].map(|()| {
        let mut y: [Tensor<f32>; 5] = std::array::from_fn(|_| poisoned(setup, &[m, n]));
        let [nt, nn, tn, tt, parts] = &mut y;
        plan.run(&a, &at, &b, &bt, nt, nn, tn, tt, parts).expect("a run");
        y
    });
    let named = |((first, second), name): ((Tensor<f32>, Tensor<f32>), &str)| {
        assert_eq!(bits(&first), bits(&second), "other bits at the second run of {name} {m} × {n} × {k}");
        (first, format!("{name} {m} × {n} × {k}"))
    };
    first.into_iter().zip(second).zip(["linear", "matmul", "matmul_tn", "matmul_tt", "matmul in parts"]).map(named).collect()
}

fn every_form(setup: &Setup, [m, n, k]: [u64; 3], seed: u64) {
    let mut numbers = Numbers::new(seed);
    let (x, w): (Vec<f32>, Vec<f32>) = (numbers.fill(m * k, kind(seed)), numbers.fill(n * k, kind(seed)));
    let expected = products(&x, &w, n, k, ROUNDED);
    for (y, name) in run(setup, [m, n, k], &x, &w) {
        near(&y, |at| expected(at).0, 0.0, |at| expected(at).1, &name);
    }
}

/// Rows of the identity pick single elements of `x`, which come back rounded, and no other way; and the other way round.
fn roundings(setup: &Setup, [m, n, k]: [u64; 3], seed: u64) {
    let mut numbers = Numbers::new(seed);
    let mut any = |count: u64| -> Vec<f32> {
        let mut number = || match numbers.below(8) {
            // Ties, carries into the exponent and beyond the largest number, the smallest numbers.
            0 => f32::from_bits((numbers.next() as u32) << 12 & !(1 << 30)),
            1 => f32::from_bits(numbers.next() as u32 & 0x807f_ffff | 0x3f7f_e000),
            2 if seed.is_multiple_of(2) => f32::MAX * (1.0 - numbers.below(4) as f32 * 2f32.powi(-12)),
            _ => numbers.number(Kind::Plain) as f32 * 1.000_123,
        };
        (0..count).map(|_| number()).collect()
    };
    let unit = |rows: u64| -> Vec<f32> { (0..rows * k).map(|at| f32::from(u8::from(at % k == at / k % k))).collect() };
    let (x, w) = (any(m * k), any(n * k));
    // Infinity times 0 is not a number: finite ones only are picked from among others.
    let finite = |values: Vec<f32>| -> Vec<f32> { values.into_iter().map(|v| if tf32(v).is_finite() { v } else { 1.0 }).collect() };
    let (x, w) = if k > 1 { (finite(x), finite(w)) } else { (x, w) };
    let (row, col) = (|at: usize| at / n as usize, |at: usize| at % n as usize);
    let pick = |data: &[f32], row: usize, of: usize| if k == 0 { 0.0 } else { tf32(data[row * k as usize + of % k as usize]) + 0.0 };
    for (y, name) in run(setup, [m, n, k], &x, &unit(n)) {
        exact(&y, |at| pick(&x, row(at), col(at)), &name);
    }
    for (y, name) in run(setup, [m, n, k], &unit(m), &w) {
        exact(&y, |at| pick(&w, col(at), row(at)), &name);
    }
}

fn gates(setup: &Setup, [m, n, k]: [u64; 3], seed: u64) {
    let mut numbers = Numbers::new(seed);
    let mut fill = |count: u64| -> Vec<f32> { (0..count).map(|_| f32::from64(numbers.number(kind(seed)) * 0.25)).collect() };
    let (x, gate, up) = (fill(m * k), fill(n * k), fill(n * k));
    let plan = gated_f32::plan_with(&setup.device, gated_f32::Dims { M: m, K: k, N: n }, &setup.options).expect("a plan");
    let (a, b, c) = (upload(setup, &x, &[m, k]), upload(setup, &gate, &[n, k]), upload(setup, &up, &[n, k]));
    let [first, second] = [(); 2].map(|()| {
        let mut y = poisoned::<f32>(setup, &[m, n]);
        plan.run(&a, &b, &c, &mut y).expect("a run");
        y
    });
    let (gates, ups) = (products(&x, &gate, n, k, ROUNDED), products(&x, &up, n, k, ROUNDED));
    let found = first.download().expect("download");
    let expected = |at: usize| gated(gates(at), ups(at), found[at].to64());
    near(&first, |at| expected(at).0, 0.0, |at| expected(at).1, &format!("{m} × {n} × {k}"));
    assert_eq!(bits(&first), bits(&second), "other bits at the second run");
}

fn batches(setup: &Setup, [count, m, n, k]: [u64; 4], seed: u64) {
    let mut numbers = Numbers::new(seed);
    let (x, w): (Vec<f32>, Vec<f32>) = (numbers.fill(count * m * k, kind(seed)), numbers.fill(count * n * k, kind(seed)));
    let plan = batched_f32::plan_with(&setup.device, batched_f32::Dims { B: count, M: m, K: k, N: n }, &setup.options).expect("a plan");
    let (a, at) = (upload(setup, &x, &[count, m, k]), upload(setup, &turned_planes(&x, m, k), &[count, k, m]));
    let (b, bt) = (upload(setup, &w, &[count, n, k]), upload(setup, &turned_planes(&w, n, k), &[count, k, n]));
    assert!((0..4).all(|call| plan.graph().workload(call).flops == 2 * count * m * n * k));
    let [first, second] = [(); 2].map(|()| {
        let mut y: [Tensor<f32>; 4] = std::array::from_fn(|_| poisoned(setup, &[count, m, n]));
        let [nt, nn, tn, tt] = &mut y;
        plan.run(&a, &at, &b, &bt, nt, nn, tn, tt).expect("a run");
        y
    });
    let each = (m * n) as usize;
    let expected = |at: usize| {
        let (batch, own) = (at / each, at % each);
        products(&x[batch * (m * k) as usize..], &w[batch * (n * k) as usize..], n, k, ROUNDED)(own)
    };
    for ((result, again), name) in
        first.iter().zip(&second).zip(["batched_linear", "batched_matmul", "batched_matmul_tn", "batched_matmul_tt"])
    {
        near(result, |at| expected(at).0, 0.0, |at| expected(at).1, &format!("{name} {count} × {m} × {n} × {k}"));
        assert_eq!(bits(result), bits(again), "other bits at the second run of {name} {count} × {m} × {n} × {k}");
    }
}

fn groups(setup: &Setup, [g, t, n, k, experts]: [u64; 5], seed: u64) {
    let mut numbers = Numbers::new(seed);
    // Also numbers of no expert: the next one, and the largest.
    let expert: Vec<u32> = (0..g).map(|_| [numbers.below(experts + 1) as u32, u32::MAX][usize::from(numbers.below(8) == 0)]).collect();
    // Rows of no expert become zeros if they are finite.
    let kinds = expert.iter().map(|&expert| if u64::from(expert) < experts { kind(seed) } else { Kind::Plain });
    let x: Vec<f32> = kinds.flat_map(|kind| numbers.fill::<f32>(t * k, kind)).collect();
    let w: Vec<f32> = numbers.fill(experts * n * k, kind(seed));
    let plan =
        grouped_f32::plan_with(&setup.device, grouped_f32::Dims { G: g, T: t, K: k, X: experts, N: n }, &setup.options).expect("a plan");
    let (e, a, b) = (upload(setup, &expert, &[g]), upload(setup, &x, &[g, t, k]), upload(setup, &w, &[experts, n, k]));
    let [first, second] = [(); 2].map(|()| {
        let mut y = poisoned::<f32>(setup, &[g, t, n]);
        plan.run(&e, &a, &b, &mut y).expect("a run");
        y
    });
    let expected = |at: usize| {
        let (row, col) = (at / n as usize, at % n as usize);
        match u64::from(expert[row / t as usize]) {
            expert if expert < experts => {
                let first = ((expert * n) as usize + col) * k as usize;
                products(&x[row * k as usize..], &w[first..], 1, k, ROUNDED)(0)
            }
            _ => (0.0, 0.0),
        }
    };
    near(&first, |at| expected(at).0, 0.0, |at| expected(at).1, &format!("{g} groups of {t} × {n} × {k}, {experts} experts"));
    assert_eq!(bits(&first), bits(&second), "other bits at the second run");
}

/// Results are not rounded to tf32, but are when the next GEMM reads them.
fn chains(setup: &Setup, [m, n, h]: [u64; 3], seed: u64) {
    let mut numbers = Numbers::new(seed);
    let k = 1 + numbers.below(70);
    let (x, up, down): (Vec<f32>, Vec<f32>, Vec<f32>) =
        (numbers.fill(m * k, Kind::Plain), numbers.fill(h * k, Kind::Plain), numbers.fill(h * n, kind(seed)));
    let plan = chain_f32::plan_with(&setup.device, chain_f32::Dims { M: m, K: k, H: h, N: n }, &setup.options).expect("a plan");
    let (a, b, c) = (upload(setup, &x, &[m, k]), upload(setup, &up, &[h, k]), upload(setup, &down, &[h, n]));
    let (mut hidden, mut y) = (poisoned::<f32>(setup, &[m, h]), poisoned::<f32>(setup, &[m, n]));
    plan.run(&a, &b, &c, &mut hidden, &mut y).expect("a run");
    let expected = products(&x, &up, h, k, ROUNDED);
    near(&hidden, |at| expected(at).0.max(0.0), 0.0, |at| expected(at).1, "hidden");
    let kept = hidden.download().expect("download");
    assert!(m * h < 64 || kept.iter().any(|&value| value != tf32(value)), "results are rounded to tf32");
    let weights = turned(&down, h, n);
    let expected = products(&kept, &weights, n, h, ROUNDED);
    near(&y, |at| expected(at).0, 0.0, |at| expected(at).1, &format!("{m} × {n} × {h}"));
}

/// Operands of one element, results of another.
fn elements(setup: &Setup, [m, n, k]: [u64; 3], seed: u64) {
    let mut numbers = Numbers::new(seed);
    let (x, w): (Vec<bf16>, Vec<bf16>) = (numbers.fill(m * k, kind(seed)), numbers.fill(n * k, kind(seed)));
    let mut fill = |count: u64| -> Vec<f32> { numbers.fill(count, Kind::Plain) };
    let (a, v, u) = (fill(m * k), fill(n * k), fill(n * k));
    let plan = mixed::plan_with(&setup.device, mixed::Dims { M: m, K: k, N: n }, &setup.options).expect("a plan");
    let (b, c) = (upload(setup, &x, &[m, k]), upload(setup, &w, &[n, k]));
    let [d, e, f] = [(&a, m), (&v, n), (&u, n)].map(|(data, rows)| upload(setup, &turned(data, rows, k), &[k, rows]));
    let (mut y, mut z) = (poisoned::<f32>(setup, &[m, n]), poisoned::<bf16>(setup, &[m, n]));
    plan.run(&b, &c, &d, &e, &f, &mut y, &mut z).expect("a run");
    let expected = products(&x, &w, n, k, 0.0);
    near(&y, |at| expected(at).0, 0.0, |at| expected(at).1, &format!("bf16 to f32 {m} × {n} × {k}"));
    let (first, second) = (products(&a, &v, n, k, ROUNDED), products(&a, &u, n, k, ROUNDED));
    let error = |at: usize| first(at).1 + second(at).1;
    near(&z, |at| first(at).0 - second(at).0, 0.0, error, &format!("f32 to bf16 {m} × {n} × {k}"));
}
