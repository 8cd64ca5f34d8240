#[maco::task(tile(i = 64))]
pub fn double(cta: &mut Cta, #[read(i)] x: Tensor<f32, M>, #[write(i)] y: Tensor<f32, M>) {
    cta.zip(x, z, |v| 2 * v)
}

fn main() {}
