#[maco::task(tile(i = 64), tile(i = 128))]
pub fn t(cta: &mut Cta, #[update(i)] x: Tensor<f32, M>) {}

fn main() {}
