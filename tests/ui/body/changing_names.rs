//! An atomic of a closure, by which lanes of a row would part before they meet, under other names.
use core::sync::atomic::Ordering;

#[maco::task(tile(i = 16))]
pub fn renamed(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    cta.rows(x, y, |x, y| {
        use core::sync::atomic::AtomicU32 as Count;
        let seen = Count::new(0);
        y.zip(&x, |v| {
            seen.store(v as u32, Ordering::Relaxed);
            v
        });
        if seen.load(Ordering::Relaxed) > 0 {
            let s = x.sum(|v| v);
            y.set(move |_| s);
        }
    });
}

#[maco::task(tile(i = 16))]
pub fn of_its_type(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    cta.rows(x, y, |x, y| {
        let seen: core::sync::atomic::AtomicBool = Default::default();
        y.zip(&x, |v| {
            seen.store(v > 0.0, Ordering::Relaxed);
            v
        });
        if seen.load(Ordering::Relaxed) {
            let s = x.sum(|v| v);
            y.set(move |_| s);
        }
    });
}

fn main() {}
