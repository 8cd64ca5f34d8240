use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, N>, y: Out<bf16, M, 1>) {
    sum_rows(x, y);
}

fn main() {}
