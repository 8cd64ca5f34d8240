//! Tasks and a group of calls for other crates' megakernels. `no_std` on the device.
#![cfg_attr(target_arch = "nvptx64", no_std)]
use maco::prelude::*;

/// y = x + x.
#[maco::task(tile(i = 64, j = 64), E in [bf16, f16, f32])]
pub fn double(cta: &mut Cta, #[read(i, j)] x: Tensor<E, M, N>, #[write(i, j)] y: Tensor<E, M, N>) {
    cta.zip(x, y, |v| v + v)
}

/// Two linear layers with a GELU between them, h = gelu(x · upᵀ), y = h · downᵀ.
#[maco::graph]
pub fn block(x: In<bf16, M, K>, up: In<bf16, H, K>, down: In<bf16, K, H>, y: Out<bf16, M, K>) {
    let h = temp::<bf16, M, H>();
    linear(x, up, h).then(gelu);
    linear(h, down, y);
}
