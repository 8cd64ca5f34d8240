//! Warps and lanes as executors of channels.

use super::{Lane, Warp};
use crate::channel::System;
use crate::ptx::{cta_scope, fence, gpu_scope, special, sys_scope, warp};

macro_rules! system {
    ($ty:ident { $($lanes:item)* }) => {
        // SAFETY: relaxed `.sys` accesses with `.sys` fences, and a release of `.sys` scope (PTX ISA §8.8, release and acquire patterns), among all threads of the
        // system (§8.5). Scalars of 32 and 64 bits are whole (§8.2). What lanes did before a warp barrier comes before what others do behind it, and before
        // their releases (§8.9.5, causality order).
        unsafe impl System for $ty {
            $(#[inline(always)] $lanes)*
            #[inline(always)]
            unsafe fn own_load(&self, at: *const u32) -> u32 {
                // SAFETY: (of all) passed on from the caller.
                unsafe { cta_scope::load(at) }
            }
            #[inline(always)]
            unsafe fn own_store(&self, at: *mut u32, value: u32) {
                // SAFETY: as above.
                unsafe { cta_scope::store(at, value) }
            }
            #[inline(always)]
            unsafe fn poll(&self, at: *const u32) -> u32 {
                // SAFETY: as above.
                unsafe { sys_scope::poll(at) }
            }
            #[inline(always)]
            unsafe fn publish(&self, at: *mut u32, value: u32) {
                // SAFETY: as above.
                unsafe { sys_scope::publish(at, value) }
            }
            #[inline(always)]
            fn acquire(&self) {
                fence::acquire_sys();
            }
            #[inline(always)]
            fn release(&self) {
                fence::release_sys();
            }
            #[inline(always)]
            unsafe fn load1(&self, at: *const u8) -> u8 {
                // SAFETY: as above.
                unsafe { sys_scope::get1(at) }
            }
            #[inline(always)]
            unsafe fn store1(&self, at: *mut u8, value: u8) {
                // SAFETY: as above.
                unsafe { sys_scope::put1(at, value) }
            }
            #[inline(always)]
            unsafe fn load4(&self, at: *const u32) -> u32 {
                // SAFETY: as above.
                unsafe { sys_scope::get4(at) }
            }
            #[inline(always)]
            unsafe fn store4(&self, at: *mut u32, value: u32) {
                // SAFETY: as above.
                unsafe { sys_scope::put4(at, value) }
            }
            #[inline(always)]
            unsafe fn load16(&self, at: *const u32) -> [u32; 4] {
                // SAFETY: as above.
                unsafe { sys_scope::get16(at) }
            }
            #[inline(always)]
            unsafe fn store16(&self, at: *mut u32, words: [u32; 4]) {
                // SAFETY: as above.
                unsafe { sys_scope::put16(at, words) }
            }
            #[inline(always)]
            unsafe fn load_packet(&self, at: *const u64) -> u64 {
                // SAFETY: as above.
                unsafe { sys_scope::load_packet(at) }
            }
            #[inline(always)]
            unsafe fn store_packet(&self, at: *mut u64, value: u64) {
                // SAFETY: as above.
                unsafe { sys_scope::store_packet(at, value) }
            }
            #[inline(always)]
            unsafe fn load_packets(&self, at: *const u64) -> [u64; 2] {
                // SAFETY: as above.
                unsafe { sys_scope::load_packets(at) }
            }
            #[inline(always)]
            unsafe fn store_packets(&self, at: *mut u64, values: [u64; 2]) {
                // SAFETY: as above.
                unsafe { sys_scope::store_packets(at, values) }
            }
            #[inline(always)]
            unsafe fn push(&self, at: *mut u64, words: [u64; 2]) {
                // SAFETY: as above.
                unsafe { sys_scope::push(at, words) }
            }
            #[inline(always)]
            unsafe fn claim(&self, at: *mut u32) -> u32 {
                // SAFETY: as above; executors of one GPU draw from it.
                unsafe { gpu_scope::fetch_add_relaxed(at, 1) }
            }
            #[inline(always)]
            unsafe fn compare_exchange(&self, at: *mut u32, expected: u32, new: u32) -> u32 {
                // SAFETY: as above.
                unsafe { sys_scope::stop(at, expected, new) }
            }
            #[inline(always)]
            unsafe fn tell(&self, at: *mut u32, value: u32) {
                // SAFETY: as above.
                unsafe { sys_scope::tell(at, value) }
            }
            #[inline(always)]
            fn now(&self) -> u64 {
                special::global_timer()
            }
            #[inline(always)]
            fn pause(&self, _: u32) {}
        }
    };
}

system!(Lane {});
system!(Warp {
    fn lane(&self) -> u32 {
        special::thread() % 32
    }
    fn lanes(&self) -> u32 {
        32
    }
    fn all(&self, condition: bool) -> bool {
        warp::sync();
        warp::ballot(!condition) == 0
    }
    fn meet(&self) {
        warp::sync();
    }
});
