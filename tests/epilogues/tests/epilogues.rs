//! Every sort of epilogue behind every sort of GEMM against `f64`: whole and ragged tiles, sums in parts, planes, pairs, few rows, operands
//! that lie in other ways than the result.
mod common;
#[path = "../../kernels/tests/support/mod.rs"]
mod support;

use common::{SIZES, fused, options, stacked, vector};
use epilogues::kernels::{few, full, gated, layers, paired, parts, planes, residual, scaled, views, wide, wide_parts};
use maco::{Device, PlanOptions, bf16, f16};
use support::{Matrix, gelu, poisoned};

on_every_device!(
    residuals,
    gates,
    scalars,
    as_many_as_there_is_room_for,
    four_bytes,
    sums_in_parts,
    planes_and_groups,
    pairs,
    other_layouts,
    few_rows,
    groups_of_calls,
);

/// Operands, their product, a bias, two matrices of its shape.
struct Inputs {
    x: Matrix,
    w: Matrix,
    sums: Matrix,
    b: Matrix,
    g: Matrix,
    r: Matrix,
}

impl Inputs {
    fn new((m, n, k): (usize, usize, usize)) -> Inputs {
        let (x, w) = (Matrix::integers(m, k, 1, 2), Matrix::sparse(n, k, 2));
        let sums = x.times(&w.t());
        let (b, g, r) = (Matrix::integers(1, n, 3, 5), Matrix::integers(m, n, 4, 3), Matrix::integers(m, n, 5, 9));
        Inputs { x, w, sums, b, g, r }
    }
}

fn residuals(device: &Device) {
    for size @ (m, n, k) in SIZES {
        let Inputs { x, w, sums, r, .. } = Inputs::new(size);
        let expected = fused::<bf16>(&sums, |v, i, j| v + r.at(i, j));
        for options in options(device) {
            let plan = residual::plan_with(device, residual::Dims { M: m as u64, N: n as u64, K: k as u64 }, &options).unwrap();
            // One task after another for each tile would be two calls.
            assert_eq!(plan.graph().calls.len(), 3);
            let [mut small, mut middle, mut large] = [(); 3].map(|()| poisoned::<bf16>(device, m, n));
            plan.run(&x.upload(device), &w.upload(device), &r.upload(device), &mut small, &mut middle, &mut large).unwrap();
            for (y, tile) in [(small, "64 × 128"), (middle, "128 × 128"), (large, "128 × 256")] {
                expected.exactly(&y, &format!("{m} × {n} × {k} by {tile}"));
            }
        }
    }
}

fn gates(device: &Device) {
    for size @ (m, n, k) in SIZES {
        let Inputs { x, w, sums, b, g, .. } = Inputs::new(size);
        let expected = fused::<f32>(&sums, |v, i, j| gelu(v + b.at(0, j)) * g.at(i, j));
        for options in options(device) {
            let plan = gated::plan_with(device, gated::Dims { M: m as u64, N: n as u64, K: k as u64 }, &options).unwrap();
            let [mut small, mut middle, mut large] = [(); 3].map(|()| poisoned::<bf16>(device, m, n));
            let (b, g) = (vector(device, &b), g.upload(device));
            plan.run(&x.upload(device), &w.upload(device), &b, &g, &mut small, &mut middle, &mut large).unwrap();
            for (y, tile) in [(small, "64 × 128"), (middle, "128 × 128"), (large, "128 × 256")] {
                expected.within(&y, 0.005, &format!("{m} × {n} × {k} by {tile}"));
            }
        }
    }
}

fn scalars(device: &Device) {
    for size @ (m, n, k) in SIZES {
        let Inputs { x, w, sums, r, .. } = Inputs::new(size);
        for options in options(device) {
            let plan = scaled::plan_with(device, scaled::Dims { M: m as u64, N: n as u64, K: k as u64 }, &options).unwrap();
            // It may change from launch to launch.
            for by in [0.5, -2.0] {
                let expected = fused::<f16>(&sums, |v, i, j| (by * v - 2.0 * r.at(i, j)).max(-3.0));
                let [mut small, mut middle, mut large] = [(); 3].map(|()| poisoned::<f16>(device, m, n));
                let r = r.upload(device);
                plan.run(&x.upload(device), &w.upload(device), &r, by as f32, &mut small, &mut middle, &mut large).unwrap();
                for (y, tile) in [(small, "64 × 128"), (middle, "128 × 128"), (large, "128 × 256")] {
                    expected.exactly(&y, &format!("{m} × {n} × {k} by {tile}, {by}"));
                }
            }
        }
    }
}

fn as_many_as_there_is_room_for(device: &Device) {
    for size @ (m, n, k) in SIZES {
        let Inputs { x, w, sums, b, g, r } = Inputs::new(size);
        let silu = |v: f64| v / (1.0 + (-v).exp());
        let expected = fused::<f32>(&sums, |v, i, j| silu(v + b.at(0, j)) * g.at(i, j) + r.at(i, j));
        for options in options(device) {
            let plan = full::plan_with(device, full::Dims { M: m as u64, N: n as u64, K: k as u64 }, &options).unwrap();
            let [mut small, mut large] = [(); 2].map(|()| poisoned::<bf16>(device, m, n));
            let [g, r] = [&g, &r].map(|matrix| matrix.upload(device));
            plan.run(&x.upload(device), &w.upload(device), &vector(device, &b), &g, &r, &mut small, &mut large).unwrap();
            for (y, tile) in [(small, "64 × 128"), (large, "128 × 256")] {
                expected.within(&y, 0.005, &format!("{m} × {n} × {k} by {tile}"));
            }
        }
    }
}

fn four_bytes(device: &Device) {
    for size @ (m, n, k) in SIZES {
        let Inputs { x, w, sums, b, r, .. } = Inputs::new(size);
        let expected = fused::<f32>(&sums, |v, i, j| (v + b.at(0, j)) * r.at(i, j));
        let in_parts = fused::<f32>(&sums, |v, i, j| v - 2.0 * r.at(i, j));
        for options in options(device) {
            let plan = wide::plan_with(device, wide::Dims { M: m as u64, N: n as u64, K: k as u64 }, &options).unwrap();
            let [mut small, mut large, mut whole] = [(); 3].map(|()| poisoned::<f32>(device, m, n));
            let (x, w, r) = (x.upload(device), w.upload(device), r.upload(device));
            plan.run(&x, &w, &vector(device, &b), &r, &mut small, &mut large).unwrap();
            for (y, tile) in [(small, "64 × 128"), (large, "128 × 256")] {
                expected.exactly(&y, &format!("{m} × {n} × {k} by {tile}"));
            }
            let plan = wide_parts::plan_with(device, wide_parts::Dims { M: m as u64, N: n as u64, K: k as u64 }, &options).unwrap();
            plan.run(&x, &w, &r, &mut whole).unwrap();
            in_parts.exactly(&whole, &format!("{m} × {n} × {k} in parts"));
        }
    }
}

fn sums_in_parts(device: &Device) {
    for size @ (m, n, k) in [(64, 128, 128), (130, 264, 700), (3, 10, 200), (65, 3, 200)] {
        let Inputs { x, w, sums, b, r, .. } = Inputs::new(size);
        let expected = fused::<bf16>(&sums, |v, i, j| v + b.at(0, j) - 2.0 * r.at(i, j));
        for options in options(device) {
            let plan = parts::plan_with(device, parts::Dims { M: m as u64, N: n as u64, K: k as u64 }, &options).unwrap();
            assert!(plan.graph().calls.iter().all(|call| call.parts > 1));
            let (x, w, b, r) = (x.upload(device), w.upload(device), vector(device, &b), r.upload(device));
            for launch in 0..2 {
                let [mut small, mut large] = [(); 2].map(|()| poisoned::<bf16>(device, m, n));
                plan.run(&x, &w, &b, &r, &mut small, &mut large).unwrap();
                for (y, tile) in [(small, "64 × 128"), (large, "128 × 256")] {
                    expected.exactly(&y, &format!("{m} × {n} × {k} by {tile}, launch {launch}"));
                }
            }
        }
    }
}

fn planes_and_groups(device: &Device) {
    for (count, m, n, k) in [(3, 70, 136, 72), (2, 1, 24, 8)] {
        let (x, w) = (Matrix::integers(count * m, k, 1, 2), Matrix::sparse(count * n, k, 2));
        let (b, r) = (Matrix::integers(1, n, 3, 5), Matrix::integers(count * m, n, 5, 9));
        let expert: Vec<u32> = (0..count as u32).map(|plane| (plane + 1) % count as u32).collect();
        let sums = |weights: &dyn Fn(usize) -> usize| {
            Matrix::new(count * m, n, |row, c| (0..k).map(|at| x.at(row, at) * w.at(weights(row / m) * n + c, at)).sum())
        };
        let first = fused::<bf16>(&sums(&|plane| plane), |v, i, j| v + b.at(0, j) - 2.0 * r.at(i, j));
        let second = fused::<bf16>(&sums(&|plane| (plane + 1) % count), |v, i, j| v - 2.0 * r.at(i, j));
        for options in options(device) {
            let dims = planes::Dims { B: count as u64, M: m as u64, N: n as u64, K: k as u64 };
            let plan = planes::plan_with(device, dims, &options).unwrap();
            let poison = Matrix::new(count * m, n, |_, _| -12345.0);
            let [mut y, mut z] = [(); 2].map(|()| stacked(device, &poison, count));
            let [a, c, d] = [&x, &w, &r].map(|matrix| stacked(device, matrix, count));
            let expert = device.upload(&expert, [count as u64]).unwrap();
            plan.run(&expert, &a, &c, &vector(device, &b), &d, &mut y, &mut z).unwrap();
            for (found, expected, what) in [(y, &first, "planes"), (z, &second, "groups")] {
                for (at, (found, expected)) in found.download().unwrap().iter().zip(&expected.data).enumerate() {
                    assert_eq!(found.to_f64(), *expected, "{what} of {m} × {n} × {k}: element {at}");
                }
            }
        }
    }
}

fn pairs(device: &Device) {
    for size @ (m, n, k) in SIZES {
        let Inputs { x, w: up, sums: raised, r, .. } = Inputs::new(size);
        let gate = Matrix::sparse(n, k, 7);
        let open = x.times(&gate.t());
        let silu = |v: f64| v / (1.0 + (-v).exp());
        let expected = fused::<f32>(&raised, |v, i, j| 0.5 * silu(open.at(i, j)) * v + r.at(i, j));
        for options in options(device) {
            let plan = paired::plan_with(device, paired::Dims { M: m as u64, N: n as u64, K: k as u64 }, &options).unwrap();
            let [mut small, mut large] = [(); 2].map(|()| poisoned::<bf16>(device, m, n));
            let [a, b, c, d] = [&x, &gate, &up, &r].map(|matrix| matrix.upload(device));
            plan.run(&a, &b, &c, &d, &mut small, &mut large).unwrap();
            for (y, tile) in [(small, "64 × 128"), (large, "128 × 128")] {
                expected.within(&y, 0.005, &format!("{m} × {n} × {k} by {tile}"));
            }
        }
    }
}

fn other_layouts(device: &Device) {
    for size @ (m, n, k) in [(64, 128, 64), (130, 264, 72), (2, 9, 8)] {
        let Inputs { x, w, sums, g, .. } = Inputs::new(size);
        let all = Matrix::integers(m, n + 3, 6, 9);
        let first = fused::<bf16>(&sums, |v, i, j| v + all.at(i, j + 1));
        let h = fused::<bf16>(&sums, |v, i, j| v * g.at(i, j));
        let second = fused::<bf16>(&sums, |v, i, j| v - 2.0 * h.at(i, j));
        for options in options(device) {
            let dims = views::Dims { M: m as u64, N: n as u64, K: k as u64, P: n as u64 + 3 };
            let plan = views::plan_with(device, dims, &options).unwrap();
            let [mut y, mut z] = [(); 2].map(|()| poisoned::<bf16>(device, m, n));
            let [a, b, c, d] = [&x, &w, &all, &g.t()].map(|matrix| matrix.upload(device));
            for launch in 0..if device.is_gpu() { 50 } else { 2 } {
                plan.run(&a, &b, &c, &d, &mut y, &mut z).unwrap();
                first.exactly(&y, &format!("{m} × {n} × {k}, columns of another, launch {launch}"));
                second.exactly(&z, &format!("{m} × {n} × {k}, a result of the same graph, launch {launch}"));
            }
        }
    }
}

fn few_rows(device: &Device) {
    for size @ (m, n, k) in [(1, 8, 1024), (1, 1, 1), (5, 100, 1000), (16, 40, 520), (9, 17, 30), (33, 31, 129), (4, 16, 0)] {
        let Inputs { x, w, sums, b, g, .. } = Inputs::new(size);
        for options in options(device) {
            let plan = few::plan_with(device, few::Dims { M: m as u64, N: n as u64, K: k as u64 }, &options).unwrap();
            for by in [0.5, -1.0] {
                let expected = fused::<bf16>(&sums, |v, i, j| (by * (v + b.at(0, j))).max(0.0) - 2.0 * g.at(i, j));
                let [mut chosen, mut narrow, mut wide] = [(); 3].map(|()| poisoned::<bf16>(device, m, n));
                let (x, w, b, g) = (x.upload(device), w.upload(device), vector(device, &b), g.upload(device));
                plan.run(&x, &w, &b, &g, by as f32, &mut chosen, &mut narrow, &mut wide).unwrap();
                for (y, form) in [(chosen, "as the planner likes it"), (narrow, "by 8 × 8"), (wide, "by 16 × 16")] {
                    expected.exactly(&y, &format!("{m} × {n} × {k} {form}, {by}"));
                }
            }
        }
    }
}

fn groups_of_calls(device: &Device) {
    for (m, n, k) in [(1, 64, 16), (5, 40, 24)] {
        // One number in each row of the weights: every sum is exact.
        let one =
            |rows: usize, cols: usize, seed: usize| Matrix::new(rows, cols, |r, c| if (r * 5 + seed) % cols == c { 1.0 } else { 0.0 });
        let x = Matrix::integers(m, k, 3, 3);
        let (up, down) = ([0, 3].map(|seed| one(n, k, seed)), [7, 2].map(|seed| one(k, n, seed)));
        let next = |x: Matrix, (up, down): (&Matrix, &Matrix)| {
            let raised = x.times(&up.t());
            let h = fused::<bf16>(&raised, |v, i, j| v * raised.at(i, j).max(0.0));
            fused::<bf16>(&h.times(&down.t()), |v, i, j| v + x.at(i, j))
        };
        let expected = up.iter().zip(&down).fold(x.clone(), next);
        for options in options(device) {
            let plan = layers::plan_with(device, layers::Dims { M: m as u64, N: n as u64, K: k as u64 }, &options).unwrap();
            let in_band: Vec<u32> = plan.graph().relations.iter().filter(|edge| edge.in_band).map(|edge| edge.consumer).collect();
            // A GEMM with operands behind it is still nothing but a GEMM, and hands on what is small; only the pipeline can poll.
            let polls = device.is_gpu() || options == PlanOptions::new().pipelined(true);
            assert_eq!(in_band, if polls { vec![2, 3, 4, 5] } else { Vec::new() });
            let (up, down) = (up.each_ref().map(|one| one.upload(device)), down.each_ref().map(|one| one.upload(device)));
            for launch in 0..if device.is_gpu() { 50 } else { 3 } {
                let mut y = poisoned::<bf16>(device, m, k);
                plan.run(&x.upload(device), &up, &down, &mut y).unwrap();
                expected.exactly(&y, &format!("{m} × {n} × {k}, launch {launch}"));
            }
        }
    }
}
