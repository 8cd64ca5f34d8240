//! The same where the text does not show it: rustc knows the types of what a closure holds, and of what a body names.
use core::cell::Cell as Slot;
use core::sync::atomic::{AtomicU32, Ordering};

static SEEN: AtomicU32 = AtomicU32::new(0);
const LIMIT: u32 = 3;
static TABLE: [f32; 2] = [1.0, 2.0];

fn atomic() -> AtomicU32 {
    AtomicU32::new(0)
}

#[maco::task(tile(i = 16))]
pub fn cell(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    let seen = Slot::new(0.0);
    cta.zip(x, y, |v| {
        seen.set(v);
        v
    })
}

#[maco::task(tile(i = 16))]
pub fn captured_atomic(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    let seen = atomic();
    cta.rows(x, y, |x, y| {
        seen.store(1, Ordering::Relaxed);
        y.zip(x, |v| v)
    })
}

#[maco::task(tile(i = 16))]
pub fn of_the_crate(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    let y = cta.zip(x, y, |v| {
        SEEN.fetch_add(1, Ordering::Relaxed);
        v * TABLE[0]
    });
    if self::SEEN.load(Ordering::Relaxed) > LIMIT {
        cta.map(y, |v| v);
    }
}

#[maco::task(tile(i = 16))]
pub fn borrowed(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    let seen = &SEEN;
    cta.zip(x, y, |v| v + seen.load(Ordering::Relaxed) as f32)
}

#[maco::helper(Rows)]
fn twice(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>, f: impl Fn(f32) -> f32) {
    cta.zip(x, y, |v| f(f(v)))
}

#[maco::task(tile(i = 16))]
pub fn through_a_helper(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    let seen = Slot::new(0.0);
    twice(cta, x, y, move |v| seen.replace(v));
}

fn main() {}
