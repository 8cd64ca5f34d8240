//! Rotary position embedding.
//!
//! In flight, of each of 256 threads: four blocks of eight pairs, with the sines and cosines of their angles.

use crate::math::{each8, zip8};
use crate::prelude::*;

/// y = x with each pair (x\[f\], x\[f + F\]) of a head turned by the angle of its token's position (Su et al., 2021; the pairing of Llama):
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
