//! In-place updates, halos, views, rows, gathers and raw SIMT.
use maco::prelude::*;

/// y[r, c] = x[r - 1, c] + x[r, c] + x[r + 1, c], zero outside.
#[maco::task(tile(i = 32, j = 64))]
pub fn blur(cta: &mut Cta, #[read(i + -1..=1, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.generate(x, y, |x, r, c| x.at(r, c) + x.at(r + 1, c) + x.at(r + 2, c))
}

/// Updates whose neighbours still read the old values: the halo makes the order.
#[maco::megakernel]
pub fn blurred(x: InOut<f32, M, N>, by: f32, y: Out<f32, M, N>) {
    let once = temp::<f32, M, N>();
    blur(x, once);
    scale(x, by);
    let twice = temp::<f32, M, N>();
    blur(once, twice);
    add(twice, x, y);
}

/// y = xᵀ.
#[maco::task(tile(i = 64, j = 64))]
pub fn transpose(cta: &mut Cta, #[read(j, i)] x: Tensor<f32, N, M>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.generate(x, y, |x, r, c| x.at(c, r))
}

/// Halves of one matrix swapped, the first one raised by `b`, and the whole transposed.
#[maco::megakernel]
pub fn halves(x: In<f32, M, { 2 * H }>, b: In<f32, H>, y: Out<f32, M, { 2 * H }>, z: Out<f32, { 2 * H }, M>) {
    copy(x.slice(1, 0..H), y.slice(1, H..2 * H));
    copy(x.slice(1, H..2 * H), y.slice(1, 0..H));
    bias(y.slice(1, 0..H), b);
    transpose(y, z);
}

/// Softmax and RMS norm of the rows, and their sums.
#[maco::megakernel]
pub fn normed(x: In<f32, M, N>, weight: In<f32, N>, soft: Out<f32, M, N>, rms: Out<f32, M, N>, sums: Out<f32, M, 1>) {
    softmax(x, soft);
    rmsnorm(x, weight, rms, 0.00001);
    sum_rows(soft, sums);
}

/// y[i] = table[ids[i]]
#[maco::task(tile(i = 16))]
pub fn lookup(
    cta: &mut Cta,
    #[read(i)] ids: Tensor<u32, M>,
    #[read(ids[i], ..)] table: Tensor<f32, V, N>,
    #[write(i, ..)] y: Tensor<f32, M, N>,
) {
    cta.generate((ids, table), y, |(ids, table), r, c| table.at(ids.at(0, r) as i32, c))
}

#[maco::megakernel]
pub fn embedded(ids: In<u32, M>, table: In<f32, V, N>, by: f32, y: Out<f32, M, N>) {
    lookup(ids, table, y);
    scale(y, by);
}

/// What `reverse` does, one element after another.
fn reverse_reference<const I: usize>(x: maco::ReadTile<f32, 1, I>, y: maco::Tile<f32, 1, I>) {
    for c in 0..I as i32 {
        // SAFETY: the task's author promises whole tiles, so every element lies inside the tensors.
        unsafe { y.pointer(0, I as i32 - 1 - c).write(x.pointer(0, c).read()) };
    }
}

/// Reverses blocks of 256 elements. The length is a multiple of 256.
///
/// # Safety
/// The tensors have a multiple of 256 elements.
#[maco::task(simt, tile(i = 256), cpu = reverse_reference)]
pub unsafe fn reverse(cta: &mut Cta, #[read(i)] x: Tensor<f32, N>, #[write(i)] y: Tensor<f32, N>) {
    let at = cta.thread as i32;
    let value: f32;
    // SAFETY: one thread for each element of the tile.
    unsafe {
        core::arch::asm!("ld.global.f32 {0}, [{1}];", out(reg32) value, in(reg64) x.pointer(0, at), options(nostack));
        y.pointer(0, 255 - at).write(value);
    }
    cta.sync();
}

#[maco::megakernel]
pub fn reversed(x: In<f32, N>, y: Out<f32, N>) {
    reverse(x, y);
}

/// sum += x, kept from launch to launch.
#[maco::task(tile(i = 32, j = 32))]
pub fn accumulate(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[update(i, j)] sum: Tensor<f32, M, N>) {
    cta.zip((x, sum), sum, |(x, sum)| x + sum)
}

#[maco::megakernel]
pub fn accumulated(x: In<f32, M, N>, sum: State<f32, M, N>) {
    accumulate(x, sum);
}

/// y[r, c] = x[r + dr, c + dc], of which two rows above, one below and one column on each side are declared.
#[maco::task(tile(i = 16, j = 24))]
pub fn offset(cta: &mut Cta, #[read(i + -2..=1, j + -1..=1)] x: Tensor<f32, M, N>, dr: i32, dc: i32, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.generate(x, y, |x, r, c| x.at(r + 2 + dr, c + 1 + dc))
}

/// The same in blocks of eight, where nothing beside the tile is declared.
#[maco::task(tile(i = 16, j = 24))]
pub fn offset_blocks(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, dr: i32, dc: i32, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.blocks(x, y, |x, r, c| x.at8(r + dr, c + dc))
}

/// Whether reads stay in the region is known when they happen.
#[maco::megakernel]
pub fn offsets(x: In<f32, M, N>, dr: i32, dc: i32, y: Out<f32, M, N>) {
    offset(x, dr, dc, y);
}

/// [`offsets`] in blocks.
#[maco::megakernel]
pub fn block_offsets(x: In<f32, M, N>, dr: i32, dc: i32, y: Out<f32, M, N>) {
    offset_blocks(x, dr, dc, y);
}
