//! The cargo that runs this build script: which manifest it was asked to build. Cargo does not say so, but Linux shows a process's folder and its words.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The manifest that cargo builds, or one in a folder above which its workspace begins. `None` where that cannot be seen.
pub(crate) fn manifest() -> Option<PathBuf> {
    // Something may stand between the two, such as a sandbox.
    let mut process = std::os::unix::process::parent_id();
    while process > 1 {
        let about = Path::new("/proc").join(process.to_string());
        let words: Vec<OsString> =
            fs::read(about.join("cmdline")).ok()?.split(|&byte| byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect();
        if is_cargo(&words) {
            return asked(&words, &fs::read_link(about.join("cwd")).ok()?);
        }
        process = parent(&fs::read_to_string(about.join("stat")).ok()?)?;
    }
    None
}

fn is_cargo(words: &[OsString]) -> bool {
    words.first().is_some_and(|program| Path::new(program).file_stem().is_some_and(|name| name == "cargo"))
}

/// The parent in `/proc/<pid>/stat`: behind the name in parentheses and the state.
fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// What cargo, called with these words in this folder, builds.
fn asked(words: &[OsString], folder: &Path) -> Option<PathBuf> {
    let words: Vec<&str> = words.iter().skip(1).map(|word| word.to_str().unwrap_or_default()).take_while(|word| *word != "--").collect();
    let value = |name: &str| {
        let at = words.iter().position(|word| word.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('=')))?;
        words[at].split_once('=').map(|(_, value)| value).or_else(|| words.get(at + 1).copied())
    };
    if let Some(manifest) = value("--manifest-path") {
        return Some(folder.join(manifest));
    }
    // These build a package somewhere else than in the folder.
    let folder = match words.iter().find(|word| ["install", "package", "publish"].contains(word)) {
        Some(&"install") => folder.join(value("--path")?),
        Some(_) => return None,
        None => folder.to_owned(),
    };
    folder.ancestors().map(|folder| folder.join("Cargo.toml")).find(|manifest| manifest.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cargo_builds_is_read_from_its_words() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let own = Some(here.join("Cargo.toml"));
        let of = |words: &str| asked(&words.split(' ').map(OsString::from).collect::<Vec<_>>(), here);
        assert_eq!(of("cargo build"), own);
        assert_eq!(of("cargo run --manifest-path /a/Cargo.toml -- --manifest-path b"), Some("/a/Cargo.toml".into()));
        assert_eq!(of("cargo run --manifest-path=a/Cargo.toml"), Some(here.join("a/Cargo.toml")));
        assert_eq!(of("cargo run -- --manifest-path b"), own);
        assert_eq!(of("cargo install serde"), None, "of a registry");
        assert_eq!(of("cargo install --path ."), Some(here.join("./Cargo.toml")));
        assert_eq!(asked(&["cargo".into(), "build".into()], &here.join("src/ptx")), own, "in a folder below");
    }

    #[test]
    fn the_parent_of_a_process_is_read_behind_its_name() {
        assert_eq!(parent("17 (a) b) S 4711 17 17 0"), Some(4711));
        assert!(manifest().is_some(), "cargo runs this test");
    }
}
