use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, by: f32, y: Out<bf16, M, K>) {
    copy(by, y);
    copy(x, y);
}

fn main() {}
