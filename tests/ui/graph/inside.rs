use maco::prelude::*;

#[maco::graph]
pub fn widen(x: In<bf16, M, K>, y: Out<bf16, M, N>) {
    copy(x.slice(1, 0..N), y);
}

#[maco::megakernel]
pub fn k(x: In<bf16, M, 4>, y: Out<bf16, M, 8>) {
    widen(x, y);
}

fn main() {}
