//! Debian's compilers and sources, with root and without.
//!
//! `rustc-web` (for browsers, in the security suite) is a current compiler with `rust-web-src` of the very same release.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use maco_build::cache_dir;
use maco_build::toolchain::{compilers_without_sources, source_dir, unpacked_dir};

use super::{PATIENCE, downloads};
use crate::command::{attempt, capture};
use crate::failure::Failure;

const PAIR: [&str; 2] = ["rustc-web", "rust-web-src"];
/// Suites that have had a `rust-src` newer than the stable release's.
const SUITES: [&str; 5] = ["bookworm-backports", "trixie", "trixie-backports", "forky", "sid"];
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// With root: the pair, by the machine's own apt.
pub fn install() -> Result<(), Failure> {
    if fs::metadata("/proc/self").map(|process| process.uid()).ok() != Some(0) {
        return Err(Failure::Text("not root".to_owned()));
    }
    let apt = || {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    attempt(apt().arg("update"), PATIENCE)?;
    // Never at the price of a package that is there.
    attempt(apt().args(["install", "-y", "--no-install-recommends", "--no-remove"]).args(PAIR), 2 * PATIENCE)
}

/// Without root: the pair and what of it the machine lacks, unpacked into the cache.
pub fn unpack() -> Result<(), Failure> {
    let apt = Apt::new(downloads().join("pair"), None)?;
    attempt(apt.get().arg("update"), PATIENCE)?;
    attempt(apt.get().args(["install", "--download-only", "-y", "--no-install-recommends", "--no-remove"]).args(PAIR), 2 * PATIENCE)?;
    let archives = apt.directory.join("cache/archives");
    let packages = files_ending(&archives, ".deb");
    if packages.is_empty() {
        return Err(Failure::Text("apt had nothing to download: the pair is installed already".to_owned()));
    }
    // Unpacked aside and renamed: a compiler that is half there would be tried.
    let aside = downloads().join("unpacking");
    let _ = fs::remove_dir_all(&aside); // left by an earlier attempt
    for package in packages {
        extract(&package, &aside)?;
    }
    replace(&aside, &unpacked_dir(&cache_dir()))
}

/// The sources of a compiler that is there, from whichever suite has its release.
pub fn sources() -> Result<(), Failure> {
    let compilers = compilers_without_sources();
    if compilers.is_empty() {
        return Err(Failure::Text("no compiler without sources that is new enough".to_owned()));
    }
    let sources = fs::read_to_string("/etc/apt/sources.list").unwrap_or_default()
        + &files_ending(Path::new("/etc/apt/sources.list.d"), "")
            .iter()
            .filter_map(|file| fs::read_to_string(file).ok())
            .collect::<String>();
    let mirror = mirror(&sources).ok_or_else(|| Failure::Text("apt knows no mirror of Debian".to_owned()))?;
    let list: String = SUITES.iter().map(|suite| format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n")).collect();
    let apt = Apt::new(downloads().join("sources"), Some(&list))?;
    let _ = attempt(apt.get().arg("update"), PATIENCE); // fails as a whole when one suite has moved away
    let listed = capture(apt.cache().args(["madison", "rust-src"]))?;
    for compiler in &compilers {
        let series = compiler.series();
        let Some(version) = version_of(&listed, &series) else { continue };
        let debs = apt.directory.join("debs");
        fs::create_dir_all(&debs).map_err(Failure::io("create", &debs))?;
        attempt(apt.get().current_dir(&debs).args(["download", &format!("rust-src={version}")]), 2 * PATIENCE)?;
        let aside = downloads().join("unpacking");
        let _ = fs::remove_dir_all(&aside); // left by an earlier attempt
        for package in files_ending(&debs, ".deb") {
            extract(&package, &aside)?;
        }
        let release = files_ending(&aside.join("usr/src"), "").into_iter().find(|path| path.join("library/core").exists());
        let release = release.ok_or_else(|| Failure::Text(format!("rust-src {version} holds no library/core")))?;
        return replace(&release, &source_dir(&cache_dir(), &series));
    }
    let wanted: Vec<String> = compilers.iter().map(|compiler| compiler.series()).collect();
    Err(Failure::Text(format!("no suite has rust-src {}", wanted.join(" or "))))
}

/// The newest version of a series in the output of `apt-cache madison`: `rust-src | 1.95.0+dfsg1-1 | http://…`.
fn version_of<'a>(madison: &'a str, series: &str) -> Option<&'a str> {
    let versions = madison.lines().filter_map(|line| line.split('|').nth(1)).map(str::trim);
    versions.into_iter().find(|version| version.strip_prefix(series).is_some_and(|rest| rest.starts_with('.')))
}

/// apt with its own lists, cache and, if wanted, sources: the machine's set-up is not touched, and root not needed.
struct Apt {
    directory: PathBuf,
    options: Vec<OsString>,
}

impl Apt {
    fn new(directory: PathBuf, sources: Option<&str>) -> Result<Apt, Failure> {
        for part in ["lists/partial", "cache/archives/partial"] {
            let path = directory.join(part);
            fs::create_dir_all(&path).map_err(Failure::io("create", &path))?;
        }
        let set = |name: &str, value: &Path| {
            let mut option = OsString::from(format!("-o{name}="));
            option.push(value);
            option
        };
        let mut options = vec![
            set("Dir::State::Lists", &directory.join("lists")),
            set("Dir::Cache", &directory.join("cache")),
            "-oDebug::NoLocking=1".into(),
            "-oAPT::Sandbox::User=".into(),
        ];
        if let Some(text) = sources {
            let list = directory.join("sources.list");
            fs::write(&list, text).map_err(Failure::io("write", &list))?;
            options.push(set("Dir::Etc::SourceList", &list));
            options.push(set("Dir::Etc::SourceParts", Path::new("/dev/null")));
        }
        Ok(Apt { directory, options })
    }

    fn get(&self) -> Command {
        let mut command = Command::new("apt-get");
        command.args(&self.options).env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    fn cache(&self) -> Command {
        let mut command = Command::new("apt-cache");
        command.args(&self.options);
        command
    }
}

fn extract(package: &Path, into: &Path) -> Result<(), Failure> {
    fs::create_dir_all(into).map_err(Failure::io("create", into))?;
    capture(Command::new("dpkg-deb").arg("-x").arg(package).arg(into)).map(drop)
}

fn replace(from: &Path, to: &Path) -> Result<(), Failure> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent).map_err(Failure::io("create", parent))?;
    }
    let _ = fs::remove_dir_all(to); // usually not there
    fs::rename(from, to).map_err(Failure::io("move", from))
}

fn files_ending(directory: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.to_string_lossy().ends_with(ending)).collect()
}

/// The mirror of Debian that this machine's apt uses: other suites are there too.
fn mirror(sources: &str) -> Option<&str> {
    let lines = sources.lines().map(str::trim_start).filter(|line| !line.starts_with('#'));
    let mut words = lines.flat_map(str::split_whitespace);
    words.find(|word| word.contains("://") && word.trim_end_matches('/').ends_with("/debian"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MADISON: &str = "  rust-src | 1.97.1+dfsg1-1 | http://mirror.example/debian sid/main amd64 Packages
  rust-src | 1.95.0+dfsg1-1~bpo13+1 | http://mirror.example/debian trixie-backports/main amd64 Packages
  rust-src | 1.9.0+dfsg1-1 | http://mirror.example/debian old/main amd64 Packages
";

    #[test]
    fn the_mirror_is_that_of_the_machine() {
        let deb822 = "Types: deb\n# URIs: http://old.example/debian\nURIs: http://mirror.example/debian\nSuites: bookworm\nURIs: http://mirror.example/debian-security\n";
        assert_eq!(mirror(deb822), Some("http://mirror.example/debian"));
        assert_eq!(mirror("deb [arch=amd64] https://other.example/debian/ bookworm main\n"), Some("https://other.example/debian/"));
        assert_eq!(mirror("deb https://packages.example/node nodistro main\n"), None);
    }

    #[test]
    fn the_version_of_the_compilers_series_is_taken() {
        assert_eq!(version_of(MADISON, "1.95"), Some("1.95.0+dfsg1-1~bpo13+1"));
        assert_eq!(version_of(MADISON, "1.97"), Some("1.97.1+dfsg1-1"));
        assert_eq!(version_of(MADISON, "1.96"), None);
    }
}
