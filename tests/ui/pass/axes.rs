/// Equal dimensions of two names.
#[maco::task(tile(i = 16, j = 64), where M == R)]
pub fn equal(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, R, N>) {
    cta.zip(x, y, |x| x);
}

/// Dimensions that are arithmetic, numbers and constants.
const HEADS: usize = 4;
#[maco::task(tile(i = 16))]
pub fn computed(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<f32, M, { 2 * F + HEADS }>,
    #[read(..)] f: Tensor<f32, F>,
    #[read(i, ..)] four: Tensor<f32, M, { HEADS }>,
    #[write(i, ..)] y: Tensor<f32, M, { HEADS + F * 2 }>,
    #[write(i, ..)] z: Tensor<f32, M, 4>,
) {
    let _ = f;
    cta.zip(x, y, |x| x);
    cta.zip(four, z, |x| x);
}

/// An axis, a dimension, an index and a type of the user's of the same name.
#[allow(non_camel_case_types)]
#[derive(Default)]
pub struct i(f32);
#[maco::task(tile(i = 16))]
pub fn names(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, i, N>, #[write(i, ..)] y: Tensor<f32, i, N>) {
    cta.zip(x, y, |x| x + i::default().0);
}

/// Planes: of one tensor those that groups share.
#[maco::task(tile(h = 1, t = 8))]
pub fn shared(
    cta: &mut Cta,
    #[read(h, t, ..)] x: Tensor<f32, H, T, D>,
    #[read(h / 4, t, ..)] k: Tensor<f32, { H / 4 }, T, D>,
    #[read(t, ..)] all: Tensor<f32, T, D>,
    #[write(h, t, ..)] y: Tensor<f32, H, T, D>,
) {
    cta.zip((x, k, all), y, |(x, k, all)| x * k + all);
}

/// In place, row by row.
#[maco::task(tile(i = 8))]
pub fn in_place(cta: &mut Cta, #[read(..)] bias: Tensor<f32, N>, #[update(i, ..)] x: Tensor<f32, M, N>) {
    cta.rows(bias, x, |bias, x| {
        let largest = x.read().max(|v| v);
        x.map(|v| v - largest);
        let row = x.read();
        let first = row.at(0);
        x.map(|v| v + first);
        x.put(0, bias.at(0));
    });
}

/// An axis and dimensions that are called like the task and like the crate.
#[maco::task(tile(called = 8, maco = 64))]
pub fn called(cta: &mut Cta, #[read(called, maco)] x: Tensor<f32, called, maco>, #[write(called, maco)] y: Tensor<f32, called, maco>) {
    cta.zip(x, y, |x| x);
}

fn main() {}
