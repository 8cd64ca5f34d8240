//! Three tasks of one's own, the kernels that call them, and what they should give.
pub mod kernels;
pub mod reference;

/// Where the build script left the device code.
pub const OUT_DIR: &str = env!("OUT_DIR");
