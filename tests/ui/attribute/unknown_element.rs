#[maco::task(tile(i = 64))]
pub fn t(cta: &mut Cta, #[update(i)] x: Tensor<E, M>) {}

fn main() {}
