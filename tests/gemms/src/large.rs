//! GEMMs of matrices that are made on the device: each is a column times a row, so that any element is known without the others.
use maco::prelude::*;

/// y = column · rowᵀ.
#[maco::task(tile(i = 8))]
pub fn outer(cta: &mut Cta, #[read(i)] column: Tensor<f32, M>, #[read(..)] row: Tensor<f32, N>, #[write(i, ..)] y: Tensor<bf16, M, N>) {
    cta.generate((column, row), y, |(column, row), i, j| column.at(0, i) * row.at(0, j))
}

/// The same of each of several columns.
#[maco::task(tile(g = 1, i = 8))]
pub fn outers(
    cta: &mut Cta,
    #[read(g, i)] columns: Tensor<f32, G, M>,
    #[read(..)] row: Tensor<f32, N>,
    #[write(g, i, ..)] y: Tensor<bf16, G, M, N>,
) {
    cta.generate((columns, row), y, |(columns, row), i, j| columns.at(0, i) * row.at(0, j))
}

/// A GEMM as it is, and with a matrix added; the sums of their rows look at all elements.
#[maco::megakernel]
pub fn whole(
    a: In<f32, M>,
    b: In<f32, K>,
    c: In<f32, N>,
    d: In<f32, K>,
    e: In<f32, M>,
    f: In<f32, N>,
    x: Out<bf16, M, K>,
    w: Out<bf16, N, K>,
    r: Out<bf16, M, N>,
    y: Out<bf16, M, N>,
    z: Out<bf16, M, N>,
    sums: Out<f32, M, 1>,
    sums_with_r: Out<f32, M, 1>,
) {
    outer(a, b, x);
    outer(c, d, w);
    outer(e, f, r);
    linear(x, w, y);
    linear(x, w, z).then(add(r));
    sum_rows(y, sums);
    sum_rows(z, sums_with_r);
}

/// The same in parts.
#[maco::megakernel]
pub fn split(
    a: In<f32, M>,
    b: In<f32, K>,
    c: In<f32, N>,
    d: In<f32, K>,
    e: In<f32, M>,
    f: In<f32, N>,
    x: Out<bf16, M, K>,
    w: Out<bf16, N, K>,
    r: Out<bf16, M, N>,
    y: Out<bf16, M, N>,
    z: Out<bf16, M, N>,
    sums: Out<f32, M, 1>,
    sums_with_r: Out<f32, M, 1>,
) {
    outer(a, b, x);
    outer(c, d, w);
    outer(e, f, r);
    linear(x, w, y).split_k(2);
    linear(x, w, z).split_k(3).then(add(r));
    sum_rows(y, sums);
    sum_rows(z, sums_with_r);
}

/// Groups of rows, each with the weights of one expert.
#[maco::megakernel]
pub fn experts_of(
    expert: In<u32, G>,
    a: In<f32, G, T>,
    b: In<f32, K>,
    c: In<f32, X, N>,
    d: In<f32, K>,
    e: In<f32, G, T>,
    f: In<f32, N>,
    x: Out<bf16, G, T, K>,
    w: Out<bf16, X, N, K>,
    r: Out<bf16, G, T, N>,
    y: Out<bf16, G, T, N>,
    z: Out<bf16, G, T, N>,
) {
    outers(a, b, x);
    outers(c, d, w);
    outers(e, f, r);
    grouped_linear(expert, x, w, y);
    grouped_linear(expert, x, w, z).then(add(r));
}
