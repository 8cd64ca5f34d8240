//! Sizes, plans, operands and the reference of every test of epilogues and of prologues.
#![allow(dead_code, reason = "not every test that includes this file asks everything")]

use maco::{Device, PlanOptions, Tensor, TensorElement, bf16};

use crate::support::{From64, Matrix};

/// M, N, K: one tile; ragged in every dimension; one row; odd columns; no step; tiles of which only a corner is there.
pub const SIZES: [(usize, usize, usize); 6] = [(64, 128, 128), (130, 264, 200), (1, 10, 72), (65, 3, 1), (70, 136, 0), (129, 257, 64)];

/// Every executor of the device.
pub fn options(device: &Device) -> Vec<PlanOptions> {
    let plain = PlanOptions::new();
    if device.is_gpu() { vec![plain] } else { vec![plain.clone(), plain.pipelined(true)] }
}

/// A result of `f(sum, row, column)`, rounded once to the element.
pub fn fused<E: From64>(sums: &Matrix, f: impl Fn(f64, usize, usize) -> f64) -> Matrix {
    Matrix::new(sums.rows, sums.cols, |r, c| E::from64(f(sums.at(r, c), r, c)).to64())
}

/// One row, as a tensor of rank 1.
pub fn vector<E: TensorElement + From64>(device: &Device, row: &Matrix) -> Tensor<E> {
    let data: Vec<E> = row.data.iter().map(|&v| E::from64(v)).collect();
    device.upload(&data, [row.cols as u64]).unwrap()
}

/// `count` matrices, one below the other, as one tensor of three axes.
pub fn stacked(device: &Device, matrix: &Matrix, count: usize) -> Tensor<bf16> {
    let data: Vec<bf16> = matrix.data.iter().map(|&v| bf16::from_f64(v)).collect();
    device.upload(&data, [count, matrix.rows / count, matrix.cols].map(|extent| extent as u64)).unwrap()
}
