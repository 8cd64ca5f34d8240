//! Megakernels of GEMMs.
pub mod casts;
pub mod kernels;
pub mod large;

/// Where the build script left the device code.
pub const OUT_DIR: &str = env!("OUT_DIR");
