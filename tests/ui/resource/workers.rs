use maco::prelude::*;

const MANY: usize = 1000;

#[maco::megakernel(workers = 0, schedulers = MANY)]
pub fn k(x: In<bf16, M, K>, y: Out<bf16, M, K>) {
    copy(x, y);
}

fn main() {}
