#[maco::task(tile(i = 64))]
pub fn t(cta: &mut Cta, #[read(ids[i])] x: Tensor<f32, N>, #[write(i)] y: Tensor<f32, M>) {}

fn main() {}
