#[maco::task(tile(i = 64, j = 64), where M == N)]
pub fn square(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.zip(x, y, |v| v)
}

#[maco::megakernel]
pub fn k(x: In<f32, M, N>, y: Out<f32, M, N>) {
    square(x, y);
}

fn main() {}
