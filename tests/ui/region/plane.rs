#[maco::task(tile(h = 2, i = 64))]
pub fn t(cta: &mut Cta, #[update(h, i, ..)] y: Tensor<f32, H, M, N>) {}

fn main() {}
