//! A result that is read at any position while it is written.
#[maco::task(tile(i = 4, j = 4))]
fn a(cta: &mut Cta, #[update(i, j)] x: Tensor<f32, M, N>) {
    cta.generate(x, x, |x, r, c| x.at(c, r))
}

#[maco::task(tile(i = 4, j = 64))]
fn b(cta: &mut Cta, #[update(i, j)] x: Tensor<f32, M, N>) {
    cta.blocks(x, x, |x, r, c| x.at8(r, c))
}

#[maco::task(tile(i = 64, j = 64))]
fn c(cta: &mut Cta, #[update(i, j)] x: Tensor<f32, M, N>) {
    cta.transpose(x, x)
}

fn main() {}
