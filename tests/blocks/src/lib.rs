//! Tasks written from the building blocks of bodies, as users write them; every product of the tensor cores by itself, and tensor copies.
pub mod boxes;
pub mod kernels;
pub mod tensor_cores;

/// Where the build script left the device code.
pub const OUT_DIR: &str = env!("OUT_DIR");
