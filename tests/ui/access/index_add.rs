//! Sums into what holds nothing yet.
#[maco::task(tile(j = 64))]
fn t(cta: &mut Cta, #[read(..)] ids: Tensor<u32, M>, #[read(.., j)] x: Tensor<f32, M, N>, #[write(.., j)] y: Tensor<f32, V, N>) {
    cta.index_add(ids, x, y)
}

fn main() {}
