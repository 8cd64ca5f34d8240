#[maco::task(tiles(i = 64), E on [bf16])]
pub fn t(cta: &mut Cta, #[read(i)] x: Tensor<E, M>, #[write(i)] y: Tensor<E, M>) {}

fn main() {}
