#[maco::task(tile(i = 64))]
pub fn t(&self, #[update(i)] y: Tensor<f32, M>) {}

fn main() {}
