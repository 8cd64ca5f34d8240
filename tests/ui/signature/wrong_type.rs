#[maco::task(tile(i = 64))]
pub fn t(cta: &mut Cta, #[update(i)] y: Tensor<f32, M>, n: usize, z: In<f32, M>) {}

fn main() {}
