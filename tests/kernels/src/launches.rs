//! What one launch hands to the next.

/// y = 5 x + 1, modulo 2³².
#[maco::task(tile(i = 16, j = 1024))]
pub fn successor(cta: &mut Cta, #[read(i, j)] x: Tensor<u32, M, N>, #[write(i, j)] y: Tensor<u32, M, N>) {
    cta.zip(x, y, |v| v.wrapping_mul(5).wrapping_add(1))
}

/// One step of a sequence.
#[maco::megakernel]
pub fn step(x: In<u32, M, N>, y: Out<u32, M, N>) {
    successor(x, y);
}

maco::task_set! {
    /// Little code, which the driver compiles in seconds.
    pub maps: maco::tasks::relu
}
