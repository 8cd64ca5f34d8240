//! What dispatch costs: tasks without work, chains of one word.

fn nothing<const I: usize>(_: maco::Tile<u32, 1, I>) {}

/// An empty body.
///
/// # Safety
/// Nothing is accessed.
#[maco::task(simt, tile(i = 1), cpu = nothing)]
pub unsafe fn empty(cta: &mut Cta, #[update(i)] x: Tensor<u32, N>) {
    let _ = (&cta, x);
}

fn bump_reference<const I: usize>(x: maco::Tile<u32, 1, I>) {
    let at = x.pointer(0, 0);
    // SAFETY: one tile is one word of a live tensor.
    unsafe { at.write(at.read() + 1) };
}

/// x += 1: every thread reads the word, one writes it.
///
/// # Safety
/// The tensor has a word for every tile.
#[maco::task(simt, tile(i = 1), cpu = bump_reference)]
pub unsafe fn bump(cta: &mut Cta, #[update(i)] x: Tensor<u32, N>) {
    let at = x.pointer(0, 0);
    // SAFETY: one tile is one word of a live tensor; only one thread writes it.
    unsafe {
        let value = at.read();
        cta.sync();
        if cta.thread == 0 {
            at.write(value + 1);
        }
    }
}

#[maco::megakernel]
pub fn empties(x: InOut<u32, N>) {
    empty(x);
}

#[maco::megakernel]
pub fn empty_chain_500(x: InOut<u32, N>) {
    for _call in 0..500 {
        empty(x);
    }
}

#[maco::megakernel]
pub fn empty_chain_1500(x: InOut<u32, N>) {
    for _call in 0..1500 {
        empty(x);
    }
}

#[maco::megakernel]
pub fn chain_500(x: InOut<u32, N>) {
    for _call in 0..500 {
        bump(x);
    }
}

#[maco::megakernel]
pub fn chain_1500(x: InOut<u32, N>) {
    for _call in 0..1500 {
        bump(x);
    }
}
