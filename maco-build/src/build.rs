//! The steps of a build script, and what each outcome means to cargo and to the editor.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cargo::{self, Variant};
use crate::dependencies;
use crate::device_crate::DeviceCrate;
use crate::embed::{self, Device};
use crate::expansion;
use crate::files::{lock, write};
use crate::package::Package;
use crate::ptx::{self, Code, Rules};
use crate::workspace::{self, Workspace};
use crate::{Error, core_cache, report, toolchain};

/// A build with settings, for the few packages that need one; [`compile`](crate::compile) is the rest.
#[derive(Clone, Debug)]
pub struct Build {
    kernels: Vec<PathBuf>,
    rules: Rules,
    profiled: bool,
    delayed: bool,
    faults: bool,
}

impl Build {
    /// The files of kernels, relative to the package.
    pub fn new<P: AsRef<Path>>(kernels: impl IntoIterator<Item = P>) -> Build {
        let kernels = kernels.into_iter().map(|path| path.as_ref().to_owned()).collect();
        Build { kernels, rules: Rules::default(), profiled: is_set("MACO_PROFILE"), delayed: false, faults: false }
    }

    /// Lets kernels keep arrays and spilled registers in local memory, which is as slow as global memory. Off by default: more than a few words are an
    /// error.
    pub fn allow_local_memory(mut self) -> Build {
        self.rules.allow_local_memory = true;
        self
    }

    /// Also makes device code that records what it does, for `plan.profile(true)`, as `MACO_PROFILE=1` does: everything is compiled twice.
    pub fn profiled(mut self) -> Build {
        self.profiled = true;
        self
    }

    /// Device code that sleeps at places that a plan's seed chooses, for tests that look for orders which happen once in a million launches.
    pub fn delayed(mut self) -> Build {
        self.delayed = true;
        self
    }

    /// Device code that has the faults which tests inject into plans. Other device code has none but lost signals.
    pub fn faults(mut self) -> Build {
        self.faults = true;
        self
    }

    /// Compiles, checks, embeds.
    ///
    /// Ends well even when the kernels do not compile for the GPU: a failed build script would leave the editor without a word, so
    /// `$OUT_DIR/maco.rs` then holds a `compile_error!`, and rustc reports the same source at its own tokens in the host build.
    /// Without a device toolchain, or a cache that can be written, the package is built for the CPU with a warning; `MACO_REQUIRE_GPU=1` makes that an error.
    pub fn run(mut self) {
        report::rerun_if_settings_change();
        // There every lane arrives, which takes registers that a large kernel does not have; it is slow anyhow.
        self.rules.allow_local_memory |= is_set("MACO_SANITIZE");
        if let Err(error) = self.try_run() {
            report::error(&format!("MACO: {error}"));
        }
    }

    fn try_run(&self) -> Result<(), Error> {
        let package = Package::from_environment()?;
        if package.on_device {
            // A task library on its way into another package's PTX: its own megakernels have no entries there.
            return embed::empty(&package.out);
        }
        // docs.rs shows the host half, on a machine without a network.
        if device_setting()? == DeviceSetting::Skip || env::var_os("DOCS_RS").is_some() {
            return embed::write(&package.out, Device::Missing("this program was built with MACO_DEVICE=skip; build it again without"));
        }
        let mut sources = Sources::new(&package, &self.kernels)?;
        let result = self.device_half(&package, &mut sources);
        sources.report(&package.out);
        match result {
            Ok(None) => embed::write(
                &package.out,
                Device::Missing(
                    "this program was built with MACO_DEVICE=check or MACO_ONLY_CHECK, which look for errors alone; build it again without",
                ),
            ),
            Ok(Some(code)) => {
                let _ = fs::remove_file(package.workshop().join(ERRORS)); // of a build before; usually not there
                embed::write(&package.out, Device::Code(&code.ordinary, code.profiled.as_ref(), code.maco.as_deref()))
            }
            Err(error @ (Error::NoToolchain { .. } | Error::Cache { .. })) if !is_set("MACO_REQUIRE_GPU") => {
                let text = error.to_string();
                report::warning(&format!("built for the CPU only: {text}"));
                toolchain::signs_of_change().iter().for_each(|path| report::rerun_if_changed(path));
                embed::write(&package.out, Device::Missing(&text))
            }
            Err(error @ (Error::NoToolchain { .. } | Error::Cache { .. })) => Err(error),
            Err(error) => {
                let faults = error.faults();
                if let Error::Device(_) = &error {
                    write(&package.workshop().join(ERRORS), faults.join("\n"))?;
                }
                let broken = format!("the GPU half of `{}` does not build", package.name);
                let faults: Vec<String> = faults.iter().map(|fault| format!("MACO: {broken}: {fault}")).collect();
                // rustc shows them where the megakernels are compiled, once: a warning of the build script would be shown with each of cargo's commands.
                embed::write(&package.out, Device::Broken(&format!("{broken}: {error}"), &faults))
            }
        }
    }

    /// The device half, compiled, or looked at if it [`is_only_checked`].
    fn device_half(&self, package: &Package, sources: &mut Sources) -> Result<Option<Both>, Error> {
        // Both keep what they find in the cache, and nothing of the user's package is read or written yet.
        let own = |error| match error {
            Error::Io { .. } => Error::Cache { fault: Box::new(error) },
            other => other,
        };
        let toolchain = toolchain::find().map_err(own)?;
        let core = core_cache::ensure(&toolchain).map_err(own)?;
        // Debug and release builds of one package may run at once.
        let _held = lock(&package.workshop().join("lock"))?;
        let workspace = Workspace::find(&toolchain, package)?;
        sources.files.extend(workspace.manifest.iter().chain(&workspace.lock).cloned());
        let dependencies = dependencies::find(&toolchain, package, &workspace)?;
        sources.files.extend(dependencies.manifests.iter().cloned());
        let device = DeviceCrate::write(package, &workspace, &dependencies, &sources.kernels)?;
        if is_only_checked(&package.name) {
            sources.files.extend(dependencies.sources);
            return cargo::check(&toolchain, &core, package, &device).map(|()| None);
        }
        let make = |variant| cargo::build(&toolchain, &core, package, &device, variant);
        let variant = Variant { recorded: false, sanitized: is_set("MACO_SANITIZE"), delayed: self.delayed, faults: self.faults };
        let output = make(variant).inspect_err(|_| sources.files.extend(dependencies.sources))?;
        workspace.compare(&device.manifest)?;
        // What was written on the way is newer than the build script's begin: it would run again the next time.
        let workshop = package.workshop();
        sources.files.extend(output.sources.into_iter().filter(|file| !file.starts_with(&workshop)));
        if let Some(invocation) = &output.invocation {
            expansion::write(invocation, &package.workshop().join("expanded.rs"));
        }
        let ordinary = ptx::finish(&output.ptx, &self.rules, &package.maco, &package.workshop())?;
        let profiled = if self.profiled {
            let output = make(Variant { recorded: true, ..variant })?;
            Some(ptx::finish(&output.ptx, &self.rules, &package.maco, &package.workshop().join("profile"))?)
        } else {
            None
        };
        Ok(Some(Both { ordinary, profiled, maco: workspace::maco_version(&device.manifest) }))
    }
}

/// What the device half comes to: code, and code that records if it was asked for.
struct Both {
    ordinary: Code,
    profiled: Option<Code>,
    /// The version of MACO that it was built with.
    maco: Option<String>,
}

/// Where rustc's errors about the device half are left.
const ERRORS: &str = "errors.txt";

/// What the result depends on, known better the further the build gets.
struct Sources {
    kernels: Vec<PathBuf>,
    files: Vec<PathBuf>,
}

impl Sources {
    fn new(package: &Package, kernels: &[PathBuf]) -> Result<Sources, Error> {
        let kernels: Vec<PathBuf> = kernels.iter().map(|path| package.root.join(path)).collect();
        if let Some(path) = kernels.iter().find(|path| !path.is_file()) {
            return Err(Error::Source { path: path.clone(), why: "there is no such file" });
        }
        // The directories, for a build that fails before rustc says which files it read.
        let files = kernels.iter().filter_map(|path| path.parent()).map(Path::to_owned).collect();
        Ok(Sources { kernels, files })
    }

    /// Tells cargo, without the files that the build script wrote itself: they are newer than its start, so it would run again the next time.
    fn report(&self, out: &Path) {
        self.files.iter().filter(|path| !path.starts_with(out)).for_each(|path| report::rerun_if_changed(path));
    }
}

/// What `MACO_DEVICE` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeviceSetting {
    /// Device code.
    Build,
    /// Its errors.
    Check,
    /// Nothing of it.
    Skip,
}

fn device_setting() -> Result<DeviceSetting, Error> {
    match env::var_os("MACO_DEVICE") {
        None => Ok(DeviceSetting::Build),
        Some(value) if value.is_empty() => Ok(DeviceSetting::Build),
        Some(value) if value == "check" => Ok(DeviceSetting::Check),
        Some(value) if value == "skip" => Ok(DeviceSetting::Skip),
        Some(value) => Err(Error::Setting { name: "MACO_DEVICE", value: value.to_string_lossy().into_owned(), known: "`skip` or `check`" }),
    }
}

/// Whether errors in the kernels of this package are all that is asked for: `MACO_DEVICE=check` says it of all, `MACO_ONLY_CHECK` of those in a list
/// with commas.
pub fn is_only_checked(package: &str) -> bool {
    device_setting().is_ok_and(|setting| setting == DeviceSetting::Check)
        || env::var("MACO_ONLY_CHECK").is_ok_and(|names| names.split(',').any(|name| name == package))
}

/// For the build script of `maco-host`: why no program that is built like this has device code, in a line, whatever its kernels.
#[doc(hidden)]
#[must_use]
pub fn no_device_code() -> Option<String> {
    for name in ["MACO_DEVICE", "MACO_DEVICE_RUSTC", "MACO_CACHE"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    // A setting that is none is told to packages with kernels.
    let setting = device_setting().ok().filter(|_| env::var_os("DOCS_RS").is_none())?;
    let reason = without_code(setting, || toolchain::find().map(drop));
    if reason.is_some() && setting == DeviceSetting::Build {
        toolchain::signs_of_change().iter().for_each(|path| report::rerun_if_changed(path));
    }
    reason
}

fn without_code(setting: DeviceSetting, find: impl FnOnce() -> Result<(), Error>) -> Option<String> {
    let again = "which makes no device code; build it again without";
    match setting {
        DeviceSetting::Skip => Some(format!("it was built with MACO_DEVICE=skip, {again}")),
        DeviceSetting::Check => Some(format!("it was built with MACO_DEVICE=check, {again}")),
        // No toolchain, or a cache that cannot be written.
        DeviceSetting::Build => find().err().map(|error| error.to_string().lines().collect::<Vec<_>>().join(" ")),
    }
}

fn is_set(name: &str) -> bool {
    env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_there_is_no_device_code_has_a_reason() {
        let none = || Err(Error::NoToolchain { tried: "/nowhere/rustc:\nno such file".into() });
        let unasked = || panic!("a compiler is looked for");
        assert_eq!(without_code(DeviceSetting::Build, || Ok(())), None);
        let lacks = |reason: Option<String>, told: &str| assert!(reason.as_ref().is_some_and(|reason| reason.contains(told)), "{reason:?}");
        lacks(without_code(DeviceSetting::Skip, unasked), "MACO_DEVICE=skip");
        lacks(without_code(DeviceSetting::Check, unasked), "MACO_DEVICE=check");
        // In one line, as cargo takes it.
        lacks(without_code(DeviceSetting::Build, none), "/nowhere/rustc: no such file");
        let cache = || Err(Error::Cache { fault: Box::new(none().unwrap_err()) });
        lacks(without_code(DeviceSetting::Build, cache), "`MACO_CACHE`");
    }
}
