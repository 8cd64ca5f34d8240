#[maco::task(tile(i = 64))]
pub fn t(cta: &mut Cta, x: Tensor<f32, M>, #[write(i)] y: Tensor<f32, M>) {}

fn main() {}
