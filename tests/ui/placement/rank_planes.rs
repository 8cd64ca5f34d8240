use maco::prelude::*;

#[maco::task(tile(i = 8, j = 64))]
pub fn gather(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.all_gather(x, y)
}

#[maco::task(tile(i = 8, j = 64, r = 1))]
pub fn gather_last(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[write(r, i, j)] y: Tensor<f32, R, M, N>) {
    cta.all_gather(x, y)
}

#[maco::task(tile(i = 8, j = 64))]
pub fn scatter_sum(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.reduce_scatter(x, y, Sum)
}

#[maco::task(tile(i = 8, j = 64))]
pub fn whole_planes(cta: &mut Cta, #[read(.., i, j)] x: Tensor<f32, R, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.all_reduce(x, y, Sum)
}

#[maco::task(tile(i = 8, j = 64))]
pub fn two(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    let y = cta.zip(x, y, |v| v);
    cta.all_reduce(x, y, Sum)
}

fn main() {}
