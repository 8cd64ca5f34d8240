#[maco::task(tile(i = 64))]
pub fn t(cta: &mut Cta, #[read(i, k)] x: Tensor<f32, M, K>, #[write(i, ..)] y: Tensor<f32, M, K>) {}

fn main() {}
