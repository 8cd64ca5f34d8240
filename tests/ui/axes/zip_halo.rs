#[maco::task(tile(i = 64, j = 64))]
pub fn shifted(cta: &mut Cta, #[read(i + -1..=1, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.zip(x, y, |x| x);
}

fn main() {}
