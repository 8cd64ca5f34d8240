//! The inner build: plain cargo on the device crate, from a clean environment.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, thread};

use serde::Deserialize;
use toml::Table;

use crate::Error;
use crate::core_cache::{FLAGS, TARGET};
use crate::device_crate::{DeviceCrate, PROFILE};
use crate::error::Diagnostic;
use crate::expansion::Invocation;
use crate::files::{create_dir, lock, read, try_lock};
use crate::package::Package;
use crate::ptx_cache::PtxCache;
use crate::toolchain::Toolchain;

/// What the inner build leaves.
pub(crate) struct Output {
    /// The PTX as rustc wrote it.
    pub ptx: String,
    /// Every source file it was made from, those of task libraries too.
    pub sources: Vec<PathBuf>,
    /// How rustc was called for the device crate; `None` when nothing had changed.
    pub invocation: Option<Invocation>,
}

/// What device code does beside its work: a build of its own for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Variant {
    /// Records what it does: `MACO_PROFILE`.
    pub recorded: bool,
    /// Synchronises in ways that NVIDIA's racecheck can follow: `MACO_SANITIZE`.
    pub sanitized: bool,
    /// Sleeps at places that a seed chooses.
    pub delayed: bool,
    /// Has the faults that tests inject.
    pub faults: bool,
}

impl Variant {
    /// Its words for file names and its `cfg`s.
    fn parts(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let all = [
            (self.recorded, "recorded", "--cfg=maco_profile"),
            (self.sanitized, "sanitized", "--cfg=maco_every_lane"),
            (self.delayed, "delayed", "--cfg=maco_delays"),
            (self.faults, "faults", "--cfg=maco_faults"),
        ];
        all.into_iter().filter(|(on, ..)| *on).map(|(_, name, cfg)| (name, cfg))
    }

    /// `plain`, or `recorded` and the like, for names of files.
    pub(crate) fn name(self) -> String {
        let names: Vec<&str> = self.parts().map(|(name, _)| name).collect();
        if names.is_empty() { "plain".to_owned() } else { names.join("-") }
    }
}

/// Target directory of an inner build, held until dropped. Packages, profiles and variants share them, so that dependencies are compiled once: cargo keeps what
/// was compiled with other flags apart. It builds one thing at a time in each, so there are as many as cores: a workspace with several packages of kernels
/// compiles them side by side.
struct Slot {
    directory: PathBuf,
    _held: File,
}

impl Slot {
    /// A free one, if possible that in which this crate was built before.
    fn take(package: &Package, library: &str) -> Result<Slot, Error> {
        let count = thread::available_parallelism().map_or(1, usize::from);
        let mut all: Vec<PathBuf> = (0..count).map(|n| package.maco.join("build").join(n.to_string())).collect();
        all.sort_by_key(|directory| !assembly(directory, library).exists());
        for directory in &all {
            if let Some(held) = try_lock(&directory.with_extension("lock"))? {
                return Ok(Slot { directory: directory.clone(), _held: held });
            }
        }
        let directory = all.swap_remove(0);
        Ok(Slot { _held: lock(&directory.with_extension("lock"))?, directory })
    }
}

/// Where rustc is told to leave the PTX of a crate: beside cargo's folders, whose layout is cargo's own.
fn assembly(directory: &Path, library: &str) -> PathBuf {
    directory.join("ptx").join(format!("{library}.s"))
}

/// Builds the device crate; nothing happens when nothing changed, or when it was built from the same before.
pub(crate) fn build(
    toolchain: &Toolchain,
    core: &Path,
    package: &Package,
    device: &DeviceCrate,
    variant: Variant,
) -> Result<Output, Error> {
    let stem = format!("{}-{}", device.library, variant.name());
    let fixed = [toolchain.version.verbose.clone(), device.features.join(",")];
    let cache = PtxCache::new(
        &package.maco,
        stem,
        fixed.into_iter().chain(flags(core, variant)).chain(device.texts()?).chain(configuration(&package.root)),
    );
    if let Some((ptx, sources)) = cache.find() {
        return Ok(Output { ptx, sources, invocation: None });
    }
    let slot = Slot::take(package, &device.library)?;
    let assembly = assembly(&slot.directory, &device.library);
    // An older one must not be taken for it.
    let _ = fs::remove_file(&assembly); // usually not there
    create_dir(&slot.directory.join("ptx"))?;
    let emit = format!("--emit=asm={}", assembly.display());
    let log = run(|| command(toolchain, core, package, device, variant, PROFILE, &slot.directory), &[&emit])?;
    let ptx = read(&assembly)?;
    // Where cargo documents that it is: beside the artifact.
    let sources = dep_info(&read(&slot.directory.join(TARGET).join(PROFILE).join(format!("{}.d", device.library)))?);
    cache.keep(&ptx, &sources)?;
    let invocation = log.lines().filter_map(Invocation::parse).find(|invocation| invocation.compiles(&device.library));
    Ok(Output { ptx, sources, invocation })
}

/// Cargo's own configuration, which may patch dependencies or set profiles: of the user's directories and of cargo's home.
fn configuration(root: &Path) -> impl Iterator<Item = String> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cargo")));
    let folders = root.ancestors().map(|folder| folder.join(".cargo")).chain(home).collect::<Vec<_>>();
    let files = folders.into_iter().flat_map(|folder| ["config.toml", "config"].map(|name| folder.join(name)));
    files.filter_map(|file| fs::read_to_string(file).ok())
}

/// Whether a file of configuration has cargo build a standard library of its own, for every target there is.
fn builds_std(root: &Path) -> bool {
    let asks =
        |text: String| text.parse::<Table>().is_ok_and(|table| table.get("unstable").is_some_and(|table| table.get("build-std").is_some()));
    configuration(root).any(asks)
}

/// Looks for errors in the device crate, and makes no code: takes seconds.
pub(crate) fn check(toolchain: &Toolchain, core: &Path, package: &Package, device: &DeviceCrate) -> Result<(), Error> {
    let variant = Variant::default();
    let slot = Slot::take(package, &device.library)?;
    run(|| command(toolchain, core, package, device, variant, "check", &slot.directory), &[]).map(drop)
}

/// Runs what `command` gives, with more `flags` for the device crate alone; what it said.
fn run(command: impl Fn() -> Command, flags: &[&str]) -> Result<String, Error> {
    let output = |network| {
        let mut command = command();
        let program = command.get_program().to_string_lossy().into_owned();
        command.args(network).args(["--", "--cfg=maco_root"]).args(flags);
        command.output().map_err(|error| Error::Program { program, output: error.to_string() })
    };
    // Offline first: the host build has fetched everything but what only the device needs.
    let mut result = output(Some("--offline"))?;
    if !result.status.success() && String::from_utf8_lossy(&result.stderr).contains("offline") {
        result = output(None)?;
    }
    let log = String::from_utf8_lossy(&result.stderr).into_owned();
    if result.status.success() {
        return Ok(log);
    }
    let errors = diagnostics(&String::from_utf8_lossy(&result.stdout));
    if errors.is_empty() {
        let lines = log.lines().filter(|line| !line.trim_start().starts_with("Running ") && !line.trim_start().starts_with("Fresh "));
        let output = lines.collect::<Vec<_>>().join("\n");
        return Err(Error::Program { program: "cargo rustc (device half)".to_owned(), output });
    }
    Err(Error::Device(errors))
}

/// The last word where a configuration file has a profile for single packages (`[profile.release.package.x]`): [`PROFILE`] inherits that from `release`.
const AGAINST_PACKAGE_PROFILES: [&str; 3] = ["-Cdebug-assertions=off", "-Coverflow-checks=off", "-Cdebuginfo=line-directives-only"];

/// What rustc is called with.
fn flags(core: &Path, variant: Variant) -> Vec<String> {
    let mut flags: Vec<String> = FLAGS.iter().map(|flag| (*flag).to_owned()).collect();
    // PTX needs no linker: after LTO the assembly is complete, so the shell's `true` does.
    flags.push("-Clinker=true".to_owned());
    flags.extend(AGAINST_PACKAGE_PROFILES.map(str::to_owned));
    flags.push(format!("-L{}", core.display()));
    flags.extend(variant.parts().map(|(_, cfg)| cfg.to_owned()));
    flags
}

/// Cargo on the device crate, with one of cargo's profiles.
fn command(
    toolchain: &Toolchain,
    core: &Path,
    package: &Package,
    device: &DeviceCrate,
    variant: Variant,
    profile: &str,
    target: &Path,
) -> Command {
    let mut command = toolchain.cargo_command();
    command
        // The user's directory, so that their source replacements and registries hold.
        .current_dir(&package.root)
        // Entries are named after the files that they are in, from here on.
        .env("MACO_PACKAGE_DIR", &package.root)
        // Wins over every profile.
        .env("CARGO_INCREMENTAL", "0")
        // Intermediate files too: the user's folder for them is locked by the cargo that waits for this one.
        .env("CARGO_BUILD_BUILD_DIR", target)
        // Encoded flags win over those of a configuration file, which are for the host.
        .env("CARGO_ENCODED_RUSTFLAGS", flags(core, variant).join("\x1f"))
        .args(["rustc", "--lib", "--profile", profile, "-vv", "--message-format=json", "--target", TARGET, "--manifest-path"])
        .arg(&device.manifest)
        .arg("--target-dir")
        .arg(target);
    if builds_std(&package.root) {
        // Lists of several configurations are joined, and an empty one means the default: so it cannot be turned off. A cargo that takes itself for a stable one
        // does not read `[unstable]`; it has no other name for that.
        command.env("__CARGO_TEST_CHANNEL_OVERRIDE_DO_NOT_USE_THIS", "stable");
    }
    if !device.features.is_empty() {
        command.arg("--features").arg(device.features.join(","));
    }
    command
}

#[derive(Deserialize)]
struct Message {
    message: Option<Compiler>,
}

#[derive(Deserialize)]
struct Compiler {
    level: String,
    message: String,
    rendered: Option<String>,
    spans: Vec<Span>,
}

#[derive(Deserialize)]
struct Span {
    file_name: String,
    line_start: usize,
    column_start: usize,
    is_primary: bool,
}

/// The errors among cargo's JSON messages, without rustc's closing "aborting due to".
fn diagnostics(stdout: &str) -> Vec<Diagnostic> {
    let messages = stdout.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok()?.message);
    let errors = messages.filter(|message| message.level.starts_with("error") && !message.message.starts_with("aborting due to"));
    errors
        .map(|error| {
            let place = error.spans.iter().find(|span| span.is_primary);
            let place = place.map(|span| format!("{}:{}:{}: ", span.file_name, span.line_start, span.column_start));
            let line = format!("{}{}", place.unwrap_or_default(), error.message);
            Diagnostic { rendered: error.rendered.unwrap_or_else(|| line.clone()), line }
        })
        .collect()
}

/// The files after the colon of a make rule; spaces in names are escaped.
fn dep_info(text: &str) -> Vec<PathBuf> {
    let rule = text.lines().find_map(|line| line.split_once(": ").map(|(_, files)| files)).unwrap_or_default();
    let mut files = vec![String::new()];
    let mut characters = rule.chars().peekable();
    while let Some(c) = characters.next() {
        match (c, files.last_mut()) {
            ('\\', Some(file)) if characters.peek() == Some(&' ') => {
                characters.next();
                file.push(' ');
            }
            (' ', _) => files.push(String::new()),
            (c, Some(file)) => file.push(c),
            (_, None) => unreachable!("`files` is never empty"),
        }
    }
    files.into_iter().filter(|file| !file.is_empty()).map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependency_files_may_have_spaces() {
        let files = dep_info("/t/libuser.so: /a/kernels.rs /a/my\\ dir/task.rs\n\n/a/kernels.rs:\n");
        assert_eq!(files, [PathBuf::from("/a/kernels.rs"), PathBuf::from("/a/my dir/task.rs")]);
    }

    #[test]
    fn errors_keep_the_users_place() {
        let json = concat!(
            r#"{"reason":"compiler-message","message":{"level":"error","message":"mismatched types","rendered":"error[E0308]…","spans":[{"file_name":"/u/kernels.rs","line_start":18,"column_start":20,"is_primary":true}]}}"#,
            "\n",
            r#"{"reason":"compiler-message","message":{"level":"warning","message":"unused","rendered":null,"spans":[]}}"#,
            "\n",
            r#"{"reason":"compiler-message","message":{"level":"error","message":"aborting due to 1 previous error","rendered":null,"spans":[]}}"#,
            "\n",
            r#"{"reason":"build-finished","success":false}"#,
        );
        let errors = diagnostics(json);
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].line, "/u/kernels.rs:18:20: mismatched types");
    }
}
