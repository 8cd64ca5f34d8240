//! A megakernel of the name, text and line of `launches::step`, of another task. The build script does not name this file.

/// y = x.
#[maco::task(tile(i = 16, j = 1024))]
pub fn successor(cta: &mut Cta, #[read(i, j)] x: Tensor<u32, M, N>, #[write(i, j)] y: Tensor<u32, M, N>) {
    cta.zip(x, y, |v| v)
}

/// Not what the entry of `launches` does.
#[maco::megakernel]
pub fn step(x: In<u32, M, N>, y: Out<u32, M, N>) {
    successor(x, y);
}
