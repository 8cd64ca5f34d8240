//! What a helper is called with is not what its parameters say.
use maco::prelude::*;

#[maco::helper(Rows)]
fn raised(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>, by: f32) {
    cta.zip(x, y, |v| v + by)
}

#[maco::helper(Rows)]
fn sum(cta: &mut Cta, #[read(i, j)] a: Tensor<f32, M, N>, #[read(i, j)] b: Tensor<f32, M, N>, #[update(i, j)] y: Tensor<f32, M, N>) {
    cta.zip((a, b), y, |(a, b)| a + b);
}

#[maco::helper(Rows)]
fn of_written(cta: &mut Cta, #[written(i, ..)] t: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    cta.zip(t, y, |v| v)
}

// Access: the two in the wrong order.
#[maco::task(tile(i = 4))]
fn swapped(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    raised(cta, y, x, 1.0);
}

// Axes: the rows of one are the columns of the other.
#[maco::task(tile(i = 4, j = 8))]
fn turned(cta: &mut Cta, #[read(i, j)] a: Tensor<f32, M, N>, #[read(j, i)] b: Tensor<f32, N, M>, #[update(i, j)] y: Tensor<f32, M, N>) {
    sum(cta, a, b, y);
}

// Tiles where the helper has whole rows.
#[maco::task(tile(i = 4, j = 8))]
fn part(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    raised(cta, x, y, 1.0);
}

// An element.
#[maco::task(tile(i = 4))]
fn element(cta: &mut Cta, #[read(i, ..)] x: Tensor<bf16, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    raised(cta, x, y, 1.0);
}

// What nothing has written yet.
#[maco::task(tile(i = 4))]
fn early(cta: &mut Cta, #[write(i, ..)] t: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    of_written(cta, t, y);
}

// A number, and a tile for a number.
#[maco::task(tile(i = 4))]
fn numbers(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>, by: f32) {
    raised(cta, by, y, x);
}

fn main() {}
