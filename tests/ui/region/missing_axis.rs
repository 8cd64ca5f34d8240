#[maco::task(tile(i = 64, j = 64))]
pub fn t(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {}

fn main() {}
