//! The CTA: which warp plays which role, and the way of a task through them.
//!
//! fetcher (warp 3) → slot, `posted` → controller (warp 1) → `ready` → loader (warp 0) and consumers (warps 4–11) → `done` → store and
//! signals (warp 2) → counters, and `vacant` → fetcher. With schedulers a task comes ready, or
//! waits for one word, so the fetcher publishes it itself and warp 1 is spare: it may be a scheduler. A CTA behind the workers is a scheduler and nothing else.
//!
//! Fetcher, controller, schedulers and consumer warps in a run ([`narrow`]) wait on global memory, so they time out. An abort ends the list at a task border:
//! no task is published any more, and those that were complete as usual. If they do not, every wait inside the CTA is let through.

#[cfg(target_arch = "nvptx64")]
mod cta;
#[cfg(target_arch = "nvptx64")]
mod dependency_poller;
#[cfg(not(target_arch = "nvptx64"))]
pub mod modelled;
#[cfg(target_arch = "nvptx64")]
mod prefetcher;
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
use warps::{admitted, copy, stop, stuck, supervise};
#[cfg(target_arch = "nvptx64")]
use watchdog::polled;
use watchdog::{pushed, slot};
