use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, w: In<bf16, N, K>, r: In<bf16, M, K>, b: In<f32, N>, y: Out<bf16, M, N>, z: Out<bf16, M, N>) {
    linear(x, w, y).first(add(r)).then(add(b));
    linear(x, w, z).first(scale(2u32));
}

fn main() {}
