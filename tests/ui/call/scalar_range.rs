use maco::prelude::*;

#[maco::task(tile(i = 64, j = 64))]
pub fn count(cta: &mut Cta, #[update(i, j)] x: Tensor<bf16, M, N>, n: u32) {
    cta.map(x, |v| v + n as f32)
}

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, y: Out<bf16, M, K>) {
    copy(x, y);
    count(y, -1);
    count(y, 4294967296);
}

fn main() {}
