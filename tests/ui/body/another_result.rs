//! What is written is another result, or another variable of the name.
use maco::prelude::*;

#[maco::helper(Rows)]
fn twice(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>, #[write(i, j)] z: Tensor<f32, M, N>) {
    let y = cta.zip(x, y, |v| v);
    let _ = z;
    (y, y)
}

#[maco::helper(Rows)]
fn other(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>, #[written(i, j)] z: Tensor<f32, M, N>) {
    let _ = (cta, x, y);
    z
}

fn pass<A, B>(a: A, _: B) -> A {
    a
}

#[maco::task(tile(i = 64))]
fn by_hand(cta: &mut Cta, #[read(i)] x: Tensor<f32, N>, #[write(i)] y: Tensor<f32, N>, #[write(i)] z: Tensor<f32, N>) {
    let y = cta.zip(x, y, |v| v);
    pass(y, z);
}

struct Mine;
impl Mine {
    fn zip<A, B, F>(&self, _: A, _: B, _: F) {}
}

#[maco::task(tile(i = 64))]
fn not_cta(cta: &mut Cta, #[update(i)] x: Tensor<f32, N>, #[write(i)] y: Tensor<f32, N>) {
    cta.map(x, |v| v + 1.0);
    let cta = Mine;
    cta.zip((), y, |v: f32| v);
}

#[maco::task(tile(i = 64))]
fn hidden(cta: &mut Cta, #[read(i)] x: Tensor<f32, N>, #[update(i)] z: Tensor<f32, N>, #[write(i)] y: Tensor<f32, N>) {
    match z {
        y => cta.zip(x, y, |v| v),
    };
}

#[maco::task(tile(i = 64))]
fn optional(cta: &mut Cta, #[read(i)] x: Tensor<f32, N>, #[update(i)] z: Tensor<f32, N>, #[write(i)] y: Tensor<f32, N>) {
    if let (y, 1) = (z, 1) {
        cta.zip(x, y, |v| v);
    } else {
        cta.zip(x, y, |v| v);
    }
}

fn main() {}
