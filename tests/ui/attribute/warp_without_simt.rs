#[maco::task(tile(i = 64), warp)]
pub fn t(cta: &mut Cta, #[update(i)] x: Tensor<f32, M>) {}

#[maco::task(elementwise, warp)]
pub fn e(v: f32) -> f32 {
    v
}

#[maco::task(simt, warp, tile(i = 64), shared = 1024)]
pub unsafe fn p(cta: &mut Cta, #[update(i)] x: Tensor<f32, M>) {}

fn main() {}
