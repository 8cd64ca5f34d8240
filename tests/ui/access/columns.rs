//! Sums of columns into what is `#[read]`.
#[maco::task(tile(j = 64))]
fn t(cta: &mut Cta, #[read(.., j)] x: Tensor<f32, M, N>, #[read(j)] y: Tensor<f32, N>, #[write(.., j)] z: Tensor<f32, M, N>) {
    cta.columns(x, y, 0.0, |v| v, |a, b| a + b, |v| v);
    cta.zip(x, z, |v| v)
}

fn main() {}
