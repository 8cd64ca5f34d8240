//! Steps of a symmetric channel in another order, left out, or of another kind of channel.
use maco::prelude::*;

#[maco::task(tile(r = 1, i = 8, j = 64))]
fn not_granted(cta: Cta<SymmetricChannel>, #[read(r, i, j)] x: Tensor<f32, R, M, N>, #[write(r, i, j)] y: Tensor<f32, R, M, N>) {
    cta.open(&y).signal().put(x).signal().wait().receive(y)
}

#[maco::task(tile(r = 1, i = 8, j = 64))]
fn not_told(cta: Cta<SymmetricChannel>, #[read(r, i, j)] x: Tensor<f32, R, M, N>, #[write(r, i, j)] y: Tensor<f32, R, M, N>) {
    cta.open(&y).signal().wait().put(x).wait().receive(y)
}

#[maco::task(tile(r = 1, i = 8, j = 64))]
fn not_waited_for(cta: Cta<SymmetricChannel>, #[read(r, i, j)] x: Tensor<f32, R, M, N>, #[write(r, i, j)] y: Tensor<f32, R, M, N>) {
    cta.open(&y).signal().wait().put(x).signal().receive(y)
}

#[maco::task(tile(r = 1, i = 8, j = 64))]
fn not_opened(cta: Cta<SymmetricChannel>, #[read(r, i, j)] x: Tensor<f32, R, M, N>, #[write(r, i, j)] y: Tensor<f32, R, M, N>) {
    cta.put(x).signal().wait().receive(y)
}

#[maco::task(tile(r = 1, i = 8, j = 64))]
fn of_a_memory_channel(cta: Cta<MemoryChannel>, #[read(r, i, j)] x: Tensor<f32, R, M, N>, #[write(r, i, j)] y: Tensor<f32, R, M, N>) {
    cta.open(&y).signal().wait().put(x).signal().wait().receive(y)
}

#[maco::task(tile(r = 1, i = 8, j = 64))]
fn given_up(cta: Cta<SymmetricChannel>, #[read(r, i, j)] x: Tensor<f32, R, M, N>, #[write(r, i, j)] y: Tensor<f32, R, M, N>) {
    let _ = cta.open(&y).signal().wait().put(x);
}

#[maco::task(tile(r = 1, i = 8, j = 64))]
fn on_some_paths(
    cta: Cta<SymmetricChannel>,
    #[read(r, i, j)] x: Tensor<f32, R, M, N>,
    #[write(r, i, j)] y: Tensor<f32, R, M, N>,
    all: u32,
) {
    if all > 0 {
        cta.open(&y).signal().wait().put(x).signal().wait().receive(y);
    }
}

#[maco::megakernel]
fn marks(#[symmetric(0)] x: In<f32, M, N>, y: Out<f32, M, N>) {
    copy(x.symmetric(), y);
}

fn main() {}
