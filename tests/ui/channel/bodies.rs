//! Bodies that are over no channel, or that do not fit one.
use maco::prelude::*;

#[maco::task(tile(r = 1, i = 8, j = 64))]
fn no_channel(cta: &mut Cta, #[read(r, i, j)] x: Tensor<f32, R, M, N>, #[write(r, i, j)] y: Tensor<f32, R, M, N>) {
    cta.put(x).signal().wait().receive(y)
}

#[maco::task(tile(r = 1, i = 8, j = 64))]
fn another_operation(cta: Cta<MemoryChannel>, #[read(r, i, j)] x: Tensor<f32, R, M, N>, #[write(r, i, j)] y: Tensor<f32, R, M, N>) {
    cta.zip(x, y, |v| v)
}

#[maco::task(tile(r = 1, i = 8, j = 8))]
fn other_axes(cta: Cta<MemoryChannel>, #[read(r, j, i)] x: Tensor<f32, R, N, M>, #[write(r, i, j)] y: Tensor<f32, R, M, N>) {
    cta.put(x).signal().wait().receive(y)
}

#[maco::task(tile(r = 1, i = 8, j = 64))]
fn read_before(cta: Cta<MemoryChannel>, #[read(r, i, j)] x: Tensor<f32, R, M, N>, #[write(r, i, j)] y: Tensor<f32, R, M, N>) {
    cta.put(y).signal().wait().receive(y)
}

#[maco::task(tile(r = 1, i = 8, j = 64))]
fn written_twice(cta: Cta<MemoryChannel>, #[write(r, i, j)] y: Tensor<f32, R, M, N>, #[read(r, i, j)] x: Tensor<f32, R, M, N>) {
    cta.put(x).signal().wait().receive(x)
}

#[maco::task(tile(r = 1, i = 8, j = 64))]
fn on_some_paths(cta: Cta<MemoryChannel>, #[read(r, i, j)] x: Tensor<f32, R, M, N>, #[write(r, i, j)] y: Tensor<f32, R, M, N>, on: u32) {
    if on == 1 {
        cta.put(x).signal().wait().receive(y);
    }
}

fn main() {}
