//! MACO by other names: see the manifest.
#![allow(uncommon_codepoints, mixed_script_confusables)]
// What MACO makes of kernels, and what it includes of the device half, raises none of the lints that a user may have.
#![deny(clippy::all, clippy::pedantic)]

pub mod renamed;
pub mod through;

/// Where the build script left the device code.
pub const OUT_DIR: &str = env!("OUT_DIR");
