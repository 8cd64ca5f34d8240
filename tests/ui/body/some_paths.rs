//! Results that a body writes on some paths only, or hands to a function that need not write them.
use maco::prelude::*;

#[maco::task(tile(i = 4))]
fn condition(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>, flag: u32) {
    if flag == 1 {
        cta.zip(x, y, |v| v);
    }
}

#[maco::task(tile(i = 4))]
fn leaves(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>, flag: u32) {
    if flag == 1 {
        return;
    }
    cta.zip(x, y, |v| v);
}

#[maco::task(tile(i = 4))]
fn forgotten(cta: &mut Cta, #[update(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    cta.map(x, |v| v);
    let _z = y;
}

fn ignore<T>(_: T) {}

#[maco::task(tile(i = 4))]
fn dropped(cta: &mut Cta, #[update(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    cta.map(x, |v| v);
    ignore(y);
}

#[maco::helper(Rows)]
fn half(cta: &mut Cta, #[write(i, ..)] y: Tensor<f32, M, N>, #[update(i, ..)] x: Tensor<f32, M, N>) {
    cta.map(x, |v| v);
}

fn main() {}
