#[maco::task(tile(i = 64))]
pub fn t(
    cta: &mut Cta,
    #[read(i)] a: Tensor<f32, M>,
    #[read(i)] b: Tensor<f32, M>,
    #[read(i)] c: Tensor<f32, M>,
    #[read(i)] d: Tensor<f32, M>,
    #[read(i)] e: Tensor<f32, M>,
    #[read(i)] f: Tensor<f32, M>,
    #[write(i)] y: Tensor<f32, M>,
) {}

fn main() {}
