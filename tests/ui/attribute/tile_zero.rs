#[maco::task(tile(i = 0 | 64))]
pub fn t(cta: &mut Cta, #[update(i)] x: Tensor<f32, M>) {}

fn main() {}
