#[maco::task(tile(i = 8))]
pub fn double(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, {2 * N}>) {
    cta.generate(x, y, |x, i, j| x.at(i, j / 2))
}

#[maco::megakernel]
pub fn k(x: In<f32, M, N>, y: Out<f32, M, {N + 1}>) {
    double(x, y);
}

fn main() {}
