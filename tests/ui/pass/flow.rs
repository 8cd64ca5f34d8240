use maco::prelude::*;

const DEEP: bool = true;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, y: Out<bf16, M, K>) {
    let a = temp::<bf16, M, K>();
    let b = temp::<bf16, M, K>();
    copy(x, a);
    for _ in 0..2 {
        copy(a, b);
        copy(b, a);
    }
    let chosen = if DEEP { a } else { x };
    if !DEEP {
        copy(x, y);
    } else if DEEP {
        copy(chosen, y);
    } else {
        scale(y, 2.0);
    }
}

fn main() {}
