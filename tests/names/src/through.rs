//! MACO through a crate that passes it on, by a name of this file.
use facade::gpu as maco_of_facade;
use maco_of_facade::prelude::*;

const LAYERS: usize = 2;

/// y = x - 1
#[facade::gpu::task(crate = facade::gpu, tile(i = 64))]
pub fn lower(cta: &mut Cta, #[read(i)] x: Tensor<f32, M>, #[write(i)] y: Tensor<f32, M>) {
    cta.zip(x, y, |v| v - 1.0)
}

/// y = x - 1 - 1
#[maco_of_facade::megakernel(crate = maco_of_facade)]
pub fn lower_twice(x: [In<f32, M>; LAYERS], y: [Out<f32, M>; LAYERS]) {
    for layer in 0..LAYERS {
        let h = temp::<f32, M>();
        lower(x[layer], h);
        lower(h, y[layer]);
    }
}

maco_of_facade::task_set! { pub set: lower, relu<f32> }
