#[maco::task(tile(i = 64), where M == N)]
pub fn t(cta: &mut Cta, #[read(i, i)] x: Tensor<f32, M, N>, #[write(i, i)] y: Tensor<f32, M, N>) {}

fn main() {}
