//! Kernels for wrong arguments: a size that must divide, and a launch that takes long enough to meet.
use maco::prelude::*;

/// The first half of every row.
#[maco::megakernel]
pub fn halved(x: In<f32, M, N>, y: Out<f32, M, { N / 2 }>) {
    copy(x.slice(1, 0..N / 2), y);
}

/// What `stall` does, on the CPU.
#[allow(unused_variables, reason = "the device never calls it, and cannot sleep")]
fn stall_reference<const I: usize>(x: maco::ReadTile<f32, 1, I>, y: maco::Tile<f32, 1, I>, milliseconds: u32) {
    #[cfg(not(target_arch = "nvptx64"))]
    std::thread::sleep(std::time::Duration::from_millis(milliseconds.into()));
    for c in 0..I as i32 {
        // SAFETY: the task's author promises whole tiles, so every element lies inside the tensors.
        unsafe { y.pointer(0, c).write(x.pointer(0, c).read()) };
    }
}

/// y = x, after a while.
///
/// # Safety
/// The tensors have a multiple of 256 elements.
#[maco::task(simt, tile(i = 256), cpu = stall_reference)]
pub unsafe fn stall(cta: &mut Cta, #[read(i)] x: Tensor<f32, N>, #[write(i)] y: Tensor<f32, N>, milliseconds: u32) {
    let (begin, mut now): (u64, u64);
    // SAFETY: reads a register; one thread for each element of the tile.
    unsafe {
        core::arch::asm!("mov.u64 {0}, %globaltimer;", out(reg64) begin, options(nostack, nomem));
        loop {
            core::arch::asm!("mov.u64 {0}, %globaltimer;", out(reg64) now, options(nostack, nomem));
            if now - begin >= milliseconds as u64 * 1_000_000 {
                break;
            }
        }
        let at = cta.thread as i32;
        y.pointer(0, at).write(x.pointer(0, at).read());
    }
}

#[maco::megakernel]
pub fn stalled(x: In<f32, N>, milliseconds: u32, y: Out<f32, N>) {
    stall(x, y, milliseconds);
}
