use maco::{Acc, E4M3, S8, Scratch, Simt, bf16, f16};

fn main() {
    let mut scratch = Scratch::<32768>::new();
    let cta = Simt::alone_with(&mut scratch);
    let (eight, half, other) = (cta.swizzled::<E4M3, 0, 64, 128>(), cta.swizzled::<bf16, 0, 64, 64>(), cta.swizzled::<f16, 0, 64, 64>());
    let integers = cta.swizzled::<S8, 0, 64, 128>();
    let (mut acc, mut sums) = (Acc::<f32, 64>::zeros(), Acc::<i32, 64>::zeros());
    let warpgroup = cta.warpgroup();
    warpgroup.multiply(&mut acc, |queue| queue.add(eight.along(0), eight.across(0)));
    warpgroup.multiply(&mut acc, |queue| queue.add(half.along(0), other.along(0)));
    warpgroup.multiply(&mut sums, |queue| queue.add(eight.along(0), integers.along(0)));
}
