#[maco::task(tile(i = 64))]
pub fn t(cta: &mut Cta, #[update(i)] y: Tensor<f32, M>, #[read(i)] by: f32) {}

fn main() {}
