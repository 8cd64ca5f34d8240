#[maco::task(elementwise)]
pub fn f(v: f32, by: f32, and: f32) {}

#[maco::task(elementwise)]
pub fn g(v: f32, by: u32) -> f32 {
    v
}

fn main() {}
