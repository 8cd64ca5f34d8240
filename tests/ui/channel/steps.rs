//! Steps of a channel in another order, left out, or of another kind of channel.
use maco::prelude::*;

#[maco::task(tile(r = 1, i = 8, j = 64))]
fn without_signal(cta: Cta<MemoryChannel>, #[read(r, i, j)] x: Tensor<f32, R, M, N>, #[write(r, i, j)] y: Tensor<f32, R, M, N>) {
    cta.put(x).wait().receive(y)
}

#[maco::task(tile(r = 1, i = 8, j = 64))]
fn without_wait(cta: Cta<MemoryChannel>, #[read(r, i, j)] x: Tensor<f32, R, M, N>, #[write(r, i, j)] y: Tensor<f32, R, M, N>) {
    cta.put(x).signal().receive(y)
}

#[maco::task(tile(r = 1, i = 8, j = 64))]
fn two_signals(cta: Cta<MemoryChannel>, #[read(r, i, j)] x: Tensor<f32, R, M, N>, #[write(r, i, j)] y: Tensor<f32, R, M, N>) {
    cta.put(x).signal().signal().wait().receive(y)
}

#[maco::task(tile(r = 1, i = 8, j = 64))]
fn got_what_was_put(cta: Cta<MemoryChannel>, #[read(r, i, j)] x: Tensor<f32, R, M, N>, #[write(r, i, j)] y: Tensor<f32, R, M, N>) {
    cta.put(x).signal().wait().get(y)
}

#[maco::task(tile(r = 1, i = 8, j = 64))]
fn received_what_was_offered(cta: Cta<MemoryChannel>, #[read(r, i, j)] x: Tensor<f32, R, M, N>, #[write(r, i, j)] y: Tensor<f32, R, M, N>) {
    cta.offer(x).signal().wait().receive(y)
}

#[maco::task(tile(r = 1, i = 8, j = 64))]
fn flushed_memory(cta: Cta<MemoryChannel>, #[read(r, i, j)] x: Tensor<f32, R, M, N>, #[write(r, i, j)] y: Tensor<f32, R, M, N>) {
    cta.put(x).flush().signal().wait().receive(y)
}

#[maco::task(tile(r = 1, i = 8, j = 64))]
fn packets_with_a_signal(cta: Cta<PacketChannel>, #[read(r, i, j)] x: Tensor<f32, R, M, N>, #[write(r, i, j)] y: Tensor<f32, R, M, N>) {
    cta.put(x).signal().wait().receive(y)
}

#[maco::task(tile(r = 1, i = 8, j = 64))]
fn offered_to_a_proxy(cta: Cta<PortChannel>, #[read(r, i, j)] x: Tensor<f32, R, M, N>, #[write(r, i, j)] y: Tensor<f32, R, M, N>) {
    cta.offer(x).signal().wait().get(y)
}

#[maco::task(tile(r = 1, i = 8, j = 64))]
fn two_puts(cta: Cta<MemoryChannel>, #[read(r, i, j)] x: Tensor<f32, R, M, N>, #[write(r, i, j)] y: Tensor<f32, R, M, N>) {
    let first = cta.put(x).signal();
    let second = cta.put(x).signal();
    first.wait().receive(y)
}

fn main() {}
