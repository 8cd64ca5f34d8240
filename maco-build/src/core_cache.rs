//! `core` for the GPU, built once per compiler and flags into the user's cache.
//!
//! Two direct calls of rustc instead of `-Zbuild-std`: no registry crates, no nightly cargo, and plain cargo builds on top of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;

use crate::Error;
use crate::files::{cache_dir, create_dir, fingerprint, lock};
use crate::toolchain::{Toolchain, run};

/// The target all device code is built for.
pub const TARGET: &str = "nvptx64-nvidia-cuda";

/// The GPU all device code is built for.
pub const CPU: &str = "sm_90a";

/// What every crate of the device half is compiled with, `core` too: LLVM inlines only between functions of one target.
///
/// The LLVM arguments are not tuning. `simplifycfg-max-small-block-size=0`: `asm!` is not convergent, and a barrier in a small block
/// would be copied into both arms of a branch before it. `unroll-threshold`: a register array indexed by a loop that stays a
/// loop lives in local memory. `cold-callsite-rel-freq=0`: every arm of a dispatch over many tasks looks cold, and a closure that is not
/// inlined for that is a call, with its captures in local memory. `inline-threshold`: the same of a closure that is long because it is
/// unrolled.
///
/// `cross-crate-inline-threshold=always` compiles a function where it is used, and nowhere else. Without it the crates `maco` and
/// `maco-graph` take 22 s and 8 s, for code of which nearly nothing reaches the PTX; the PTX is the same.
pub const FLAGS: [&str; 10] = [
    "-Ctarget-cpu=sm_90a",
    "-Ctarget-feature=+ptx86",
    "-Copt-level=3",
    "-Ccodegen-units=1",
    "-Cpanic=abort",
    "-Zcross-crate-inline-threshold=always",
    "-Cllvm-args=-unroll-threshold=1000",
    "-Cllvm-args=-inline-threshold=4000",
    "-Cllvm-args=-cold-callsite-rel-freq=0",
    "-Cllvm-args=-simplifycfg-max-small-block-size=0",
];

/// Where `core` of this toolchain is, or will be.
fn directory(toolchain: &Toolchain) -> PathBuf {
    // The last word is how `rustc` below is called: a `core` that was compiled in another way has another folder, and cargo compiles anew what was compiled against it.
    let key = fingerprint([&toolchain.version.verbose, &*toolchain.library.to_string_lossy()].into_iter().chain(FLAGS).chain(["remapped"]));
    cache_dir().join("core").join(format!("{}-{key:016x}", toolchain.version.series()))
}

/// Is `core` of this toolchain there?
pub fn is_built(toolchain: &Toolchain) -> bool {
    directory(toolchain).exists()
}

/// The directory with `libcore.rlib` and `libcompiler_builtins.rlib` for this toolchain; builds them the first time (about 12 s).
pub fn ensure(toolchain: &Toolchain) -> Result<PathBuf, Error> {
    let done = directory(toolchain);
    if done.exists() {
        return Ok(done);
    }
    let root = done.parent().unwrap_or(&done);
    let mut waiting = done.as_os_str().to_owned();
    waiting.push(".lock");
    let _held = lock(Path::new(&waiting))?;
    if done.exists() {
        return Ok(done); // built by another process while this one waited
    }
    let building = root.join(format!("building-{}", process::id()));
    create_dir(&building)?;
    let result = build(toolchain, &building).and_then(|()| fs::rename(&building, &done).map_err(Error::io("rename", &building)));
    if result.is_err() {
        let _ = fs::remove_dir_all(&building); // the error that matters is the first one
    }
    result.map(|()| done)
}

fn build(toolchain: &Toolchain, into: &Path) -> Result<(), Error> {
    rustc(toolchain, "core", &toolchain.library.join("core/src/lib.rs"), into)?;
    // The NVPTX back end lowers memcpy, 128-bit and division itself: nothing of the real crate is ever called.
    let source = into.join("compiler_builtins.rs");
    let text = "#![allow(internal_features)]\n#![feature(compiler_builtins)]\n#![compiler_builtins]\n#![no_std]\n";
    fs::write(&source, text).map_err(Error::io("write", &source))?;
    rustc(toolchain, "compiler_builtins", &source, into)
}

fn rustc(toolchain: &Toolchain, name: &str, source: &Path, into: &Path) -> Result<(), Error> {
    let mut command = toolchain.rustc_command();
    command
        .env("RUSTC_BOOTSTRAP", "1") // also on a nightly: `core` may use features that only the bootstrap may
        .args(["--edition=2024", "--crate-type=rlib", "--target", TARGET, "--cap-lints=allow", "-Zforce-unstable-if-unmarked"])
        // Only bitcode: all code is made when the whole program is known.
        .args(["-Clinker-plugin-lto", "--crate-name", name])
        // The same bytes wherever they are made: cargo keeps what was compiled against a `core` before, also when the cache is made again, and rustc refuses another one.
        .current_dir(&toolchain.library)
        .arg(format!("--remap-path-prefix={}=", into.display()))
        .args(FLAGS)
        .arg("--out-dir")
        .arg(into)
        .arg("-L")
        .arg(into)
        .arg(source);
    run(&mut command).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toolchain;

    /// Of `core` itself it takes a quarter of a minute; a crate with nothing in it is compiled by the same call.
    #[test]
    fn what_is_compiled_does_not_say_where() {
        let toolchain = toolchain::find().unwrap();
        let compiled = ["a", "longer/b"].map(|name| {
            let into = std::env::temp_dir().join(format!("maco-core-{}", process::id())).join(name);
            create_dir(&into).unwrap();
            let source = into.join("empty.rs");
            fs::write(&source, "#![feature(no_core)]\n#![no_core]\npub mod place {}\n").unwrap();
            rustc(&toolchain, "empty", &source, &into).unwrap();
            let bytes = fs::read(into.join("libempty.rlib")).unwrap();
            fs::remove_dir_all(&into).unwrap();
            bytes
        });
        assert!(compiled[0] == compiled[1], "the same source gives other bytes in another folder");
    }
}
