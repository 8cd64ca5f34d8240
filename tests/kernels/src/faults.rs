//! Kernels that tests break: tasks of every kind in a row, GEMVs, GEMMs whose planes data names, tasks that wait for a flag. Bodies
//! with scratch or a prologue are in `bodies.rs`.
use maco::prelude::*;

/// y = x, as `f32`.
#[maco::task(tile(i = 16, j = 64))]
pub fn widen(cta: &mut Cta, #[read(i, j)] x: Tensor<bf16, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.zip(x, y, |v| v)
}

/// y[i, ..] = x[i, ..] - sum of the row
#[maco::task(tile(i = 8 | 16))]
pub fn centre(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    cta.rows(x, y, |x, y| {
        let sum = x.sum(|v| v);
        let x = x.elements();
        y.set(|j| x.at(j) - sum)
    })
}

/// y[i] = x[ids[i]]
#[maco::task(tile(i = 16))]
pub fn lookup(
    cta: &mut Cta,
    #[read(i)] ids: Tensor<u32, M>,
    #[read(ids[i], ..)] x: Tensor<f32, V, N>,
    #[write(i, ..)] y: Tensor<f32, M, N>,
) {
    cta.generate((ids, x), y, |(ids, x), r, c| x.at(ids.at(0, r) as i32, c))
}

/// What `mirror` does, one element after another.
fn mirror_reference<const I: usize, const J: usize>(x: maco::ReadTile<f32, I, J>, y: maco::Tile<f32, I, J>) {
    for r in 0..I as i32 {
        for c in 0..J as i32 {
            // SAFETY: the task's author promises whole tiles, so every element lies inside the tensors.
            unsafe { y.pointer(r, J as i32 - 1 - c).write(x.pointer(r, c).read()) };
        }
    }
}

/// Reverses 256 columns.
///
/// # Safety
/// The tensors have a multiple of 8 rows and of 256 columns.
#[maco::task(simt, tile(i = 8, j = 256), cpu = mirror_reference)]
pub unsafe fn mirror(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    let at = cta.thread as i32;
    let mut r = 0;
    while r < 8 {
        // SAFETY: one thread for each column of the tile.
        unsafe { y.pointer(r, 255 - at).write(x.pointer(r, at).read()) };
        r += 1;
    }
}

/// What `negate` does, one element after another.
fn negate_reference<const I: usize, const J: usize>(x: maco::ReadTile<f32, I, J>, y: maco::Tile<f32, I, J>) {
    for r in 0..I as i32 {
        for c in 0..J as i32 {
            // SAFETY: as for `mirror_reference`.
            unsafe { y.pointer(r, c).write(-x.pointer(r, c).read()) };
        }
    }
}

/// y = -x, by a warp.
///
/// # Safety
/// The tensors have a multiple of 8 rows and of 32 columns.
#[maco::task(simt, warp, tile(i = 8, j = 32), cpu = negate_reference)]
pub unsafe fn negate(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    let at = cta.lane as i32;
    let mut r = 0;
    while r < 8 {
        // SAFETY: one lane for each column of the tile.
        unsafe { y.pointer(r, at).write(-x.pointer(r, at).read()) };
        r += 1;
    }
}

/// Tasks of every kind that is no body of threads with scratch or a prologue: a GEMM; rows and elements, each in tiles that come through the ring and in
/// smaller ones; rows by index; SIMT; of one warp. Of `N` = 256 columns a page of the ring has 16 rows.
#[maco::megakernel]
pub fn kinds(x: In<bf16, M, K>, w: In<bf16, N, K>, ids: In<u32, M>, y: Out<f32, M, N>) {
    let product = temp::<bf16, M, N>();
    linear(x, w, product).tile(64, 128);
    let wide = temp::<f32, M, N>();
    widen(product, wide);
    let centred = temp::<f32, M, N>();
    centre(wide, centred).tile(16);
    let twice = temp::<f32, M, N>();
    centre(centred, twice).tile(8);
    let picked = temp::<f32, M, N>();
    lookup(ids, twice, picked);
    let turned = temp::<f32, M, N>();
    mirror(picked, turned);
    let negative = temp::<f32, M, N>();
    negate(turned, negative);
    copy(negative, y).tile(64, 1024);
}

/// A sum in parts; then GEMVs: by weights, with an RMSNorm prologue where operand A has in-band flags, with epilogues, and by what
/// another one makes as operand B.
#[maco::megakernel]
pub fn few(x: In<bf16, M, K>, w: [In<bf16, K, K>; 4], scale: In<bf16, K>, y: Out<f32, M, M>) {
    let sum = temp::<bf16, M, K>();
    linear(x, w[0], sum).tile(64, 128).split_k(2);
    let first = temp::<bf16, M, K>();
    skinny_linear(sum, w[1], first);
    let normal = temp::<bf16, M, K>();
    rmsnorm(first, scale, normal, 0.0);
    let open = temp::<bf16, M, K>();
    skinny_linear(normal, w[2], open).then(relu);
    let last = temp::<bf16, M, K>();
    skinny_linear(open, w[3], last).then(add(x));
    skinny_linear(x, last, y);
}

/// Of each group of rows, the GEMMs of its expert; workers claim the first ones.
#[maco::megakernel]
pub fn experts(expert: In<u32, G>, x: In<bf16, R, K>, up: In<bf16, X, H, K>, down: In<bf16, X, K, H>, y: Out<f32, R, K>) {
    let h = temp::<bf16, R, H>();
    grouped_linear(expert, x.split(0, G), up, h.split(0, G)).then(relu).drain();
    grouped_linear(expert, h.split(0, G), down, y.split(0, G));
}

/// What `until` does, on the CPU.
fn until_reference<const I: usize>(flag: maco::ReadTile<u32, 1, 0>, x: maco::ReadTile<f32, 1, I>, y: maco::Tile<f32, 1, I>) {
    let cta = maco::Simt::alone();
    // SAFETY: the flag is one element; the task's author promises whole tiles.
    unsafe {
        if !cta.wait_until(|| flag.pointer(0, 0).read_volatile() != 0) {
            return;
        }
        for c in 0..I as i32 {
            y.pointer(0, c).write(x.pointer(0, c).read());
        }
    }
}

/// y = x once the flag is not 0, which may be never.
///
/// # Safety
/// The tensors have a multiple of 256 elements.
#[maco::task(simt, tile(i = 256), cpu = until_reference)]
pub unsafe fn until(cta: &mut Cta, #[read(..)] flag: Tensor<u32, 1>, #[read(i)] x: Tensor<f32, N>, #[write(i)] y: Tensor<f32, N>) {
    // SAFETY: the flag is one element; one thread for each element of the tile.
    unsafe {
        if !cta.wait_until(|| flag.pointer(0, 0).read_volatile() != 0) {
            return;
        }
        let at = cta.thread as i32;
        y.pointer(0, at).write(x.pointer(0, at).read());
    }
}

/// As `until`, by a warp.
///
/// # Safety
/// The tensors have a multiple of 32 elements.
#[maco::task(simt, warp, tile(i = 32), cpu = until_reference)]
pub unsafe fn until_warp(cta: &mut Cta, #[read(..)] flag: Tensor<u32, 1>, #[read(i)] x: Tensor<f32, N>, #[write(i)] y: Tensor<f32, N>) {
    // SAFETY: the flag is one element; one lane for each element of the tile.
    unsafe {
        if !cta.wait_until(|| flag.pointer(0, 0).read_volatile() != 0) {
            return;
        }
        let at = cta.lane as i32;
        y.pointer(0, at).write(x.pointer(0, at).read());
    }
}

/// As `until`, of a body that begins before x is there.
///
/// # Safety
/// As `until`.
#[maco::task(simt, prologue, tile(i = 256), cpu = until_reference)]
pub unsafe fn until_early(cta: &mut Cta, #[read(..)] flag: Tensor<u32, 1>, #[read(i)] x: Tensor<f32, N>, #[write(i)] y: Tensor<f32, N>) {
    // SAFETY: as in `until`.
    unsafe {
        if !cta.wait_for_inputs() || !cta.wait_until(|| flag.pointer(0, 0).read_volatile() != 0) {
            return;
        }
        let at = cta.thread as i32;
        y.pointer(0, at).write(x.pointer(0, at).read());
    }
}

/// y = x if the flag is not 0; otherwise all threads wait for a copy that nobody asks for.
///
/// # Safety
/// As `until`.
#[maco::task(simt, shared = 1032, tile(i = 256), cpu = until_reference)]
pub unsafe fn until_copied(cta: &mut Cta, #[read(..)] flag: Tensor<u32, 1>, #[read(i)] x: Tensor<f32, N>, #[write(i)] y: Tensor<f32, N>) {
    let (thread, place) = (cta.thread, cta.shared::<f32, 0, 256>());
    // SAFETY: as in `until`; all threads come to the end, and what is copied is waited for.
    unsafe {
        cta.mbarriers::<1024, 1>(1, |_, barriers| {
            let full = barriers.at(0);
            if thread == 0 && flag.pointer(0, 0).read_volatile() != 0 {
                full.arrive_expect(1024);
                place.load(0, x.pointer(0, 0), 256, &full);
            }
            if full.wait(0) {
                y.pointer(0, thread as i32).write(place.read(thread));
            }
        });
    }
}

/// As `gated`, of bodies with a prologue.
#[maco::megakernel]
pub fn gated_early(flag: In<u32, 1>, x: In<f32, N>, y: Out<f32, N>) {
    let h = temp::<f32, N>();
    until_early(flag, x, h);
    until_early(flag, h, y);
}

/// As `gated`, of bodies with scratch.
#[maco::megakernel]
pub fn gated_copies(flag: In<u32, 1>, x: In<f32, N>, y: Out<f32, N>) {
    let h = temp::<f32, N>();
    until_copied(flag, x, h);
    until_copied(flag, h, y);
}

/// As `gated`, of tasks of one warp.
#[maco::megakernel]
pub fn gated_warps(flag: In<u32, 1>, x: In<f32, N>, y: Out<f32, N>) {
    let h = temp::<f32, N>();
    until_warp(flag, x, h);
    until_warp(flag, h, y);
}

/// Every task of the first call waits for a flag, and every task of the second for the first call.
#[maco::megakernel]
pub fn gated(flag: In<u32, 1>, x: In<f32, N>, y: Out<f32, N>) {
    let h = temp::<f32, N>();
    until(flag, x, h);
    until(flag, h, y);
}
