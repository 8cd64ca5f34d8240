#[maco::task(tile(i = 64))]
pub fn t(cta: &mut Cta, #[write(i + -1..=1)] y: Tensor<f32, M>) {}

fn main() {}
