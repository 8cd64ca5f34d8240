//! Operations that a body's kind does not have.
use maco::prelude::*;

#[maco::task(tile(i = 4))]
fn positions(cta: Cta<Rows>, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    cta.generate(x, y, |x, r, c| x.at(r, c));
}

#[maco::helper(Columns)]
fn rows(cta: &mut Cta, #[update(i, ..)] x: Tensor<f32, M, N>) {
    cta.map(x, |v| v);
}

fn main() {}
