//! In place of what every tile reads.
#[maco::task(tile(i = 4))]
fn t(cta: &mut Cta, #[read(..)] b: Tensor<f32, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    cta.map(b, |v| v + 1.0);
    cta.zip(b, y, |v| v)
}

fn main() {}
