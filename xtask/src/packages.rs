//! The packages of the repository: the workspace, and those beside it that use MACO as a stranger would.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::command::{capture, cargo};
use crate::failure::Failure;
use crate::lanes;

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// The one target directory.
pub fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |directory| root().join(directory))
}

/// A package outside the workspace: an example, a test package, the benches.
#[derive(Clone, Debug)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its manifest.
    pub manifest: PathBuf,
    /// Which of the builds that run side by side has it.
    pub lane: usize,
}

impl Package {
    /// The package with a manifest at this path.
    pub fn at(manifest: PathBuf) -> Result<Package, Failure> {
        #[derive(Deserialize)]
        struct Metadata {
            packages: Vec<Named>,
        }
        #[derive(Deserialize)]
        struct Named {
            name: String,
            manifest_path: PathBuf,
        }
        let path = manifest.to_string_lossy().into_owned();
        let text = capture(&mut cargo(&["metadata", "--no-deps", "--format-version=1", "--manifest-path", &path]))?;
        let metadata: Metadata =
            serde_json::from_str(&text).map_err(|error| Failure::Text(format!("`cargo metadata` of {path}: {error}")))?;
        let named = metadata.packages.into_iter().find(|package| package.manifest_path == manifest);
        let name = named.map(|package| package.name).ok_or_else(|| Failure::Text(format!("{path} is no package")))?;
        Ok(Package { name, manifest, lane: 0 })
    }

    /// For cargo: its manifest and its target directory.
    pub fn arguments(&self) -> [PathBuf; 4] {
        ["--manifest-path".into(), self.manifest.clone(), "--target-dir".into(), lanes::target_of(self.lane)]
    }

    /// What cargo's build script of it gets to know, see [`Package::is_only_checked`].
    pub fn environment(&self) -> Option<(&'static str, &'static str)> {
        self.is_only_checked().then_some(("MACO_DEVICE", "check"))
    }

    /// Whether tests and lint only look for errors in its kernels: `MACO_ONLY_CHECK` names it, in a list with commas. What is bundled is compiled
    /// nevertheless.
    pub fn is_only_checked(&self) -> bool {
        env::var("MACO_ONLY_CHECK").is_ok_and(|names| names.split(',').any(|name| name == self.name))
    }

    /// Where the package is.
    pub fn directory(&self) -> &Path {
        self.manifest.parent().unwrap_or(root())
    }

    /// Does its build script compile kernels?
    pub fn has_kernels(&self) -> bool {
        fs::read_to_string(self.directory().join("build.rs")).is_ok_and(|script| script.contains("maco_build::"))
    }

    /// How many megakernels its sources have: most of a build's time is theirs.
    fn kernels(&self) -> usize {
        let sources = fs::read_dir(self.directory().join("src")).into_iter().flatten().flatten();
        let texts = sources.filter_map(|source| fs::read_to_string(source.path()).ok());
        texts.map(|text| text.matches("#[maco::megakernel").count()).sum()
    }

    /// Where the build leaves its PTX.
    pub fn ptx(&self) -> PathBuf {
        lanes::target_of(self.lane).join("maco").join(&self.name).join("maco.ptx")
    }

    /// Where it leaves the PTX that records, if it makes any.
    pub fn recording_ptx(&self) -> PathBuf {
        self.ptx().with_file_name("profile").join("maco.ptx")
    }
}

/// An example by the name of its directory.
pub fn example(name: &str) -> PathBuf {
    root().join("examples").join(name).join("Cargo.toml")
}

/// Every package outside the workspace: `examples/*`, `tests/*`, `benches`.
pub fn beside() -> Result<Vec<Package>, Failure> {
    let mut manifests = vec![root().join("benches/Cargo.toml")];
    for directory in ["examples", "tests"] {
        let entries = fs::read_dir(root().join(directory)).into_iter().flatten().flatten();
        manifests.extend(entries.map(|entry| entry.path().join("Cargo.toml")));
    }
    manifests.retain(|manifest| manifest.is_file());
    manifests.sort();
    let mut packages = manifests.into_iter().map(Package::at).collect::<Result<Vec<_>, _>>()?;
    let work: Vec<usize> = packages.iter().map(|package| if package.is_only_checked() { 1 } else { 1 + package.kernels() }).collect();
    for (package, lane) in packages.iter_mut().zip(lanes::spread(&work, lanes::count())) {
        package.lane = lane;
    }
    Ok(packages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_are_found_by_name() {
        let all = beside().unwrap();
        let mlp = all.iter().find(|package| package.manifest == example("mlp")).unwrap();
        assert_eq!(mlp.name, "mlp");
        assert!(mlp.has_kernels());
        assert!(mlp.ptx().ends_with("maco/mlp/maco.ptx"));
    }
}
