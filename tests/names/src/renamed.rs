//! MACO under another name in the manifest; kernels with raw names and names of other letters, beside constants and statics that are called like what MACO's
//! macros make.
#![allow(non_upper_case_globals)]

use m::tasks::copy;

pub const M: usize = 3;
pub const launch: usize = 1;
pub const ring: usize = 1;
pub const consumer: usize = 1;
pub const coord: usize = 1;
pub const axis: usize = 1;
pub static role: usize = 1;
pub static slot: usize = 1;
pub static value: usize = 1;
pub static simt: usize = 1;

/// y = x + by
#[m::task(crate = m, tile(r#in = 64, größe = 64))]
pub fn r#match(
    cta: &mut Cta,
    #[read(r#in, größe)] r#type: Tensor<f32, M, r#where>,
    #[write(r#in, größe)] 出: Tensor<f32, M, r#where>,
    r#as: f32,
) {
    cta.zip(r#type, 出, |v| v + r#as)
}

/// 2 v
#[m::task(crate = m, elementwise)]
pub fn doppelt(v: f32) -> f32 {
    2.0 * v
}

/// y = 2 (x + 1)
#[m::megakernel(crate = m)]
pub fn größer(r#type: In<f32, M, r#where>, 出: Out<f32, M, r#where>) {
    let r#loop = temp::<f32, M, r#where>();
    r#match(r#type, r#loop, 1.0);
    doppelt(r#loop, 出);
}

/// y = x + 3
#[m::megakernel(crate = m)]
pub fn r#do(x: In<f32, M, N>, y: Out<f32, M, N>) {
    r#match(x, y, 3.0);
}

m::task_set! { pub set: r#match, doppelt, copy<f32> }
