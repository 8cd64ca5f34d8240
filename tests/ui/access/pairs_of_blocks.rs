//! Pairs of blocks of what nothing has written, and into what is only read.
#[maco::task(tile(i = 4, j = 64))]
fn a(cta: &mut Cta, #[write(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.pairs_of_blocks(x, y, |_, r| r, |_, _, _, _| ([1.0; 8], [2.0; 8]));
}

#[maco::task(tile(i = 4, j = 64))]
fn b(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[read(i, j)] y: Tensor<f32, M, N>, #[write(i, j)] z: Tensor<f32, M, N>) {
    cta.zip(x, z, |v| v);
    cta.pairs_of_blocks(x, y, |_, r| r, |_, _, _, _| ([1.0; 8], [2.0; 8]));
}

fn main() {}
