//! Rows that indices name, from what nothing has written.
#[maco::task(tile(i = 4))]
fn t(cta: &mut Cta, #[read(i)] ids: Tensor<u32, M>, #[write(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    cta.take(ids, x, y);
}

fn main() {}
