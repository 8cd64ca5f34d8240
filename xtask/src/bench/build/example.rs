//! What the device half costs a `cargo build`, against the limits it must keep on two cores.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use maco_build::toolchain;

use super::Row;
use crate::command::{capture, cargo};
use crate::failure::Failure;
use crate::packages::{example, target};
use crate::progress::during;

/// Cases and their limits in seconds.
const LIMITS: [(&str, f64); 4] = [("first ever", 30.0), ("core cached", 12.0), ("a kernel edited", 6.0), ("nothing changed", 0.5)];

/// Measures the four cases on a copy of an example, `rounds` times in turn, and takes the fastest of each: other work on the machine only ever
/// adds.
pub fn measure(name: &str, rounds: u32) -> Result<Vec<Row>, Failure> {
    let bed = Bed::new(name)?;
    let mut fastest =
        Seconds { host: f64::MAX, first: f64::MAX, cached: f64::MAX, host_edited: f64::MAX, edited: f64::MAX, unchanged: f64::MAX };
    for round in 1..=rounds {
        during(&format!("round {round} of {rounds}"), || bed.round(round, &mut fastest))?;
    }
    fs::remove_dir_all(&bed.directory).map_err(Failure::io("remove", &bed.directory))?;
    let Seconds { host, first, cached, host_edited, edited, unchanged } = fastest;
    let values = [first - host, cached - host, edited - host_edited, unchanged];

    eprintln!("the host build alone: {host:.1} s, {name}, debug");
    let row = |((case, limit), value): ((&str, f64), f64)| Row::new(case, "beyond the host build", "s", value, limit);
    Ok(LIMITS.into_iter().zip(values).map(row).collect())
}

/// Wall-clock time of whole builds.
struct Seconds {
    host: f64,
    first: f64,
    cached: f64,
    host_edited: f64,
    edited: f64,
    unchanged: f64,
}

enum Device {
    /// The host build alone.
    Skip,
    /// An empty user cache.
    NewCache,
    /// The user's cache.
    Usual,
}

/// A copy of an example with target directories of its own.
struct Bed {
    directory: PathBuf,
}

impl Bed {
    fn new(name: &str) -> Result<Bed, Failure> {
        let manifest = example(name);
        let source =
            manifest.parent().filter(|_| manifest.is_file()).ok_or_else(|| Failure::Text(format!("there is no example `{name}`")))?;
        let directory = target().join("bench-build");
        let _ = fs::remove_dir_all(&directory); // left by a run that was stopped
        copy(source, &directory.join("package"))?;
        let bed = Bed { directory };
        // The copy's `../..` is another directory.
        let manifest = bed.package("Cargo.toml");
        let text = fs::read_to_string(&manifest).map_err(Failure::io("read", &manifest))?;
        let root = crate::packages::root().display().to_string();
        let text = text.replace("\"../..", &format!("\"{root}"));
        fs::write(&manifest, text).map_err(Failure::io("write", &manifest))?;
        capture(cargo(&["fetch", "--manifest-path"]).arg(&manifest))?; // the network is not what is measured
        Ok(bed)
    }

    fn package(&self, path: &str) -> PathBuf {
        self.directory.join("package").join(path)
    }

    /// Seconds of a `cargo build` in a target directory.
    fn build(&self, target: &str, device: Device) -> Result<f64, Failure> {
        let mut command: Command = cargo(&["build", "--manifest-path"]);
        command.arg(self.package("Cargo.toml")).env("CARGO_TARGET_DIR", self.directory.join(target)).env("MACO_REQUIRE_GPU", "1");
        command.env_remove("MACO_DEVICE");
        match device {
            Device::Skip => drop(command.env("MACO_DEVICE", "skip")),
            Device::NewCache => {
                // The compiler stays the one that was found; what it builds does not.
                let rustc = toolchain::find()?.rustc;
                command.env("MACO_CACHE", self.directory.join("cache")).env("MACO_DEVICE_RUSTC", rustc);
            }
            Device::Usual => {}
        }
        let begin = Instant::now();
        capture(&mut command)?;
        Ok(begin.elapsed().as_secs_f64())
    }

    /// Every case once, each from nothing but what its name says.
    fn round(&self, round: u32, fastest: &mut Seconds) -> Result<(), Failure> {
        for directory in ["host", "first", "cached", "cache"] {
            let _ = fs::remove_dir_all(self.directory.join(directory)); // of the round before
        }
        let take = |slot: &mut f64, seconds: f64| *slot = slot.min(seconds);
        take(&mut fastest.host, self.build("host", Device::Skip)?);
        take(&mut fastest.first, self.build("first", Device::NewCache)?);
        take(&mut fastest.cached, self.build("cached", Device::Usual)?);
        self.edit(round)?;
        take(&mut fastest.host_edited, self.build("host", Device::Skip)?);
        take(&mut fastest.edited, self.build("cached", Device::Usual)?);
        take(&mut fastest.unchanged, self.build("cached", Device::Usual)?);
        Ok(())
    }

    /// Changes the tokens of the kernels without changing what they mean: a line more.
    fn edit(&self, number: u32) -> Result<(), Failure> {
        let kernels = self.package("src/kernels.rs");
        let text = fs::read_to_string(&kernels).map_err(Failure::io("read", &kernels))?;
        fs::write(&kernels, format!("{text}\npub const EDITED_{number}: u32 = {number};\n")).map_err(Failure::io("write", &kernels))
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    fs::create_dir_all(to).map_err(Failure::io("create", to))?;
    for entry in fs::read_dir(from).map_err(Failure::io("read", from))?.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() {
            if name != "target" {
                copy(&path, &to.join(name))?;
            }
        } else {
            fs::copy(&path, to.join(name)).map_err(Failure::io("copy", &path))?;
        }
    }
    Ok(())
}
