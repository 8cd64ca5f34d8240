#[maco::task(tile(i = 64), prologue)]
pub fn t(cta: &mut Cta, #[update(i)] x: Tensor<f32, M>) {}

fn main() {}
