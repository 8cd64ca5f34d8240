#[maco::task(tile(i = 64))]
pub fn t(cta: &mut Cta, #[read(..)] ids: Tensor<u32, M>, #[unsafe(write(ids[i]))] y: Tensor<f32, N>) {}

fn main() {}
