//! A closure does not hold borrows of what is in the body: rustc's own error.
use core::cell::Cell as Slot;

#[maco::task(tile(i = 16))]
pub fn cell(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    let seen = Slot::new(0.0);
    let seen = &seen;
    cta.zip(x, y, |v| seen.replace(v));
}

fn main() {}
