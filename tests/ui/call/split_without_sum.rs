use maco::prelude::*;

#[maco::task(tile(i = 64, j = 128))]
pub fn some_steps(cta: &mut Cta, #[read(i, ..)] x: Tensor<bf16, M, K>, #[read(j, ..)] w: Tensor<bf16, N, K>, #[write(i, j)] y: Tensor<bf16, M, N>) {
    let mut acc = cta.accumulator();
    for k in cta.steps(x, w) {
        if k == 7 {
            break;
        }
        cta.mma(&mut acc, x.tile(k), w.tile(k));
    }
    cta.store(acc, y);
}

#[maco::graph]
pub fn layer(x: In<bf16, M, K>, w: In<bf16, K, K>, y: Out<bf16, M, K>) {
    linear(x, w, y);
}

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, w: In<bf16, K, K>, y: Out<bf16, M, K>, z: Out<bf16, M, K>, u: Out<bf16, M, K>) {
    some_steps(x, w, y).split_k(2);
    add(x, y, z).split_k(2);
    layer(x, w, u).split_k(2);
}

fn main() {}
