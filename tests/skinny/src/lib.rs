//! Megakernels of GEMVs, whose weights are streamed.
pub mod kernels;

/// Where the build script left the device code.
pub const OUT_DIR: &str = env!("OUT_DIR");
