//! A gated unit with a loss behind it, of two tasks that the library does not have.
use maco::math::{exp, ln};
use maco::prelude::*;

/// y\[M, N\] = gelu(x\[M, K\] · gate\[N, K\]ᵀ) · (x · up\[N, K\]ᵀ), summed in `f32` and rounded once (GEGLU: Shazeer, 2020).
///
/// Both products are made at the same time: `x` is loaded once for both, and neither of them goes through memory.
#[maco::task(tile(i = 64 | 128, j = 128), E in [bf16, f16])]
pub fn geglu(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<E, M, K>,
    #[read(j, ..)] gate: Tensor<E, N, K>,
    #[read(j, ..)] up: Tensor<E, N, K>,
    #[write(i, j)] y: Tensor<E, M, N>,
) {
    let mut acc = cta.accumulator_pair();
    for k in cta.steps(x, gate) {
        cta.mma_pair(&mut acc, x.tile(k), (gate.tile(k), up.tile(k)));
    }
    cta.store_pair(acc, y, |gate, up| gelu::apply(gate) * up);
}

/// The largest of some numbers, and the sum of e to each less that: what is known of them without having kept them.
type Seen = (f32, f32);

/// What is known of both together (Milakov and Gimelshein, 2018). One exponential: that of the larger maximum less itself is 1.
fn join(a: Seen, b: Seen) -> Seen {
    let (large, small) = if b.0 > a.0 || b.0.is_nan() { (b, a) } else { (a, b) };
    // Infinities too may be equal.
    let factor = if large.0 == small.0 { 1.0 } else { exp(small.0 - large.0) };
    (large.0, large.1 + small.1 * factor)
}

/// loss\[M, 1\] = log(Σ exp(x)) − x\[target\] along each row of x\[M, N\]: the cross-entropy of logits, with one read of them and no
/// exponential that overflows. A target outside the row counts as a logit of 0. NaN in, NaN out.
#[maco::task(tile(i = 8), E in [bf16, f16, f32])]
pub fn cross_entropy(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<E, M, N>,
    #[read(i, ..)] target: Tensor<u32, M, 1>,
    #[write(i, ..)] loss: Tensor<f32, M, 1>,
) {
    cta.rows((x, target), loss, |(x, target), loss| {
        let (largest, sum) = x.fold((f32::NEG_INFINITY, 0.0), |v| (v, 1.0), join);
        loss.put(0, largest + ln(sum) - x.at(target.at(0)))
    })
}

/// The unit alone, in one task.
#[maco::megakernel]
pub fn fused(x: In<bf16, M, K>, gate: In<bf16, N, K>, up: In<bf16, N, K>, y: Out<bf16, M, N>) {
    geglu(x, gate, up, y);
}

/// The same by tasks of the library.
#[maco::megakernel]
pub fn apart(x: In<bf16, M, K>, gate: In<bf16, N, K>, up: In<bf16, N, K>, y: Out<bf16, M, N>) {
    let open = temp::<bf16, M, N>();
    let raised = temp::<bf16, M, N>();
    linear(x, gate, open).then(gelu);
    linear(x, up, raised);
    mul(open, raised, y);
}

/// A unit, what it makes of each of V words, and the loss of each token.
#[maco::megakernel]
pub fn head(
    x: In<bf16, M, K>,
    gate: In<bf16, N, K>,
    up: In<bf16, N, K>,
    words: In<bf16, V, N>,
    target: In<u32, M, 1>,
    y: Out<bf16, M, N>,
    logits: Out<bf16, M, V>,
    loss: Out<f32, M, 1>,
) {
    geglu(x, gate, up, y);
    linear(y, words, logits);
    cross_entropy(logits, target, loss);
}
