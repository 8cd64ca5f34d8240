//! Elements that stay as they are, of a result that is `#[write]`.
#[maco::task(tile(i = 4))]
fn t(cta: &mut Cta, #[read(i, ..)] ids: Tensor<u32, M, K>, #[read(i, ..)] x: Tensor<f32, M, K>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    cta.scatter(ids, x, y)
}

fn main() {}
