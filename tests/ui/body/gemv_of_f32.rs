#[maco::task(tile(i = 8, j = 16))]
pub fn t(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, K>, #[read(j, ..)] w: Tensor<f32, N, K>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.gemv(x, w, y);
}

fn main() {}
