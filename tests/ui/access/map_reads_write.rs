//! In place of what nothing has written.
#[maco::task(tile(i = 4, j = 4))]
fn t(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.map(y, |v| v + 1.0);
    cta.zip(x, y, |v| v)
}

fn main() {}
