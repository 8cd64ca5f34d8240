/// Rows of one tile beside the columns of another.
#[maco::task(tile(i = 8))]
pub fn rows(cta: &mut Cta, #[read(.., i)] x: Tensor<f32, N, M>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    cta.rows(x, y, |x, y| y.zip(x, |x| x));
}

/// Rows of two lengths.
#[maco::task(tile(i = 8))]
pub fn columns(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, K>, #[read(i, ..)] a: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    cta.rows((x, a), y, |(x, a), y| y.zip((a, x), |(a, x)| a + x));
}

fn main() {}
