use maco::math;

#[maco::task(tile(i = 64))]
pub fn functions(cta: &mut Cta, #[read(i)] x: Tensor<f32, M>, #[write(i)] y: Tensor<f32, M>) {
    cta.zip(x, y, |v| v.exp() + f32::sqrt(v) + std::f32::consts::PI)
}

#[maco::task(tile(i = 64))]
pub fn allocations(cta: &mut Cta, #[read(i)] x: Tensor<f32, M>, #[write(i)] y: Tensor<f32, M>) {
    let all = vec![1.0, 2.0];
    let none = Vec::<f32>::new();
    println!("{}", all.len() + none.len());
    cta.zip(x, y, |v| v * all[0])
}

#[maco::task(elementwise)]
pub fn wave(v: f32) -> f32 {
    v.sin()
}

/// What is compiled for one of both may use what is there.
#[maco::task(tile(i = 64))]
pub fn host(cta: &mut Cta, #[read(i)] x: Tensor<f32, M>, #[write(i)] y: Tensor<f32, M>) {
    #[cfg(not(target_arch = "nvptx64"))]
    std::hint::spin_loop();
    cta.zip(x, y, |v| math::exp(v).abs())
}

#[maco::megakernel]
pub fn values(x: In<f32, M>, y: Out<f32, M>) {
    let all = vec![x];
    functions(all[0], y);
}

fn main() {}
