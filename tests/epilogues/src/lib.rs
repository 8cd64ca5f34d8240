//! Megakernels whose GEMMs have operands in their epilogues, or an elementwise prologue.
pub mod casts;
pub mod kernels;
pub mod prologues;

/// Where the build script left the device code.
pub const OUT_DIR: &str = env!("OUT_DIR");
