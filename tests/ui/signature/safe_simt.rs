#[maco::task(simt, tile(i = 64))]
pub fn t(cta: &mut Cta, #[update(i)] y: Tensor<f32, M>) {}

fn main() {}
