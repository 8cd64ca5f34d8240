//! Blocks that are left by their label before a result is written, and what may not be there.
use maco::prelude::*;

#[maco::task(tile(i = 64))]
fn label(cta: &mut Cta, #[read(i)] x: Tensor<f32, N>, #[write(i)] y: Tensor<f32, N>, n: u32) {
    'done: {
        if n > 3 {
            break 'done;
        }
        cta.zip(x, y, |v| v);
    }
}

#[maco::task(tile(i = 64))]
fn value(cta: &mut Cta, #[read(i)] x: Tensor<f32, N>, #[write(i)] y: Tensor<f32, N>, n: u32) {
    let _k = 'out: {
        if n == 0 {
            break 'out 0;
        }
        cta.zip(x, y, |v| v);
        1
    };
}

#[maco::task(tile(i = 64))]
fn from_a_loop(cta: &mut Cta, #[read(i)] x: Tensor<f32, N>, #[write(i)] y: Tensor<f32, N>, n: u32) {
    'out: {
        for k in 0..n {
            let 1.. = k else { break 'out };
        }
        cta.zip(x, y, |v| v);
    }
}

macro_rules! leave {
    ($label:lifetime) => {
        break $label
    };
}

#[maco::task(tile(i = 64))]
fn by_macro(cta: &mut Cta, #[read(i)] x: Tensor<f32, N>, #[write(i)] y: Tensor<f32, N>, n: u32) {
    'out: {
        if n == 0 {
            leave!('out);
        }
        cta.zip(x, y, |v| v);
    }
}

#[maco::task(tile(i = 64))]
fn configured(cta: &mut Cta, #[read(i)] x: Tensor<f32, N>, #[write(i)] y: Tensor<f32, N>) {
    #[cfg(target_os = "none")]
    cta.zip(x, y, |v| v);
}

#[maco::task(tile(i = 64))]
fn range(cta: &mut Cta, #[read(i)] x: Tensor<f32, N>, #[write(i)] y: Tensor<f32, N>, n: u32) {
    for _ in 0..if n > 3 { return } else { n } {}
    cta.zip(x, y, |v| v);
}

fn main() {}
