//! Results that are written on every path, and through macros and helpers.
use maco::prelude::*;

macro_rules! doubled {
    ($cta:ident, $x:ident, $y:ident) => {
        $cta.zip($x, $y, |v| v + v)
    };
}

macro_rules! no_more_than {
    ($n:expr, $most:expr) => {
        if $n > $most {
            unreachable!()
        }
    };
}

#[maco::task(tile(i = 64))]
fn by_macro(cta: &mut Cta, #[read(i)] x: Tensor<f32, N>, #[write(i)] y: Tensor<f32, N>, n: u32) {
    debug_assert!(x.cols() == y.cols());
    no_more_than!(n, 7);
    if n > 3 {
        doubled!(cta, x, y);
        return;
    }
    doubled! { cta, x, y }
    debug_assert!(n < 4, "{n}");
}

#[maco::task(tile(i = 64))]
fn label(cta: &mut Cta, #[read(i)] x: Tensor<f32, N>, #[write(i)] y: Tensor<f32, N>, n: u32) {
    'done: {
        if n > 3 {
            cta.zip(x, y, |v| -v);
            break 'done;
        }
        for k in 0..n {
            if k == 2 {
                break;
            }
        }
        cta.zip(x, y, |v| v);
    }
}

#[maco::helper(Rows)]
fn both(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>, #[write(i, j)] z: Tensor<f32, M, N>) {
    assert!(x.rows() == y.rows());
    let y = cta.zip(x, y, |v| v);
    (y, cta.zip(y, z, |v| v))
}

#[maco::helper(Rows)]
fn rest(cta: &mut Cta, #[written(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>, twice: bool) {
    if twice {
        return cta.zip(x, y, |v| v + v);
    }
    cta.zip(x, y, |v| v)
}

#[maco::task(tile(i = 16, j = 64))]
fn by_helper(
    cta: &mut Cta,
    #[read(i, j)] x: Tensor<f32, M, N>,
    #[write(i, j)] y: Tensor<f32, M, N>,
    #[write(i, j)] z: Tensor<f32, M, N>,
    #[write(i, j)] w: Tensor<f32, M, N>,
) {
    let (_, z) = both(cta, x, y, z);
    rest(cta, z, w, true);
}

/// Behind a macro operations are asked for what they return, of results of both kinds.
#[maco::task(tile(i = 16))]
fn of_two(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[update(i, ..)] a: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    debug_assert!(x.rows() > 0);
    let cta = &mut *cta;
    cta.rows(x, (a, y), |x, (a, y)| {
        let sum = x.sum(|v| v);
        a.map(|v| v + sum);
        y.zip(&x, |v| v - sum);
    });
}

fn main() {}
