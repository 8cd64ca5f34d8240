use maco::prelude::*;

const LAYERS: usize = 3;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, y: Out<bf16, M, K>) {
    let first = temp::<bf16, M, K>();
    copy(x, first);
    let mut h = first;
    for layer in 0..LAYERS {
        let next = temp::<bf16, M, K>();
        copy(h, next);
        if layer + 1 < LAYERS {
            h = next;
        }
    }
    copy(h, y);
}

fn main() {}
