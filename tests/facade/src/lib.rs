//! A crate that passes MACO on: see the manifest.
#![cfg_attr(target_arch = "nvptx64", no_std)]

pub mod gpu {
    pub use maco::*;
}
