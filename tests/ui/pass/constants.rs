//! Bodies that name constants, statics of numbers, functions and what they hold themselves.
use maco::math;

const FACTOR: f32 = 0.5;
static TABLE: [f32; 4] = [1.0, 2.0, 3.0, 4.0];
mod weights {
    #[derive(Clone, Copy)]
    pub struct Pair {
        pub a: f32,
        pub b: f32,
    }
    pub const PAIR: Pair = Pair { a: 1.0, b: 2.0 };
}
trait Limit {
    const LIMIT: f32;
}
impl Limit for f32 {
    const LIMIT: f32 = 6.0;
}

#[maco::task(tile(i = 16))]
pub fn all(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>, by: f32, n: u32) {
    const OWN: [f32; 2] = [0.25, 4.0];
    let scale = by * FACTOR + TABLE[1] + OWN[0];
    let one = move |v: f32| v * scale;
    let y = cta.zip(x, y, one);
    let y = cta.map(y, |v| math::max(v, <f32 as Limit>::LIMIT) + TABLE.iter().sum::<f32>() + weights::PAIR.a * by);
    let cols = x.cols();
    for k in 0..n {
        cta.map(y, |v| {
            const INNER: [f32; 1] = [1.0];
            v + k as f32 + cols as f32 + INNER[0] + weights::PAIR.b
        });
    }
}

fn main() {}
