use maco::prelude::*;

#[maco::graph]
pub fn layer(x: In<bf16, M, K>, w: [In<bf16, K, K>; 2], y: Out<bf16, M, K>) {
    let h = temp::<bf16, M, K>();
    linear(x, w[0], h).then(gelu);
    linear(h, w[1], y);
}

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, w: [In<bf16, K, K>; 2], y: Out<bf16, M, K>) {
    layer(x, w, y).then(gelu).then(add(x)).tile(64, 128);
}

fn main() {}
