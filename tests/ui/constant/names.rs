#[maco::task(tile(i = 64))]
pub fn double(cta: &mut Cta, #[read(i)] x: Tensor<f32, M>, #[write(i)] y: Tensor<f32, M>) {
    cta.zip(x, y, |v| 2.0 * v)
}

#[maco::megakernel]
pub fn flag(x: In<f32, M>, y: Out<f32, M>, flag: u32) {
    if flag == 1 {
        double(x, y);
    }
}

#[maco::megakernel]
pub fn size(x: In<f32, M>, y: Out<f32, M>) {
    if M > 64 {
        double(x, y);
    }
}

#[maco::megakernel]
pub fn tensor(x: In<f32, M>, y: Out<f32, M>) {
    let h = if x == y { x } else { y };
    double(h, y);
}

#[maco::megakernel]
pub fn bound(x: In<f32, M>, y: Out<f32, M>) {
    for _ in 0..M {
        double(x, y);
    }
}

#[maco::megakernel]
pub fn index(x: [In<f32, M>; 4], y: Out<f32, M>, at: u32) {
    double(x[at], y);
}

#[maco::megakernel]
pub fn variable(x: In<f32, M>, y: Out<f32, M>) {
    let half = M / 2;
    double(x, y);
}

#[maco::megakernel]
pub fn options(x: In<f32, M>, y: Out<f32, M>, level: i32) {
    double(x, y).tile(M).priority(level);
}

#[maco::graph]
pub fn argument(x: In<f32, M>, y: Out<f32, M>, by: f32) {
    let twice = by * 2.0;
    double(x, y);
}

/// A variable of the body is not the dimension of that name, nor is a constant.
#[maco::megakernel]
pub fn shadowed(x: [In<f32, M>; 2], y: [Out<f32, M>; 2]) {
    for M in 0..2 {
        if M < 2 {
            double(x[M], y[M]);
        }
    }
}

fn main() {}
