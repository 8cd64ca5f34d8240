//! A reduction of a row needs the whole warp: not in a closure that lanes call element by element.
use maco::prelude::*;

#[maco::task(tile(i = 8))]
fn centred(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    cta.rows(x, y, |x, y| y.zip(x, |v| v - x.sum(|v| v)))
}

#[maco::megakernel]
fn kernel(x: In<f32, M, N>, y: Out<f32, M, N>) {
    centred(x, y);
}

fn main() {}
