//! y = 3 x + 4 in five calls with temps between them, to be captured.
use maco::prelude::*;

#[maco::task(tile(i = 4, j = 64))]
pub fn add1(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.zip(x, y, |x| x + 1.0)
}

#[maco::task(tile(i = 4, j = 64))]
pub fn acc(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[update(i, j)] y: Tensor<f32, M, N>) {
    cta.zip((x, y), y, |(x, y)| x + y)
}

#[maco::megakernel]
pub fn step(x: In<f32, M, N>, y: Out<f32, M, N>) {
    let a = temp::<f32, M, N>();
    let b = temp::<f32, M, N>();
    add1(x, a);
    add1(a, b);
    acc(a, b);
    acc(x, b);
    add1(b, y);
}
