//! Rotary position embedding (Su et al., 2021), in both of the orders in which a head's pairs lie.
//!
//! - [`rope`], halves: element f with element f + F. GPT-NeoX, Llama, Mistral and Qwen as Hugging Face has them.
//! - [`rope_interleaved`], neighbours: element 2f with element 2f + 1. RoFormer itself, GPT-J, DeepSeek-V2 and V3, and Llama as Meta published it.
//!
//! Weights belong to one of them: Hugging Face permutes the rows of Llama's query and key projections when it converts them from the other.
//!
//! In flight, of each of 256 threads: four blocks of eight pairs (of four bytes two), with the sines and cosines of their angles. of `rope_interleaved` blocks of four pairs.

use crate::math::{each8, zip8};
use crate::prelude::*;

/// y = x with each pair (x\[f\], x\[f + F\]) of a head turned by the angle of its token's position (Su et al., 2021; halves, as Hugging Face's Llama):
/// y\[f\] = x\[f\] cos − x\[f + F\] sin, y\[f + F\] = x\[f + F\] cos + x\[f\] sin, where `cos` and `sin` are row `positions[t]` of the tables.
///
/// x is \[heads, tokens, 2 F\]; of a projection \[T, H · 2 F\] that is `q.split(1, H).swap(0, 1)`. F a multiple of 8 is fast.
/// Error: rounding to E, and 2⁻²³ (|x\[f\]| + |x\[f + F\]|). A NaN or an infinity in a pair makes both NaN or infinite, as the formula does. At
/// a position outside the tables cosine and sine are 0.
#[maco_macros::task(crate = crate, tile(h = 1, t = 64 | 256), E in [bf16, f16, f32])]
pub fn rope(
    cta: &mut Cta,
    #[read(h, t, ..)] x: Tensor<E, H, T, { 2 * F }>,
    #[read(t)] positions: Tensor<u32, T>,
    #[read(positions[t], ..)] cos: Tensor<f32, P, F>,
    #[read(positions[t], ..)] sin: Tensor<f32, P, F>,
    #[write(h, t, ..)] y: Tensor<E, H, T, { 2 * F }>,
) {
    if cos.cols().is_multiple_of(8) {
        let inputs = (x, positions.by_element(true), cos, sin);
        cta.pairs_of_blocks(
            inputs,
            y,
            |(_, positions, _, _), t| positions.at(0, t) as i32,
            |(x, _, cos, sin), at, t, f| {
                let (left, right) = (x.at8(t, f), x.at8(t, f + cos.cols() as i32));
                let (cos, sin) = (cos.at8(at, f), sin.at8(at, f));
                let turned = |kept: [f32; 8], other: [f32; 8], sign: f32| {
                    let other = zip8(other, sin, |v, sin| v * (sin * sign));
                    zip8(zip8(kept, cos, |v, cos| v * cos), other, |a, b| a + b)
                };
                (turned(left, right, -1.0), turned(right, left, 1.0))
            },
        );
    } else {
        // The other of a pair, the angle's column, and the sign of its sine.
        fn pair(c: i32, half: i32) -> (i32, i32, f32) {
            if c < half { (c + half, c, -1.0) } else { (c - half, c - half, 1.0) }
        }
        cta.blocks((x, positions, cos, sin), y, |(x, positions, cos, sin), t, c| {
            let (half, at) = (cos.cols() as i32, positions.at(0, t) as i32);
            each8(|n| {
                let (other, angle, sign) = pair(c + n, half);
                x.at(t, c + n) * cos.at(at, angle) + x.at(t, other) * (sin.at(at, angle) * sign)
            })
        });
    }
}

/// y = x with each pair (x\[2f\], x\[2f + 1\]) of a head turned by the angle of its token's position (Su et al., 2021; neighbours, as GPT-J):
/// y\[2f\] = x\[2f\] cos − x\[2f + 1\] sin, y\[2f + 1\] = x\[2f + 1\] cos + x\[2f\] sin. Tables, shapes, errors, NaN and infinities as of [`rope`]; F a
/// multiple of 4 is fast.
#[maco_macros::task(crate = crate, tile(h = 1, t = 64 | 256), E in [bf16, f16, f32])]
pub fn rope_interleaved(
    cta: &mut Cta,
    #[read(h, t, ..)] x: Tensor<E, H, T, { 2 * F }>,
    #[read(t)] positions: Tensor<u32, T>,
    #[read(positions[t], ..)] cos: Tensor<f32, P, F>,
    #[read(positions[t], ..)] sin: Tensor<f32, P, F>,
    #[write(h, t, ..)] y: Tensor<E, H, T, { 2 * F }>,
) {
    cta.blocks((x, positions, cos, sin), y, |(x, positions, cos, sin), t, c| {
        let (v, at) = (x.at8(t, c), positions.at(0, t) as i32);
        // Four pairs: a block begins with the first of a pair.
        let pair = |n: i32| {
            let (a, b) = (v[2 * n as usize], v[2 * n as usize + 1]);
            let (cos, sin) = (cos.at(at, c / 2 + n), sin.at(at, c / 2 + n));
            (a * cos - b * sin, b * cos + a * sin)
        };
        let [p, q, r, s] = [pair(0), pair(1), pair(2), pair(3)];
        [p.0, p.1, q.0, q.1, r.0, r.1, s.0, s.1]
    })
}
