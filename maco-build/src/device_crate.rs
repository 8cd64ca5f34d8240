//! The package around the user's file: what cargo compiles for the GPU.

use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::Error;
use crate::dependencies::Dependencies;
use crate::files::{fingerprint, read, write};
use crate::package::Package;
use crate::workspace::{LOCK_ORIGIN, Workspace};

/// A generated package in `target/maco/<package>`.
pub(crate) struct DeviceCrate {
    /// Its manifest.
    pub manifest: PathBuf,
    /// Name of its library: no other package in `target/maco` has it.
    pub library: String,
    /// Features of the user's package that are on.
    pub features: Vec<String>,
}

/// The profile of device code. It says everything itself: `release` may be the user's, in a configuration file.
pub(crate) const PROFILE: &str = "maco-device";

/// Features of the compiler that expanded kernels use in the user's own file.
const FEATURES: &str = "abi_ptx, asm_experimental_arch, stdarch_nvptx, core_float_math";

impl DeviceCrate {
    /// Writes manifest, lock file and crate root; touches only what changed.
    pub(crate) fn write(
        package: &Package,
        workspace: &Workspace,
        dependencies: &Dependencies,
        kernels: &[PathBuf],
    ) -> Result<DeviceCrate, Error> {
        let directory = package.workshop();
        let name = package_name(package, dependencies);
        let library =
            format!("{}_{:08x}_device", identifier(&package.name), fingerprint([package.root.to_string_lossy().as_bytes()]) as u32);
        let manifest = directory.join("Cargo.toml");
        write(&manifest, manifest_text(&name, &package.version, &library, dependencies, &workspace.patch))?;
        write(&directory.join("src/lib.rs"), root_text(kernels)?)?;
        workspace.copy_lock(&directory, &package.name)?;
        let features = dependencies.features.iter().filter(|feature| package.features.contains(feature)).cloned().collect();
        Ok(DeviceCrate { manifest, library, features })
    }
}

impl DeviceCrate {
    /// Manifest, versions that are locked, and crate root.
    pub(crate) fn texts(&self) -> Result<Vec<String>, Error> {
        let directory = self.manifest.parent().unwrap_or(&self.manifest);
        // Not the lock file: cargo prunes it. A package outside of any workspace may have none.
        let lock = fs::read_to_string(directory.join(LOCK_ORIGIN)).unwrap_or_default();
        Ok(vec![read(&self.manifest)?, lock, read(&directory.join("src/lib.rs"))?])
    }
}

/// The user's own name, so that `CARGO_PKG_NAME` says the same on both sides, unless the package is among its own dependencies.
fn package_name(package: &Package, dependencies: &Dependencies) -> String {
    if dependencies.table.contains_key(&package.name) { format!("{}-kernels", package.name) } else { package.name.clone() }
}

fn identifier(name: &str) -> String {
    name.replace('-', "_")
}

fn manifest_text(name: &str, version: &str, library: &str, dependencies: &Dependencies, patch: &Table) -> String {
    let text = |value: &str| Value::from(value);
    let table = |pairs: Vec<(&str, Value)>| Value::from(Table::from_iter(pairs.into_iter().map(|(key, value)| (key.to_owned(), value))));
    let features = dependencies.features.iter().map(|feature| (feature.as_str(), Value::Array(Vec::new()))).collect();
    let mut manifest = Table::from_iter([
        (
            "package".to_owned(),
            table(vec![
                ("name", text(name)),
                ("version", text(version)),
                ("edition", text(&dependencies.edition)),
                ("publish", false.into()),
            ]),
        ),
        // Not a member of the workspace it lies in.
        ("workspace".to_owned(), table(vec![("resolver", text("3"))])),
        ("lib".to_owned(), table(vec![("name", text(library)), ("crate-type", Value::Array(vec![text("cdylib")]))])),
        ("features".to_owned(), table(features)),
        ("dependencies".to_owned(), dependencies.table.clone().into()),
        (
            "profile".to_owned(),
            table(vec![(
                PROFILE,
                table(vec![
                    ("inherits", text("release")),
                    ("opt-level", 3.into()),
                    ("lto", text("fat")),
                    ("codegen-units", 1.into()),
                    ("panic", text("abort")),
                    // The only debug information that ptxas accepts: file and line, no types.
                    ("debug", text("line-directives-only")),
                    ("debug-assertions", false.into()),
                    ("overflow-checks", false.into()),
                    ("incremental", false.into()),
                    ("strip", text("none")),
                    ("rpath", false.into()),
                    // Macros run on the host; optimising them costs more than it saves.
                    ("build-override", table(vec![("opt-level", 0.into()), ("codegen-units", 256.into())])),
                ]),
            )]),
        ),
    ]);
    for (key, table) in [("patch", patch), ("target", &dependencies.conditional)] {
        if !table.is_empty() {
            manifest.insert(key.to_owned(), table.clone().into());
        }
    }
    format!("# Written by maco-build. Changes are lost.\n{manifest}")
}

fn root_text(kernels: &[PathBuf]) -> Result<String, Error> {
    let mut text = format!(
        "//! Written by maco-build. Changes are lost.\n\
         #![no_std]\n\
         #![allow(warnings)] // the host build of the same file shows them\n\
         #![feature({FEATURES})]\n\n"
    );
    for (index, file) in kernels.iter().enumerate() {
        let (directory, module) = module_of(file)?;
        // An inline module with a directory: `#[path]` on the file itself would break its own submodules.
        text.push_str(&format!("#[path = {:?}]\nmod root{index} {{\n    pub mod {module};\n}}\n", directory.to_string_lossy()));
    }
    text.push_str("\n#[panic_handler]\nfn panic(_: &core::panic::PanicInfo) -> ! {\n    unsafe { core::arch::nvptx::trap() }\n}\n");
    Ok(text)
}

/// Directory and module name of a file of kernels: `src/kernels.rs` and `src/kernels/mod.rs` are both `kernels` in `src`.
fn module_of(file: &Path) -> Result<(PathBuf, String), Error> {
    let refuse = |why| Error::Source { path: file.to_owned(), why };
    let stem = |path: &Path| path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned);
    let parent = file.parent().ok_or_else(|| refuse("it has no directory"))?;
    let (directory, module) = match stem(file).as_deref() {
        Some("lib" | "main" | "build") => {
            return Err(refuse("kernels need a file of their own: move them to `src/kernels.rs`, with `mod kernels;` in the crate root"));
        }
        Some("mod") => (parent.parent(), stem(parent)),
        module => (Some(parent), module.map(str::to_owned)),
    };
    match (directory, module) {
        (Some(directory), Some(module)) if module.chars().all(|c| c.is_alphanumeric() || c == '_') => Ok((directory.to_owned(), module)),
        _ => Err(refuse("its name is no module name")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_a_module_of_their_directory() {
        let module = |path: &str| module_of(Path::new(path)).map(|(directory, module)| format!("{} {module}", directory.display()));
        assert_eq!(module("/a/src/kernels.rs").unwrap(), "/a/src kernels");
        assert_eq!(module("/a/src/kernels/mod.rs").unwrap(), "/a/src kernels");
        assert!(module("/a/src/lib.rs").unwrap_err().to_string().contains("src/kernels.rs"));
        assert!(module("/a/src/my-kernels.rs").is_err());
    }

    #[test]
    fn the_manifest_stands_alone() {
        let mut dependencies = Dependencies { edition: "2021".to_owned(), features: vec!["fast".to_owned()], ..Dependencies::default() };
        dependencies.table.insert("maco".to_owned(), Value::from(Table::from_iter([("path".to_owned(), Value::from("/maco"))])));
        let text = manifest_text("user", "1.2.3", "user_device", &dependencies, &Table::new());
        let parsed: Table = text.parse().unwrap();
        assert_eq!(parsed["package"]["edition"].as_str(), Some("2021"));
        assert!(parsed["workspace"].is_table());
        assert_eq!(parsed["dependencies"]["maco"]["path"].as_str(), Some("/maco"));
        assert!(parsed["features"]["fast"].as_array().is_some_and(Vec::is_empty));
        assert!(!parsed.contains_key("patch"));
    }
}
