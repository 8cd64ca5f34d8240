/// Lanes would write what others still read.
#[maco::task(tile(i = 8))]
pub fn in_place(cta: &mut Cta, #[update(i, ..)] x: Tensor<f32, M, N>) {
    cta.rows(x, x, |x, y| {
        let x = x.elements();
        y.set(|j| x.at(j + 1))
    });
}

/// So would rows that are indices.
#[maco::task(tile(j = 256))]
pub fn added(cta: &mut Cta, #[read(..)] ids: Tensor<u32, M>, #[update(.., j)] x: Tensor<f32, M, N>) {
    cta.index_add(ids, x, x);
}

fn main() {}
