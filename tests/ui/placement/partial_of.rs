use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, y: Out<bf16, M, K>) {
    let part = x.partial(Sum);
    let other = temp::<bf16, M, K>().partial(Product);
    all_reduce(part, y);
}

fn main() {}
