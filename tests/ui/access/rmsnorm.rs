//! The norm of rows that nothing has written, and into what is only read.
#[maco::task(tile(i = 4))]
fn a(cta: &mut Cta, #[write(i, ..)] x: Tensor<f32, M, N>, #[read(..)] w: Tensor<f32, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    cta.rmsnorm(x, w, y, 1e-5);
}

#[maco::task(tile(i = 4))]
fn b(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<f32, M, N>,
    #[read(..)] w: Tensor<f32, N>,
    #[read(i, ..)] y: Tensor<f32, M, N>,
    #[write(i, ..)] z: Tensor<f32, M, N>,
) {
    cta.zip(x, z, |v| v);
    cta.rmsnorm(x, w, y, 1e-5);
}

fn main() {}
