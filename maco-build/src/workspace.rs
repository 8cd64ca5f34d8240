//! The workspace that is being built: the versions it locks and the packages it patches hold on the device too.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::Error;
use crate::caller;
use crate::files::{fingerprint, read, write};
use crate::package::Package;
use crate::toolchain::{Toolchain, run};

/// Beside a generated package's lock file: the fingerprint of the versions that it was made for.
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
    /// Cargo does not tell a build script which workspace is being built. `MACO_WORKSPACE` is its folder; else it is that of the manifest which cargo was asked
    /// to build, where that can be seen; else one that locks the package: that of the folder in which cargo was called, the one beside the target directory, or
    /// the package's own. If these lock other versions, nobody knows.
    pub(crate) fn find(toolchain: &Toolchain, package: &Package) -> Result<Workspace, Error> {
        let around = |manifest: &Path| {
            let mut command = toolchain.cargo_command();
            command.args(["locate-project", "--workspace", "--message-format=plain", "--manifest-path"]).arg(manifest);
            run(&mut command).ok().map(|path| PathBuf::from(path.trim()))
        };
        let built = caller::manifest().as_deref().and_then(around).filter(|built| locks(built, package));
        let named = env::var_os(VARIABLE).map(|folder| package.root.join(folder).join("Cargo.toml"));
        if let Some(manifest) = named.as_ref().filter(|manifest| !locks(manifest, package)) {
            return Err(Error::Workspace { manifest: manifest.clone(), package: package.name.clone() });
        }
        match (named, built) {
            (Some(named), Some(built)) => return Workspace::of(agreed(vec![named, built], package)?),
            (Some(known), None) | (None, Some(known)) => return Workspace::of(known),
            (None, None) => {}
        }
        // The shell's working directory, which cargo hands on.
        let called = env::var_os("PWD").map(PathBuf::from);
        let called =
            called.iter().flat_map(|folder| folder.ancestors()).map(|folder| folder.join("Cargo.toml")).find(|path| path.is_file());
        let beside_target = package.maco.ancestors().nth(2).map(|directory| directory.join("Cargo.toml"));
        let called = called.as_deref().and_then(around);
        // Where two signs agree, a lock file that the package has for itself says nothing.
        let agree = called.is_some() && called == beside_target;
        let own = if agree { None } else { around(&package.root.join("Cargo.toml")) };
        let mut found: Vec<PathBuf> = Vec::new();
        for manifest in [called, beside_target, own].into_iter().flatten() {
            if locks(&manifest, package) && !found.contains(&manifest) {
                found.push(manifest);
            }
        }
        if found.is_empty() { Ok(Workspace::default()) } else { Workspace::of(agreed(found, package)?) }
    }

    fn of(manifest: PathBuf) -> Result<Workspace, Error> {
        let patch = match table(&manifest) {
            Ok(mut table) => table.remove("patch").map(|patch| absolute(patch, &manifest)).unwrap_or_default(),
            Err(_) => Table::new(), // a lock file without a manifest patches nothing
        };
        Ok(Workspace { lock: Some(manifest.with_file_name("Cargo.lock")), manifest: Some(manifest), patch })
    }

    /// Compares what a generated package was built from with the lock file of the host build. Cargo resolves anew what a lock file does not fit, without a word.
    pub(crate) fn compare(&self, device: &Path) -> Result<(), Error> {
        let (Some(lock), Some(manifest)) = (&self.lock, &self.manifest) else { return Ok(()) };
        let [host, device] = [packages(lock)?, packages(&device.with_file_name("Cargo.lock"))?];
        for (name, versions) in device {
            let Some(known) = host.get(&name) else { continue };
            if let Some(other) = versions.iter().find(|version| !known.contains(*version)) {
                let known = known.iter().cloned().collect::<Vec<_>>().join(", ");
                return Err(Error::Versions { manifest: manifest.clone(), name, versions: [known, other.clone()] });
            }
        }
        Ok(())
    }

    /// Gives a package that is generated for `package` the same versions. Cargo prunes the copy, so it is renewed only when something changes of which the package is built:
    /// whatever else a workspace locks makes no other device code.
    pub(crate) fn copy_lock(&self, directory: &Path, package: &str) -> Result<(), Error> {
        let Some(lock) = &self.lock else { return Ok(()) };
        let text = read(lock)?;
        let stamp = directory.join(LOCK_ORIGIN);
        let versions = versions(lock, package)?;
        // A lock file without the package says of no version what it is for.
        let origin = if versions.is_empty() { fingerprint([&text]) } else { fingerprint([format!("{versions:?}")]) };
        let origin = format!("{origin:016x}\n");
        if read(&stamp).is_ok_and(|old| old == origin) && directory.join("Cargo.lock").exists() {
            return Ok(());
        }
        write(&directory.join("Cargo.lock"), text)?;
        write(&stamp, &origin)
    }
}

/// Says where the workspace is that is being built.
pub(crate) const VARIABLE: &str = "MACO_WORKSPACE";

/// Whether the lock file beside a manifest has the package.
fn locks(manifest: &Path, package: &Package) -> bool {
    let entry = format!("name = \"{}\"\nversion = \"{}\"\n", package.name, package.version);
    read(&manifest.with_file_name("Cargo.lock")).is_ok_and(|text| text.contains(&entry))
}

/// The first of these workspaces, if all lock the same of what the package is built from.
fn agreed(mut manifests: Vec<PathBuf>, package: &Package) -> Result<PathBuf, Error> {
    let first = manifests.remove(0);
    for other in manifests {
        if let Some((name, versions)) = difference(&first, &other, &package.name)? {
            return Err(Error::Workspaces { manifests: [first, other], name, versions });
        }
    }
    Ok(first)
}

/// A package that the package named `root` is built from, and of which two lock files have other versions.
fn difference(one: &Path, other: &Path, root: &str) -> Result<Option<(String, [String; 2])>, Error> {
    let [one, other] = [one, other].map(|manifest| versions(&manifest.with_file_name("Cargo.lock"), root));
    let (one, other) = (one?, other?);
    Ok(one.into_iter().find_map(|(name, versions)| {
        let others = other.get(&name)?;
        (*others != versions).then(|| (name, [versions, others.clone()].map(|all| all.into_iter().collect::<Vec<_>>().join(", "))))
    }))
}

/// What a lock file says of a package and all that it is built from: versions, and where they come from, by name.
fn versions(lock: &Path, root: &str) -> Result<BTreeMap<String, BTreeSet<String>>, Error> {
    let lock = table(lock)?;
    let packages = lock.get("package").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let text = |package: &Value, key: &str| package.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (mut open, mut found) = (vec![(root.to_owned(), None::<String>)], BTreeMap::<String, BTreeSet<String>>::new());
    while let Some((name, version)) = open.pop() {
        for package in packages.iter().filter(|package| text(package, "name") == name) {
            if version.as_ref().is_some_and(|version| *version != text(package, "version")) {
                continue;
            }
            let entry = format!("{} {}", text(package, "version"), text(package, "source")).trim().to_owned();
            if found.entry(name.clone()).or_default().insert(entry) {
                // `half`, or `half 2.7.1` where there are several, with the source behind.
                let dependencies = package.get("dependencies").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
                open.extend(dependencies.iter().filter_map(Value::as_str).map(|dependency| {
                    let mut words = dependency.split(' ').map(str::to_owned);
                    (words.next().unwrap_or_default(), words.next())
                }));
            }
        }
    }
    Ok(found)
}

/// All packages of a lock file: versions, and where they come from, by name.
fn packages(lock: &Path) -> Result<BTreeMap<String, BTreeSet<String>>, Error> {
    let mut found = BTreeMap::<String, BTreeSet<String>>::new();
    for package in table(lock)?.get("package").and_then(Value::as_array).into_iter().flatten() {
        let text = |key: &str| package.get(key).and_then(Value::as_str).unwrap_or_default();
        found.entry(text("name").to_owned()).or_default().insert(format!("{} {}", text("version"), text("source")).trim().to_owned());
    }
    Ok(found)
}

/// The version of MACO that a generated package was built with.
pub(crate) fn maco_version(device: &Path) -> Option<String> {
    let found = packages(&device.with_file_name("Cargo.lock")).ok()?.remove("maco-device")?;
    Some(found.first()?.split(' ').next()?.to_owned())
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
    use std::fs;

    use super::*;

    #[test]
    fn lock_files_differ_in_what_the_package_is_built_from() {
        let folder = env::temp_dir().join(format!("maco-workspace-{}", std::process::id()));
        let lock = |name: &str, half: &str, other: &str| {
            fs::create_dir_all(folder.join(name)).unwrap();
            let package =
                |name: &str, version: &str, more: &str| format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n{more}\n");
            let text = package("user", "0.1.0", "dependencies = [\"maco\"]")
                + &package("maco", "0.1.0", "dependencies = [\"half\"]")
                + &package("half", half, "source = \"registry\"")
                + &package("serde", other, "");
            fs::write(folder.join(name).join("Cargo.lock"), text).unwrap();
            folder.join(name).join("Cargo.toml")
        };
        let [a, b, c] = [lock("a", "2.7.0", "1.0.0"), lock("b", "2.7.1", "1.0.0"), lock("c", "2.7.0", "1.0.1")];
        let found = difference(&a, &b, "user").unwrap();
        assert_eq!(found, Some(("half".to_owned(), ["2.7.0 registry".to_owned(), "2.7.1 registry".to_owned()])));
        assert_eq!(difference(&a, &c, "user").unwrap(), None, "no part of it");
        // A package that is generated for `user` takes another version of what it is built from, and only then.
        let copied = |manifest: &Path, package: &str| {
            let to = folder.join("generated");
            fs::create_dir_all(&to).unwrap();
            Workspace::of(manifest.to_owned()).unwrap().copy_lock(&to, package).unwrap();
            (fs::read_to_string(to.join(LOCK_ORIGIN)).unwrap(), fs::read_to_string(to.join("Cargo.lock")).unwrap())
        };
        let first = copied(&a, "user");
        assert!(copied(&c, "user") == first, "serde is no part of it");
        let second = copied(&b, "user");
        assert!(second != first && second.1.contains("2.7.1"));
        assert_ne!(copied(&a, "nobody").0, copied(&c, "nobody").0, "all that is locked");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_device_half_has_no_version_that_the_host_half_lacks() {
        let folder = env::temp_dir().join(format!("maco-compare-{}", std::process::id()));
        let lock = |name: &str, packages: &[(&str, &str)]| {
            fs::create_dir_all(folder.join(name)).unwrap();
            let text = |(name, version): &(&str, &str)| format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n");
            fs::write(folder.join(name).join("Cargo.lock"), packages.iter().map(text).collect::<String>()).unwrap();
            folder.join(name).join("Cargo.toml")
        };
        let workspace =
            Workspace::of(lock("host", &[("syn", "1.0.0"), ("syn", "2.0.0"), ("half", "2.7.0"), ("maco-device", "0.1.0")])).unwrap();
        let same = lock("same", &[("user-kernels", "0.1.0"), ("syn", "2.0.0"), ("half", "2.7.0"), ("maco-device", "0.1.0")]);
        workspace.compare(&same).unwrap();
        assert_eq!(maco_version(&same).as_deref(), Some("0.1.0"));
        let other = lock("other", &[("half", "2.7.1")]);
        let text = workspace.compare(&other).unwrap_err().to_string();
        assert!(text.contains("`half` is 2.7.0") && text.contains("2.7.1 for the GPU"), "{text}");
        assert_eq!(maco_version(&other), None);
        Workspace::default().compare(&other).unwrap();
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn patched_paths_are_those_of_the_workspace() {
        let table: Table = "[patch.crates-io]\nmaco = { path = \"../maco\" }\nhalf = { git = \"https://x\" }\n".parse().unwrap();
        let patch = absolute(table["patch"].clone(), Path::new("/a/b/Cargo.toml"));
        assert_eq!(patch["crates-io"]["maco"]["path"].as_str(), Some("/a/b/../maco"));
        assert_eq!(patch["crates-io"]["half"]["git"].as_str(), Some("https://x"));
    }
}
