fn reference(_: maco::Tile<f32, 64, 64>) {}

#[maco::task(tile(i = 64), boxes(x = 64))]
pub fn t(cta: &mut Cta, #[update(i)] x: Tensor<f32, M>) {}

#[maco::task(simt, tile(i = 64), boxes(x = 64))]
pub unsafe fn s(cta: &mut Cta, #[update(i)] x: Tensor<f32, M>) {}

#[maco::task(simt, shared = 1024, tile(i = 64), boxes(x = 60, y = 64 swizzle 48))]
pub unsafe fn b(cta: &mut Cta, #[update(i)] x: Tensor<f32, M>) {}

#[maco::task(simt, shared = 1024, tile(i = 64, j = 64), boxes(x = 64), cpu = reference)]
pub unsafe fn r(cta: &mut Cta, #[update(i, j)] x: Tensor<f32, M, N>) {}

#[maco::task(simt, shared = 1024, tile(i = 64), boxes(x = 64, x = 8))]
pub unsafe fn twice(cta: &mut Cta, #[update(i)] x: Tensor<f32, M>) {}

#[maco::task(simt, shared = 1024, tile(i = 64), boxes(x = 64 by 8))]
pub unsafe fn word(cta: &mut Cta, #[update(i)] x: Tensor<f32, M>) {}

fn main() {}
