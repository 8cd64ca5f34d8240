//! Kernels of several ranks.

pub mod beside;
pub mod built;
pub mod channels;
pub mod collectives;
pub mod mixed;
pub mod pushed;
pub mod shares;
pub mod sizes;
pub mod symmetric;

/// Where the build script left the device code.
pub const OUT_DIR: &str = env!("OUT_DIR");
