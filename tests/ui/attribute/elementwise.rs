#[maco::task(elementwise, tile(i = 64))]
pub fn f(v: f32) -> f32 {
    v
}

fn main() {}
