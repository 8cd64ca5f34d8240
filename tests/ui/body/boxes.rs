use maco::{Mapped, Mbarrier, Scratch, Simt, Tile, bf16, f16};

/// What a body copies, by tiles of 64 rows: the first tensor has boxes of other rows, the second of another swizzle, the third other elements, the
/// last no boxes.
fn reference(
    rows: Mapped<bf16, 128, 0, 128>,
    swizzle: Mapped<bf16, 128, 0, 64, 64>,
    element: Mapped<f16, 128, 0, 64>,
    none: Tile<bf16, 128, 0>,
    good: Mapped<bf16, 128, 0, 64>,
    barrier: &Mbarrier<'_>,
) {
    let mut scratch = Scratch::<8192>::new();
    let tile = Simt::alone_with(&mut scratch).swizzled::<bf16, 0, 64, 64>();
    unsafe {
        tile.load(&rows, 0, 0, barrier);
        tile.load(&swizzle, 0, 0, barrier);
        tile.store(&element, 0, 0);
        tile.store(&none, 0, 0);
        tile.load(&good, 0, 0, barrier);
    }
}

fn main() {}
