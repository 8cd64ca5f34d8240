#[maco::task(tile(i = 8))]
pub fn shifted(cta: &mut Cta, #[update(i, ..)] x: Tensor<f32, M, N>) {
    cta.rows((), x, |_, x| {
        let row = x.read();
        let row = row.elements();
        x.set(|j| row.at(j + 1))
    });
}

/// The place of a row that is kept is written.
#[maco::task(tile(i = 8))]
pub fn kept(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>, #[write(i, ..)] z: Tensor<f32, M, N>) {
    cta.rows(x, (y, z), |x, (y, z)| {
        let sum = y.zip_kept(x, |x| x + 1.0);
        z.zip((sum, x), |(sum, x)| sum + x)
    });
}

#[maco::task(tile(i = 8))]
pub fn lent(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    cta.rows(x, y, |x, y| {
        y.zip_kept(&x, |x| x + 1.0);
    });
}

fn main() {}
