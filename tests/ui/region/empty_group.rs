const G: usize = 0;

#[maco::task(tile(i = 64))]
pub fn t(cta: &mut Cta, #[read(i / G)] x: Tensor<f32, N>, #[write(i)] y: Tensor<f32, M>) {
    let _ = (cta, x, y);
}

fn main() {}
