use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, w: In<bf16, N, K>, y: Out<bf16, M, N>, z: Out<bf16, M, N>) {
    let h = temp::<bf16, M, N>();
    linear(x, w, y).then(mul(h));
    linear(x, w, h);
    linear(x, w, z).then(add(h));
}

fn main() {}
