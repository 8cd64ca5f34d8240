//! Pairs of blocks of what nothing has written, and into what is only read.
#[maco::task(tile(i = 4, j = 64))]
fn a(cta: &mut Cta, #[write(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.pairs_of_blocks(x, y, |_, r| r, |x, _, r, c| (x.block(r, c), x.block(r, c)));
}

#[maco::task(tile(i = 4, j = 64))]
fn b(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[read(i, j)] y: Tensor<f32, M, N>) {
    cta.pairs_of_blocks(x, y, |_, r| r, |x, _, r, c| (x.block(r, c), x.block(r, c)));
}

fn main() {}
