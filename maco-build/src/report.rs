//! What a build script says to cargo.

use std::path::Path;

/// Shown once under the package's name; a text of several lines becomes several warnings.
pub(crate) fn warning(text: &str) {
    for line in text.lines() {
        println!("cargo::warning={line}");
    }
}

/// Fails the build after this script ends.
pub(crate) fn error(text: &str) {
    for line in text.lines() {
        println!("cargo::error={line}");
    }
}

/// Run again when this file or anything in this directory changes.
pub(crate) fn rerun_if_changed(path: &Path) {
    println!("cargo::rerun-if-changed={}", path.display());
}

/// Run again when one of the variables of the crate's documentation changes.
pub(crate) fn rerun_if_settings_change() {
    let toolchain = ["MACO_DEVICE", "MACO_ONLY_CHECK", "MACO_REQUIRE_GPU", "MACO_DEVICE_RUSTC", "MACO_CACHE", "MACO_WORKSPACE"];
    for name in toolchain.into_iter().chain(["MACO_PTXAS", "MACO_SASS", "MACO_SANITIZE", "MACO_PROFILE"]) {
        println!("cargo::rerun-if-env-changed={name}");
    }
}
