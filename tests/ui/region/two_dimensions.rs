#[maco::task(tile(i = 64))]
pub fn t(cta: &mut Cta, #[read(i)] x: Tensor<f32, M>, #[write(i)] y: Tensor<f32, N>) {}

fn main() {}
