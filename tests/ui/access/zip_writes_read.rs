//! A result that is `#[read]`: the arguments are swapped.
#[maco::task(tile(i = 64, j = 64))]
fn t(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.zip(y, x, |v| v + 1.0)
}

fn main() {}
