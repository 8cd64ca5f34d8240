use maco::prelude::*;

#[maco::megakernel]
pub fn with_number(x: In<bf16, M, K>, y: Out<bf16, M, K>) {
    copy(x, y).overlap_next(1);
}

#[maco::megakernel]
pub fn of_a_copy(x: In<bf16, M, K>, y: Out<bf16, M, K>, z: Out<bf16, M, K>) {
    copy(x, y).overlap_next();
    copy(x, z);
}

#[maco::megakernel]
pub fn at_the_end(x: In<f32, M, N>, y: Out<f32, M, N>) {
    let part = temp::<f32, M, N>().partial(Sum);
    copy(x, part);
    all_reduce(part, y).overlap_next();
}

fn main() {}
