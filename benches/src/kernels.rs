//! The megakernels that `gemm` and `mlp` measure.
use maco::prelude::*;

/// GEMMs of [`gemms`].
pub const CALLS: usize = 16;

#[maco::megakernel]
pub fn gemm(x: In<bf16, M, K>, w: In<bf16, N, K>, y: Out<bf16, M, N>) {
    linear(x, w, y);
}

/// As many GEMMs as a graph of calls has, none of which waits.
#[maco::megakernel]
pub fn gemms(x: [In<bf16, M, K>; CALLS], w: [In<bf16, N, K>; CALLS], y: [Out<bf16, M, N>; CALLS]) {
    for n in 0..CALLS {
        linear(x[n], w[n], y[n]);
    }
}

/// Two GEMMs with a GELU between.
#[maco::megakernel]
pub fn mlp(x: In<bf16, M, K>, up: In<bf16, H, K>, down: In<bf16, K, H>, y: Out<bf16, M, K>) {
    let h = temp::<bf16, M, H>();
    linear(x, up, h).then(gelu);
    linear(h, down, y);
}

/// Many small calls on one tensor: what a plan is made of when it is long.
#[maco::megakernel]
pub fn updates(x: InOut<bf16, M, N>, by: f32) {
    for _call in 0..100 {
        scale(x, by);
    }
}
