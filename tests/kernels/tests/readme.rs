//! What README.md shows compiles and runs.
mod support;

use kernels::readme;
use maco::{Device, bf16};
use support::{Matrix, poisoned};

on_every_device!(mlp);

fn mlp(device: &Device) {
    let (m, k, h) = (70, 40, 130);
    let (x, up, down) = (Matrix::integers(m, k, 1, 1), Matrix::sparse(h, k, 2), Matrix::sparse(k, h, 3));
    let bias = Matrix::integers(1, h, 4, 3);
    let b: Vec<bf16> = bias.data.iter().map(|&v| bf16::from_f64(v)).collect();
    let mut y = poisoned::<bf16>(device, m, k);
    let plan = readme::mlp::plan(device, readme::mlp::Dims { M: m as u64, K: k as u64, H: h as u64 }).unwrap();
    plan.run(&x.upload(device), &up.upload(device), &device.upload(&b, [h as u64]).unwrap(), &down.upload(device), &mut y).unwrap();
    let hidden = x.times(&up.t());
    let hidden = Matrix::new(m, h, |r, c| (hidden.at(r, c) + bias.at(0, c)).max(0.0));
    hidden.times(&down.t()).bf16().exactly(&y, "README's kernel");
}

#[test]
fn the_readme_shows_these_kernels() {
    let readme = include_str!("../../../README.md");
    let kernels = include_str!("../src/readme.rs");
    let shown = kernels.split_once("use maco::prelude::*;").unwrap().1;
    assert!(readme.contains(shown), "README.md and tests/kernels/src/readme.rs differ");
}
