//! The tasks alone, on one thread: no plan, no GPU.

use custom_task::kernels;
use custom_task::reference::{self, Random};
use maco::{Device, bf16};

#[test]
fn a_gated_unit_alone() {
    let device = Device::cpu();
    // No multiple of a tile, nor of a step.
    let (m, k, n) = (70, 100, 130);
    let mut random = Random(2);
    let [x, gate, up] = [m, n, n].map(|rows| random.matrix(rows * k, 0.3));
    let upload = |data: &[bf16], rows| device.upload(data, [rows, k]).unwrap();
    let mut y = device.zeros::<bf16>([m, n]).unwrap();
    kernels::geglu::on_cpu(&upload(&x, m), &upload(&gate, n), &upload(&up, n), &mut y).unwrap();
    let rows = || gate.chunks_exact(k as usize).zip(up.chunks_exact(k as usize));
    let expected = x.chunks_exact(k as usize).flat_map(|x| rows().map(move |(gate, up)| reference::geglu(x, gate, up)));
    for (n, (found, expected)) in y.download().unwrap().into_iter().zip(expected).enumerate() {
        // A rounding, and the errors of sums.
        let allowed = expected.abs() / 256.0 + 1e-4;
        assert!((found.to_f64() - expected).abs() <= allowed, "element {n} is {found}, expected {expected}");
    }
}

#[test]
fn a_loss_alone() {
    let device = Device::cpu();
    let (m, n) = (11, 1003);
    let mut random = Random(3);
    // e to the largest of these is no `f32`.
    let (x, target) = (random.matrix(m * n, 200.0), random.below(m, n));
    let mut loss = device.zeros::<f32>([m, 1]).unwrap();
    kernels::cross_entropy::on_cpu(&device.upload(&x, [m, n]).unwrap(), &device.upload(&target, [m, 1]).unwrap(), &mut loss).unwrap();
    for (row, (found, &target)) in loss.download().unwrap().into_iter().zip(&target).enumerate() {
        let expected = reference::cross_entropy(&x[row * n as usize..][..n as usize], target);
        assert!((f64::from(found) - expected).abs() <= 1e-4, "row {row} is {found}, expected {expected}");
    }
}

#[test]
fn a_gemm_with_scales_alone() {
    let device = Device::cpu();
    // Parts of tiles; no step of K, and several.
    for (m, k, n) in [(130, 144, 70), (3, 301, 129), (64, 1, 1), (1, 0, 5)] {
        let mut random = Random(4);
        let (x, w) = (random.eight(m * k), random.eight(n * k));
        let (scale_x, scale_w) = (random.scales(m, 0.1), random.scales(n, 0.3));
        let mut y = device.zeros::<bf16>([m, n]).unwrap();
        let (dx, dw) = (device.upload(&x, [m, k]).unwrap(), device.upload(&w, [n, k]).unwrap());
        kernels::scaled::on_cpu(&dx, &dw, &device.upload(&scale_x, [m]).unwrap(), &device.upload(&scale_w, [n]).unwrap(), &mut y).unwrap();
        for (at, found) in y.download().unwrap().into_iter().enumerate() {
            let (row, col) = (at / n as usize, at % n as usize);
            let of = |data: &[i8], row: usize| data[row * k as usize..][..k as usize].to_vec();
            let expected = reference::scaled(&of(&x, row), &of(&w, col), f64::from(scale_x[row]) * f64::from(scale_w[col]));
            // A rounding; numbers up to 3.75, whose sums are nearly exact in `f32`.
            let allowed = expected.abs() / 256.0 + 1e-4;
            assert!((found.to_f64() - expected).abs() <= allowed, "{m} {k} {n}: ({row}, {col}) is {found}, expected {expected}");
        }
    }
}
