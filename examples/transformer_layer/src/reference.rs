//! The layer in `f64`, token by token, from the same weights: nothing of MACO, no tiles, and nothing is rounded.

use std::thread;

use maco::bf16;

use crate::layer::{Layer, angles};

/// Multiplications for each sequence that a reference may have: a few seconds.
const MULTIPLICATIONS: u64 = 1 << 31;

/// How many tokens at the beginning of a sequence are worth checking: all, if that takes seconds.
pub fn tokens(layer: &Layer) -> u64 {
    let sizes = layer.sizes;
    let each = sizes.hidden * (4 * sizes.width() + 3 * sizes.ffn);
    (MULTIPLICATIONS / each).clamp(1, sizes.tokens)
}

/// The first `count` rows of the result of every sequence, [batch, count, hidden]: they need no later ones.
pub fn layer(layer: &Layer, count: u64) -> Vec<f64> {
    let threads = thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
    let batch = layer.sizes.batch;
    let mut rows = Vec::new();
    for first in (0..batch).step_by(threads as usize) {
        thread::scope(|scope| {
            let part: Vec<_> = (first..batch.min(first + threads)).map(|at| scope.spawn(move || sequence(layer, at, count))).collect();
            for of_one in part {
                rows.extend(of_one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
        });
    }
    rows
}

/// The first `count` rows of one sequence.
fn sequence(layer: &Layer, at: u64, count: u64) -> Vec<f64> {
    let (sizes, angles) = (layer.sizes, angles(layer.sizes));
    let (hidden, dim, half) = (sizes.hidden as usize, sizes.head_dim as usize, sizes.head_dim as usize / 2);
    let [mut keys, mut values] = [Vec::new(), Vec::new()];
    let mut result = Vec::new();
    for t in 0..count as usize {
        let x: Vec<f64> = layer.x[(at * sizes.tokens) as usize * hidden..][t * hidden..][..hidden].iter().map(number).collect();
        let h = normed(&x, &layer.norms[0]);
        let [mut q, mut k, v] = [0, 1, 2].map(|of| times(&layer.qkv[of], &h));
        for head in q.chunks_exact_mut(dim).chain(k.chunks_exact_mut(dim)) {
            for f in 0..half {
                let (sin, cos) = angles[t * half + f].sin_cos();
                (head[f], head[half + f]) = (head[f] * cos - head[half + f] * sin, head[half + f] * cos + head[f] * sin);
            }
        }
        keys.push(k);
        values.push(v);
        let mut heads = vec![0.0; q.len()];
        for (head, q) in q.chunks_exact(dim).enumerate() {
            let columns = head * dim..(head + 1) * dim;
            let scores: Vec<f64> =
                keys.iter().map(|k| q.iter().zip(&k[columns.clone()]).map(|(a, b)| a * b).sum::<f64>() / (dim as f64).sqrt()).collect();
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let all: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
            for (score, v) in scores.iter().zip(&values) {
                let share = (score - largest).exp() / all;
                heads[columns.clone()].iter_mut().zip(&v[columns.clone()]).for_each(|(sum, v)| *sum += share * v);
            }
        }
        let attended = sum(&x, &times(&layer.out, &heads));
        let h = normed(&attended, &layer.norms[1]);
        let (gate, up) = (times(&layer.gate, &h), times(&layer.up, &h));
        let between: Vec<f64> = gate.iter().zip(&up).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up).collect();
        result.extend(sum(&attended, &times(&layer.down, &between)));
    }
    result
}

/// Exact. Not by a conversion that looks for what is no number.
fn number(value: &bf16) -> f64 {
    f64::from(f32::from_bits(u32::from(value.to_bits()) << 16))
}

/// matrix · vector
fn times(matrix: &[bf16], vector: &[f64]) -> Vec<f64> {
    matrix.chunks_exact(vector.len()).map(|row| row.iter().zip(vector).map(|(a, b)| number(a) * b).sum()).collect()
}

fn sum(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

fn normed(x: &[f64], weight: &[bf16]) -> Vec<f64> {
    let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
    x.iter().zip(weight).map(|(v, weight)| v / (mean + 1e-6).sqrt() * number(weight)).collect()
}
