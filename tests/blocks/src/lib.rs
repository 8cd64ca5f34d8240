//! Tasks written from the building blocks of bodies, as users write them.
pub mod kernels;

/// Where the build script left the device code.
pub const OUT_DIR: &str = env!("OUT_DIR");
