//! What the tasks should give, one number at a time in `f64`, and numbers to give them.

use maco::{E4M3, OperandType, bf16};

/// ½ v (1 + tanh(√(2/π) (v + 0.044715 v³))).
pub fn gelu(v: f64) -> f64 {
    0.5 * v * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (v + 0.044715 * v * v * v)).tanh())
}

/// gelu(x · gate) · (x · up) of a row of x and rows of the weights.
pub fn geglu(x: &[bf16], gate: &[bf16], up: &[bf16]) -> f64 {
    let dot = |w: &[bf16]| x.iter().zip(w).map(|(x, w)| x.to_f64() * w.to_f64()).sum::<f64>();
    gelu(dot(gate)) * dot(up)
}

/// log(Σ exp(x)) − x\[target\] of a row.
pub fn cross_entropy(x: &[bf16], target: u32) -> f64 {
    let largest = x.iter().map(|v| v.to_f64()).fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = x.iter().map(|v| (v.to_f64() - largest).exp()).sum();
    largest + sum.ln() - x.get(target as usize).map_or(0.0, |v| v.to_f64())
}

/// Sum of products of numbers of eight bits, times both scales.
pub fn scaled(x: &[i8], w: &[i8], scales: f64) -> f64 {
    x.iter().zip(w).map(|(&x, &w)| f64::from(E4M3::number(x)) * f64::from(E4M3::number(w))).sum::<f64>() * scales
}

/// xorshift64*: the same numbers everywhere.
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 40
    }

    /// Numbers between −`scale` and `scale`.
    pub fn matrix(&mut self, len: u64, scale: f32) -> Vec<bf16> {
        (0..len).map(|_| bf16::from_f32((self.next() as f32 / (1 << 23) as f32 - 1.0) * scale)).collect()
    }

    /// Bits of finite numbers of eight bits.
    pub fn eight(&mut self, len: u64) -> Vec<i8> {
        (0..len).map(|_| (self.next() as u8 & 0xbf) as i8).collect()
    }

    /// Positive numbers up to `scale`, as scales are.
    pub fn scales(&mut self, len: u64, scale: f32) -> Vec<f32> {
        (0..len).map(|_| (self.next() as f32 / (1 << 24) as f32 + 0.01) * scale).collect()
    }

    /// Numbers below `end`.
    pub fn below(&mut self, len: u64, end: u64) -> Vec<u32> {
        (0..len).map(|_| (self.next() % end.max(1)) as u32).collect()
    }
}
