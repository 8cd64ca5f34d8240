//! Files of kernels: `cargo test` runs each of them on the CPU, and on a GPU where there is one.
pub mod bodies;
pub mod captured;
pub mod chains;
pub mod dense;
pub mod endless;
pub mod faults;
pub mod helpers;
pub mod inputs;
pub mod launches;
pub mod operations;
pub mod random;
pub mod readme;
pub mod regions;
pub mod split;
pub mod twin;
pub mod uneven;

/// Where the build script left the device code.
pub const OUT_DIR: &str = env!("OUT_DIR");
