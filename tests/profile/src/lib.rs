//! Megakernels that are profiled: tiles that travel through the ring, plain tasks, SIMT tasks, drains.
pub mod kernels;

/// Where the build script left its files.
pub const OUT_DIR: &str = env!("OUT_DIR");
