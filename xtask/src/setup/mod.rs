//! A compiler that can make PTX, whatever the machine is.

mod debian;

use std::process::Command;
use std::time::Duration;

use maco_build::toolchain::{self, Toolchain};
use maco_build::{cache_dir, core_cache};

use crate::command::{attempt, capture};
use crate::failure::Failure;
use crate::progress::during;

/// One way to a toolchain; after it, the search is made again.
struct Way {
    what: &'static str,
    go: fn() -> Result<(), Failure>,
}

const WAYS: [Way; 5] = [
    Way { what: "rust-src for rustup's nightly", go: nightly },
    Way { what: "rust-src for rustup's active toolchain", go: active },
    Way { what: "Debian's rustc-web and rust-web-src, installed", go: debian::install },
    Way { what: "Debian's rustc-web and rust-web-src, unpacked into the cache", go: debian::unpack },
    Way { what: "Debian's rust-src of the installed compiler's release", go: debian::sources },
];

/// Finds or installs a toolchain and says in one line which.
pub fn setup(again: bool) -> Result<(), Failure> {
    if again {
        toolchain::forget();
    }
    let toolchain = find()?;
    println!("device toolchain: {toolchain}");
    Ok(())
}

/// The toolchain of this machine, installed if need be.
fn find() -> Result<Toolchain, Failure> {
    if let Some(toolchain) = toolchain::known().filter(core_cache::is_built) {
        return Ok(toolchain);
    }
    let ready = || {
        let toolchain = toolchain::find()?;
        core_cache::ensure(&toolchain)?;
        Ok::<_, maco_build::Error>(toolchain)
    };
    let mut tried = match during("looking for a device toolchain (builds `core` the first time)", ready) {
        Ok(toolchain) => return Ok(toolchain),
        Err(error) => vec![format!("  what is there: {error}")],
    };
    for Way { what, go } in WAYS {
        match during(what, go) {
            Ok(()) => match during("building `core`", ready) {
                Ok(toolchain) => {
                    let _ = std::fs::remove_dir_all(downloads()); // hundreds of megabytes that nothing needs any more
                    return Ok(toolchain);
                }
                Err(error) => tried.push(format!("  {what}: done, but {error}")),
            },
            Err(failure) => tried.push(format!("  {what}: {failure}")),
        }
    }
    Err(Failure::NoToolchain { tried: tried.join("\n") })
}

/// How long a download may take before it is taken for a network that is not there.
const PATIENCE: Duration = Duration::from_secs(180);

fn nightly() -> Result<(), Failure> {
    let installed = capture(Command::new("rustup").args(["toolchain", "list"]))?;
    if installed.lines().any(|line| line.starts_with("nightly")) {
        return attempt(Command::new("rustup").args(["component", "add", "rust-src", "--toolchain", "nightly"]), PATIENCE);
    }
    let arguments = ["toolchain", "install", "nightly", "--profile=minimal", "--component=rust-src", "--no-self-update"];
    attempt(Command::new("rustup").args(arguments), PATIENCE)
}

fn active() -> Result<(), Failure> {
    attempt(Command::new("rustup").args(["component", "add", "rust-src"]), PATIENCE)
}

/// Where downloads of the set-up are kept.
fn downloads() -> std::path::PathBuf {
    cache_dir().join("downloads")
}
