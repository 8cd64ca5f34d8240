//! Softmax and norms against f64, for every element type, any length of rows, special numbers.
mod support;

use maco::Tensor;
use support::{Kind, Number, Numbers, Setup, any_kind, bits, exact, near, poisoned, upload};
use tasks::norms;

on_every_device! {
    bf16_norms up to [70, 5000], edges EDGES;
    f16_norms up to [70, 5000], edges EDGES;
    f32_norms up to [70, 5000], edges EDGES;
}

/// Nothing, one, less than a block, blocks and a tail, rows that do not begin at 16 bytes; through the ring, in stages of eight rows, of four, of
/// one, and rows too long for it.
const EDGES: [[u64; 2]; 18] = [
    [0, 5],
    [3, 0],
    [1, 1],
    [9, 7],
    [8, 8],
    [17, 255],
    [5, 256],
    [3, 1000],
    [2, 2048],
    [3, 2055],
    [2, 4096],
    [3, 4104],
    [2, 9000],
    [1, 20001],
    [19, 2048],
    [11, 5000],
    [5, 16384],
    [2, 40960],
];

const EPSILON: f64 = 1e-5;

struct Inputs<E> {
    x: Vec<E>,
    residual: Vec<E>,
    weight: Vec<E>,
    bias: Vec<E>,
}

fn inputs<E: Number>([m, n]: [u64; 2], seed: u64) -> Inputs<E> {
    let mut numbers = Numbers::new(seed);
    let kind = any_kind(seed);
    let x = numbers.fill(m * n, kind);
    // Special numbers are those of one input: of those of two nothing would be left.
    let others = if kind == Kind::Special { Kind::Plain } else { kind };
    Inputs { x, residual: numbers.fill(m * n, others), weight: numbers.fill(n, others), bias: numbers.fill(n, others) }
}

/// Softmax, rmsnorm, layernorm, sum, rmsnorm of the sum.
fn check<E: Number>(setup: &Setup, shape @ [_, n]: [u64; 2], given: &Inputs<E>, outputs: &[Tensor<E>; 5]) {
    let values = |data: &[E]| data.iter().map(|v| v.to64()).collect::<Vec<f64>>();
    let (x, residual, weight, bias) = (values(&given.x), values(&given.residual), values(&given.weight), values(&given.bias));
    let n = n as usize;
    let what = |name: &str| format!("{name} of {shape:?}");
    // The documented error of a sum.
    let sum_error = setup.pick(n as f64 / 256.0 + 16.0, n as f64 / 8.0 + 8.0) * 2f64.powi(-24);
    let rows = |data: &[f64], f: &dyn Fn(&[f64]) -> Vec<f64>| -> Vec<f64> {
        if n == 0 { Vec::new() } else { data.chunks(n).flat_map(f).collect() }
    };
    let soft = rows(&x, &|row| {
        let max = row.iter().fold(f64::NEG_INFINITY, |a, &b| if b > a || b.is_nan() { b } else { a });
        let sum: f64 = row.iter().map(|v| (v - max).exp()).sum();
        row.iter().map(|v| (v - max).exp() / sum).collect()
    });
    let below = rows(&x, &|row| {
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        row.iter().map(|v| max - v).collect()
    });
    near(&outputs[0], |at| soft[at], sum_error, |at| soft[at] * (below[at] + 4.0) * 2f64.powi(-23), &what("softmax"));

    let rms = |data: &[f64]| {
        rows(data, &|row| {
            let factor = 1.0 / (row.iter().map(|v| v * v).sum::<f64>() / n as f64 + EPSILON).sqrt();
            row.iter().zip(&weight).map(|(v, w)| v * factor * w).collect()
        })
    };
    let expected = rms(&x);
    near(&outputs[1], |at| expected[at], sum_error / 2.0 + 2f64.powi(-21), |_| 0.0, &what("rmsnorm"));

    let scale = |row: &[f64]| {
        let mean = row.iter().sum::<f64>() / n as f64;
        (mean, 1.0 / (row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n as f64 + EPSILON).sqrt())
    };
    let layer = rows(&x, &|row| {
        let (mean, factor) = scale(row);
        row.iter().zip(weight.iter().zip(&bias)).map(|(v, (w, b))| (v - mean) * factor * w + b).collect()
    });
    let allowed = rows(&x, &|row| {
        let (mean, factor) = scale(row);
        let sum = row.iter().map(|v| v.abs()).sum::<f64>() / n as f64;
        let largest = row.iter().map(|v| (v - mean).abs()).fold(0.0, f64::max);
        let error = |(w, b): (&f64, &f64)| {
            (largest * (2f64.powi(-20) + sum_error / 2.0) + 2.0 * sum * sum_error) * factor * w.abs() + b.abs() * 2f64.powi(-20)
        };
        weight.iter().zip(&bias).map(error).collect()
    });
    near(&outputs[2], |at| layer[at], 0.0, |at| allowed[at], &what("layernorm"));

    exact(&outputs[3], |at| E::from64(f64::from(x[at] as f32 + residual[at] as f32)), &what("add_rmsnorm's sum"));
    // The norm is that of the rounded sum.
    let rounded: Vec<f64> = outputs[3].download().expect("download").into_iter().map(E::to64).collect();
    let expected = rms(&rounded);
    near(&outputs[4], |at| expected[at], sum_error / 2.0 + 2f64.powi(-21), |_| 0.0, &what("add_rmsnorm"));
}

macro_rules! norms {
    ($name:ident, $kernel:ident) => {
        fn $name(setup: &Setup, shape @ [m, n]: [u64; 2], seed: u64) {
            let given = inputs(shape, seed);
            let run = || {
                let plan = norms::$kernel::plan_with(&setup.device, norms::$kernel::Dims { M: m, N: n }, &setup.options).unwrap();
                let mut outputs = [(); 5].map(|()| poisoned(setup, &shape));
                let [soft, rms, layer, sum, added] = &mut outputs;
                let (x, residual) = (upload(setup, &given.x, &shape), upload(setup, &given.residual, &shape));
                let (weight, bias) = (upload(setup, &given.weight, &[n]), upload(setup, &given.bias, &[n]));
                plan.run(&x, &residual, &weight, &bias, EPSILON as f32, soft, rms, layer, sum, added).unwrap();
                outputs
            };
            let outputs = run();
            check(setup, shape, &given, &outputs);
            assert_eq!(outputs.each_ref().map(bits), run().each_ref().map(bits), "other bits in a second run of {shape:?}");
        }
    };
}
norms!(bf16_norms, norms_bf16);
norms!(f16_norms, norms_f16);
norms!(f32_norms, norms_f32);
