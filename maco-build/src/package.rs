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
    /// Features that are on.
    pub features: Vec<String>,
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
            features: env::var("CARGO_CFG_FEATURE")
                .unwrap_or_default()
                .split(',')
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect(),
            maco: target_dir(&out, &variable("TARGET")?).join("maco"),
            on_device: variable("TARGET")?.starts_with("nvptx"),
            out,
        })
    }

    /// `target/maco/<package>`: the device crate and everything left for the user to read.
    pub(crate) fn workshop(&self) -> PathBuf {
        self.maco.join(&self.name)
    }
}

fn variable(name: &'static str) -> Result<String, Error> {
    env::var(name).map_err(|_| Error::NotABuildScript(name))
}

/// The target directory above `OUT_DIR`, by the tag cargo leaves in it; four levels up (`debug/build/<package>/out`) without one.
fn target_dir(out: &Path, triple: &str) -> PathBuf {
    let tagged = |directory: &&Path| directory.join("CACHEDIR.TAG").exists();
    let nearest = out.ancestors().skip(1).find(tagged).or_else(|| out.ancestors().nth(4)).unwrap_or(out);
    // With `--target` there is a tagged directory for the triple in the one that all builds share.
    let shared = nearest.parent().filter(tagged).filter(|_| nearest.ends_with(triple));
    shared.unwrap_or(nearest).to_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_target_directory_is_the_tagged_one() {
        let root = env::temp_dir().join(format!("maco-package-{}", std::process::id()));
        let triple = "x86_64-unknown-linux-gnu";
        let out = root.join(triple).join("release/build/user-1/out");
        fs::create_dir_all(&out).unwrap();
        let tag = |directory: &Path| fs::write(directory.join("CACHEDIR.TAG"), "").unwrap();
        assert_eq!(target_dir(&out, triple), root.join(triple));
        tag(&root);
        assert_eq!(target_dir(&out, triple), root);
        tag(&root.join(triple));
        assert_eq!(target_dir(&out, triple), root);
        assert_eq!(target_dir(&out, "another"), root.join(triple));
        fs::remove_dir_all(root).unwrap();
    }
}
