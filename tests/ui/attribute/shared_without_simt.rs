#[maco::task(tile(i = 64), shared = 1024)]
pub fn t(cta: &mut Cta, #[update(i)] x: Tensor<f32, M>) {}

#[maco::task(elementwise, shared = 1024)]
pub fn e(v: f32) -> f32 {
    v
}

#[maco::task(simt, prologue, tile(i = 64), shared = 1024)]
pub unsafe fn p(cta: &mut Cta, #[update(i)] x: Tensor<f32, M>) {}

fn main() {}
