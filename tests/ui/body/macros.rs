//! Macros of a body that name a result and do not write it, give its name to something else, or return before it is written.
use maco::prelude::*;

#[maco::task(tile(i = 16, j = 64))]
fn sizes(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[update(i, j)] z: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    debug_assert_eq!(x.rows(), y.rows());
    cta.zip((x, z), z, |(x, z)| x + z);
}

#[maco::task(tile(i = 16, j = 64))]
fn pattern(cta: &mut Cta, #[update(i, j)] z: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    let wide = matches!(y.cols(), 64..);
    cta.map(z, move |v| if wide { v } else { 0.0 });
}

macro_rules! ignore {
    ($y:ident) => {
        let _ = $y;
    };
    ($cta:ident, $y:ident) => {
        let _ = (&$cta, $y);
    };
}

#[maco::task(tile(i = 64))]
fn named(cta: &mut Cta, #[update(i)] x: Tensor<f32, N>, #[write(i)] y: Tensor<f32, N>) {
    cta.map(x, |v| v + 1.0);
    ignore!(y);
}

macro_rules! size {
    ($cta:ident, $y:ident) => {{
        let _ = &$cta;
        $y.rows()
    }};
}

#[maco::task(tile(i = 64))]
fn handed(cta: &mut Cta, #[update(i)] x: Tensor<f32, N>, #[write(i)] y: Tensor<f32, N>) {
    cta.map(x, |v| v + 1.0);
    size!(cta, y);
}

macro_rules! rename {
    ($y:ident, $z:ident) => {
        let $y = $z;
    };
}

#[maco::task(tile(i = 64))]
fn renamed(cta: &mut Cta, #[read(i)] x: Tensor<f32, N>, #[update(i)] z: Tensor<f32, N>, #[write(i)] y: Tensor<f32, N>) {
    rename!(y, z);
    cta.zip(x, y, |v| v);
}

macro_rules! stop_if {
    ($when:expr) => {
        if $when {
            return;
        }
    };
}

#[maco::task(tile(i = 64))]
fn returns(cta: &mut Cta, #[read(i)] x: Tensor<f32, N>, #[write(i)] y: Tensor<f32, N>, n: u32) {
    stop_if!(n > 3);
    cta.zip(x, y, |v| v);
}

fn main() {}
