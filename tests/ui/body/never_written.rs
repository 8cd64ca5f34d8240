//! Results that a body writes nowhere: not named, named for its size alone, and one of two.
#[maco::task(tile(i = 4))]
fn a(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {}

#[maco::task(tile(i = 4))]
fn b(cta: &mut Cta, #[update(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    if y.rows() > 1 {
        cta.map(x, |v| v + 1.0);
    }
}

#[maco::task(tile(i = 4))]
fn c(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>, #[write(i, ..)] z: Tensor<f32, M, N>) {
    cta.zip(x, y, |v| v)
}

fn main() {}
