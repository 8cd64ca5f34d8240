#[maco::task(tile(i = 64, j = 64))]
pub fn turned(cta: &mut Cta, #[read(j, i)] x: Tensor<f32, N, M>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.zip(x, y, |x| x);
}

fn main() {}
