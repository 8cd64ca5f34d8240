//! The CTA: which warp plays which role, and the way of a task through them.
//!
//! prefetcher (warp 3) → slot, `posted` → dependency poller (warp 1) → `ready` → loader (warp 0) and consumers (warps 4–11) → `done` → store and signals (warp 2) →
//! counters, and `vacant` → prefetcher. With schedulers a task is pushed when it is ready, or waits for one word. So the prefetcher publishes it itself, and warp 1 is
//! spare: it may be a scheduler. A CTA behind the workers is a scheduler and nothing else.
//!
//! Prefetcher, dependency poller, schedulers and consumer warps with warp tasks ([`warp_tasks`]) wait on global memory, so they time out. An abort ends the list
//! between two tasks: no other task is published, and those that were end as usual. If they do not, the watchdog lets every wait inside the CTA through.

#[cfg(target_arch = "nvptx64")]
mod cta;
#[cfg(target_arch = "nvptx64")]
mod dependency_poller;
#[cfg(not(target_arch = "nvptx64"))]
pub mod modelled;
#[cfg(target_arch = "nvptx64")]
mod prefetcher;
#[cfg(target_arch = "nvptx64")]
mod rest;
mod roles;
mod waits;
mod warp_tasks;
#[cfg(target_arch = "nvptx64")]
mod warps;
mod watchdog;

use crate::shared_memory::place;
#[cfg(target_arch = "nvptx64")]
pub use cta::megakernel;
#[cfg(target_arch = "nvptx64")]
use warps::{admitted, copy, stuck};
#[cfg(target_arch = "nvptx64")]
use watchdog::polled;
use watchdog::{pushed, slot};
