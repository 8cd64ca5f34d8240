use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, y: Out<bf16, M, K>) {
    while true {
        copy(x, y);
    }
    loop {}
    for v in [1, 2] {
        copy(x, y);
    }
    for v in 0.. {
        copy(x, y);
    }
}

fn main() {}
