//! Values that closures leave behind for the loops and conditions around them.
use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicU32, Ordering};

#[maco::task(tile(i = 16))]
pub fn cell(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    let seen = Cell::new(0.0);
    let y = cta.zip(x, y, |v| {
        seen.set(v);
        v
    });
    if seen.get() > 0.0 {
        cta.map(y, |v| v);
    }
}

#[maco::task(tile(i = 16))]
pub fn sum(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    let total = RefCell::new(0.0f32);
    let y = cta.zip(x, y, |v| {
        *total.borrow_mut() += v;
        v
    });
    cta.map(y, |_| *total.borrow());
}

#[maco::task(tile(i = 16))]
pub fn of_the_body(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    static SEEN: AtomicU32 = AtomicU32::new(0);
    cta.zip(x, y, |v| v + SEEN.fetch_add(1, Ordering::Relaxed) as f32)
}

/// Lanes of a row part before they meet.
#[maco::task(tile(i = 16))]
pub fn lanes(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    cta.rows(x, y, |x, y| {
        let seen = AtomicU32::new(0);
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

#[maco::helper(Rows)]
fn helper(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    let seen = Cell::new(0.0);
    cta.zip(x, y, |v| seen.replace(v))
}

#[maco::task(elementwise)]
pub fn counted(v: f32) -> f32 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    v + COUNT.fetch_add(1, Ordering::Relaxed) as f32
}

fn main() {}
