use maco::{Acc, Fragments, Scratch, Simt, bf16};

fn main() {
    let mut scratch = Scratch::<8192>::new();
    let cta = Simt::alone_with(&mut scratch);
    let tile = cta.swizzled::<bf16, 0, 64, 64>();
    let warpgroup = cta.warpgroup();
    let mut acc = Acc::<f32, 64>::zeros();
    warpgroup.multiply(&mut acc, |queue| {
        let inside = Fragments::<bf16, 4>::load(&warpgroup, tile.along(0));
        queue.add(&inside, tile.along(0));
    });
}
