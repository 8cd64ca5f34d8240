#[maco::task(tile(i = 64), E in [bf16, f64])]
pub fn t(cta: &mut Cta, #[update(i)] x: Tensor<E, M>) {}

fn main() {}
