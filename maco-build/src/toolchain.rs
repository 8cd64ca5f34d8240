//! Which compiler makes the PTX: one that comes with the sources of its own `core`.
//!
//! Installing one does not belong here (`cargo xtask setup` does). A stable compiler will do, with `RUSTC_BOOTSTRAP=1`; what matters is
//! that `rust-src` is of its release, since `core` compiles with no other.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use crate::files::{cache_dir, fingerprint, lock, read, write};
use crate::{Error, core_cache};

/// `maco` and its language need this release: 1.`OLDEST`.
const OLDEST: u32 = 95;

/// A compiler that can make PTX, and the sources of its `core`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Toolchain {
    /// The compiler itself, never rustup's proxy.
    pub rustc: PathBuf,
    /// The cargo that belongs to it, or the one that runs the build.
    pub cargo: PathBuf,
    /// `library/` of `rust-src`.
    pub library: PathBuf,
    /// Output of `rustc -vV`.
    pub version: Version,
    /// Shared libraries of a compiler that was unpacked, not installed.
    pub library_path: Option<PathBuf>,
    /// Size and time of `rustc`: a changed compiler is another one.
    stamp: (u64, u64),
}

/// What `rustc -vV` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// The whole text.
    pub verbose: String,
    /// `1.97.0-nightly`
    pub release: String,
    /// `x86_64-unknown-linux-gnu`
    pub host: String,
}

impl Version {
    /// Reads the output of `rustc -vV`.
    pub fn parse(verbose: &str) -> Result<Version, Error> {
        let field = |name: &str| {
            verbose.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).map(str::to_owned).ok_or_else(|| Error::Format {
                what: "the output of `rustc -vV`".to_owned(),
                why: format!("no line `{name}: …` in {verbose:?}"),
            })
        };
        Ok(Version { release: field("release")?, host: field("host")?, verbose: verbose.to_owned() })
    }

    /// `1.97` of `1.97.0-nightly`: what names the sources that fit.
    pub fn series(&self) -> String {
        self.release.split(['.', '-']).take(2).collect::<Vec<_>>().join(".")
    }

    /// Is this a compiler with unstable features, or does it need `RUSTC_BOOTSTRAP=1`?
    pub fn is_nightly(&self) -> bool {
        self.release.ends_with("-nightly") || self.release.ends_with("-dev")
    }

    fn minor(&self) -> u32 {
        self.release.split('.').nth(1).and_then(|minor| minor.parse().ok()).unwrap_or(0)
    }
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headline = self.version.verbose.lines().next().unwrap_or(&self.version.release);
        write!(f, "{headline} at {}, core from {}", self.rustc.display(), self.library.display())
    }
}

impl Toolchain {
    /// A command that runs this compiler with nothing of the caller's environment that could change its meaning.
    pub fn rustc_command(&self) -> Command {
        self.command(&self.rustc)
    }

    /// The same for its cargo, told to use this compiler.
    pub fn cargo_command(&self) -> Command {
        let mut command = self.command(&self.cargo);
        command.env("RUSTC", &self.rustc);
        command
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = clean(program);
        if !self.version.is_nightly() {
            command.env("RUSTC_BOOTSTRAP", "1");
        }
        if let Some(path) = &self.library_path {
            command.env("LD_LIBRARY_PATH", path);
        }
        command
    }

    fn is_unchanged(&self) -> bool {
        stamp(&self.rustc) == Some(self.stamp) && self.cargo.exists() && has_core(&self.library)
    }

    /// What tells builds of different compilers apart.
    pub fn identity(&self) -> u64 {
        fingerprint([self.version.verbose.as_str(), &self.rustc.to_string_lossy(), &self.library.to_string_lossy()])
    }
}

/// A compiler that may do: its sources are not found yet.
#[derive(Clone, Debug)]
struct Candidate {
    rustc: PathBuf,
    library_path: Option<PathBuf>,
}

/// The toolchain that [`find`] found before, if it is still there: no work, no waiting.
pub fn known() -> Option<Toolchain> {
    remembered(&cache_dir(), wish().as_ref())
}

fn wish() -> Option<OsString> {
    env::var_os("MACO_DEVICE_RUSTC").filter(|value| !value.is_empty())
}

/// The toolchain of this machine: the one found last time while it is still there, or the first that builds a `core`.
pub fn find() -> Result<Toolchain, Error> {
    let cache = cache_dir();
    let wish = wish();
    if let Some(found) = remembered(&cache, wish.as_ref()) {
        return Ok(found);
    }
    let _held = lock(&cache.join("toolchain.lock"))?;
    if let Some(found) = remembered(&cache, wish.as_ref()) {
        return Ok(found); // another build looked while this one waited
    }
    let (found, tried) = probe(wish.as_ref());
    match found {
        Some(found) => {
            let text = serde_json::to_string_pretty(&Decision { wish: text(wish.as_ref()), toolchain: found.clone() }).expect("plain data");
            write(&decision_file(&cache, wish.as_ref()), text)?;
            Ok(found)
        }
        None => Err(Error::NoToolchain { tried: tried.join("; ") }),
    }
}

/// Compilers of this machine that would do if they had the sources of their `core`; the set-up may find some.
pub fn compilers_without_sources() -> Vec<Version> {
    let mut versions: Vec<Version> = Vec::new();
    for candidate in candidates() {
        let version = run(clean(&candidate.rustc).arg("-vV")).and_then(|text| Version::parse(&text));
        if let Ok(version) = version
            && version.minor() >= OLDEST
            && examine(candidate).is_err()
            && !versions.contains(&version)
        {
            versions.push(version);
        }
    }
    versions
}

/// Files that change when a toolchain is installed; for a build that found none.
pub(crate) fn signs_of_change() -> Vec<PathBuf> {
    let of_rustup =
        nightlies().into_iter().chain(active()).filter_map(|rustc| Some(rustc.parent()?.parent()?.join("lib/rustlib/components")));
    let known = [PathBuf::from("/var/lib/dpkg/status"), decision_file(&cache_dir(), None)];
    of_rustup.chain(known).filter(|path| path.exists()).collect()
}

/// Forgets what [`find`] found, so that it looks again.
pub fn forget() {
    let _ = fs::remove_file(decision_file(&cache_dir(), None)); // not there: nothing to forget
}

#[derive(Serialize, Deserialize)]
struct Decision {
    wish: String,
    toolchain: Toolchain,
}

fn text(wish: Option<&OsString>) -> String {
    wish.map(|wish| wish.to_string_lossy().into_owned()).unwrap_or_default()
}

fn decision_file(cache: &Path, wish: Option<&OsString>) -> PathBuf {
    match wish {
        None => cache.join("toolchain.json"),
        Some(_) => cache.join(format!("toolchain-{:016x}.json", fingerprint([text(wish)]))),
    }
}

fn remembered(cache: &Path, wish: Option<&OsString>) -> Option<Toolchain> {
    let decision: Decision = serde_json::from_str(&read(&decision_file(cache, wish)).ok()?).ok()?;
    (decision.wish == text(wish) && decision.toolchain.is_unchanged()).then_some(decision.toolchain)
}

fn probe(wish: Option<&OsString>) -> (Option<Toolchain>, Vec<String>) {
    let candidates = match wish {
        Some(rustc) => vec![Candidate { rustc: rustc.into(), library_path: None }],
        None => candidates(),
    };
    let mut tried = Vec::new();
    for candidate in candidates {
        let name = candidate.rustc.display().to_string();
        match examine(candidate).and_then(|toolchain| core_cache::ensure(&toolchain).map(|_| toolchain)) {
            Ok(toolchain) => return (Some(toolchain), tried),
            Err(error) => tried.push(format!("{name}: {}", first_line(&error.to_string()))),
        }
    }
    if tried.is_empty() {
        tried.push("no rustc found".to_owned());
    }
    (None, tried)
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or(text)
}

/// In order of preference: rustup's nightly, a distribution's compiler, one unpacked by the set-up, the toolchain that runs the build.
fn candidates() -> Vec<Candidate> {
    let installed = |rustc: PathBuf| Candidate { rustc, library_path: None };
    let mut all: Vec<Candidate> = nightlies().into_iter().map(installed).collect();
    all.push(installed(PathBuf::from("/usr/bin/rustc")));
    all.push(unpacked(&cache_dir()));
    all.extend(active().map(installed));
    all.retain(|candidate| candidate.rustc.exists());
    all
}

/// rustup's toolchains named `nightly…`, the undated one first.
fn nightlies() -> Vec<PathBuf> {
    let home = env::var_os("RUSTUP_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".rustup")));
    let entries = home.and_then(|home| fs::read_dir(home.join("toolchains")).ok()).into_iter().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("nightly-")))
        .map(|path| path.join("bin/rustc"))
        .collect();
    // `nightly-x86_64-…` comes after `nightly-2026-…`: undated first, then the newest date.
    found.sort();
    found.reverse();
    found
}

/// Where the set-up unpacks a distribution's compiler when it may not install it.
pub fn unpacked_dir(cache: &Path) -> PathBuf {
    cache.join("debian")
}

/// Where the set-up puts the sources for a compiler of `series` (`1.97`) that has none.
pub fn source_dir(cache: &Path, series: &str) -> PathBuf {
    cache.join("rust-src").join(series)
}

fn unpacked(cache: &Path) -> Candidate {
    let root = unpacked_dir(cache).join("usr");
    let multiarch = format!("{}-linux-gnu", env::consts::ARCH);
    let paths = env::join_paths([root.join("lib").join(multiarch), root.join("lib")]).ok();
    Candidate { rustc: root.join("bin/rustc"), library_path: paths.map(PathBuf::from) }
}

/// The toolchain that runs this build, found behind rustup's proxy.
fn active() -> Option<PathBuf> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let sysroot = Command::new(rustc).args(["--print", "sysroot"]).env_remove("RUSTC_BOOTSTRAP").output().ok()?;
    let sysroot = String::from_utf8(sysroot.stdout).ok()?;
    Some(Path::new(sysroot.trim()).join("bin/rustc"))
}

fn examine(candidate: Candidate) -> Result<Toolchain, Error> {
    let Candidate { rustc, library_path } = candidate;
    let ask = |arguments: &[&str]| {
        let mut command = clean(&rustc);
        if let Some(path) = &library_path {
            command.env("LD_LIBRARY_PATH", path);
        }
        run(command.args(arguments))
    };
    let version = Version::parse(&ask(&["-vV"])?)?;
    if version.minor() < OLDEST {
        return Err(Error::Format { what: format!("Rust {}", version.release), why: format!("1.{OLDEST} or newer is needed") });
    }
    let sysroot = PathBuf::from(ask(&["--print", "sysroot"])?.trim());
    let own = sysroot.join("lib/rustlib/src/rust/library");
    let cached = source_dir(&cache_dir(), &version.series()).join("library");
    let library = [own, cached].into_iter().find(|library| has_core(library)).ok_or_else(|| Error::Format {
        what: format!("the sources of Rust {}", version.release),
        why: "no rust-src beside this compiler".to_owned(),
    })?;
    let beside = sysroot.join("bin/cargo");
    let cargo = if beside.exists() { beside } else { env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from) };
    let stamp = stamp(&rustc).unwrap_or_default();
    Ok(Toolchain { rustc, cargo, library, version, library_path, stamp })
}

fn has_core(library: &Path) -> bool {
    library.join("core/src/lib.rs").exists()
}

fn stamp(rustc: &Path) -> Option<(u64, u64)> {
    let metadata = fs::metadata(rustc).ok()?;
    let seconds = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_secs();
    Some((metadata.len(), seconds))
}

/// Runs a command to its end for what it prints.
pub(crate) fn run(command: &mut Command) -> Result<String, Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| Error::Program { program: program.clone(), output: error.to_string() })?;
    if !output.status.success() {
        return Err(Error::Program { program, output: String::from_utf8_lossy(&output.stderr).trim().to_owned() });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A command with an empty environment but for what finds homes, programs and the network.
///
/// A build script inherits what cargo tells it about the *host* build. `RUSTC` (wrong metadata) and `CARGO_CFG_*` (an LLVM error that
/// poisons the target directory) are known to break a cargo started inside it; nothing is passed on that is not on this list.
pub(crate) fn clean(program: &Path) -> Command {
    const KEPT: [&str; 20] = [
        "PATH",
        "HOME",
        "USER",
        "CARGO_HOME",
        "RUSTUP_HOME",
        "TMPDIR",
        "LANG",
        "LC_ALL",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "SSH_AUTH_SOCK",
        "MACO_CACHE",
    ];
    const KEPT_PREFIXES: [&str; 4] = ["CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTRY_", "CARGO_REGISTRIES_"];
    let mut command = Command::new(program);
    command.env_clear().envs(env::vars_os().filter(|(name, _)| {
        let name = name.to_string_lossy();
        KEPT.contains(&name.as_ref()) || KEPT_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    }));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    const NIGHTLY: &str = "rustc 1.97.0-nightly (e50aa6fba 2026-05-19)\nbinary: rustc\ncommit-hash: e50aa6fba4e6\ncommit-date: 2026-05-19\n\
        host: x86_64-unknown-linux-gnu\nrelease: 1.97.0-nightly\nLLVM version: 22.1.4\n";

    #[test]
    fn a_nightly_is_understood() {
        let version = Version::parse(NIGHTLY).unwrap();
        assert_eq!(version.release, "1.97.0-nightly");
        assert_eq!(version.host, "x86_64-unknown-linux-gnu");
        assert_eq!(version.series(), "1.97");
        assert_eq!(version.minor(), 97);
        assert!(version.is_nightly());
    }

    #[test]
    fn a_distributions_compiler_needs_bootstrap() {
        let version =
            Version::parse("rustc 1.96.0 (ac68faa20 2026-05-25) (built from a source tarball)\nhost: h\nrelease: 1.96.0\n").unwrap();
        assert!(!version.is_nightly());
        assert_eq!(version.series(), "1.96");
    }

    #[test]
    fn a_text_without_a_release_is_refused() {
        let error = Version::parse("gcc 12").unwrap_err().to_string();
        assert!(error.contains("release"), "{error}");
    }

    #[test]
    fn the_callers_build_settings_do_not_reach_the_inner_build() {
        let names: Vec<String> = clean(Path::new("x")).get_envs().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
        assert!(names.iter().any(|name| name == "PATH"));
        // cargo sets this one for the process that runs this test
        assert!(env::var_os("CARGO_MANIFEST_DIR").is_some() && !names.iter().any(|name| name == "CARGO_MANIFEST_DIR"));
    }
}
