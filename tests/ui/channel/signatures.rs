//! Signatures of bodies over a channel.
use maco::prelude::*;

#[maco::task(tile(i = 8, j = 64))]
fn without_planes(cta: Cta<MemoryChannel>, #[read(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.put(x).signal().wait().receive(y)
}

#[maco::task(tile(r = 1, i = 8, j = 64))]
fn updates(cta: Cta<PacketChannel>, #[read(r, i, j)] x: Tensor<f32, R, M, N>, #[update(r, i, j)] y: Tensor<f32, R, M, N>) {
    cta.put(x).receive(y)
}

#[maco::task(tile(r = 1, i = 8, j = 64))]
fn two_results(
    cta: Cta<PortChannel>,
    #[read(r, i, j)] x: Tensor<f32, R, M, N>,
    #[write(r, i, j)] y: Tensor<f32, R, M, N>,
    #[write(r, i, j)] z: Tensor<f32, R, M, N>,
) {
    cta.put_with_signal(x).wait().receive(y)
}

#[maco::task(tile(r = 1, i = 8, j = 64))]
fn borrowed(cta: &mut Cta<MemoryChannel>, #[read(r, i, j)] x: Tensor<f32, R, M, N>, #[write(r, i, j)] y: Tensor<f32, R, M, N>) {
    cta.put(x).signal().wait().receive(y)
}

#[maco::helper(MemoryChannel)]
fn helper(cta: Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.put(x).signal().wait().receive(y)
}

fn main() {}
