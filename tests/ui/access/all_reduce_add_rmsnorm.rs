//! The norm of an all-reduce: of what nothing has written, and into what is only read.
#[maco::task(tile(i = 1))]
fn a(
    cta: &mut Cta,
    #[write(i, ..)] x: Tensor<f32, M, N>,
    #[read(i, ..)] r: Tensor<f32, M, N>,
    #[read(..)] w: Tensor<f32, N>,
    #[write(i, ..)] s: Tensor<f32, M, N>,
    #[write(i, ..)] y: Tensor<f32, M, N>,
) {
    cta.all_reduce_add_rmsnorm(x, r, w, s, y, 1e-5);
}

#[maco::task(tile(i = 1))]
fn b(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<f32, M, N>,
    #[read(i, ..)] r: Tensor<f32, M, N>,
    #[read(..)] w: Tensor<f32, N>,
    #[write(i, ..)] s: Tensor<f32, M, N>,
    #[read(i, ..)] y: Tensor<f32, M, N>,
) {
    cta.all_reduce_add_rmsnorm(x, r, w, s, y, 1e-5);
}

fn main() {}
