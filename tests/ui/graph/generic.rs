#[maco::graph]
pub fn g<E>(x: In<E, M>, y: Out<E, M>) {
    copy(x, y);
}

fn main() {}
