//! What the repository costs those who work on it: CI, bundles and tests in clean clones, which share nothing with this checkout but toolchains
//! and the sources of crates.

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use maco_build::cache_dir;

use super::assembler::{self, Piece};
use super::{Options, Part, Report, Row};
use crate::command::{capture, shown};
use crate::failure::Failure;
use crate::fetch;
use crate::packages::root;
use crate::progress::during;
use crate::results::commit;

/// An edit of device code: the same result but for its rounding, by other instructions.
const ARITHMETIC: [&str; 2] = ["v * scale * weight", "v * weight * scale"];

/// Measures the parts in clones below `directory`, which is gone afterwards; after a failure logs stay there.
pub fn measure(directory: &Path, parts: &BTreeSet<Part>, options: &Options, report: &mut Report<'_>) -> Result<(), Failure> {
    let _ = fs::remove_dir_all(directory); // left by a run that was stopped
    let commit = commit()?;
    if commit.ends_with("-dirty") {
        eprintln!("what is measured is the commit that is checked out, without the changes to its files");
    }
    let bench = Bench { source: root().to_owned(), directory: directory.to_owned(), ptxas: fetch::ptxas()?, tools: Vec::new() };
    let bench = if parts.contains(&Part::Ci) { Bench { tools: vec![fetch::cargo_deny()?], ..bench } } else { bench };
    bench.measure(parts, options, report)?;
    fs::remove_dir_all(directory).map_err(Failure::io("remove", directory))
}

/// What clones are made of.
struct Bench {
    source: PathBuf,
    directory: PathBuf,
    ptxas: PathBuf,
    /// Programs that the commands would fetch or compile; by their names alone if they are on the path.
    tools: Vec<PathBuf>,
}

impl Bench {
    fn measure(&self, parts: &BTreeSet<Part>, options: &Options, report: &mut Report<'_>) -> Result<(), Failure> {
        let asked = |part: Part| parts.contains(&part);
        if asked(Part::Ci) {
            let clone = self.clean("ci")?;
            report.add(vec![Row::minutes(".ci/run, clean clone", clone.run("ci", &mut clone.command(".ci/run"))?, 28.0)])?;
            clone.remove()?;
        }
        if asked(Part::Bundle) || (asked(Part::Ptxas) && !asked(Part::Ci)) {
            let clone = self.clean("bundle")?;
            let bundle = || clone.run("bundle", clone.command("cargo").args(["xtask", "bundle"]));
            let seconds = bundle()?;
            if asked(Part::Bundle) {
                report.add(vec![Row::minutes("bundle from nothing", seconds, 30.0)])?;
                let file = clone.file_with(ARITHMETIC[0])?;
                append(&file, "// A comment.\n")?;
                report.add(vec![Row::minutes("bundle after a comment in maco-device", bundle()?, 12.0)])?;
                let text = fs::read_to_string(&file).map_err(Failure::io("read", &file))?;
                fs::write(&file, text.replace(ARITHMETIC[0], ARITHMETIC[1])).map_err(Failure::io("write", &file))?;
                report.add(vec![Row::minutes("bundle after other arithmetic in maco-device", bundle()?, 12.0)])?;
            }
            clone.remove()?;
        }
        if asked(Part::Edit) {
            let clone = self.clean("edit")?;
            report.add(vec![Row::seconds("one test file edited, its result", clone.edit(&options.test, options.rounds)?, 60.0)])?;
            clone.remove()?;
        }
        if asked(Part::Ptxas) {
            let none = || Failure::Text("nothing called `ptxas`: does the build still look for it in target/maco/ptxas?".into());
            let Piece { ptx, seconds } = assembler::longest(&self.log())?.ok_or_else(none)?;
            eprintln!("longest in ptxas: {ptx}");
            report.add(vec![Row::new("longest piece in ptxas", "time of a core", "s", seconds, 60.0)])?;
        }
        Ok(())
    }

    fn log(&self) -> PathBuf {
        self.directory.join("ptxas")
    }

    /// A new clone of the commit that is checked out, and an empty cache.
    fn clean(&self, name: &str) -> Result<Clone, Failure> {
        let clone = Clone { folder: self.directory.join(name), logs: self.directory.clone() };
        fs::create_dir_all(&clone.folder).map_err(Failure::io("create", &clone.folder))?;
        capture(Command::new("git").args(["clone", "--quiet", "--local"]).args([&self.source, &clone.checkout()]))?;
        // Compilers and sources that `cargo xtask setup` unpacked are toolchains; all else in the cache is made again.
        fs::create_dir_all(clone.cache()).map_err(Failure::io("create", &clone.cache()))?;
        for part in ["debian", "rust-src"] {
            let (from, to) = (cache_dir().join(part), clone.cache().join(part));
            if from.exists() {
                symlink(&from, &to).map_err(Failure::io("link", &to))?;
            }
        }
        assembler::replace(&self.ptxas, &clone.target().join("maco/ptxas"), &self.log())?;
        // Cargo leaves its tag in a folder that it makes itself; without it the clone's builds would be taken for those of the target folder around it.
        let tag = clone.target().join("CACHEDIR.TAG");
        fs::write(&tag, "Signature: 8a477f597d28d172789f06886806bc55\n").map_err(Failure::io("write", &tag))?;
        let tools = clone.target().join("tools");
        fs::create_dir_all(&tools).map_err(Failure::io("create", &tools))?;
        for tool in self.tools.iter().filter(|tool| tool.is_file()) {
            fs::copy(tool, tools.join(tool.file_name().unwrap_or_default())).map_err(Failure::io("copy", tool))?;
        }
        Ok(clone)
    }
}

/// A clone with a cache of its own.
struct Clone {
    folder: PathBuf,
    logs: PathBuf,
}

impl Clone {
    fn checkout(&self) -> PathBuf {
        self.folder.join("maco")
    }

    fn target(&self) -> PathBuf {
        self.checkout().join("target")
    }

    fn cache(&self) -> PathBuf {
        self.folder.join("cache")
    }

    /// A program in the checkout, without what this build was told.
    fn command(&self, program: &str) -> Command {
        let path = self.checkout().join(program);
        let mut command = if path.is_file() { Command::new(path) } else { Command::new(program) };
        command.current_dir(self.checkout()).env("MACO_CACHE", self.cache());
        const KEPT: [&str; 5] = ["CARGO_HOME", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTRIES_", "CARGO_REGISTRY_"];
        let kept = |name: &str| KEPT.iter().any(|kept| name.starts_with(kept));
        let told = |name: &str| name.starts_with("MACO_") || name.starts_with("CARGO_") || name.starts_with("RUSTC") || name == "RUSTFLAGS";
        for (name, _) in env::vars_os().filter(|(name, _)| name.to_str().is_some_and(|name| told(name) && !kept(name))) {
            if name != "MACO_CACHE" {
                command.env_remove(name);
            }
        }
        command
    }

    /// Seconds of a command, whose output goes to a file.
    fn run(&self, name: &str, command: &mut Command) -> Result<f64, Failure> {
        let path = self.logs.join(format!("{name}.log"));
        let log = File::options().create(true).append(true).open(&path).map_err(Failure::io("open", &path))?;
        let errors = log.try_clone().map_err(Failure::io("open", &path))?;
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        let begin = Instant::now();
        let status = during(&format!("{} in a clean clone, {}", shown(command), path.display()), || command.status());
        let seconds = begin.elapsed().as_secs_f64();
        let status = status.map_err(|source| Failure::Start { program: shown(command), source })?;
        if status.success() {
            return Ok(seconds);
        }
        Err(Failure::Text(format!("`{}` in a clean clone failed ({status}); what it said is in {}", shown(command), path.display())))
    }

    /// The fastest `cargo test` of a test program after an edit of its file.
    fn edit(&self, test: &str, rounds: u32) -> Result<f64, Failure> {
        let wrong = || Failure::Text(format!("no test program tests/{test}: `--test` takes `PACKAGE/TEST`, such as `kernels/dense`"));
        let (package, program) = test.split_once('/').ok_or_else(wrong)?;
        let folder = self.checkout().join("tests").join(package);
        let files = [folder.join(format!("tests/{program}.rs")), folder.join(format!("tests/{program}/main.rs"))];
        let file = files.iter().find(|file| file.is_file()).ok_or_else(wrong)?;
        // The target directory that `cargo xtask test` uses.
        let test = || {
            let mut command = self.command("cargo");
            command.args(["test", "--manifest-path", &format!("tests/{package}/Cargo.toml"), "--test", program]);
            self.run("edit", command.env("CARGO_TARGET_DIR", self.target()))
        };
        test()?;
        let mut fastest = f64::MAX;
        for round in 0..rounds {
            append(file, &format!("const _: u32 = {round};\n"))?;
            fastest = fastest.min(test()?);
        }
        Ok(fastest)
    }

    /// The one file of maco-device with this text.
    fn file_with(&self, text: &str) -> Result<PathBuf, Failure> {
        file_with(&self.checkout(), text)
    }

    fn remove(self) -> Result<(), Failure> {
        fs::remove_dir_all(&self.folder).map_err(Failure::io("remove", &self.folder))
    }
}

fn append(file: &Path, line: &str) -> Result<(), Failure> {
    let text = fs::read_to_string(file).map_err(Failure::io("read", file))?;
    fs::write(file, text + line).map_err(Failure::io("write", file))
}

fn file_with(checkout: &Path, text: &str) -> Result<PathBuf, Failure> {
    let mut folders = vec![checkout.join("maco-device/src")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder).map_err(Failure::io("read", &folder))?.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if fs::read_to_string(&path).is_ok_and(|source| source.contains(text)) {
                found.push(path);
            }
        }
    }
    match found.pop() {
        Some(file) if found.is_empty() => Ok(file),
        _ => Err(Failure::Text(format!(
            "not one file of maco-device has `{text}`: choose another edit in xtask/src/bench/build/repository.rs"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::bundle::trial::program;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn the_edit_of_device_code_is_possible() {
        file_with(root(), ARITHMETIC[0]).unwrap();
        assert!(file_with(root(), "fn").is_err());
    }

    /// A repository whose CI, bundle and test take no time.
    #[test]
    fn every_part_is_measured_in_a_clean_clone() {
        let folder = env::temp_dir().join(format!("maco-bench-build-{}", std::process::id()));
        let source = folder.join("source");
        let write = |path: &str, text: &str| {
            let path = source.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("Cargo.toml", "[package]\nname = \"xtask\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n");
        write(".cargo/config.toml", "[alias]\nxtask = \"run --quiet --\"\n");
        // Says what it was given, and has `ptxas` assemble what maco-device holds.
        write(
            "src/main.rs",
            r#"fn main() {
                assert!(std::env::var_os("CARGO_TARGET_DIR").is_none());
                std::fs::copy("maco-device/src/deep/norm.rs", "a.ptx").unwrap();
                let status = std::process::Command::new("target/maco/ptxas").args(["-o", "a.cubin", "a.ptx"]).status().unwrap();
                assert!(status.success());
            }"#,
        );
        write("maco-device/src/deep/norm.rs", &format!("{}\n", ARITHMETIC[0]));
        write("tests/some/Cargo.toml", "[package]\nname = \"some\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n");
        write("tests/some/src/lib.rs", "");
        write("tests/some/tests/one.rs", "#[test]\nfn one() {}\n");
        write(".ci/run", "");
        program(&source.join(".ci/run"), "[ -d \"$MACO_CACHE\" ] && [ ! -e Cargo.lock ] && target/maco/ptxas ci.ptx && target/tools/tool");
        let git = |arguments: &[&str]| {
            let who = ["-c", "user.name=n", "-c", "user.email=e", "-c", "init.defaultBranch=main"];
            capture(Command::new("git").args(who).args(arguments).current_dir(&source)).unwrap();
        };
        git(&["init", "--quiet"]);
        git(&["add", "."]);
        git(&["commit", "--quiet", "--message", "all"]);
        let (ptxas, tool) = (folder.join("ptxas"), folder.join("tool"));
        let seen = folder.join("seen");
        program(&ptxas, &format!("[ \"$1\" = ci.ptx ] || cat \"$3\" >> '{}'", seen.display()));
        program(&tool, "exit 0");

        let directory = folder.join("bench");
        let bench = Bench { source, directory: directory.clone(), ptxas, tools: vec![tool, "on-the-path".into()] };
        let options = Line::try_parse_from(["build", "--test", "some/one", "--rounds", "2"]).unwrap().options;
        let parts = BTreeSet::from([Part::Ci, Part::Bundle, Part::Edit, Part::Ptxas]);
        let mut report = Report { rows: Vec::new(), json: None };
        bench.measure(&parts, &options, &mut report).unwrap();
        let cases: Vec<&str> = report.rows.iter().map(|row| &*row.case).collect();
        assert_eq!(
            cases,
            [
                ".ci/run, clean clone",
                "bundle from nothing",
                "bundle after a comment in maco-device",
                "bundle after other arithmetic in maco-device",
                "one test file edited, its result",
                "longest piece in ptxas"
            ]
        );
        assert!(report.rows.iter().all(|row| row.ratio > 1.0), "{:?}", report.rows);
        let [a, b] = ARITHMETIC;
        assert_eq!(fs::read_to_string(&seen).unwrap(), format!("{a}\n{a}\n// A comment.\n{b}\n// A comment.\n"));
        // Of the clones nothing stays but logs.
        let left: BTreeSet<String> =
            fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(left, ["bundle.log", "ci.log", "edit.log", "ptxas"].map(str::to_owned).into());

        let fails = |options: &[&str], part: Part| {
            let options = Line::try_parse_from([&["build"], options].concat()).unwrap().options;
            let _ = fs::remove_dir_all(&directory);
            let failure = bench.measure(&[part].into(), &options, &mut Report { rows: Vec::new(), json: None }).unwrap_err();
            failure.to_string()
        };
        assert!(fails(&["--test", "some/two"], Part::Edit).contains("no test program tests/some/two"));
        fs::remove_file(&bench.ptxas).unwrap();
        let failure = fails(&[], Part::Ci);
        assert!(failure.contains("`run` in a clean clone failed") && failure.contains("ci.log"), "{failure}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
