use maco::prelude::*;

#[maco::task(tile(i = 64, j = 128), few = skinny_linear, E in [bf16])]
pub fn fewer_elements(cta: &mut Cta, #[read(i, ..)] x: Tensor<E, M, K>, #[read(j, ..)] w: Tensor<E, N, K>, #[write(i, j)] y: Tensor<E, M, N>) {
    let mut acc = cta.accumulator();
    for k in cta.steps(x, w) {
        cta.mma(&mut acc, x.tile(k), w.tile(k));
    }
    cta.store(acc, y);
}

#[maco::task(tile(i = 64, j = 128), few = matmul, E in [bf16, f16])]
pub fn not_streamed(cta: &mut Cta, #[read(i, ..)] x: Tensor<E, M, K>, #[read(j, ..)] w: Tensor<E, N, K>, #[write(i, j)] y: Tensor<E, M, N>) {
    let mut acc = cta.accumulator();
    for k in cta.steps(x, w) {
        cta.mma(&mut acc, x.tile(k), w.tile(k));
    }
    cta.store(acc, y);
}

#[maco::task(tile(i = 8, j = 8 | 16), few = skinny_linear, E in [bf16, f16])]
pub fn same_tiles(cta: &mut Cta, #[read(i, ..)] x: Tensor<E, M, K>, #[read(j, ..)] w: Tensor<E, N, K>, #[write(i, j)] y: Tensor<E, M, N>) {
    cta.gemv(x, w, y);
}

#[maco::task(elementwise, few = relu)]
pub fn twice(v: f32) -> f32 {
    v + v
}

#[maco::task(simt, tile(i = 64), few = copy)]
pub unsafe fn by_threads(cta: &mut Cta, #[write(i)] y: Tensor<f32, N>) {
    let _ = (cta, y);
}

fn main() {}
