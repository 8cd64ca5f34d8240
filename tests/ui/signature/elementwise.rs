#[maco::task(elementwise)]
pub fn f(v: f32, by: f32) {}

fn main() {}
