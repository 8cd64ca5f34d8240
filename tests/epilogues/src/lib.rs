//! Megakernels whose products have operands in their epilogues.
pub mod casts;
pub mod kernels;

/// Where the build script left the device code.
pub const OUT_DIR: &str = env!("OUT_DIR");
