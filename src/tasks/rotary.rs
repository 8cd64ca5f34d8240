//! Rotary position embedding (Su et al., 2021), in both of the orders in which a head's pairs lie.
//!
//! [`rope`] pairs halves, element f with element f + F; [`rope_interleaved`] pairs neighbours, element 2f with element 2f + 1. Each names the models that do so, and where
//! that is read. Weights belong to one of them.
//!
//! In flight, of each of 256 threads: four blocks of eight pairs (of four bytes two), with the sines and cosines of their angles. Of `rope_interleaved` blocks of four pairs.

use crate::math::{each8, zip8};
use crate::prelude::*;

/// y = x with each pair (x\[f\], x\[f + F\]) of a head turned by the angle of its token's position (halves; Su et al., 2021):
/// y\[f\] = x\[f\] cos − x\[f + F\] sin, y\[f + F\] = x\[f + F\] cos + x\[f\] sin, where `cos` and `sin` are row `positions[t]` of the tables.
///
/// Models: GPT-NeoX (`rotate_half` of EleutherAI/gpt-neox, `megatron/model/positional_embeddings.py`); Llama, Mistral, Qwen2 and GPT-NeoX as huggingface/transformers
/// has them (`rotate_half` in `models/llama/modeling_llama.py`, from which `modular_mistral.py`, `modular_qwen2.py` and `modular_gpt_neox.py` have it). Their Llama is
/// converted from neighbours: `permute` of `models/llama/convert_llama_weights_to_hf.py` reorders the rows of query and key projections.
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

/// y = x with each pair (x\[2f\], x\[2f + 1\]) of a head turned by the angle of its token's position (neighbours; Su et al., 2021):
/// y\[2f\] = x\[2f\] cos − x\[2f + 1\] sin, y\[2f + 1\] = x\[2f + 1\] cos + x\[2f\] sin. Tables, shapes, errors, NaN and infinities as of [`rope`]; F a
/// multiple of 4 is fast.
///
/// Models: RoFormer (README of ZhuiyiTechnology/roformer); GPT-J and Cohere (huggingface/transformers, `rotate_every_two` of `models/gptj/modeling_gptj.py` and
/// `rotate_half` of `models/cohere/modeling_cohere.py`); as products of complex numbers Llama as Meta has it (meta-llama/llama, `llama/model.py`), Mistral in its own
/// code (mistralai/mistral-inference, `rope.py`) and DeepSeek-V3 (deepseek-ai/DeepSeek-V3, `inference/model.py`). For DeepSeek-V3 huggingface/transformers reads
/// neighbours and leaves halves, in queries and keys alike (`apply_rotary_pos_emb_interleave` of `models/deepseek_v3/modular_deepseek_v3.py`): their products are the same.
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
