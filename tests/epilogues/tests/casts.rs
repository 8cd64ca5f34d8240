//! Results and operands of other elements than operands A and B, behind every sort of GEMM, against `f64`: rounded once.
mod common;
#[path = "../../kernels/tests/support/mod.rs"]
mod support;

use common::{SIZES, fused, options, vector};
use epilogues::casts::{biased, chain, changed, few, heads, in_parts, narrowed, own, paired, planes, positive, widened};
use maco::{Device, PlanOptions, Tensor, TensorElement, bf16, f16};
use support::{From64, Matrix, poisoned};

on_every_device!(
    wider,
    of_either_half,
    narrower,
    wide_operands,
    sums_in_parts,
    pairs,
    planes_and_groups,
    few_rows,
    chains,
    tasks_of_ones_own,
    groups_of_calls,
);

/// Numbers that `f32` holds, and halves do not.
fn fine(rows: usize, cols: usize, seed: u64) -> Matrix {
    let (whole, rest) = (Matrix::integers(rows, cols, seed, 9), Matrix::integers(rows, cols, seed + 1, 8191));
    Matrix::new(rows, cols, |r, c| whole.at(r, c) + rest.at(r, c) / 8192.0)
}

fn tensor<E: TensorElement + From64>(device: &Device, matrix: &Matrix, shape: &[usize]) -> Tensor<E> {
    let data: Vec<E> = matrix.data.iter().map(|&v| E::from64(v)).collect();
    let shape: Vec<u64> = shape.iter().map(|&extent| extent as u64).collect();
    device.upload(&data, &shape[..]).unwrap()
}

/// Operands, their product, a bias, two matrices of its shape: the first two in fractions.
struct Inputs {
    x: Matrix,
    w: Matrix,
    sums: Matrix,
    b: Matrix,
    r: Matrix,
    h: Matrix,
}

impl Inputs {
    fn new((m, n, k): (usize, usize, usize)) -> Inputs {
        let (x, w) = (Matrix::integers(m, k, 1, 2), Matrix::sparse(n, k, 2));
        let sums = x.times(&w.t());
        Inputs { x, w, sums, b: fine(1, n, 3), r: fine(m, n, 5), h: Matrix::integers(m, n, 7, 9) }
    }
}

macro_rules! dims {
    ($kernel:ident, $size:expr) => {{
        let (m, n, k) = $size;
        $kernel::Dims { M: m as u64, N: n as u64, K: k as u64 }
    }};
}

fn wider(device: &Device) {
    for size @ (m, n, k) in SIZES {
        let Inputs { x, w, sums, b, h, .. } = Inputs::new(size);
        let expected = fused::<f32>(&sums, |v, i, j| v + b.at(0, j) - 2.0 * h.at(i, j));
        for options in options(device) {
            let plan = widened::plan_with(device, dims!(widened, size), &options).unwrap();
            assert_eq!(plan.graph().calls.len(), 4);
            let bytes = 2 * (m * k + n * k) as u64 + 4 * (m * n) as u64;
            assert_eq!(plan.graph().workload(0).bytes, Some(bytes));
            let [mut plain, mut small, mut middle, mut large] = [(); 4].map(|()| poisoned::<f32>(device, m, n));
            let (x, w, h) = (x.upload(device), w.upload(device), h.upload(device));
            plan.run(&x, &w, &vector(device, &b), &h, &mut plain, &mut small, &mut middle, &mut large).unwrap();
            sums.exactly(&plain, &format!("{m} × {n} × {k}, sums"));
            for (y, tile) in [(small, "64 × 128"), (middle, "128 × 128"), (large, "128 × 256")] {
                expected.exactly(&y, &format!("{m} × {n} × {k} by {tile}"));
            }
        }
    }
}

fn of_either_half(device: &Device) {
    for size @ (m, n, k) in SIZES {
        let Inputs { x, sums: _, .. } = Inputs::new(size);
        // Sums that no half holds.
        let w = Matrix::integers(n, k, 9, 120);
        let sums = x.times(&w.t());
        let halved = |v: f64, _, _| 0.5 * v;
        for options in options(device) {
            let plan = changed::plan_with(device, dims!(changed, size), &options).unwrap();
            let (mut same, mut half) = (poisoned::<bf16>(device, m, n), poisoned::<f16>(device, m, n));
            let (mut wide, mut other) = (poisoned::<f32>(device, m, n), poisoned::<bf16>(device, m, n));
            let (a, b, p, q) = (x.upload(device), w.upload(device), x.upload(device), w.upload(device));
            plan.run(&a, &b, &p, &q, &mut same, &mut half, &mut wide, &mut other).unwrap();
            let what = |name: &str| format!("{m} × {n} × {k}, {name}");
            fused::<bf16>(&sums, halved).exactly(&same, &what("bf16 of bf16"));
            fused::<f16>(&sums, halved).exactly(&half, &what("f16 of bf16"));
            fused::<f32>(&sums, halved).exactly(&wide, &what("f32 of f16"));
            fused::<bf16>(&sums, halved).exactly(&other, &what("bf16 of f16"));
        }
    }
}

fn narrower(device: &Device) {
    for size @ (m, n, k) in SIZES {
        let Inputs { x, w, sums, b, h, .. } = Inputs::new(size);
        let expected = fused::<bf16>(&sums, |v, i, j| v + b.at(0, j) - 2.0 * h.at(i, j));
        let halves = fused::<f16>(&sums, |v, _, j| v + b.at(0, j));
        for options in options(device) {
            let plan = narrowed::plan_with(device, dims!(narrowed, size), &options).unwrap();
            assert!(plan.graph().to_string().contains("in tf32"));
            let (mut small, mut large) = (poisoned::<bf16>(device, m, n), poisoned::<bf16>(device, m, n));
            let mut middle = poisoned::<f16>(device, m, n);
            let (x, w, h) = (x.upload(device), w.upload(device), h.upload(device));
            plan.run(&x, &w, &vector(device, &b), &h, &mut small, &mut middle, &mut large).unwrap();
            expected.exactly(&small, &format!("{m} × {n} × {k} by 64 × 128"));
            expected.exactly(&large, &format!("{m} × {n} × {k} by 128 × 256"));
            halves.exactly(&middle, &format!("{m} × {n} × {k} by 128 × 128, f16"));
        }
    }
}

fn wide_operands(device: &Device) {
    for size @ (m, n, k) in SIZES {
        let Inputs { x, w, sums, b, r, h } = Inputs::new(size);
        let first = fused::<bf16>(&sums, |v, _, j| v + b.at(0, j));
        let second = fused::<bf16>(&sums, |v, i, j| v + b.at(0, j) - 2.0 * r.at(i, j));
        let third = fused::<bf16>(&sums, |v, i, j| v + b.at(0, j) - 2.0 * r.at(i, j) + h.at(i, j));
        for options in options(device) {
            let plan = biased::plan_with(device, dims!(biased, size), &options).unwrap();
            let [mut small, mut middle, mut large] = [(); 3].map(|()| poisoned::<bf16>(device, m, n));
            let (x, w, b, r, h) = (x.upload(device), w.upload(device), vector(device, &b), r.upload(device), h.upload(device));
            plan.run(&x, &w, &b, &r, &h, &mut small, &mut middle, &mut large).unwrap();
            for (y, expected, tile) in [(small, &first, "64 × 128"), (middle, &second, "128 × 128"), (large, &third, "128 × 256")] {
                expected.exactly(&y, &format!("{m} × {n} × {k} by {tile}"));
            }
        }
    }
}

fn sums_in_parts(device: &Device) {
    for size @ (m, n, k) in [(64, 128, 128), (130, 264, 700), (3, 10, 200), (65, 3, 200)] {
        let Inputs { x, w, sums, b, h, .. } = Inputs::new(size);
        let wide = fused::<f32>(&sums, |v, i, j| v + b.at(0, j) - 2.0 * h.at(i, j));
        let half = fused::<bf16>(&sums, |v, _, j| v + b.at(0, j));
        let narrow = fused::<bf16>(&sums, |v, i, j| v + b.at(0, j) - 2.0 * h.at(i, j));
        for options in options(device) {
            let plan = in_parts::plan_with(device, dims!(in_parts, size), &options).unwrap();
            assert!(plan.graph().calls.iter().all(|call| call.parts > 1));
            let (a, c, p, q) = (x.upload(device), w.upload(device), x.upload(device), w.upload(device));
            let (b, h) = (vector(device, &b), h.upload(device));
            for launch in 0..2 {
                let mut first = poisoned::<f32>(device, m, n);
                let [mut second, mut third] = [(); 2].map(|()| poisoned::<bf16>(device, m, n));
                plan.run(&a, &c, &p, &q, &b, &h, &mut first, &mut second, &mut third).unwrap();
                let what = |name: &str| format!("{m} × {n} × {k}, {name}, launch {launch}");
                wide.exactly(&first, &what("f32 of bf16"));
                half.exactly(&second, &what("bf16 of bf16"));
                narrow.exactly(&third, &what("bf16 of f32"));
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
        let halves = fused::<f32>(&raised, |v, i, j| silu(open.at(i, j)) * v);
        for options in options(device) {
            let plan = paired::plan_with(device, dims!(paired, size), &options).unwrap();
            let [mut small, mut large] = [(); 2].map(|()| poisoned::<f32>(device, m, n));
            let mut half = poisoned::<f16>(device, m, n);
            let [a, b, c] = [&x, &gate, &up].map(|matrix| matrix.upload(device));
            plan.run(&a, &b, &c, &r.upload(device), &mut small, &mut large, &mut half).unwrap();
            // More exact than any half.
            expected.within(&small, 2e-5, &format!("{m} × {n} × {k} by 64 × 128"));
            expected.within(&large, 2e-5, &format!("{m} × {n} × {k} by 128 × 128"));
            halves.within(&half, 0.001, &format!("{m} × {n} × {k}, f16"));
        }
    }
}

fn planes_and_groups(device: &Device) {
    for (count, m, n, k) in [(3, 70, 136, 72), (2, 1, 24, 8)] {
        let (x, w) = (Matrix::integers(count * m, k, 1, 2), Matrix::sparse(count * n, k, 2));
        let (b, r) = (fine(1, n, 3), fine(count * m, n, 5));
        let expert: Vec<u32> = (0..count as u32).map(|plane| (plane + 1) % count as u32).collect();
        let sums = |weights: &dyn Fn(usize) -> usize| {
            Matrix::new(count * m, n, |row, c| (0..k).map(|at| x.at(row, at) * w.at(weights(row / m) * n + c, at)).sum())
        };
        let first = fused::<f32>(&sums(&|plane| plane), |v, i, j| v + b.at(0, j) - 2.0 * r.at(i, j));
        let second = fused::<f16>(&sums(&|plane| (plane + 1) % count), |v, i, j| v - 2.0 * r.at(i, j));
        for options in options(device) {
            let dims = planes::Dims { B: count as u64, M: m as u64, N: n as u64, K: k as u64 };
            let plan = planes::plan_with(device, dims, &options).unwrap();
            let poison = Matrix::new(count * m, n, |_, _| -12345.0);
            let (mut y, mut z) = (tensor::<f32>(device, &poison, &[count, m, n]), tensor::<f16>(device, &poison, &[count, m, n]));
            let (a, c) = (tensor(device, &x, &[count, m, k]), tensor(device, &w, &[count, n, k]));
            let expert = device.upload(&expert, [count as u64]).unwrap();
            plan.run(&expert, &a, &c, &vector(device, &b), &tensor(device, &r, &[count, m, n]), &mut y, &mut z).unwrap();
            let what = format!("of {m} × {n} × {k}");
            for (at, (found, expected)) in y.download().unwrap().iter().zip(&first.data).enumerate() {
                assert_eq!(found.to64(), *expected, "planes {what}: element {at}");
            }
            for (at, (found, expected)) in z.download().unwrap().iter().zip(&second.data).enumerate() {
                assert_eq!(found.to_f64(), *expected, "groups {what}: element {at}");
            }
        }
    }
}

fn few_rows(device: &Device) {
    for size @ (m, n, k) in [(1, 8, 1024), (1, 1, 1), (5, 100, 1000), (16, 40, 520), (9, 17, 30), (33, 31, 129), (4, 16, 0)] {
        let Inputs { x, w, sums, b, h, .. } = Inputs::new(size);
        let wide = fused::<f32>(&sums, |v, i, j| v + b.at(0, j) - 2.0 * h.at(i, j));
        let half = fused::<f16>(&sums, |v, i, j| v + b.at(0, j) - 2.0 * h.at(i, j));
        for options in options(device) {
            let plan = few::plan_with(device, dims!(few, size), &options).unwrap();
            let [mut chosen, mut narrow] = [(); 2].map(|()| poisoned::<f32>(device, m, n));
            let mut last = poisoned::<f16>(device, m, n);
            let (x, w, b, h) = (x.upload(device), w.upload(device), vector(device, &b), h.upload(device));
            plan.run(&x, &w, &b, &h, &mut chosen, &mut narrow, &mut last).unwrap();
            wide.exactly(&chosen, &format!("{m} × {n} × {k} as the planner likes it"));
            wide.exactly(&narrow, &format!("{m} × {n} × {k} by 8 × 8"));
            half.exactly(&last, &format!("{m} × {n} × {k} by 16 × 16"));
        }
    }
}

fn chains(device: &Device) {
    for (m, n, k) in [(1, 64, 16), (5, 40, 24)] {
        // One number in each row of the weights: every sum is exact.
        let one =
            |rows: usize, cols: usize, seed: usize| Matrix::new(rows, cols, |r, c| if (r * 5 + seed) % cols == c { 1.0 } else { 0.0 });
        let x = Matrix::integers(m, k, 3, 3);
        let (up, down, side) = (one(n, k, 0), one(k, n, 7), one(k, n, 2));
        let raised = x.times(&up.t()).map(|v| v.max(0.0));
        for options in options(device) {
            let plan = chain::plan_with(device, dims!(chain, (m, n, k)), &options).unwrap();
            let in_band: Vec<u32> = plan.graph().relations.iter().filter(|edge| edge.in_band).map(|edge| edge.consumer).collect();
            // Only the pipeline can poll.
            let polls = device.is_gpu() || options == PlanOptions::new().pipelined(true);
            assert_eq!(in_band, if polls { vec![1] } else { Vec::new() });
            let (a, b) = (x.upload(device), up.upload(device));
            let (c, d) = (down.upload::<f16>(device), side.upload::<f32>(device));
            for launch in 0..if device.is_gpu() { 50 } else { 3 } {
                let (mut y, mut z) = (poisoned::<f32>(device, m, k), poisoned::<bf16>(device, m, k));
                plan.run(&a, &b, &c, &d, &mut y, &mut z).unwrap();
                raised.times(&down.t()).exactly(&y, &format!("{m} × {n} × {k}, launch {launch}, with in-band flags"));
                raised.times(&side.t()).exactly(&z, &format!("{m} × {n} × {k}, launch {launch}, as f32"));
            }
        }
    }
}

fn tasks_of_ones_own(device: &Device) {
    for size @ (m, n, k) in SIZES {
        let Inputs { x, w, sums, .. } = Inputs::new(size);
        let expected = sums.map(|v| v.max(0.0));
        for options in options(device) {
            let plan = own::plan_with(device, dims!(own, size), &options).unwrap();
            let mut y = poisoned::<f32>(device, m, n);
            plan.run(&x.upload(device), &w.upload(device), &mut y).unwrap();
            expected.exactly(&y, &format!("{m} × {n} × {k}"));
        }
    }
}

fn groups_of_calls(device: &Device) {
    let size @ (m, n, k) = (70, 136, 72);
    let Inputs { x, w, sums, b, .. } = Inputs::new(size);
    let (v, c) = (Matrix::sparse(n, k, 11), fine(1, n, 12));
    let expected = [(&sums, &b), (&x.times(&v.t()), &c)].map(|(sums, b)| fused::<f32>(sums, |v, _, j| v + b.at(0, j)));
    for options in options(device) {
        let plan = heads::plan_with(device, dims!(heads, size), &options).unwrap();
        let mut y = [(); 2].map(|()| poisoned::<f32>(device, m, n));
        let weights = [&w, &v].map(|matrix| matrix.upload(device));
        let biases = [&b, &c].map(|row| vector(device, row));
        plan.run(&x.upload(device), &weights, &biases, &mut y).unwrap();
        for (y, expected) in y.iter().zip(&expected) {
            expected.exactly(y, &format!("{m} × {n} × {k}"));
        }
    }
}

/// A task by itself rounds to what its result holds.
#[test]
fn a_task_by_itself() {
    let device = Device::cpu();
    let Inputs { x, w, sums, .. } = Inputs::new((70, 136, 72));
    let (a, b) = (x.upload::<bf16>(&device), w.upload::<bf16>(&device));
    let mut y = poisoned::<f32>(&device, 70, 136);
    positive::on_cpu(&a, &b, &mut y).unwrap();
    sums.map(|v| v.max(0.0)).exactly(&y, "by a task of one's own");
    maco::tasks::linear::on_cpu(&a, &b, &mut y).unwrap();
    sums.exactly(&y, "by linear");
    let mut half = poisoned::<f16>(&device, 70, 136);
    maco::tasks::skinny_linear::on_cpu(&a, &b, &mut half).unwrap();
    sums.exactly(&half, "by skinny_linear");
}
