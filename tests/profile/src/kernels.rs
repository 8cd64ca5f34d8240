//! One graph with staged, plain, SIMT and drained tasks, and one that is nothing but time.
use maco::prelude::*;

/// Steps of [`chain`].
pub const LINKS: usize = 64;

fn work_reference<const I: usize>(x: maco::ReadTile<u32, 1, 0>, y: maco::Tile<u32, 1, I>, nanoseconds: u32) {
    let _ = x;
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let begin = std::time::Instant::now();
        while begin.elapsed().as_nanos() < u128::from(nanoseconds) {
            core::hint::spin_loop();
        }
    }
    // SAFETY: the first element of the tile exists.
    unsafe { y.pointer(0, 0).write(nanoseconds) };
}

/// Works for so long.
///
/// # Safety
/// `y` has a multiple of 8 elements.
#[maco::task(simt, tile(i = 8), cpu = work_reference)]
pub unsafe fn work(cta: &mut Cta, #[read(..)] x: Tensor<u32, K>, #[write(i)] y: Tensor<u32, N>, nanoseconds: u32) {
    let _ = x;
    let (begin, mut now): (u64, u64);
    // SAFETY: reads a register; the first element of the tile exists, and one thread writes it.
    unsafe {
        core::arch::asm!("mov.u64 {0}, %globaltimer;", out(reg64) begin, options(nostack));
        loop {
            core::arch::asm!("mov.u64 {0}, %globaltimer;", out(reg64) now, options(nostack));
            if now - begin >= nanoseconds as u64 {
                break;
            }
        }
        if cta.thread == 0 {
            y.pointer(0, 0).write(nanoseconds);
        }
    }
}

/// A root, `C / 8` tasks that wait for it, and a chain behind the root.
#[maco::megakernel]
pub fn chain(x: In<u32, 1>, nanoseconds: u32, root: Out<u32, 8>, fan: Out<u32, C>, links: [Out<u32, 8>; LINKS]) {
    work(x, root, nanoseconds);
    work(root, fan, nanoseconds);
    work(root, links[0], nanoseconds);
    for n in 1..LINKS {
        work(links[n - 1], links[n], nanoseconds);
    }
}

fn keep_reference<const I: usize>(x: maco::Tile<bf16, I, 0>) {
    let _ = x;
}

/// x = x, by a warp.
///
/// # Safety
/// None is needed.
#[maco::task(simt, warp, tile(i = 8), cpu = keep_reference)]
pub unsafe fn keep(cta: &mut Cta, #[update(i, ..)] x: Tensor<bf16, M, N>) {
    let mut at = cta.lane;
    while at < x.rows() * x.cols() {
        let place = x.pointer((at / x.cols()) as i32, (at % x.cols()) as i32);
        // SAFETY: the position lies in the tile, and each lane has its own.
        unsafe { place.write(place.read()) };
        at += maco::Warp::LANES;
    }
}

/// Two layers, with element-wise work between and behind, some of it by tasks of one warp.
#[maco::megakernel]
pub fn layers(x: In<bf16, M, K>, up: In<bf16, H, K>, down: In<bf16, K, H>, by: f32, y: Out<bf16, M, K>) {
    let h = temp::<bf16, M, H>();
    linear(x, up, h).then(relu);
    scale(h, by);
    let part = temp::<bf16, M, K>();
    linear(h, down, part);
    scale(part, by).drain();
    keep(part);
    add(x, part, y);
}

/// y = the sum of `x` over all ranks.
#[maco::megakernel]
pub fn summed(#[shard(0)] x: In<f32, M, N>, y: Out<f32, M, N>) {
    let part = temp::<f32, M, N>().partial(Sum);
    copy(x, part);
    all_reduce(part, y);
}
