use maco::prelude::*;

const KNOWN: usize = 2;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, y: Out<bf16, M, K>) {
    let h = temp::<bf16, M, {2 * Q}>();
    copy(x, h);
    copy(h, y);
}

#[maco::megakernel]
pub fn both(x: In<bf16, { KNOWN * T }, { KNOWN * K }>, z: In<bf16, K>, y: Out<bf16, { S }>) {
    copy(z, y);
}

#[maco::task(tile(i = 64))]
fn t(cta: &mut Cta, #[read(i)] x: Tensor<f32, { 4 * T }>, #[write(i)] y: Tensor<f32, { 4 * T }>) {
    cta.zip(x, y, |v| v)
}

fn main() {}
