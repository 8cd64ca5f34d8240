//! Fences: a thread of the host sees memory in one way only, so those between proxies have nothing to order.

use std::sync::atomic::{Ordering, fence};

/// Behind a wait for counters: the thread goes on. A thread that plays all roles comes here too, and always works.
pub fn acquire_gpu() {
    super::delay();
    super::thread::if_modelled(|thread| thread.work(true));
    fence(Ordering::Acquire);
}

pub fn release_gpu() {
    super::delay();
    fence(Ordering::Release);
}

pub fn sequential_cta() {
    super::delay();
    fence(Ordering::SeqCst);
}

pub fn proxy_async_global() {}

pub fn proxy_async_shared() {}

pub fn mbarrier_init() {}

/// # Safety
/// None is needed.
pub unsafe fn tensormap_acquire(_: u64) {}
