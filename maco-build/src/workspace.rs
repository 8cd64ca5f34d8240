//! The workspace that is being built: the versions it locks and the packages it patches hold on the device too.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::Error;
use crate::files::{fingerprint, read, write};
use crate::package::Package;
use crate::toolchain::{Toolchain, run};

/// Beside a generated package's lock file: which one it is a copy of, and the fingerprint of that.
pub(crate) const LOCK_ORIGIN: &str = "Cargo.lock.origin";

/// Where the host build takes its versions from.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    /// Its lock file, if it has been found.
    pub lock: Option<PathBuf>,
    /// Its manifest.
    pub manifest: Option<PathBuf>,
    /// Its `[patch]`, with absolute paths.
    pub patch: Table,
}

impl Workspace {
    /// Cargo does not tell a build script which workspace is being built. It is the one beside the target directory if its lock file has
    /// the package, else the package's own.
    pub(crate) fn find(toolchain: &Toolchain, package: &Package) -> Result<Workspace, Error> {
        let beside_target = package.maco.ancestors().nth(2).map(|directory| directory.join("Cargo.toml"));
        let mut command = toolchain.cargo_command();
        command.args(["locate-project", "--workspace", "--message-format=plain", "--manifest-path"]).arg(package.root.join("Cargo.toml"));
        let own = run(&mut command).ok().map(|path| PathBuf::from(path.trim()));
        let entry = format!("name = \"{}\"\nversion = \"{}\"\n", package.name, package.version);
        let locks = |manifest: &PathBuf| read(&manifest.with_file_name("Cargo.lock")).is_ok_and(|text| text.contains(&entry));
        let Some(manifest) = beside_target.into_iter().chain(own).find(locks) else { return Ok(Workspace::default()) };
        let patch = match table(&manifest) {
            Ok(mut table) => table.remove("patch").map(|patch| absolute(patch, &manifest)).unwrap_or_default(),
            Err(_) => Table::new(), // a lock file without a manifest patches nothing
        };
        Ok(Workspace { lock: Some(manifest.with_file_name("Cargo.lock")), manifest: Some(manifest), patch })
    }

    /// Gives a generated package the same versions. Cargo prunes the copy, so it is renewed only when the original changes.
    pub(crate) fn copy_lock(&self, directory: &Path) -> Result<(), Error> {
        let Some(lock) = &self.lock else { return Ok(()) };
        let text = read(lock)?;
        let stamp = directory.join(LOCK_ORIGIN);
        let origin = format!("{:016x} {}\n", fingerprint([&text]), lock.display());
        if read(&stamp).is_ok_and(|old| old == origin) && directory.join("Cargo.lock").exists() {
            return Ok(());
        }
        write(&directory.join("Cargo.lock"), text)?;
        write(&stamp, origin)
    }
}

/// A manifest.
pub(crate) fn table(manifest: &Path) -> Result<Table, Error> {
    let parsed = read(manifest)?.parse();
    parsed.map_err(|error: toml::de::Error| Error::Format { what: format!("`{}`", manifest.display()), why: error.to_string() })
}

/// `[patch]` with the paths it has relative to `manifest` made absolute.
fn absolute(mut patch: Value, manifest: &Path) -> Table {
    for (_, source) in patch.as_table_mut().into_iter().flatten() {
        for (_, entry) in source.as_table_mut().into_iter().flatten() {
            if let Some(path) = entry.get_mut("path") {
                let absolute = manifest.with_file_name(path.as_str().unwrap_or_default());
                *path = absolute.to_string_lossy().into_owned().into();
            }
        }
    }
    match patch {
        Value::Table(table) => table,
        _ => Table::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patched_paths_are_those_of_the_workspace() {
        let table: Table = "[patch.crates-io]\nmaco = { path = \"../maco\" }\nhalf = { git = \"https://x\" }\n".parse().unwrap();
        let patch = absolute(table["patch"].clone(), Path::new("/a/b/Cargo.toml"));
        assert_eq!(patch["crates-io"]["maco"]["path"].as_str(), Some("/a/b/../maco"));
        assert_eq!(patch["crates-io"]["half"]["git"].as_str(), Some("https://x"));
    }
}
