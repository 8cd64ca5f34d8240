#[maco::task(tile(i = 64, j = 64))]
pub fn not_turned(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.transpose(x, y);
}

fn main() {}
