use maco::prelude::*;

#[maco::megakernel(where M == N)]
pub fn k(x: In<bf16, M, N>, y: Out<bf16, N, M>) {
    copy(x, y);
}

fn main() {}
