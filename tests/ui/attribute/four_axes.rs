#[maco::task(tile(a = 1, b = 1, i = 64, j = 64))]
pub fn t(cta: &mut Cta, #[update(a, i, j)] x: Tensor<f32, A, M, N>) {}

fn main() {}
