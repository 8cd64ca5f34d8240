/// One index for each column.
#[maco::task(tile(i = 8, j = 64))]
pub fn taken(cta: &mut Cta, #[read(j)] ids: Tensor<u32, N>, #[read(ids[i], j)] table: Tensor<f32, V, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.take(ids, table, y);
}

/// Indices and elements of two shapes.
#[maco::task(tile(i = 8))]
pub fn scattered(
    cta: &mut Cta,
    #[read(i, ..)] ids: Tensor<u32, M, K>,
    #[read(i, ..)] x: Tensor<f32, M, L>,
    #[update(i, ..)] y: Tensor<f32, M, N>,
) {
    cta.scatter(ids, x, y);
}

/// Fewer indices than rows.
#[maco::task(tile(j = 256))]
pub fn added(cta: &mut Cta, #[read(..)] ids: Tensor<u32, K>, #[read(.., j)] x: Tensor<f32, M, N>, #[update(.., j)] y: Tensor<f32, V, N>) {
    cta.index_add(ids, x, y);
}

fn main() {}
