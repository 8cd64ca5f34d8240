//! The suites of the repository: the workspace, and what lies beside it and uses MACO as a stranger would.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::command::{capture, cargo};
use crate::failure::Failure;

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// The one target directory.
pub fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |directory| root().join(directory))
}

/// A workspace, or a package outside of any: what one cargo command builds.
#[derive(Clone, Debug)]
pub struct Suite {
    /// The name of its folder, `maco` for the root.
    pub name: String,
    /// Its manifest.
    pub manifest: PathBuf,
    /// What it consists of.
    pub packages: Vec<Package>,
}

/// A package of a suite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub directory: PathBuf,
}

impl Suite {
    /// The suite with a manifest at this path.
    pub fn at(manifest: PathBuf) -> Result<Suite, Failure> {
        #[derive(Deserialize)]
        struct Metadata {
            packages: Vec<Member>,
        }
        #[derive(Deserialize)]
        struct Member {
            name: String,
            manifest_path: PathBuf,
        }
        let path = manifest.to_string_lossy().into_owned();
        let text = capture(&mut cargo(&["metadata", "--no-deps", "--format-version=1", "--manifest-path", &path]))?;
        let metadata: Metadata =
            serde_json::from_str(&text).map_err(|error| Failure::Text(format!("`cargo metadata` of {path}: {error}")))?;
        let folder = |manifest: &Path| manifest.parent().unwrap_or(root()).to_owned();
        let packages: Vec<Package> =
            metadata.packages.into_iter().map(|member| Package { name: member.name, directory: folder(&member.manifest_path) }).collect();
        let name = match folder(&manifest).file_name() {
            Some(name) if folder(&manifest) != root() => name.to_string_lossy().into_owned(),
            _ => "maco".to_owned(),
        };
        Ok(Suite { name, manifest, packages })
    }

    /// Whether it is the workspace in the root, which needs no GPU and has no kernels of its own.
    pub fn is_root(&self) -> bool {
        self.manifest.parent() == Some(root())
    }

    /// For cargo: all of its packages, in the one target directory.
    pub fn arguments(&self) -> [PathBuf; 5] {
        ["--workspace".into(), "--manifest-path".into(), self.manifest.clone(), "--target-dir".into(), target()]
    }

    /// The package of that name.
    pub fn package(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name)
    }
}

impl Package {
    /// Does its build script compile kernels?
    pub fn has_kernels(&self) -> bool {
        fs::read_to_string(self.directory.join("build.rs"))
            .is_ok_and(|script| script.contains("maco_build::compile") || script.contains("maco_build::Build"))
    }

    /// Where the build leaves its PTX, and the PTX that records, if it makes any.
    pub fn ptx(&self) -> Vec<PathBuf> {
        let workshop = target().join("maco").join(&self.name);
        let recording = Some(workshop.join("profile/maco.ptx")).filter(|file| file.is_file());
        std::iter::once(workshop.join("maco.ptx")).chain(recording).collect()
    }
}

/// An example by the name of its directory.
pub fn example(name: &str) -> PathBuf {
    root().join("examples").join(name).join("Cargo.toml")
}

/// Every suite, the workspace in the root first: then `benches`, `examples/*`, the workspace in `tests`, and the packages there that stay apart from it.
pub fn suites() -> Result<Vec<Suite>, Failure> {
    let mut beside = vec![root().join("benches/Cargo.toml"), root().join("tests/Cargo.toml")];
    for directory in ["examples", "tests"] {
        let entries = fs::read_dir(root().join(directory)).into_iter().flatten().flatten();
        beside.extend(entries.map(|entry| entry.path().join("Cargo.toml")));
    }
    beside.retain(|manifest| manifest.is_file());
    beside.sort();
    let mut suites = vec![Suite::at(root().join("Cargo.toml"))?];
    let workspace = |manifest: &PathBuf| root().join("tests/Cargo.toml") == *manifest;
    let tests = Suite::at(root().join("tests/Cargo.toml"))?;
    for manifest in beside {
        let is_member = tests.packages.iter().any(|package| Some(&*package.directory) == manifest.parent());
        if workspace(&manifest) {
            suites.push(tests.clone());
        } else if !is_member {
            suites.push(Suite::at(manifest)?);
        }
    }
    Ok(suites)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_is_in_one_suite() {
        let suites = suites().unwrap();
        assert!(suites[0].is_root() && suites[0].name == "maco");
        let mlp = suites.iter().find(|suite| suite.manifest == example("mlp")).unwrap();
        assert!(mlp.name == "mlp" && mlp.packages.len() == 1 && mlp.packages[0].has_kernels());
        assert!(mlp.packages[0].ptx()[0].ends_with("maco/mlp/maco.ptx"));
        let tests = suites.iter().find(|suite| suite.name == "tests").unwrap();
        assert!(tests.package("kernels").is_some() && tests.package("emulator").is_none());
        let mut all: Vec<&Path> = suites.iter().flat_map(|suite| &suite.packages).map(|package| &*package.directory).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        for (name, packages) in [("emulator", 2), ("stranger", 1)] {
            let apart = suites.iter().find(|suite| suite.name == name).unwrap();
            assert_eq!(apart.packages.len(), packages, "{name}");
        }
    }
}
