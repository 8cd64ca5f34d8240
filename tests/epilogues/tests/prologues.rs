//! GEMMs with an elementwise prologue on operand A, against `f64`, and against a task of its own: whole and ragged tiles, every form, sums in parts,
//! planes, pairs. The prologue is infinite at 0, so what lies behind the end of a contraction would show.
mod common;
#[path = "../../kernels/tests/support/mod.rs"]
mod support;

use common::{SIZES, fused, options, stacked, vector};
use epilogues::prologues::{numbers, parts, planes, same, tiles, turned, wide};
use maco::{Device, Tensor, bf16, f16};
use support::{Matrix, poisoned};

on_every_device!(every_tile, functions_and_numbers, every_form, four_bytes, sums_in_parts, planes_and_pairs, the_same_bits);

/// An operand without zeros, whose elements and their inverses are powers of two: sums of some are exact.
fn operand(rows: usize, cols: usize) -> Matrix {
    Matrix::new(rows, cols, |r, c| [1.0, -2.0, 0.5, -0.25, 4.0][(r * 7 + c * 3) % 5])
}

/// `f` of each element of `x` times `w`, and both.
fn inputs((m, n, k): (usize, usize, usize), f: impl Fn(f64) -> f64) -> (Matrix, Matrix, Matrix) {
    let (x, w) = (operand(m, k), Matrix::sparse(n, k, 2));
    let sums = x.map(f).times(&w.t());
    (x, w, sums)
}

fn every_tile(device: &Device) {
    for size @ (m, n, k) in SIZES {
        let (x, w, sums) = inputs(size, |v| 1.0 / v);
        let expected = fused::<bf16>(&sums, |v, _, _| v);
        for options in options(device) {
            let plan = tiles::plan_with(device, tiles::Dims { M: m as u64, N: n as u64, K: k as u64 }, &options).unwrap();
            // A task for the prologue would be a call.
            assert_eq!(plan.graph().calls.len(), 4);
            assert!(plan.graph().to_string().contains("linear.first(one_over)"), "{}", plan.graph());
            let [mut small, mut middle, mut large, mut any] = [(); 4].map(|()| poisoned::<bf16>(device, m, n));
            plan.run(&x.upload(device), &w.upload(device), &mut small, &mut middle, &mut large, &mut any).unwrap();
            for (y, tile) in [(small, "64 × 128"), (middle, "128 × 128"), (large, "128 × 256"), (any, "the planner's tile")] {
                expected.exactly(&y, &format!("{m} × {n} × {k} by {tile}"));
            }
        }
    }
}

fn functions_and_numbers(device: &Device) {
    for size @ (m, n, k) in SIZES {
        for options in options(device) {
            let plan = numbers::plan_with(device, numbers::Dims { M: m as u64, N: n as u64, K: k as u64 }, &options).unwrap();
            // Both may change from launch to launch.
            for (by, then) in [(0.5, 2.0), (-2.0, -1.0)] {
                let (x, w, sums) = inputs(size, |v| (by / v).max(-1.0));
                let b = Matrix::integers(1, n, 3, 5);
                let expected = |v: f64, _: usize, j: usize| (v + b.at(0, j)) * then;
                let [mut small, mut large] = [(); 2].map(|()| poisoned::<f16>(device, m, n));
                let mut middle = poisoned::<f32>(device, m, n);
                let (x, w, bias) = (x.upload(device), w.upload(device), vector(device, &b));
                plan.run(&x, &w, &bias, by as f32, then as f32, &mut small, &mut middle, &mut large).unwrap();
                let what = format!("{m} × {n} × {k}, {by} and {then}");
                fused::<f16>(&sums, expected).exactly(&small, &what);
                fused::<f32>(&sums, expected).exactly(&middle, &what);
                fused::<f16>(&sums, expected).exactly(&large, &what);
            }
        }
    }
}

fn every_form(device: &Device) {
    for size @ (m, n, k) in SIZES {
        let (x, w, sums) = inputs(size, |v| 1.0 / v);
        let expected = fused::<bf16>(&sums, |v, _, _| v);
        for options in options(device) {
            let plan = turned::plan_with(device, turned::Dims { M: m as u64, N: n as u64, K: k as u64 }, &options).unwrap();
            let [mut nn, mut tn, mut large, mut tt] = [(); 4].map(|()| poisoned::<bf16>(device, m, n));
            let [a, b, c, d] = [&x, &x.t(), &w, &w.t()].map(|matrix| matrix.upload(device));
            plan.run(&a, &b, &c, &d, &mut nn, &mut tn, &mut large, &mut tt).unwrap();
            for (y, form) in [(nn, "nn"), (tn, "tn"), (large, "tn by 128 × 256"), (tt, "tt")] {
                expected.exactly(&y, &format!("{m} × {n} × {k}, {form}"));
            }
        }
    }
}

fn four_bytes(device: &Device) {
    for (m, n, k) in SIZES {
        // A third is none of tf32: it is rounded before it is multiplied, and so is what it is a third of.
        let tf32 = |v: f64| f64::from(f32::from_bits(((v as f32).to_bits() + 0xfff + ((v as f32).to_bits() >> 13 & 1)) >> 13 << 13));
        let x = Matrix::new(m, k, |r, c| f64::from([3.0f32, -1.5, 0.1, 6.0][(r + c) % 4]));
        let (w, rounded) = (Matrix::sparse(n, k, 2), x.map(|v| tf32(f64::from(1.0 / tf32(v) as f32))));
        let expected = rounded.times(&w.t());
        for options in options(device) {
            let plan = wide::plan_with(device, wide::Dims { M: m as u64, N: n as u64, K: k as u64 }, &options).unwrap();
            let [mut small, mut large, mut tn, mut tt] = [(); 4].map(|()| poisoned::<f32>(device, m, n));
            let [a, b, c, d] = [&x, &x.t(), &w, &w.t()].map(|matrix| matrix.upload(device));
            plan.run(&a, &b, &c, &d, &mut small, &mut large, &mut tn, &mut tt).unwrap();
            for (y, form) in [(small, "64 × 128"), (large, "128 × 256"), (tn, "tn"), (tt, "tt")] {
                expected.within(&y, 1e-5, &format!("{m} × {n} × {k}, {form}"));
            }
        }
    }
}

fn sums_in_parts(device: &Device) {
    for size @ (m, n, k) in [(64, 128, 128), (130, 264, 700), (3, 10, 200), (65, 3, 200)] {
        let (x, w, sums) = inputs(size, |v| 1.0 / v);
        let b = Matrix::integers(1, n, 3, 5);
        let expected = fused::<bf16>(&sums, |v, _, j| v + b.at(0, j));
        for options in options(device) {
            let plan = parts::plan_with(device, parts::Dims { M: m as u64, N: n as u64, K: k as u64 }, &options).unwrap();
            assert!(plan.graph().calls.iter().all(|call| call.parts > 1));
            let (x, w, b) = (x.upload(device), w.upload(device), vector(device, &b));
            for launch in 0..2 {
                let [mut small, mut large] = [(); 2].map(|()| poisoned::<bf16>(device, m, n));
                plan.run(&x, &w, &b, &mut small, &mut large).unwrap();
                for (y, tile) in [(small, "64 × 128"), (large, "128 × 256")] {
                    expected.exactly(&y, &format!("{m} × {n} × {k} by {tile}, launch {launch}"));
                }
            }
        }
    }
}

fn planes_and_pairs(device: &Device) {
    for (count, m, n, k) in [(3, 70, 136, 72), (2, 1, 24, 8)] {
        let (x, w) = (operand(count * m, k), Matrix::sparse(count * n, k, 2));
        let mapped = x.map(|v| 1.0 / v);
        let sums = |weights: &dyn Fn(usize) -> usize| {
            Matrix::new(count * m, n, |row, c| (0..k).map(|at| mapped.at(row, at) * w.at(weights(row / m) * n + c, at)).sum())
        };
        // The last expert is none: its group is zeros.
        let expert: Vec<u32> = (1..=count as u32).collect();
        let routed = sums(&|plane| (plane + 1) % count);
        let routed = Matrix::new(count * m, n, |r, c| if r / m + 1 < count { routed.at(r, c) } else { 0.0 });
        let silu = |v: f64| v / (1.0 + (-v).exp());
        let gated = fused::<f32>(&routed, |v, _, _| silu(v) * v);
        for options in options(device) {
            let dims = planes::Dims { B: count as u64, M: m as u64, N: n as u64, K: k as u64 };
            let plan = planes::plan_with(device, dims, &options).unwrap();
            let poison = Matrix::new(count * m, n, |_, _| -12345.0);
            let [mut y, mut z, mut small, mut large] = [(); 4].map(|()| stacked(device, &poison, count));
            let [a, c] = [&x, &w].map(|matrix| stacked(device, matrix, count));
            let expert = device.upload(&expert, [count as u64]).unwrap();
            plan.run(&expert, &a, &c, &mut y, &mut z, &mut small, &mut large).unwrap();
            let near = |y: &Tensor<bf16>, expected: &Matrix, tolerance: f64, what: &str| {
                for (at, (found, &expected)) in y.download().unwrap().iter().zip(&expected.data).enumerate() {
                    let off = (found.to_f64() - expected).abs();
                    assert!(
                        off <= tolerance * expected.abs().max(1.0),
                        "{what} of {m} × {n} × {k}: element {at} is {found}, expected {expected}"
                    );
                }
            };
            near(&y, &fused::<bf16>(&sums(&|plane| plane), |v, _, _| v), 0.0, "planes");
            near(&z, &fused::<bf16>(&routed, |v, _, _| v), 0.0, "groups");
            near(&small, &gated, 0.005, "gated groups by 64 × 128");
            near(&large, &gated, 0.005, "gated groups by 128 × 128");
        }
    }
}

fn the_same_bits(device: &Device) {
    for (m, n, k) in [(64, 128, 64), (130, 264, 200), (1, 10, 72), (65, 3, 1)] {
        let (x, w, back) = (Matrix::integers(m, k, 1, 3), Matrix::integers(n, k, 2, 3), Matrix::integers(k, n, 3, 2));
        for options in options(device) {
            let plan = same::plan_with(device, same::Dims { M: m as u64, N: n as u64, K: k as u64 }, &options).unwrap();
            let [a, b, c] = [&x, &w, &back].map(|matrix| matrix.upload(device));
            for launch in 0..if device.is_gpu() { 50 } else { 2 } {
                let [mut fused, mut apart, mut own] = [(); 3].map(|()| poisoned::<bf16>(device, m, n));
                let [mut fused_again, mut apart_again] = [(); 2].map(|()| poisoned::<bf16>(device, m, k));
                plan.run(&a, &b, &c, &mut fused, &mut apart, &mut own, &mut fused_again, &mut apart_again).unwrap();
                let bits = |y: &Tensor<bf16>| y.download().unwrap().iter().map(|v| v.to_bits()).collect::<Vec<u16>>();
                let what = format!("{m} × {n} × {k}, launch {launch}");
                assert_eq!(bits(&fused), bits(&apart), "{what}");
                assert_eq!(bits(&own), bits(&apart), "{what}, by a task of one's own");
                assert_eq!(bits(&fused_again), bits(&apart_again), "{what}, of a result");
            }
        }
    }
}
