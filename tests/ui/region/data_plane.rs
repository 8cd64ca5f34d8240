#[maco::task(tile(g = 4, j = 64))]
pub fn t(cta: &mut Cta, #[read(g)] ids: Tensor<u32, G>, #[read(ids[g], j, ..)] w: Tensor<f32, X, N, K>, #[write(g, j)] y: Tensor<f32, G, N>) {}

fn main() {}
