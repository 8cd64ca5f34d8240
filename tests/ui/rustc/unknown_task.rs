#[maco::task(tile(i = 64))]
pub fn double(cta: &mut Cta, #[read(i)] x: Tensor<f32, M>, #[write(i)] y: Tensor<f32, M>) {
    cta.zip(x, y, |v| 2.0 * v)
}

#[maco::megakernel]
pub fn k(x: In<f32, M>, y: Out<f32, M>) {
    dubble(x, y);
}

fn main() {}
