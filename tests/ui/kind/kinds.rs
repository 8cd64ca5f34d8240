//! Kinds that are none, that do not go with how `cta` is taken, and operations that a kind does not have.
use maco::prelude::*;

#[maco::task(tile(i = 4))]
fn unknown(cta: &mut Cta<Row>, #[update(i, ..)] x: Tensor<f32, M, N>) {
    cta.map(x, |v| v);
}

#[maco::task(tile(i = 4))]
fn borrowed(cta: &mut Cta<Rows>, #[update(i, ..)] x: Tensor<f32, M, N>) {
    cta.map(x, |v| v);
}

#[maco::task(tile(i = 4))]
fn taken(cta: Cta, #[update(i, ..)] x: Tensor<f32, M, N>) {
    cta.map(x, |v| v);
}

#[maco::helper(Row)]
fn no_kind(cta: &mut Cta, #[update(i, ..)] x: Tensor<f32, M, N>) {
    cta.map(x, |v| v);
}

#[maco::helper]
fn nothing_said(cta: &mut Cta, #[update(i, ..)] x: Tensor<f32, M, N>) {
    cta.map(x, |v| v);
}

#[maco::helper(Rows)]
fn dimension(cta: &mut Cta, #[update(i, ..)] x: Tensor<f32, M, { 2 * N }>) -> u32 {
    cta.map(x, |v| v);
}

fn main() {}
