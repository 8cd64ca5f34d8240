//! The one call of a MACO user's `build.rs`: compiles the kernels to PTX, checks them and embeds them.
//!
//! ```no_run
//! // build.rs
//! # #[allow(clippy::needless_doctest_main)]
//! fn main() {
//!     maco_build::compile("src/kernels.rs")
//! }
//! ```
//!
//! What a kernel means does not belong here: this crate only moves files and text. In order: [`toolchain`] finds a compiler that can
//! make PTX, [`core_cache`] builds `core` for it once per machine, `device_crate` writes a package around the user's file,
//! `cargo` builds that package with plain cargo, [`ptx`] patches, lints and assembles the result, `embed` writes what the megakernel
//! macro includes from `$OUT_DIR`.
//!
//! # Environment
//!
//! | variable | effect |
//! |---|---|
//! | `MACO_DEVICE=skip` | no device code; the CPU works (for editors, docs builds and measuring) |
//! | `MACO_DEVICE=check` | no device code either, but errors in kernels are found, in seconds; rules of PTX, registers and spills are not looked at |
//! | `MACO_ONLY_CHECK=name,other` | the same, of these packages alone |
//! | `MACO_REQUIRE_GPU=1` | a missing device toolchain is an error instead of a warning (for CI) |
//! | `MACO_DEVICE_RUSTC` | the compiler to use; its `rust-src` must be in its sysroot or in the cache |
//! | `MACO_CACHE` | where `core` and downloaded sources live; default `$XDG_CACHE_HOME/maco` or `~/.cache/maco` |
//! | `MACO_WORKSPACE` | the folder of the workspace that is being built: whose lock file and `[patch]` hold for the device half; needed where it cannot be seen what cargo was asked to build, and two come into question that lock other versions |
//! | `MACO_SANITIZE` | `1`: device code whose order NVIDIA's racecheck can follow, for `cargo xtask sanitize`; slower |
//! | `MACO_PROFILE` | `1`: beside the ordinary device code, the same once more, such that it records what it does, for `plan.profile(true)` |
//! | `MACO_PTXAS` | the `ptxas` that assembles and checks registers and spills; default: the one of `cargo xtask lint`, `PATH`, `CUDA_HOME` |
//! | `MACO_SASS` | `0`: embeds no machine code beside the PTX, even if there is a `ptxas`: smaller programs, whose first start takes the driver's compiler up to minutes |
//!
//! # What it leaves to read
//!
//! In `target/maco/<package>/`: `maco.ptx`, the PTX as embedded, and `profile/maco.ptx`, the PTX that records; `expanded.rs`, the kernels after macro expansion
//! as the GPU sees them (best effort); `errors.txt`, what rustc said about the device half when it failed. In `target/maco/sass/`: each entry's machine code, and
//! a `.log` with what `ptxas` said of it and how long it took.
//!
//! # What may stand in the file of kernels
//!
//! It is compiled twice, as a module of the user's crate and as the only module of a device crate. It may use `maco`, task libraries
//! (packages whose manifest says `[package.metadata.maco] tasks = true`) and its own submodules; `crate::…` names another crate there.
//! Plain kernels (`#[unsafe(no_mangle)] extern "ptx-kernel" fn` for the device only) are embedded too: `$OUT_DIR/maco_plain.rs` is a
//! `&[(name, PTX)]` of them, for programs that launch them by other means than a plan. They keep the same rules as megakernels.

#![forbid(unsafe_code)]

mod build;
mod caller;
mod cargo;
mod dependencies;
mod device_crate;
mod embed;
mod error;
mod expansion;
mod files;
mod package;
mod ptx_cache;
mod report;
mod workspace;

pub mod core_cache;
pub mod parallel;
pub mod ptx;
pub mod toolchain;

pub use build::{Build, is_only_checked, no_device_code};
pub use error::Error;
pub use files::{cache_dir, fingerprint};

use std::path::Path;

/// Compiles one file of kernels, given relative to the package, and embeds its PTX: everything a `build.rs` has to say.
///
/// Never fails the build script for a fault of the kernels: see [`Build::run`].
pub fn compile(kernels: impl AsRef<Path>) {
    Build::new([kernels]).run();
}

/// Compiles several files of kernels into one PTX module.
pub fn compile_all<P: AsRef<Path>>(kernels: impl IntoIterator<Item = P>) {
    Build::new(kernels).run();
}
