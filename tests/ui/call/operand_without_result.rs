use maco::prelude::*;

#[maco::task(tile(i = 64, j = 128), E in [bf16])]
pub fn two(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<E, M, K>,
    #[read(j, ..)] w: Tensor<E, N, K>,
    #[write(i, j)] y: Tensor<E, M, N>,
    #[write(i, j)] z: Tensor<E, M, N>,
) {
    let mut acc = cta.accumulator();
    for k in cta.steps(x, w) {
        cta.mma(&mut acc, x.tile(k), w.tile(k));
    }
    cta.store(acc, y);
    let mut acc = cta.accumulator();
    for k in cta.steps(x, w) {
        cta.mma(&mut acc, x.tile(k), w.tile(k));
    }
    cta.store(acc, z);
}

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, w: In<bf16, N, K>, r: In<bf16, M, N>, y: Out<bf16, M, N>, z: Out<bf16, M, N>, c: Out<bf16, M, N>) {
    two(x, w, y, z).then(add(r));
    copy(y, c).then(add(r));
}

fn main() {}
