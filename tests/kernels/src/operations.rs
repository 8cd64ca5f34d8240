//! Bodies of several operations: each reads or overwrites elements that other threads of the last operation have written or read.

/// t = 2 x + 1, then the sum of each row of t in every column of y.
#[maco::task(tile(i = 16))]
pub fn elements_then_rows(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<f32, M, N>,
    #[update(i, ..)] t: Tensor<f32, M, N>,
    #[write(i, ..)] y: Tensor<f32, M, N>,
) {
    cta.zip(x, t, |x| x * 2.0 + 1.0);
    cta.rows(t, y, |t, y| {
        let sum = t.sum(|v| v);
        y.set(|_| sum)
    })
}

/// t = x + 1, then y has the rows of each tile of t in reverse.
#[maco::task(tile(i = 16))]
pub fn elements_then_positions(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<f32, M, N>,
    #[update(i, ..)] t: Tensor<f32, M, N>,
    #[write(i, ..)] y: Tensor<f32, M, N>,
) {
    cta.zip(x, t, |x| x + 1.0);
    cta.generate(t, y, |t, r, c| t.at(15 - r, c))
}

/// The same by blocks of eight columns.
#[maco::task(tile(i = 16))]
pub fn rows_then_blocks(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<f32, M, N>,
    #[update(i, ..)] t: Tensor<f32, M, N>,
    #[write(i, ..)] y: Tensor<f32, M, N>,
) {
    cta.rows(x, t, |x, t| {
        let x = x.elements();
        t.set(|n| x.at(n) + 1.0)
    });
    cta.blocks(t, y, |t, r, c| t.at8(15 - r, c))
}

/// y has the rows of each tile of t in reverse, then t = x: what is still read must not be overwritten.
#[maco::task(tile(i = 16))]
pub fn read_then_overwritten(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<f32, M, N>,
    #[update(i, ..)] t: Tensor<f32, M, N>,
    #[write(i, ..)] y: Tensor<f32, M, N>,
) {
    cta.generate(t, y, |t, r, c| t.at(15 - r, c));
    cta.zip(x, t, |x| x)
}

/// t = 3 x, then y has the sum of each column of t.
#[maco::task(tile(j = 64))]
pub fn elements_then_columns(
    cta: &mut Cta,
    #[read(.., j)] x: Tensor<f32, M, N>,
    #[update(.., j)] t: Tensor<f32, M, N>,
    #[write(j)] y: Tensor<f32, N>,
) {
    cta.zip(x, t, |x| 3.0 * x);
    cta.columns(t, y, 0.0, |v| v, |a, b| a + b, |sum| sum)
}

/// t = x + 2, then y = tᵀ.
#[maco::task(tile(i = 32, j = 32))]
pub fn elements_then_transpose(
    cta: &mut Cta,
    #[read(i, j)] x: Tensor<f32, M, N>,
    #[update(i, j)] t: Tensor<f32, M, N>,
    #[write(j, i)] y: Tensor<f32, N, M>,
) {
    cta.zip(x, t, |x| x + 2.0);
    cta.transpose(t, y)
}

/// t = 0 but for 1 where `ids` say, then y = x + t.
#[maco::task(tile(i = 16))]
pub fn scatter_then_elements(
    cta: &mut Cta,
    #[read(i, ..)] ids: Tensor<u32, M, K>,
    #[read(i, ..)] ones: Tensor<f32, M, K>,
    #[read(i, ..)] x: Tensor<f32, M, N>,
    #[update(i, ..)] t: Tensor<f32, M, N>,
    #[write(i, ..)] y: Tensor<f32, M, N>,
) {
    cta.map(t, |_| 0.0);
    cta.scatter(ids, ones, t);
    cta.zip((x, t), y, |(x, t)| x + t)
}

#[maco::megakernel]
pub fn pairs(x: In<f32, M, N>, t: [InOut<f32, M, N>; 6], y: [Out<f32, M, N>; 4], columns: Out<f32, N>, turned: Out<f32, N, M>) {
    elements_then_rows(x, t[0], y[0]);
    elements_then_positions(x, t[1], y[1]);
    rows_then_blocks(x, t[2], y[2]);
    read_then_overwritten(x, t[3], y[3]);
    elements_then_columns(x, t[4], columns);
    elements_then_transpose(x, t[5], turned);
}

#[maco::megakernel]
pub fn scattered(ids: In<u32, M, K>, ones: In<f32, M, K>, x: In<f32, M, N>, t: InOut<f32, M, N>, y: Out<f32, M, N>) {
    scatter_then_elements(ids, ones, x, t, y);
}

/// t = x + 1, y = 2 t, y = y + 1: each thread reads what it has written itself, and nobody waits; of four-byte elements a lane beside it may have.
#[maco::task(tile(i = 16))]
pub fn elements_thrice(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<f32, M, N>,
    #[write(i, ..)] t: Tensor<f32, M, N>,
    #[write(i, ..)] y: Tensor<f32, M, N>,
) {
    let t = cta.zip(x, t, |x| x + 1.0);
    let y = cta.zip(t, y, |t| 2.0 * t);
    cta.map(y, |y| y + 1.0)
}

/// t = x + the sum of its row, then y has the sum of each row of t: both rows are one warp's.
#[maco::task(tile(i = 16))]
pub fn rows_twice(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<f32, M, N>,
    #[write(i, ..)] t: Tensor<f32, M, N>,
    #[write(i, ..)] y: Tensor<f32, M, N>,
) {
    let t = cta.rows(x, t, |x, t| {
        let sum = x.sum(|v| v);
        t.zip(x, move |v| v + sum);
    });
    cta.rows(t, y, |t, y| {
        let sum = t.sum(|v| v);
        y.set(|_| sum)
    })
}

/// t has the rows of each tile of x in reverse; u = x + 1, which waits for nobody; y = t + u, by the mapping of u, and behind what made t.
#[maco::task(tile(i = 16))]
pub fn positions_then_twice_elements(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<f32, M, N>,
    #[write(i, ..)] t: Tensor<f32, M, N>,
    #[write(i, ..)] u: Tensor<f32, M, N>,
    #[write(i, ..)] y: Tensor<f32, M, N>,
) {
    let t = cta.generate(x, t, |x, r, c| x.at(15 - r, c));
    let u = cta.zip(x, u, |x| x + 1.0);
    cta.zip((t, u), y, |(t, u)| t + u)
}

#[maco::megakernel]
pub fn mappings(x: In<f32, M, N>, t: [Out<f32, M, N>; 4], y: [Out<f32, M, N>; 3]) {
    elements_thrice(x, t[0], y[0]);
    rows_twice(x, t[1], y[1]);
    positions_then_twice_elements(x, t[2], t[3], y[2]);
}
