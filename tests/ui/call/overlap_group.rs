use maco::prelude::*;

#[maco::megakernel]
pub fn named(x: In<bf16, M, K>, y: Out<bf16, M, K>, z: Out<bf16, M, K>) {
    copy(x, y).overlap_group(gates);
    copy(x, z).overlap_group("");
}

#[maco::megakernel]
pub fn without_collective(x: In<bf16, M, K>, y: Out<bf16, M, K>, z: Out<bf16, M, K>) {
    copy(x, y).overlap_group("gates");
    copy(x, z).overlap_group("gates");
}

#[maco::megakernel]
pub fn without_others(x: In<f32, M, N>, y: Out<f32, M, N>) {
    let part = temp::<f32, M, N>().partial(Sum);
    copy(x, part);
    all_reduce(part, y).overlap_group("gates");
}

#[maco::graph]
pub fn halves(x: In<bf16, M, K>, y: Out<bf16, M, K>) {
    copy(x, y);
}

#[maco::megakernel]
pub fn of_a_graph(x: In<bf16, M, K>, y: Out<bf16, M, K>) {
    halves(x, y).overlap_group("gates");
}

fn main() {}
