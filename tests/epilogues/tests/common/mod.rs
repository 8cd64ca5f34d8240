//! Sizes, plans and the reference of every test of epilogues.

use maco::{Device, PlanOptions};

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
