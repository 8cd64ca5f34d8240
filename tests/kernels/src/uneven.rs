//! Calls that are drained, since data decides what their tasks cost, between calls that are not.
use maco::prelude::*;

/// y = the number of steps, v / 2 or 3 v + 1, that x needs to come to 1.
#[maco::task(tile(i = 4 | 32, j = 8 | 64))]
pub fn steps(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.zip(x, y, |v| {
        let (mut v, mut steps) = (v as u32, 0);
        while v > 1 {
            v = if v.is_multiple_of(2) { v / 2 } else { v.wrapping_mul(3).wrapping_add(1) };
            steps += 1;
        }
        steps as f32
    })
}

/// Edges into a drain, out of it, over it, and between two calls of one; the last list entry is a drain for some.
#[maco::megakernel]
pub fn counted(x: In<f32, M, N>, by: f32, y: Out<f32, M, N>, z: Out<f32, M, N>) {
    let large = temp::<f32, M, N>();
    copy(x, large);
    scale(large, by);
    let once = temp::<f32, M, N>();
    steps(large, once).tile(4, 8).drain();
    scale(large, by);
    let twice = temp::<f32, M, N>();
    steps(once, twice).drain();
    let sum = temp::<f32, M, N>();
    add(large, twice, sum).drain();
    add(sum, once, y);
    steps(y, z).tile(4, 8).drain();
}

/// As the attribute says, four workers, whose tasks two scheduler CTAs push.
#[maco::megakernel(workers = 4, schedulers = 2)]
pub fn served(x: In<f32, M, N>, by: f32, y: Out<f32, M, N>) {
    let large = temp::<f32, M, N>();
    copy(x, large).tile(4, 1024);
    scale(large, by).tile(4, 1024);
    add(large, x, y).tile(4, 1024);
}

/// GEMMs that are drained, before and behind element-wise tasks that are not.
#[maco::megakernel]
pub fn gemms(x: In<bf16, M, K>, w: [In<bf16, K, K>; 2], by: f32, y: Out<bf16, M, K>) {
    let a = temp::<bf16, M, K>();
    linear(x, w[0], a).drain();
    scale(a, by);
    let b = temp::<bf16, M, K>();
    linear(a, w[1], b).tile(64, 128).drain();
    let c = temp::<bf16, M, K>();
    linear(b, w[0], c);
    add(a, c, y).drain();
}
