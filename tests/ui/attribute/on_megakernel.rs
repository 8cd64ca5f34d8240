use maco::prelude::*;

#[maco::megakernel(tile(i = 64), E in [bf16])]
pub fn k(x: In<bf16, M>, y: Out<bf16, M>) {
    tasks(x, y);
}

#[maco::task(tile(i = 64), E in [bf16])]
pub fn tasks(cta: &mut Cta, #[read(i)] x: Tensor<E, M>, #[write(i)] y: Tensor<E, M>) {
    cta.zip(x, y, |v| v)
}

fn main() {}
