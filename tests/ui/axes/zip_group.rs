#[maco::task(tile(i = 1, j = 64))]
pub fn grouped(cta: &mut Cta, #[read(i / 4, j)] x: Tensor<f32, { M / 4 }, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.zip(x, y, |x| x);
}

fn main() {}
