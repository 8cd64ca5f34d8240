use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, y: Out<bf16, M, K>) {
    copy(x, y);
    let h = temp::<bf16, M, {M * M * M * M * M}>();
    copy(h, h);
}

fn main() {}
