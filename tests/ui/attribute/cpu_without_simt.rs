#[maco::task(tile(i = 64), cpu = reference)]
pub fn t(cta: &mut Cta, #[update(i)] x: Tensor<f32, M>) {}

fn main() {}
