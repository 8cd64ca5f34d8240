#[maco::task(tile(i = 64))]
pub fn t(cta: &mut Cta, #[read(i)] y: Tensor<f32, M>) {}

fn main() {}
