//! A `#[write]` parameter that was handed to an operation: what that returned is written again.
#[maco::task(tile(i = 4, j = 4))]
fn t(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.zip(x, y, |v| v);
    cta.zip(x, y, |v| v + 1.0)
}

fn main() {}
