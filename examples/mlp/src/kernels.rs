//! A transformer's MLP as one kernel: y = down · gelu(up · x).
use maco::prelude::*;

#[maco::megakernel]
pub fn mlp(x: In<bf16, M, K>, up: In<bf16, H, K>, down: In<bf16, K, H>, y: Out<bf16, M, K>) {
    let h = temp::<bf16, M, H>();
    linear(x, up, h).then(gelu);
    linear(h, down, y);
}
