//! A safe body that never ends for some of its values, in front of another task.
use maco::prelude::*;

#[maco::task(tile(i = 64))]
pub fn forever(cta: &mut Cta, #[read(i)] x: Tensor<f32, M>, #[write(i)] y: Tensor<f32, M>) {
    cta.zip(x, y, |v| {
        let mut w = v;
        while w < 2.0 {
            w = (w * 0.5).min(1.0);
        }
        w
    })
}

#[maco::task(tile(i = 64))]
pub fn plus(cta: &mut Cta, #[read(i)] x: Tensor<f32, M>, #[write(i)] y: Tensor<f32, M>) {
    cta.zip(x, y, |v| v + 1.0)
}

#[maco::megakernel]
pub fn hang(x: In<f32, M>, y: Out<f32, M>) {
    let t = temp::<f32, M>();
    forever(x, t);
    plus(t, y);
}

#[maco::megakernel]
pub fn fine(x: In<f32, M>, y: Out<f32, M>) {
    plus(x, y);
}
