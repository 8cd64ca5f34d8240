//! What the blocks compute against f64: random shapes and numbers, NaN and infinities, the same bits at every run.
//!
//! Takes half a minute: every block runs for many shapes, on both CPU executors, beside sums in f64.
#[path = "../../tasks/tests/support/mod.rs"]
mod support;

use blocks::kernels;
use custom_task::kernels as example;
use custom_task::reference::gelu;
use maco::{Error, Fault, Symptom, Tensor, bf16, f16};
use std::time::Duration;
use support::{Kind, Number, Numbers, Setup, bits, exact, kind, near, poisoned, upload};

on_every_device! {
    bf16_pairs up to [200, 300, 500], edges PAIRS;
    f16_pairs up to [200, 300, 500], edges PAIRS;
    pairs_across up to [200, 600, 300], edges PAIRS;
    units up to [200, 300, 500], edges PAIRS;
    bf16_moments up to [40, 5000], edges ROWS;
    f32_moments up to [40, 5000], edges ROWS;
    losses up to [40, 5000], edges ROWS;
    spreads up to [40, 5000], edges ROWS;
    scratch up to [200, 300, 300], edges SCRATCH;
    scratch_rows up to [40, 20000], edges SCRATCH_ROWS;
    piped up to [40, 20000], edges SCRATCH_ROWS;
}

/// M, N, K.
const PAIRS: [[u64; 3]; 9] =
    [[0, 5, 8], [1, 0, 8], [3, 9, 0], [1, 1, 1], [64, 128, 64], [65, 129, 65], [128, 256, 512], [200, 136, 200], [17, 300, 999]];

const ROWS: [[u64; 2]; 9] = [[0, 5], [3, 1], [1, 7], [9, 8], [17, 255], [3, 1000], [2, 2055], [3, 4104], [2, 9000]];

/// M, N, K: of GEMMs in parts of tiles, with rows that are copied in bulk and others.
const SCRATCH: [[u64; 3]; 8] =
    [[0, 8, 8], [1, 1, 0], [1, 8, 8], [17, 33, 24], [64, 128, 64], [130, 264, 72], [200, 136, 200], [40, 301, 99]];

/// Behind the last element of a stage, of a block, of a half; two stages, and five, in both parities of their barriers.
const SCRATCH_ROWS: [[u64; 2]; 8] = [[0, 8], [3, 1], [2, 2049], [3, 4096], [2, 4097], [40, 8200], [3, 16_384], [2, 40_968]];

/// The two products at each place, and of each the sum of what it adds, all positive.
struct Products {
    a: Vec<f64>,
    b: Vec<f64>,
    all: Vec<(f64, f64)>,
}

/// `x(i, k)` with `a(j, k)` and `b(j, k)`.
fn products([m, n, k]: [u64; 3], x: impl Fn(usize, usize) -> f64, w: [&dyn Fn(usize, usize) -> f64; 2]) -> Products {
    let (m, n, k) = (m as usize, n as usize, k as usize);
    let [a, b] = w.map(|w| {
        (0..m * n)
            .map(|at| {
                let terms = (0..k).map(|k| x(at / n, k) * w(at % n, k));
                terms.fold((0.0, 0.0), |(sum, all), term| (sum + term, all + term.abs()))
            })
            .collect::<Vec<(f64, f64)>>()
    });
    Products {
        all: a.iter().zip(&b).map(|(a, b)| (a.1, b.1)).collect(),
        a: a.into_iter().map(|sum| sum.0).collect(),
        b: b.into_iter().map(|sum| sum.0).collect(),
    }
}

/// Of a sum of `k` products in `f32`, relative to the sum of their magnitudes.
fn error(k: u64) -> f64 {
    (k as f64 + 16.0) * 2f64.powi(-24)
}

/// Small integers: sums and products are exact, so that what a tile mixes up shows.
fn integers<E: Number>(numbers: &mut Numbers, count: u64) -> Vec<E> {
    (0..count).map(|_| E::from64(numbers.below(5) as f64 - 2.0)).collect()
}

macro_rules! pairs {
    ($name:ident, $kernel:ident, $element:ty) => {
        fn $name(setup: &Setup, shape @ [m, n, k]: [u64; 3], seed: u64) {
            let mut numbers = Numbers::new(seed);
            let [x, a, b]: [Vec<$element>; 3] = [m, n, n].map(|rows| integers(&mut numbers, rows * k));
            let plan = kernels::$kernel::plan_with(&setup.device, kernels::$kernel::Dims { M: m, N: n, K: k }, &setup.options).unwrap();
            let [dx, da, db] = [(&x, m), (&a, n), (&b, n)].map(|(data, rows)| upload(setup, data, &[rows, k]));
            let run = || {
                let (mut y, mut square) = (poisoned::<$element>(setup, &[m, n]), poisoned::<$element>(setup, &[m, m]));
                plan.run(&dx, &da, &db, &mut y, &mut square).unwrap();
                (y, square)
            };
            let (y, square) = run();
            let value = |data: &[$element], row: usize, at: usize| data[row * k as usize + at].to64();
            let p = products(shape, |i, k| value(&x, i, k), [&|j, k| value(&a, j, k), &|j, k| value(&b, j, k)]);
            near(&y, |at| (p.a[at] * p.b[at].max(-1.0)).max(0.0), 0.0, |_| 0.0, &format!("{shape:?}"));
            // What is read again, by TMA, is what was written.
            let found: Vec<f64> = y.download().unwrap().into_iter().map(Number::to64).collect();
            let row = |at: usize| &found[at * n as usize..][..n as usize];
            let squared = |at: usize| row(at / m as usize).iter().zip(row(at % m as usize)).map(|(a, b)| a * b);
            let all = |at: usize| squared(at).map(f64::abs).sum::<f64>() * error(n);
            near(&square, |at| squared(at).sum(), 0.0, all, &format!("square of {shape:?}"));
            let again = run();
            assert_eq!((bits(&y), bits(&square)), (bits(&again.0), bits(&again.1)), "{shape:?}: other bits at the second run");
        }
    };
}
pairs!(bf16_pairs, pairs_bf16, bf16);
pairs!(f16_pairs, pairs_f16, f16);

fn pairs_across(setup: &Setup, shape @ [m, n, k]: [u64; 3], seed: u64) {
    let mut numbers = Numbers::new(seed);
    let [x, a, b]: [Vec<bf16>; 3] = [m, n, n].map(|cols| integers(&mut numbers, cols * k));
    let dims = kernels::pairs_across::Dims { M: m, N: n, K: k };
    let plan = kernels::pairs_across::plan_with(&setup.device, dims, &setup.options).unwrap();
    let [dx, da, db] = [(&x, m), (&a, n), (&b, n)].map(|(data, cols)| upload(setup, data, &[k, cols]));
    let mut y = poisoned::<bf16>(setup, &[m, n]);
    plan.run(&dx, &da, &db, &mut y).unwrap();
    let value = |data: &[bf16], cols: u64, col: usize, at: usize| data[at * cols as usize + col].to_f64();
    let p = products(shape, |i, k| value(&x, m, i, k), [&|j, k| value(&a, n, j, k), &|j, k| value(&b, n, j, k)]);
    near(&y, |at| p.a[at] - 2.0 * p.b[at], 0.0, |_| 0.0, &format!("across {shape:?}"));
}

/// The gated unit of the example, with special numbers too.
fn units(setup: &Setup, shape @ [m, n, k]: [u64; 3], seed: u64) {
    let mut numbers = Numbers::new(seed);
    let x: Vec<bf16> = numbers.fill(m * k, kind(seed));
    let [gate, up]: [Vec<bf16>; 2] =
        [n, n].map(|rows| numbers.fill::<bf16>(rows * k, Kind::Plain).iter().map(|v| bf16::from_f64(v.to_f64() / 16.0)).collect());
    let plan = example::fused::plan_with(&setup.device, example::fused::Dims { M: m, N: n, K: k }, &setup.options).unwrap();
    let [dx, dgate, dup] = [(&x, m), (&gate, n), (&up, n)].map(|(data, rows)| upload(setup, data, &[rows, k]));
    let mut y = poisoned::<bf16>(setup, &[m, n]);
    plan.run(&dx, &dgate, &dup, &mut y).unwrap();
    let value = |data: &[bf16], row: usize, at: usize| data[row * k as usize + at].to_f64();
    let p = products(shape, |i, k| value(&x, i, k), [&|j, k| value(&gate, j, k), &|j, k| value(&up, j, k)]);
    let expected = |at: usize| if p.a[at] == f64::NEG_INFINITY { f64::NAN } else { gelu(p.a[at]) * p.b[at] };
    // The unit's slope is below 1.2; its own error is the library's.
    let allowed = |at: usize| {
        let (gate, up) = (p.a[at], p.b[at]);
        let unit = gelu(gate).abs() * 2f64.powi(-20) * (1.0 + gate.abs().powi(3) / 16.0);
        (1.2 * p.all[at].0 * error(k) + unit) * up.abs() + gelu(gate).abs() * p.all[at].1 * error(k) + 1e-30
    };
    near(&y, expected, 2f64.powi(-20), allowed, &format!("unit of {shape:?}"));
}

/// Mean and variance in one pass, by the joined moments of blocks.
fn moments<E: Number>(shape @ [_, n]: [u64; 2], x: &[E], count: &Tensor<u32>, mean: &Tensor<f32>, variance: &Tensor<f32>) {
    let rows: Vec<Vec<f64>> = x.chunks(n as usize).map(|row| row.iter().map(|v| v.to64()).collect()).collect();
    let means: Vec<f64> = rows.iter().map(|row| row.iter().sum::<f64>() / n as f64).collect();
    let depth = n as f64 / 8.0 + 16.0;
    let largest = |row: usize| rows[row].iter().fold(0.0, |a: f64, v| a.max(v.abs()));
    assert!(count.download().unwrap().into_iter().all(|count| u64::from(count) == n), "count of {shape:?}");
    near(mean, |row| means[row], 0.0, |row| depth * 2f64.powi(-22) * largest(row), &format!("mean of {shape:?}"));
    let expected = |row: usize| rows[row].iter().map(|v| (v - means[row]).powi(2)).sum::<f64>() / n as f64;
    near(
        variance,
        expected,
        depth * 2f64.powi(-22),
        |row| depth * 2f64.powi(-22) * largest(row).powi(2),
        &format!("variance of {shape:?}"),
    );
}

macro_rules! row_moments {
    ($name:ident, $kernel:ident, $element:ty) => {
        fn $name(setup: &Setup, shape @ [m, n]: [u64; 2], seed: u64) {
            if n == 0 {
                return;
            }
            let x: Vec<$element> = Numbers::new(seed).fill(m * n, kind(seed));
            let plan = kernels::$kernel::plan_with(&setup.device, kernels::$kernel::Dims { M: m, N: n }, &setup.options).unwrap();
            let dx = upload(setup, &x, &shape);
            let mut count = poisoned::<u32>(setup, &[m, 1]);
            let [mut mean, mut variance] = [(); 2].map(|()| poisoned::<f32>(setup, &[m, 1]));
            plan.run(&dx, &mut count, &mut mean, &mut variance).unwrap();
            // Of infinities the mean is NaN where both signs meet, and else what the order of joining makes of it.
            if x.iter().all(|v| v.to64().is_finite()) {
                moments(shape, &x, &count, &mean, &variance);
            }
            let before = [bits(&mean), bits(&variance)];
            plan.run(&dx, &mut count, &mut mean, &mut variance).unwrap();
            assert_eq!(before, [bits(&mean), bits(&variance)], "other bits in a second run of {shape:?}");
        }
    };
}
row_moments!(bf16_moments, moments_bf16, bf16);
row_moments!(f32_moments, moments_f32, f32);

/// The loss of the example, behind a GEMM that makes the logits: those are its inputs here.
fn losses(setup: &Setup, shape @ [m, v]: [u64; 2], seed: u64) {
    let (k, n) = (24, 40);
    let mut numbers = Numbers::new(seed);
    let [x, gate, up, words]: [Vec<bf16>; 4] = [m * k, n * k, n * k, v * n].map(|count| numbers.fill(count, Kind::Plain));
    // Some beyond the last word.
    let target: Vec<u32> = (0..m).map(|_| numbers.below(v + 2) as u32).collect();
    let dims = example::head::Dims { M: m, K: k, N: n, V: v };
    let plan = example::head::plan_with(&setup.device, dims, &setup.options).unwrap();
    let [dx, dgate, dup] = [(&x, m), (&gate, n), (&up, n)].map(|(data, rows)| upload(setup, data, &[rows, k]));
    let (dwords, dtarget) = (upload(setup, &words, &[v, n]), upload(setup, &target, &[m, 1]));
    let (mut y, mut logits) = (poisoned::<bf16>(setup, &[m, n]), poisoned::<bf16>(setup, &[m, v]));
    let mut loss = poisoned::<f32>(setup, &[m, 1]);
    plan.run(&dx, &dgate, &dup, &dwords, &dtarget, &mut y, &mut logits, &mut loss).unwrap();
    let logits = logits.download().unwrap();
    let row = |at: usize| &logits[at * v as usize..][..v as usize];
    let expected = |at: usize| custom_task::reference::cross_entropy(row(at), target[at]);
    // The logarithm's own error, that of the sum, and that of their sum with logits of several hundred.
    let largest = |at: usize| row(at).iter().map(|v| v.to_f64().abs()).fold(0.0, f64::max);
    let allowed = |at: usize| (v as f64 / 8.0 + 64.0) * 2f64.powi(-23) + 4.0 * 2f64.powi(-23) * (16.0 + largest(at));
    near(&loss, expected, 0.0, allowed, &format!("losses of {shape:?}"));
}

/// Collectives of a SIMT body, by all its threads.
fn spreads(setup: &Setup, shape @ [m, n]: [u64; 2], seed: u64) {
    let x: Vec<f32> = Numbers::new(seed).fill(m * n, Kind::Plain);
    let plan = kernels::spreads::plan_with(&setup.device, kernels::spreads::Dims { M: m, N: n }, &setup.options).unwrap();
    let dx = upload(setup, &x, &shape);
    let [mut y, mut z] = [(); 2].map(|()| poisoned::<f32>(setup, &shape));
    plan.run(&dx, &mut y, &mut z).unwrap();
    let row = |at: usize| x[at / n as usize * n as usize..][..n as usize].iter().map(|&v| f64::from(v));
    let mean = |at: usize| row(at).sum::<f64>() / n as f64;
    let range = |at: usize| row(at).fold(f64::NEG_INFINITY, f64::max) - mean(at);
    let expected = |at: usize| if range(at) == 0.0 { 0.0 } else { (f64::from(x[at]) - mean(at)) / range(at) };
    // No number is beyond 4; the mean is in both parts of the quotient.
    let allowed = |at: usize| 8.0 * (n as f64 + 16.0) * 2f64.powi(-24) * (1.0 + expected(at).abs()) / range(at).max(1e-9);
    near(&y, expected, 2f64.powi(-20), allowed, &format!("spread of {shape:?}"));
    assert_eq!(bits(&y), bits(&z), "{shape:?}: other bits at the second run");
}

/// Bodies with scratch in the pages of GEMMs' stages: each result against the one before it, as it was written.
fn scratch(setup: &Setup, shape @ [m, n, k]: [u64; 3], seed: u64) {
    let mut numbers = Numbers::new(seed);
    let [x, w, v]: [Vec<bf16>; 3] = [m * k, n * k, n * n].map(|count| integers(&mut numbers, count));
    let plan = kernels::scratch::plan_with(&setup.device, kernels::scratch::Dims { M: m, N: n, K: k }, &setup.options).unwrap();
    plan.set_delays(seed as u32);
    let [dx, dw, dv] = [(&x, [m, k]), (&w, [n, k]), (&v, [n, n])].map(|(data, shape)| upload(setup, data, &shape));
    let run = || {
        let [mut product, mut turned, mut doubled, mut second] = [(); 4].map(|()| poisoned::<bf16>(setup, &[m, n]));
        let mut flipped = poisoned::<bf16>(setup, &[n, m]);
        plan.run(&dx, &dw, &dv, &mut product, &mut turned, &mut doubled, &mut second, &mut flipped).unwrap();
        [product, turned, doubled, second, flipped]
    };
    let results = run();
    let [product, turned, doubled, second, flipped] = &results;
    let (rows, cols) = (m as usize, n as usize);
    let dot = |a: &[bf16], b: &[bf16]| a.iter().zip(b).map(|(a, b)| a.to64() * b.to64()).sum::<f64>();
    let row = |data: &[bf16], at: usize, cols: u64| data[at * cols as usize..][..cols as usize].to_vec();
    near(product, |at| dot(&row(&x, at / cols, k), &row(&w, at % cols, k)), 0.0, |_| 0.0, &format!("product of {shape:?}"));
    let [product, mirrored, twice, last] = [product, turned, doubled, second].map(|tensor| tensor.download().unwrap());
    exact(turned, |at| product[at / cols * cols + cols - 1 - at % cols], &format!("reverse of {shape:?}"));
    exact(doubled, |at| bf16::from64(2.0 * mirrored[at].to64()), &format!("double of {shape:?}"));
    near(second, |at| dot(&row(&twice, at / cols, n), &row(&v, at % cols, n)), 0.0, |_| 0.0, &format!("second of {shape:?}"));
    exact(flipped, |at| last[at % rows * cols + at / rows], &format!("flip of {shape:?}"));
    let again = run();
    assert_eq!(results.each_ref().map(bits), again.each_ref().map(bits), "{shape:?}: other bits at the second run");
}

/// Rows of more stages than fit the scratch at once, more of them than the ring has pages.
fn scratch_rows(setup: &Setup, shape @ [m, n]: [u64; 2], seed: u64) {
    let x: Vec<bf16> = Numbers::new(seed).fill(m * n, kind(seed));
    let plan = kernels::scratch_rows::plan_with(&setup.device, kernels::scratch_rows::Dims { M: m, N: n }, &setup.options).unwrap();
    plan.set_delays(seed as u32);
    let dx = upload(setup, &x, &shape);
    let [mut turned, mut doubled] = [(); 2].map(|()| poisoned::<bf16>(setup, &shape));
    plan.run(&dx, &mut turned, &mut doubled).unwrap();
    let cols = n as usize;
    let mirrored = |at: usize| x[at / cols * cols + cols - 1 - at % cols];
    exact(&turned, mirrored, &format!("reverse of {shape:?}"));
    exact(&doubled, |at| bf16::from64(2.0 * mirrored(at).to64()), &format!("double of {shape:?}"));
}

/// Rows through the stages of a pipeline: more than there are, and fewer.
fn piped(setup: &Setup, shape @ [m, n]: [u64; 2], seed: u64) {
    let x: Vec<bf16> = Numbers::new(seed).fill(m * n, kind(seed));
    let plan = kernels::piped::plan_with(&setup.device, kernels::piped::Dims { M: m, N: n }, &setup.options).unwrap();
    plan.set_delays(seed as u32);
    let dx = upload(setup, &x, &shape);
    let [mut y, mut z] = [(); 2].map(|()| poisoned::<bf16>(setup, &shape));
    plan.run(&dx, &mut y, &mut z).unwrap();
    exact(&y, |at| bf16::from64(-x[at].to64()), &format!("minus {shape:?}"));
    exact(&z, |at| x[at], &format!("minus minus {shape:?}"));
}

/// A loader that announces bytes which never come: no thread gets the scratch of that task, and none of them waits for ever; the next launch is
/// right.
fn no_scratch_behind_an_abort(setup: &Setup) {
    let (m, n) = (30u64, 4104u64);
    let options = setup.options.clone().deadline(Duration::from_millis(200));
    let plan = kernels::scratch_rows::plan_with(&setup.device, kernels::scratch_rows::Dims { M: m, N: n }, &options).unwrap();
    let x: Vec<bf16> = Numbers::new(5).fill(m * n, Kind::Plain);
    let dx = upload(setup, &x, &[m, n]);
    let [mut turned, mut doubled] = [(); 2].map(|()| poisoned::<bf16>(setup, &[m, n]));
    for call in 0..2 {
        let tasks = &plan.graph().calls[call].tasks;
        let task = tasks.start + (tasks.end - tasks.start) / 2;
        plan.inject(Some(Fault::ExtraBytes(task))).unwrap();
        let error = plan.run(&dx, &mut turned, &mut doubled).unwrap_err();
        let Error::Hang(hang) = &error else { panic!("{error}") };
        assert!(hang.symptom == Symptom::DidNotEnd && hang.call as usize == call || hang.symptom == Symptom::Waited, "{hang}");
        plan.inject(None).unwrap();
        plan.recover().unwrap();
        plan.run(&dx, &mut turned, &mut doubled).unwrap();
        let mirrored = |at: usize| x[at / n as usize * n as usize + n as usize - 1 - at % n as usize];
        exact(&doubled, |at| bf16::from64(2.0 * mirrored(at).to64()), "after the fault");
    }
}

#[test]
fn no_scratch_behind_an_abort_of_the_pipelined_executor() {
    no_scratch_behind_an_abort(&Setup::pipelined(2));
}

#[test]
#[ignore = "gpu"]
fn gpu_no_scratch_behind_an_abort() {
    no_scratch_behind_an_abort(&Setup::gpu());
}
