use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, w: In<bf16, N, K>, y: Out<bf16, M, N>) {
    linear(x, w, y).first(gelu).tile(8, 16);
}

fn main() {}
