//! GEMMs, epilogues, layers and groups of calls: right on every device, ragged sizes too.
mod support;

use kernels::dense;
use maco::{Communicator, Device, PlanOptions, bf16, f16};
use support::{Matrix, gelu, poisoned};

on_every_device!(gemm, gemm_f16, gemm_f32, turned_f32, tiles, plain_gemm, mlp, layers, blocks, diamond, reduced, empty_contraction);

/// M, N, K: one tile, several, ragged in every dimension, less than a box, row strides that need padding.
const SIZES: [(usize, usize, usize); 6] = [(64, 128, 64), (128, 256, 128), (130, 264, 200), (1, 10, 72), (65, 3, 1), (200, 131, 77)];

fn gemm(device: &Device) {
    for (m, n, k) in SIZES {
        let (x, w) = (Matrix::integers(m, k, 1, 2), Matrix::sparse(n, k, 2));
        let mut y = poisoned::<bf16>(device, m, n);
        let plan = dense::gemm::plan(device, dense::gemm::Dims { M: m as u64, K: k as u64, N: n as u64 }).unwrap();
        for _ in 0..3 {
            plan.run(&x.upload(device), &w.upload(device), &mut y).unwrap();
        }
        x.times(&w.t()).bf16().exactly(&y, &format!("{m} × {n} × {k}"));
    }
}

fn gemm_f16(device: &Device) {
    let (m, n, k) = (130, 264, 200);
    let (x, w) = (Matrix::integers(m, k, 1, 2), Matrix::sparse(n, k, 2));
    let mut y = poisoned::<f16>(device, m, n);
    let plan = dense::gemm_f16::plan(device, dense::gemm_f16::Dims { M: m as u64, K: k as u64, N: n as u64 }).unwrap();
    plan.run(&x.upload(device), &w.upload(device), &mut y).unwrap();
    x.times(&w.t()).exactly(&y, "f16");
}

/// Small integers are exact in tf32.
fn gemm_f32(device: &Device) {
    for (m, n, k) in SIZES {
        let (x, w) = (Matrix::integers(m, k, 1, 2), Matrix::sparse(n, k, 2));
        let mut y = poisoned::<f32>(device, m, n);
        let plan = dense::gemm_f32::plan(device, dense::gemm_f32::Dims { M: m as u64, K: k as u64, N: n as u64 }).unwrap();
        plan.run(&x.upload(device), &w.upload(device), &mut y).unwrap();
        x.times(&w.t()).exactly(&y, &format!("f32, {m} × {n} × {k}"));
    }
}

fn turned_f32(device: &Device) {
    for (m, n, k) in SIZES {
        let (a, b) = (Matrix::integers(k, m, 1, 2), Matrix::sparse(k, n, 2));
        let mut y = poisoned::<f32>(device, m, n);
        let plan = dense::turned_f32::plan(device, dense::turned_f32::Dims { M: m as u64, K: k as u64, N: n as u64 }).unwrap();
        plan.run(&a.upload(device), &b.upload(device), &mut y).unwrap();
        a.t().times(&b).exactly(&y, &format!("f32, transposed, {m} × {n} × {k}"));
    }
}

fn tiles(device: &Device) {
    for (m, n, k) in SIZES {
        let (x, w) = (Matrix::integers(m, k, 3, 2), Matrix::sparse(n, k, 4));
        let mut y = [(); 4].map(|()| poisoned::<bf16>(device, m, n));
        let [a, b, c, d] = &mut y;
        let plan = dense::tiles::plan(device, dense::tiles::Dims { M: m as u64, K: k as u64, N: n as u64 }).unwrap();
        plan.run(&x.upload(device), &w.upload(device), a, b, c, d).unwrap();
        let expected = x.times(&w.t()).bf16();
        for (y, tile) in y.iter().zip(["64 × 128", "64 × 256", "128 × 128", "128 × 256"]) {
            expected.exactly(y, &format!("{m} × {n} × {k} by {tile}"));
        }
    }
}

fn plain_gemm(device: &Device) {
    for (m, n, k) in SIZES {
        let (a, b) = (Matrix::integers(m, k, 5, 2), Matrix::sparse(k, n, 6));
        let mut y = poisoned::<bf16>(device, m, n);
        let plan = dense::plain_gemm::plan(device, dense::plain_gemm::Dims { M: m as u64, K: k as u64, N: n as u64 }).unwrap();
        plan.run(&a.upload(device), &b.upload(device), &mut y).unwrap();
        a.times(&b).bf16().exactly(&y, &format!("{m} × {n} × {k}"));
    }
}

fn mlp(device: &Device) {
    for (m, h, k) in [(128, 256, 64), (130, 520, 264), (3, 40, 24)] {
        let (x, up, down) = (Matrix::integers(m, k, 1, 1), Matrix::sparse(h, k, 2), Matrix::sparse(k, h, 3));
        let mut y = poisoned::<bf16>(device, m, k);
        let plan = dense::mlp::plan(device, dense::mlp::Dims { M: m as u64, K: k as u64, H: h as u64 }).unwrap();
        plan.run(&x.upload(device), &up.upload(device), &down.upload(device), &mut y).unwrap();
        x.times(&up.t()).map(gelu).bf16().times(&down.t()).within(&y, 0.02, &format!("{m} {h} {k}"));
    }
}

fn layers(device: &Device) {
    let (m, k) = (130, 136);
    let x = Matrix::integers(m, k, 1, 2);
    // Permutations: sums of one term each, exact through all layers.
    let w: [Matrix; dense::LAYERS] =
        std::array::from_fn(|layer| Matrix::new(k, k, |r, c| if (r * 5 + layer + 1) % k == c { 1.0 } else { 0.0 }));
    let mut y = poisoned::<bf16>(device, m, k);
    let plan = dense::layers::plan(device, dense::layers::Dims { M: m as u64, K: k as u64 }).unwrap();
    let uploaded = [w[0].upload(device), w[1].upload(device), w[2].upload(device)];
    // The scalar changes from launch to launch without a new plan.
    for by in [0.5f32, 2.0] {
        plan.run(&x.upload(device), &uploaded, by, &mut y).unwrap();
        let mut h = x.times(&w[0].t());
        for w in &w[1..] {
            h = h.times(&w.t()).map(|v| v * by as f64);
        }
        h.plus(&h).exactly(&y, "layers");
    }
}

fn blocks(device: &Device) {
    let (m, h, k) = (70, 200, 136);
    let (x, up, down) = (Matrix::integers(m, k, 1, 1), Matrix::sparse(h, k, 2), Matrix::sparse(k, h, 3));
    let mut y = poisoned::<bf16>(device, m, k);
    let plan = dense::blocks::plan(device, dense::blocks::Dims { M: m as u64, K: k as u64, H: h as u64 }).unwrap();
    plan.run(&x.upload(device), &up.upload(device), &down.upload(device), &mut y).unwrap();
    let block = |x: &Matrix| x.times(&up.t()).map(gelu).bf16().times(&down.t()).bf16();
    block(&block(&x)).close(&y, 1e-2, "blocks");
}

fn diamond(device: &Device) {
    let (m, k) = (200, 136);
    let (x, w, v) = (Matrix::integers(m, k, 1, 2), Matrix::sparse(k, k, 2), Matrix::sparse(k, k, 3));
    let mut y = poisoned::<bf16>(device, m, k);
    let plan = dense::diamond::plan(device, dense::diamond::Dims { M: m as u64, K: k as u64 }).unwrap();
    plan.run(&x.upload(device), &w.upload(device), &v.upload(device), &mut y).unwrap();
    x.times(&w.t()).plus(&x.times(&v.t())).bf16().exactly(&y, "diamond");
}

fn reduced(device: &Device) {
    let (m, n, k) = (130, 72, 64);
    let (x, w) = (Matrix::integers(m, k, 1, 2), Matrix::sparse(n, k, 2));
    let mut y = poisoned::<bf16>(device, m, n);
    let dims = dense::reduced::Dims { M: m as u64, K: k as u64, N: n as u64 };
    // Half a sum without a word, where there are several ranks.
    let error = dense::reduced::plan(device, dims).map(drop).unwrap_err();
    let told = "MACO0072: `part` of megakernel `reduced` is a partial sum, but the plan has no communicator";
    assert_eq!((error.code(), error.to_string().lines().next().unwrap()), (72, told));
    let options = PlanOptions::new().communicator(Communicator::single());
    let plan = dense::reduced::plan_with(device, dims, &options).unwrap();
    plan.run(&x.upload(device), &w.upload(device), &mut y).unwrap();
    x.times(&w.t()).bf16().exactly(&y, "reduced");
}

/// A contraction of length 0 is a fill with zero.
fn empty_contraction(device: &Device) {
    let (m, n) = (70, 136);
    let mut y = poisoned::<bf16>(device, m, n);
    let plan = dense::gemm::plan(device, dense::gemm::Dims { M: m as u64, K: 0, N: n as u64 }).unwrap();
    let (x, w) = (device.zeros::<bf16>([m as u64, 0]).unwrap(), device.zeros::<bf16>([n as u64, 0]).unwrap());
    plan.run(&x, &w, &mut y).unwrap();
    Matrix::new(m, n, |_, _| 0.0).exactly(&y, "empty contraction");
}
