use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, y: Out<bf16, M, K>) {
    let mut h = temp::<bf16, M, K>();
    for _ in 0..3 {
        let next = temp::<bf16, M, K>();
        copy(h, next);
        h = next;
    }
    add(h, x, y);
}

fn main() {}
