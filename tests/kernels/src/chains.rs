//! A long chain beside a wide fan, whose tasks say when they ended.

/// Tasks of the chain.
pub const LINKS: usize = 200;

/// When a task ended, counted in tasks: on a CPU the order is what matters.
#[cfg(not(target_arch = "nvptx64"))]
pub static ENDED: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);

/// What `stamp` does, on the CPU.
#[allow(unused_variables, reason = "the device never calls it, and has no such order")]
fn stamp_reference<const I: usize>(x: maco::ReadTile<u32, 1, 0>, y: maco::Tile<u32, 1, I>, nanoseconds: u32) {
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let begin = std::time::Instant::now();
        while begin.elapsed().as_nanos() < u128::from(nanoseconds) {
            core::hint::spin_loop();
        }
        let order = ENDED.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
        // SAFETY: the task's author promises whole tiles, so the element lies inside the tensor.
        unsafe { y.pointer(0, 0).write(order) };
    }
}

/// Works for so long, then writes when it ended: nanoseconds modulo 2³² on a GPU, the order of ends on a CPU.
///
/// # Safety
/// `y` has a multiple of 8 elements.
#[maco::task(simt, tile(i = 8), cpu = stamp_reference)]
pub unsafe fn stamp(cta: &mut Cta, #[read(..)] x: Tensor<u32, K>, #[write(i)] y: Tensor<u32, N>, nanoseconds: u32) {
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
            y.pointer(0, 0).write(now as u32);
        }
    }
}

/// A root, `C / 8` tasks that wait for it and for which nobody waits, and a chain behind the root.
#[maco::megakernel]
pub fn starved(x: In<u32, 1>, nanoseconds: u32, root: Out<u32, 8>, fan: Out<u32, C>, links: [Out<u32, 8>; LINKS]) {
    stamp(x, root, nanoseconds);
    stamp(root, fan, nanoseconds);
    stamp(root, links[0], nanoseconds);
    for n in 1..LINKS {
        stamp(links[n - 1], links[n], nanoseconds);
    }
}

/// The same chain with nothing beside it.
#[maco::megakernel]
pub fn alone(x: In<u32, 1>, nanoseconds: u32, root: Out<u32, 8>, links: [Out<u32, 8>; LINKS]) {
    stamp(x, root, nanoseconds);
    stamp(root, links[0], nanoseconds);
    for n in 1..LINKS {
        stamp(links[n - 1], links[n], nanoseconds);
    }
}
