use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, y: Out<bf16, M, K>) {
    match 1 {
        _ => {}
    }
    if let Some(_) = Some(1) {}
    println!();
    let (a, b) = (x, y);
    let c;
    return;
}

fn main() {}
