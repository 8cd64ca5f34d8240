/// One number for each row.
#[maco::task(tile(i = 64, j = 64))]
pub fn scaled(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[read(i)] by: Tensor<f32, M>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.zip((x, by), y, |(x, by)| x * by);
}

fn main() {}
