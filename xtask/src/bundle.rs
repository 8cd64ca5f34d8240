//! Programs for a machine with a GPU and without Rust: `dist/bin` and `dist/run.sh`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::command::{capture, cargo};
use crate::failure::Failure;
use crate::fetch::make_executable;
use crate::packages::{Package, beside, root};
use crate::progress::during;
use crate::test::gpu_tests;
use crate::{sanitize, setup};

/// A bundle is copied to the machine with the GPU: keep it small.
const LIMIT_MIB: f64 = 60.0;

/// Builds in release mode, strips, copies, writes the script.
pub fn bundle() -> Result<(), Failure> {
    setup::setup(false)?;
    let dist = root().join("dist");
    let bin = dist.join("bin");
    let _ = fs::remove_dir_all(&bin); // of the last time
    fs::create_dir_all(&bin).map_err(Failure::io("create", &bin))?;

    let mut tests = BTreeSet::new();
    let mut programs = BTreeSet::new();
    let packages = beside()?;
    for suite in std::iter::once(None).chain(packages.iter().map(Some)) {
        let what = suite.map_or("the workspace", |package| &package.name);
        for built in during(&format!("building {what}"), || build(suite))? {
            if built.test {
                // Only those that need a GPU are worth the journey.
                let list = capture(Command::new(&built.program).args(["--list", "--ignored"]))?;
                if gpu_tests(&list) > 0 {
                    tests.insert(built.copy(&bin)?);
                }
            } else if suite.is_some() {
                programs.insert(built.copy(&bin)?);
            }
        }
    }
    let script = dist.join("run.sh");
    fs::write(&script, script_text(&tests, &programs)).map_err(Failure::io("write", &script))?;
    make_executable(&script)?;

    let size = megabytes(&bin);
    println!(
        "dist: {} test programs, {} others, {size:.1} MiB; `dist/run.sh` runs the tests, `dist/run.sh NAME …` one program",
        tests.len(),
        programs.len()
    );
    if size < LIMIT_MIB { Ok(()) } else { Err(Failure::Text(format!("{size:.1} MiB, but at most {LIMIT_MIB} MiB can be carried"))) }
}

/// An executable that cargo made.
struct Built {
    name: String,
    program: PathBuf,
    test: bool,
}

impl Built {
    /// Copies it, stripped; its name there.
    fn copy(&self, bin: &Path) -> Result<String, Failure> {
        let name = if self.test { format!("test-{}", self.name) } else { self.name.clone() };
        let to = bin.join(&name);
        fs::copy(&self.program, &to).map_err(Failure::io("copy", &self.program))?;
        capture(Command::new("strip").arg(&to))?;
        Ok(name)
    }
}

fn build(suite: Option<&Package>) -> Result<Vec<Built>, Failure> {
    let mut built = Vec::new();
    for (subcommand, test) in [(&["test", "--no-run"][..], true), (&["build"][..], false)] {
        let mut command = cargo(subcommand);
        command.args(["--release", "--message-format=json"]);
        match suite {
            None if test => command.arg("--workspace"),
            None => continue,
            Some(package) => command.args(package.arguments()),
        };
        let messages = capture(&mut command)?;
        built.extend(executables(&messages).into_iter().filter(|built| built.test == test));
    }
    Ok(built)
}

/// The executables among cargo's messages.
fn executables(messages: &str) -> Vec<Built> {
    #[derive(Deserialize)]
    struct Message {
        executable: Option<PathBuf>,
        package_id: Option<String>,
        target: Option<Target>,
        profile: Option<Profile>,
    }
    #[derive(Deserialize)]
    struct Target {
        name: String,
    }
    #[derive(Deserialize)]
    struct Profile {
        test: bool,
    }
    let parsed = messages.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok());
    parsed
        .filter_map(|message| {
            let (target, profile) = (message.target?, message.profile?);
            let package = message.package_id.as_deref().map(package_name).unwrap_or_default();
            // `gpu` of one package is not that of another.
            let name = if package == target.name { target.name } else { format!("{package}-{}", target.name) };
            Some(Built { name, program: message.executable?, test: profile.test })
        })
        .collect()
}

/// `mlp` of `path+file:///…/mlp#0.1.0` and of `path+file:///…/other#mlp@0.1.0`.
fn package_name(id: &str) -> String {
    let (path, version) = id.split_once('#').unwrap_or((id, ""));
    match version.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => path.rsplit('/').next().unwrap_or(path).to_owned(),
    }
}

fn script_text(tests: &BTreeSet<String>, programs: &BTreeSet<String>) -> String {
    let words = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(" ");
    let sanitized: Vec<&str> = tests.iter().map(String::as_str).filter(|test| sanitize::worthwhile(test)).collect();
    format!(
        "#!/bin/sh
# Written by `cargo xtask bundle`. Without arguments: every GPU test. `sanitize`: under compute-sanitizer. Else: one program and its
# arguments, of
#   {}
{}cd \"$(dirname \"$0\")/bin\" || exit 1
export MACO_GPU_TESTS=1 CUDA_MODULE_LOADING=EAGER
if [ \"$1\" = sanitize ]; then
    sanitize
fi
if [ $# -gt 0 ]; then
    program=$1
    shift
    exec \"./$program\" \"$@\"
fi
failed=0
for test in {}; do
    echo \"== $test\"
    \"./$test\" --ignored gpu --test-threads=1 || failed=1
done
exit $failed
",
        words(programs),
        sanitize::shell_function(&sanitized),
        words(tests)
    )
}

fn megabytes(directory: &Path) -> f64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let bytes: u64 = entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum();
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_named_by_package_and_target() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","package_id":"path+file:///r/tests/gpu#0.1.0","target":{"name":"plan"},"profile":{"test":true},"executable":"/t/plan-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","package_id":"path+file:///r#maco@0.1.0","target":{"name":"maco"},"profile":{"test":true},"executable":"/t/maco-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","package_id":"path+file:///r#maco@0.1.0","target":{"name":"maco"},"profile":{"test":false},"executable":null}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        let names: Vec<String> = executables(messages).into_iter().map(|built| built.name).collect();
        assert_eq!(names, ["gpu-plan", "maco"]);
    }

    #[test]
    fn the_script_runs_every_test_and_fails_when_one_does() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let text = script_text(&set(&["test-a", "test-b"]), &set(&["mlp"]));
        assert!(text.contains("for test in test-a test-b; do") && text.contains("|| failed=1") && text.contains("#   mlp\n"), "{text}");
        assert!(text.contains("sanitize() {") && text.contains("if [ \"$1\" = sanitize ]"), "{text}");
    }
}
