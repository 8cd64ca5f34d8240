//! Rows of a result that is `#[read]`, one of two; and of an input that is `#[write]`.
#[maco::task(tile(i = 4))]
fn a(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    cta.rows(x, (y, x), |_, (y, z)| {
        y.set(|_| 0.0);
        z.set(|_| 1.0)
    })
}

#[maco::task(tile(i = 4))]
fn b(cta: &mut Cta, #[write(i, ..)] x: Tensor<f32, M, N>, #[update(i, ..)] y: Tensor<f32, M, N>) {
    cta.rows(x, y, |_, y| y.set(|_| 0.0))
}

fn main() {}
