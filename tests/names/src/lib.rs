//! MACO by other names: see the manifest.
#![allow(uncommon_codepoints, mixed_script_confusables)]

pub mod renamed;
pub mod through;

/// Where the build script left the device code.
pub const OUT_DIR: &str = env!("OUT_DIR");
