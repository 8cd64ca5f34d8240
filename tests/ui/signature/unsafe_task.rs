#[maco::task(tile(i = 64))]
pub unsafe fn t(cta: &mut Cta, #[update(i)] y: Tensor<f32, M>) {}

fn main() {}
