//! Sums of rows that indices name: of rows that nothing has written, by indices likewise, and into what is only read.
#[maco::task(tile(i = 4, j = 64))]
fn a(cta: &mut Cta, #[read(i, ..)] ids: Tensor<u32, M, K>, #[write(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.sums(ids, x, y, 2, |ids, r, k| (ids.at(r, k) as i32, 1.0));
}

#[maco::task(tile(i = 4, j = 64))]
fn b(cta: &mut Cta, #[write(i, j)] ids: Tensor<u32, M, N>, #[read(.., j)] x: Tensor<f32, R, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.sums(ids, x, y, 2, |ids, r, k| (ids.at(r, k) as i32, 1.0));
}

#[maco::task(tile(i = 4, j = 64))]
fn c(
    cta: &mut Cta,
    #[read(i, ..)] ids: Tensor<u32, M, K>,
    #[read(.., j)] x: Tensor<f32, R, N>,
    #[read(i, j)] y: Tensor<f32, M, N>,
    #[write(i, j)] z: Tensor<f32, M, N>,
) {
    cta.zip(y, z, |v| v);
    cta.sums(ids, x, y, 2, |ids, r, k| (ids.at(r, k) as i32, 1.0));
}

fn main() {}
