//! What random graphs are made of: tasks that are exact on small integers, with every kind of region, in small and large tiles.
use maco::prelude::*;

// Two sets, each with GEMMs and with tasks of every kind: one of all takes `ptxas` two minutes.
maco::task_set! {
    /// What a random graph may call: GEMMs with a transposed operand B, and updates in place.
    pub ops: linear<bf16>, add<bf16>, copy<f32>, wrap<f32>, widen, narrow, nudge, accumulate, merge, transpose, negate, lift
}

maco::task_set! {
    /// What another may call: GEMMs with an operand B as it is, reductions, and halos.
    pub more_ops: matmul<bf16>, mul<f32>, bias<f32>, copy<f32>, sum_rows<bf16>, column_sums, wrap<f32>, widen, narrow, stencil, pick,
        negate, lift
}

/// v less the nearest multiple of 8: keeps chains of GEMMs small.
#[maco::task(elementwise)]
pub fn wrap(v: f32) -> f32 {
    // The sum has no bits for a fraction.
    const ROUND: f32 = 12_582_912.0;
    v - 8.0 * ((v * 0.125 + ROUND) - ROUND)
}

/// y = x, as `f32`.
#[maco::task(tile(i = 16 | 64, j = 64))]
pub fn widen(cta: &mut Cta, #[read(i, j)] x: Tensor<bf16, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.zip(x, y, |v| v)
}

/// y = x, rounded to `bf16`.
#[maco::task(tile(i = 16 | 64, j = 64))]
pub fn narrow(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<bf16, M, N>) {
    cta.zip(x, y, |v| v)
}

/// y[r, c] = x[r, c] + 2 x[r - 2, c - 1] - x[r + 1, c + 1], zero outside: a halo that differs on every side.
#[maco::task(tile(i = 4 | 32, j = 8 | 64))]
pub fn stencil(cta: &mut Cta, #[read(i + -2..=1, j + -1..=1)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.generate(x, y, |x, r, c| x.at(r + 2, c + 1) + 2.0 * x.at(r, c) - x.at(r + 3, c + 2))
}

/// x += by, in place.
#[maco::task(tile(i = 4 | 32, j = 8 | 64))]
pub fn nudge(cta: &mut Cta, #[update(i, j)] x: Tensor<f32, M, N>, by: i32) {
    cta.map(x, |v| v + by as f32)
}

/// x += a, in place.
#[maco::task(tile(i = 4 | 32, j = 8 | 64))]
pub fn accumulate(cta: &mut Cta, #[update(i, j)] x: Tensor<f32, M, N>, #[read(i, j)] a: Tensor<f32, M, N>) {
    cta.zip((x, a), x, |(x, a)| x + a)
}

/// y = a + 2 b - c - d + 3 e: as many tensors as a task may have.
#[maco::task(tile(i = 4 | 32, j = 8 | 64))]
pub fn merge(
    cta: &mut Cta,
    #[read(i, j)] a: Tensor<f32, M, N>,
    #[read(i, j)] b: Tensor<f32, M, N>,
    #[read(i, j)] c: Tensor<f32, M, N>,
    #[read(i, j)] d: Tensor<f32, M, N>,
    #[read(i, j)] e: Tensor<f32, M, N>,
    #[write(i, j)] y: Tensor<f32, M, N>,
) {
    cta.zip((a, b, c, (d, e)), y, |(a, b, c, (d, e))| a + 2.0 * b - c - d + 3.0 * e)
}

/// y = xᵀ.
#[maco::task(tile(i = 8 | 64, j = 8 | 64))]
pub fn transpose(cta: &mut Cta, #[read(j, i)] x: Tensor<f32, N, M>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.generate(x, y, |x, r, c| x.at(c, r))
}

/// y[c] = the sum of column c of x: each task waits for all that wrote the column.
#[maco::task(tile(j = 16 | 128))]
pub fn column_sums(cta: &mut Cta, #[read(.., j)] x: Tensor<f32, M, N>, #[write(j)] y: Tensor<f32, N>) {
    let rows = x.rows() as i32;
    cta.generate(x, y, |x, _, c| {
        let mut sum = 0.0;
        let mut r = 0;
        while r < rows {
            sum += x.at(r, c);
            r += 1;
        }
        sum
    })
}

/// y[i] = x[ids[i]]: which rows a task reads is known when it runs.
#[maco::task(tile(i = 4 | 32))]
pub fn pick(cta: &mut Cta, #[read(i)] ids: Tensor<u32, M>, #[read(ids[i], ..)] x: Tensor<f32, V, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    cta.generate((ids, x), y, |(ids, x), r, c| x.at(ids.at(0, r) as i32, c))
}

fn negate_reference<const I: usize, const J: usize>(x: maco::ReadTile<f32, I, J>, y: maco::Tile<f32, I, J>) {
    for row in 0..y.rows() as i32 {
        for col in 0..y.cols() as i32 {
            // SAFETY: the position lies in both tiles.
            unsafe { y.pointer(row, col).write(-x.pointer(row, col).read()) };
        }
    }
}

/// y = -x, by a warp.
///
/// # Safety
/// None is needed.
#[maco::task(simt, warp, tile(i = 4 | 32, j = 16), cpu = negate_reference)]
pub unsafe fn negate(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    let (rows, cols) = (y.rows(), y.cols());
    let mut at = cta.lane;
    while at < rows * cols {
        let (row, col) = ((at / cols) as i32, (at % cols) as i32);
        // SAFETY: the position lies in both tiles, and each lane has its own.
        unsafe { y.pointer(row, col).write(-x.pointer(row, col).read()) };
        at += maco::Warp::LANES;
    }
}

fn lift_reference<const I: usize>(x: maco::Tile<f32, I, 0>, by: i32) {
    for row in 0..x.rows() as i32 {
        for col in 0..x.cols() as i32 {
            let at = x.pointer(row, col);
            // SAFETY: the position lies in the tile, which is this task's.
            unsafe { at.write(at.read() + by as f32) };
        }
    }
}

/// x += by, in place, by a warp that begins before x is there.
///
/// # Safety
/// None is needed.
#[maco::task(simt, warp, prologue, tile(i = 1 | 16), cpu = lift_reference)]
pub unsafe fn lift(cta: &mut Cta, #[update(i, ..)] x: Tensor<f32, M, N>, by: i32) {
    if !cta.wait_for_inputs() {
        return;
    }
    let (rows, cols) = (x.rows(), x.cols());
    let mut at = cta.lane;
    while at < rows * cols {
        let place = x.pointer((at / cols) as i32, (at % cols) as i32);
        // SAFETY: the position lies in the tile, and each lane has its own.
        unsafe { place.write(place.read() + by as f32) };
        at += maco::Warp::LANES;
    }
}
