use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, w: In<bf16, N, K>, y: InOut<bf16, M, N>) {
    linear(x, w, y).then(add(y));
}

fn main() {}
