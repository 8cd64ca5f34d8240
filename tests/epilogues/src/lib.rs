//! Megakernels whose products have operands in their epilogues, or map their first factor.
pub mod casts;
pub mod factors;
pub mod kernels;

/// Where the build script left the device code.
pub const OUT_DIR: &str = env!("OUT_DIR");
