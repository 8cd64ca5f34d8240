//! Staged and direct tasks in turn, updates in place, rows named by data, halos, chains, drains.
use maco::prelude::*;

fn shift_reference<const R: usize, const C: usize>(x: maco::Tile<bf16, R, C>) {
    for row in 0..x.rows() as i32 {
        for col in 0..x.cols() as i32 {
            let at = x.pointer(row, col);
            // SAFETY: the position lies in the tile, which is this task's.
            unsafe { at.write(bf16::from_f32(at.read().to_f32() + 1.0)) };
        }
    }
}

/// x += 1, a row at a time.
///
/// # Safety
/// Rows of the tensor do not overlap.
#[maco::task(simt, tile(i = 8), cpu = shift_reference)]
pub unsafe fn shift(cta: &mut Cta, #[update(i, ..)] x: Tensor<bf16, M, N>) {
    let (rows, cols) = (x.rows(), x.cols());
    let mut at = cta.thread;
    while at < rows * cols {
        let place = x.pointer((at / cols) as i32, (at % cols) as i32);
        // SAFETY: the position lies in the tile, and each thread has its own.
        unsafe { place.write(bf16::from_f32(place.read().to_f32() + 1.0)) };
        at += cta.threads;
    }
}

fn level_reference<const R: usize, const C: usize>(x: maco::Tile<bf16, R, C>) {
    let places = || (0..x.rows() as i32).flat_map(|row| (0..x.cols() as i32).map(move |col| (row, col)));
    // SAFETY: the positions lie in the tile, which is this task's.
    let largest = places().map(|(row, col)| unsafe { x.pointer(row, col).read() }.to_f32()).fold(f32::NEG_INFINITY, f32::max);
    for (row, col) in places() {
        let at = x.pointer(row, col);
        // SAFETY: as above.
        unsafe { at.write(bf16::from_f32(at.read().to_f32() - largest)) };
    }
}

/// x -= its largest element, eight rows at a time: the warps meet within the task, and part before tasks that are one warp's.
///
/// # Safety
/// Rows of the tensor do not overlap.
#[maco::task(simt, tile(i = 8), cpu = level_reference)]
pub unsafe fn level(cta: &mut Cta, #[update(i, ..)] x: Tensor<bf16, M, N>) {
    let elements = x.rows() * x.cols();
    let place = |at: u32| x.pointer((at / x.cols()) as i32, (at % x.cols()) as i32);
    let mut largest = f32::NEG_INFINITY;
    let mut at = cta.thread;
    while at < elements {
        // SAFETY: the position lies in the tile.
        largest = largest.max(unsafe { place(at).read() }.to_f32());
        at += cta.threads;
    }
    let largest = cta.fold(largest, f32::max);
    at = cta.thread;
    while at < elements {
        // SAFETY: as above, and each thread has its own.
        unsafe { place(at).write(bf16::from_f32(place(at).read().to_f32() - largest)) };
        at += cta.threads;
    }
}

fn pick_reference<const R: usize, const C: usize>(
    ids: maco::ReadTile<u32, 1, R>,
    x: maco::ReadTile<bf16, 0, 0>,
    y: maco::Tile<bf16, R, C>,
) {
    for row in 0..y.rows() as i32 {
        for col in 0..y.cols() as i32 {
            // SAFETY: `ids` are rows of `x`, which has as many columns as `y`.
            unsafe { y.pointer(row, col).write(x.pointer(ids.pointer(0, row).read() as i32, col).read()) };
        }
    }
}

/// y[i] = x[ids[i]]: waits for the rows that it is told to read, and no others.
///
/// # Safety
/// `ids` are rows of `x`, which has as many columns as `y`.
#[maco::task(simt, warp, tile(i = 8), cpu = pick_reference)]
pub unsafe fn pick(
    cta: &mut Cta,
    #[read(i)] ids: Tensor<u32, M>,
    #[read(ids[i], ..)] x: Tensor<bf16, V, N>,
    #[write(i, ..)] y: Tensor<bf16, M, N>,
) {
    let (rows, cols) = (y.rows(), y.cols());
    let mut at = cta.lane;
    while at < rows * cols {
        let (row, col) = ((at / cols) as i32, (at % cols) as i32);
        // SAFETY: as promised by the author; each thread has its own element of `y`.
        unsafe { y.pointer(row, col).write(x.pointer(ids.pointer(0, row).read() as i32, col).read()) };
        at += maco::Warp::LANES;
    }
}

/// x += 1, a row at a time, by a warp that begins before the row is there.
///
/// # Safety
/// Rows of the tensor do not overlap.
#[maco::task(simt, warp, prologue, tile(i = 1), cpu = shift_reference)]
pub unsafe fn step(cta: &mut Cta, #[update(i, ..)] x: Tensor<bf16, M, N>) {
    if !cta.wait_for_inputs() {
        return;
    }
    let mut at = cta.lane;
    while at < x.cols() {
        let place = x.pointer(0, at as i32);
        // SAFETY: the position lies in the tile, and each lane has its own.
        unsafe { place.write(bf16::from_f32(place.read().to_f32() + 1.0)) };
        at += maco::Warp::LANES;
    }
}

/// Nobody can tell in which order its tasks run but by the result. One tile for all GEMMs: delays are in the code of each.
#[maco::megakernel]
pub fn mixed(
    x: In<bf16, M, K>,
    up: In<bf16, H, K>,
    down: In<bf16, K, H>,
    ids: In<u32, M>,
    by: f32,
    tape: InOut<bf16, M, K>,
    y: Out<bf16, M, K>,
) {
    let h = temp::<bf16, M, H>();
    linear(x, up, h).then(relu).tile(64, 128);
    scale(h, by);
    let part = temp::<bf16, M, K>();
    linear(h, down, part).tile(64, 128).drain();
    // A chain in place, which one worker may run or several.
    shift(tape);
    shift(tape).drain();
    level(tape);
    step(tape);
    step(tape);
    shift(part);
    let picked = temp::<bf16, M, K>();
    pick(ids, part, picked);
    step(picked).drain();
    add(picked, tape, part);
    // Written again after it was read: tiles of another shape.
    shift(part);
    let again = temp::<bf16, M, H>();
    linear(part, up, again).tile(64, 128);
    linear(again, down, y).tile(64, 128);
}
