#[maco::task(tile(i = 64))]
pub fn t<T>(cta: &mut Cta, #[update(i)] y: Tensor<f32, M>)
where
    T: Copy,
 {}

fn main() {}
