//! What helper functions do is the body's: it is staged, ordered and written as if it stood there.
mod support;

use kernels::helpers;
use maco::{Device, bf16};
use support::{Matrix, poisoned};

on_every_device!(helped);

fn helped(device: &Device) {
    for (m, n, k) in [(16, 24, 64), (160, 264, 328)] {
        let (x, w, v) = (Matrix::integers(m, k, 1, 2), Matrix::sparse(n, k, 2), Matrix::integers(m, n, 3, 9));
        let plan = helpers::helped::plan(device, helpers::helped::Dims { M: m as u64, K: k as u64, N: n as u64 }).unwrap();
        let (mut many, mut few) = (poisoned::<bf16>(device, m, n), poisoned::<bf16>(device, m, n));
        let (mut t, mut y) = (poisoned::<f32>(device, m, n), poisoned::<f32>(device, m, n));
        plan.run(&x.upload(device), &w.upload(device), &mut many, &mut few, &v.upload(device), &mut t, &mut y, 0.5).unwrap();
        let product = x.times(&w.t()).bf16();
        product.exactly(&many, "a GEMM in a helper");
        product.exactly(&few, "a GEMV in a helper");
        let less = Matrix::new(m, n, |r, c| v.at(r, c) - v.at(r, 0));
        less.exactly(&t, "rows in a helper");
        Matrix::new(m, n, |r, c| less.at(r / 16 * 16 + 15 - r % 16, c) + 0.5).exactly(&y, "positions of what another helper wrote");
    }
}

/// A body in a helper has the kind of its signature, as the same body by itself has. What it loses is speed alone: split-K, and operand A by in-band flags.
#[test]
fn kinds_are_those_of_signatures() {
    let kind = |spec: &maco::TaskSpec| format!("{:?}", spec.kind);
    assert_eq!(kind(&helpers::many_rows::SPEC), "Gemm { splits_k: false }");
    assert_eq!(kind(&maco::tasks::linear::SPEC), "Gemm { splits_k: true }");
    assert_eq!(kind(&helpers::few_rows::SPEC), "Gemv { operand_b: 1, operand_a: None }");
    assert_eq!(kind(&helpers::rows_then_positions::SPEC), "Tiles");
}
