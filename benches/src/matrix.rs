//! Operands of GEMMs, and whether two systems computed the same.

use anyhow::{bail, ensure};
use maco::{Device, Tensor, TensorElement, bf16};

/// Bytes that rotating buffers have together at least: five times the second-level cache of an H200, which has 50 MiB.
const ROTATED: u64 = 256 << 20;

/// How many sets of `bytes` bytes rotate: so many that none is found in the second-level cache when its turn comes again.
pub fn sets(bytes: u64) -> usize {
    ROTATED.div_ceil(bytes.max(1)).max(2) as usize
}

/// Relative error by which two orders of summation may differ.
pub const ROUNDED: f64 = 5e-3;

/// Random numbers between -`scale` and `scale`, the same for the same seed.
pub fn numbers(seed: u64, scale: f32) -> impl Iterator<Item = f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 40) as f32 / (1 << 23) as f32 - 1.0) * scale
    })
}

/// A matrix of [`numbers`].
pub fn random(device: &Device, rows: u64, cols: u64, seed: u64, scale: f32) -> anyhow::Result<Tensor<bf16>> {
    let data: Vec<bf16> = numbers(seed, scale).take((rows * cols) as usize).map(bf16::from_f32).collect();
    Ok(device.upload(&data, [rows, cols])?)
}

/// Fails unless both are the same up to a relative error of `most`: orders of summation differ.
pub fn agree<E: TensorElement + Into<f64>>(ours: &Tensor<E>, theirs: &Tensor<E>, most: f64) -> anyhow::Result<()> {
    let theirs: Vec<f64> = theirs.download()?.into_iter().map(E::into).collect();
    let error = error(&ours.download()?, &theirs);
    ensure!(error < most, "the systems disagree: relative error {error:.1e}");
    Ok(())
}

/// Fails unless both have the same bits.
pub fn same_bits(ours: &Tensor<bf16>, theirs: &Tensor<bf16>) -> anyhow::Result<()> {
    let (ours, theirs) = (ours.download()?, theirs.download()?);
    ensure!(ours.len() == theirs.len(), "the systems disagree: {} elements and {}", ours.len(), theirs.len());
    let differs = ours.iter().zip(&theirs).position(|(ours, theirs)| ours.to_bits() != theirs.to_bits());
    if let Some(n) = differs {
        bail!("the systems disagree: element {n} of {} is {} and {}", ours.len(), ours[n], theirs[n]);
    }
    Ok(())
}

/// The relative error of `found` in the Frobenius norm.
pub fn error<E: Copy + Into<f64>>(found: &[E], expected: &[f64]) -> f64 {
    let difference: f64 = found.iter().zip(expected).map(|(&a, b)| (a.into() - b).powi(2)).sum();
    let norm: f64 = expected.iter().map(|b| b.powi(2)).sum();
    (difference / norm).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_other_bit_is_found_and_named() {
        let tensor = |numbers: [f32; 3]| Device::cpu().upload(&numbers.map(bf16::from_f32), [3]).unwrap();
        let ours = tensor([1.0, 0.0, f32::INFINITY]);
        same_bits(&ours, &tensor([1.0, 0.0, f32::INFINITY])).unwrap();
        let error = same_bits(&ours, &tensor([1.0, -0.0, f32::INFINITY])).unwrap_err().to_string();
        assert_eq!(error, "the systems disagree: element 1 of 3 is 0 and -0");
        let shorter = Device::cpu().zeros([2]).unwrap();
        assert!(same_bits(&ours, &shorter).unwrap_err().to_string().contains("3 elements and 2"));
    }
}
