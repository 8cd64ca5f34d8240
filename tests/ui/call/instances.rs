use maco::prelude::*;

#[maco::task(tile(i = 64 | 128 | 256, j = 64 | 128 | 256), E in [f32, i32, u32, bf16, f16])]
pub fn t0(cta: &mut Cta, #[read(i, j)] x: Tensor<E, M, K>, #[write(i, j)] y: Tensor<E, M, K>) {
    cta.zip(x, y, |v| v)
}

#[maco::task(tile(i = 64 | 128 | 256, j = 64 | 128 | 256), E in [f32, i32, u32, bf16, f16])]
pub fn t1(cta: &mut Cta, #[read(i, j)] x: Tensor<E, M, K>, #[write(i, j)] y: Tensor<E, M, K>) {
    cta.zip(x, y, |v| v)
}

#[maco::task(tile(i = 64 | 128 | 256, j = 64 | 128 | 256), E in [f32, i32, u32, bf16, f16])]
pub fn t2(cta: &mut Cta, #[read(i, j)] x: Tensor<E, M, K>, #[write(i, j)] y: Tensor<E, M, K>) {
    cta.zip(x, y, |v| v)
}

#[maco::megakernel]
pub fn k(x: In<f16, M, K>, y: [Out<f16, M, K>; 3]) {
    t0(x, y[0]);
    t1(x, y[1]);
    t2(x, y[2]);
}

fn main() {}
