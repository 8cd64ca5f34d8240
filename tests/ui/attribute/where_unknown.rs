#[maco::task(tile(i = 64), where M == Q)]
pub fn t(cta: &mut Cta, #[update(i)] x: Tensor<f32, M>) {}

fn main() {}
