//! The user's package as cargo shows it to a build script.

use std::env;
use std::path::{Path, PathBuf};

use crate::Error;

/// The package whose build script this is.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    /// `CARGO_PKG_NAME`
    pub name: String,
    /// `CARGO_PKG_VERSION`
    pub version: String,
    /// Directory of its manifest.
    pub root: PathBuf,
    /// `OUT_DIR`
    pub out: PathBuf,
    /// `target/maco` of whoever builds it.
    pub maco: PathBuf,
    /// Built for the GPU itself, as a task library of another package.
    pub on_device: bool,
}

impl Package {
    pub(crate) fn from_environment() -> Result<Package, Error> {
        let out = PathBuf::from(variable("OUT_DIR")?);
        Ok(Package {
            name: variable("CARGO_PKG_NAME")?,
            version: variable("CARGO_PKG_VERSION")?,
            root: PathBuf::from(variable("CARGO_MANIFEST_DIR")?),
            maco: target_dir(&out).join("maco"),
            on_device: variable("TARGET")?.starts_with("nvptx"),
            out,
        })
    }

    /// `target/maco/<package>`: the device crate and everything left for the user to read.
    pub(crate) fn workshop(&self) -> PathBuf {
        self.maco.join(&self.name)
    }

    /// Is the feature on in this build? Cargo writes `-` as `_` and capitals.
    pub(crate) fn has_feature(&self, feature: &str) -> bool {
        env::var_os(format!("CARGO_FEATURE_{}", feature.to_uppercase().replace('-', "_"))).is_some()
    }
}

fn variable(name: &'static str) -> Result<String, Error> {
    env::var(name).map_err(|_| Error::NotABuildScript(name))
}

/// The target directory above `OUT_DIR`, by the tag cargo leaves in it; four levels up (`debug/build/<package>/out`) without one.
fn target_dir(out: &Path) -> PathBuf {
    let tagged = out.ancestors().skip(1).find(|directory| directory.join("CACHEDIR.TAG").exists());
    tagged.or_else(|| out.ancestors().nth(4)).unwrap_or(out).to_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_target_directory_is_the_tagged_one() {
        let root = env::temp_dir().join(format!("maco-package-{}", std::process::id()));
        let out = root.join("x86_64-unknown-linux-gnu/release/build/user-1/out");
        fs::create_dir_all(&out).unwrap();
        assert_eq!(target_dir(&out), root.join("x86_64-unknown-linux-gnu"));
        fs::write(root.join("CACHEDIR.TAG"), "").unwrap();
        assert_eq!(target_dir(&out), root);
        fs::remove_dir_all(root).unwrap();
    }
}
