#[maco::task(simt, tile(i = 64), shared = 0)]
pub unsafe fn none(cta: &mut Cta, #[update(i)] x: Tensor<f32, M>) {}

#[maco::task(simt, tile(i = 64), shared = 196609)]
pub unsafe fn much(cta: &mut Cta, #[update(i)] x: Tensor<f32, M>) {}

fn main() {}
