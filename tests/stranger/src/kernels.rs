//! A task of this package and one of another crate.
use library::double;

/// y = x + 1.
#[maco::task(tile(i = 64, j = 64))]
pub fn raise(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.zip(x, y, |v| v + 1.0)
}

/// y = 2 (x + 1).
#[maco::megakernel]
pub fn raised_and_doubled(x: In<f32, M, N>, y: Out<f32, M, N>) {
    let h = temp::<f32, M, N>();
    raise(x, h);
    double(h, y);
}
