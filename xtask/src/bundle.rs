//! Programs for a machine with a GPU and without Rust: `dist/tests.tar.zst`, `dist/programs.tar.zst`, and `dist/run.sh`, which unpacks and runs
//! them. Two archives, since tests and measurements are seldom wanted together: either is enough for its own.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::command::{capture, cargo};
use crate::emulated::EMULATOR;
use crate::failure::Failure;
use crate::fetch::make_executable;
use crate::packages::{Suite, root, suites};
use crate::progress::during;
use crate::results::commit;
use crate::test::gpu_tests;
use crate::{archive, fetch, sanitize, setup, tally};

/// An archive is copied to the machine with the GPU, with the repository: keep it small.
const LIMIT_MIB: f64 = 56.0;

/// Multicast stays off, also NCCL's.
pub const NO_MULTICAST: (&str, &str) = ("NCCL_NVLS_ENABLE", "0");

/// What programs of a bundle run with: their code is loaded before anything is timed.
pub const ENVIRONMENT: [(&str, &str); 3] = [("MACO_GPU_TESTS", "1"), ("CUDA_MODULE_LOADING", "EAGER"), NO_MULTICAST];

/// Measures the planner, which needs no GPU.
const PLANNING: &str = "benches-plan";

/// Builds in release mode, strips, packs, writes the script; `sanitized`: with device code for compute-sanitizer.
pub fn bundle(sanitized: bool) -> Result<(), Failure> {
    setup::setup(false)?;
    // Machine code, so that the time on a machine with a GPU is not spent in the driver's compiler.
    let assembler = fetch::ptxas()?;
    let dist = root().join("dist");
    let bin = dist.join("bin");
    let _ = fs::remove_dir_all(&bin); // of the last time
    fs::create_dir_all(&bin).map_err(Failure::io("create", &bin))?;

    let mut tests = BTreeSet::new();
    let mut programs = BTreeSet::new();
    let mut suites = suites()?;
    // Nothing is measured under a sanitizer; nothing is emulated where there is a GPU.
    suites.retain(|suite| !(sanitized && suite.name == "benches") && suite.name != EMULATOR);
    let mut all = Vec::new();
    for suite in &suites {
        let mut built = during(&format!("building {}", suite.name), || build(suite, &assembler, sanitized))?;
        // Of the workspace in the root there are tests alone.
        built.retain(|built| built.test || !suite.is_root());
        // At once: another suite may have a program of the same name, which cargo puts in the same place.
        for program in built.iter().filter(|built| !built.test && built.name != PLANNING) {
            program.strip(&bin)?;
        }
        all.extend(built);
    }
    for built in all {
        if !built.test {
            if built.name != PLANNING {
                programs.insert(built.name);
            }
            continue;
        }
        // Only those that need a GPU are worth the journey.
        let list = capture(Command::new(&built.program).args(["--list", "--ignored"]))?;
        if gpu_tests(&list) > 0 {
            tests.insert(built.strip(&bin)?);
        }
    }
    let packed = [(archive::TESTS, &tests), (archive::PROGRAMS, &programs)].map(|(file, names)| {
        // Tests of a package after one another: they hold the same code.
        let all: Vec<(String, PathBuf)> = names.iter().map(|name| (name.clone(), bin.join(name))).collect();
        let to = dist.join(file);
        during(&format!("packing {file}"), || archive::pack(&all, &to)).map(|()| to)
    });
    let _ = fs::remove_dir_all(&bin); // packed
    let unpacker = dist.join(archive::UNPACKER);
    let this = std::env::current_exe().map_err(Failure::io("find", Path::new(archive::UNPACKER)))?;
    strip(&this, &unpacker)?;
    capture(Command::new("gzip").args(["-9", "--force"]).arg(&unpacker))?;
    let script = dist.join("run.sh");
    fs::write(&script, script_text(&tests, &programs, &commit()?)).map_err(Failure::io("write", &script))?;
    make_executable(&script)?;

    let sizes = packed.map(|file| file.map(|file| (megabytes(&file), file)));
    let [tests_mib, programs_mib] = [&sizes[0], &sizes[1]].map(|size| size.as_ref().map_or(0.0, |(size, _)| *size));
    println!(
        "dist: {} test programs, {tests_mib:.1} MiB, {} others, {programs_mib:.1} MiB; `dist/run.sh` runs the tests, `dist/run.sh NAME …` one program",
        tests.len(),
        programs.len()
    );
    for size in sizes {
        let (size, file) = size?;
        if size >= LIMIT_MIB {
            return Err(Failure::Text(format!("{}: {size:.1} MiB, but at most {LIMIT_MIB} MiB can be carried", file.display())));
        }
    }
    Ok(())
}

/// An executable that cargo made.
pub struct Built {
    /// `mlp`, or `kernels-dense`: package and target, where they differ.
    pub name: String,
    /// Where it is.
    pub program: PathBuf,
    /// Package and target, if it is a program of `tests/` in that package.
    pub integration_test: Option<(String, String)>,
    test: bool,
}

impl Built {
    /// Copies it, stripped; its name there.
    fn strip(&self, bin: &Path) -> Result<String, Failure> {
        let name = if self.test { format!("test-{}", self.name) } else { self.name.clone() };
        strip(&self.program, &bin.join(&name))?;
        Ok(name)
    }
}

fn strip(program: &Path, to: &Path) -> Result<(), Failure> {
    fs::copy(program, to).map_err(Failure::io("copy", program))?;
    capture(Command::new("strip").arg(to)).map(drop)
}

fn build(suite: &Suite, assembler: &Path, sanitized: bool) -> Result<Vec<Built>, Failure> {
    let mut built = Vec::new();
    for (subcommand, test) in [(&["test", "--no-run"][..], true), (&["build"][..], false)] {
        if !test && suite.is_root() {
            continue;
        }
        let mut command = cargo(subcommand);
        command
            .args(["--release", "--message-format=json"])
            .args(suite.arguments())
            .env("MACO_PTXAS", assembler)
            .env_remove("MACO_ONLY_CHECK");
        if sanitized {
            command.env("MACO_SANITIZE", "1");
        }
        let messages = capture(&mut command)?;
        built.extend(executables(&messages).into_iter().filter(|built| built.test == test));
    }
    Ok(built)
}

/// The executables among cargo's messages.
pub fn executables(messages: &str) -> Vec<Built> {
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
        kind: Vec<String>,
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
            let integration_test = target.kind.iter().any(|kind| kind == "test").then(|| (package.to_owned(), target.name.clone()));
            // `gpu` of one package is not that of another.
            let name = if package == target.name { target.name } else { format!("{package}-{}", target.name) };
            Some(Built { name, program: message.executable?, integration_test, test: profile.test })
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

fn script_text(tests: &BTreeSet<String>, programs: &BTreeSet<String>, commit: &str) -> String {
    let words = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(" ");
    let sanitized: Vec<&str> = tests.iter().map(String::as_str).filter(|test| sanitize::worthwhile(test)).collect();
    format!(
        r#"#!/bin/sh
# Written by `cargo xtask bundle`. Without arguments: every GPU test. `tests NAME …`: those. `sanitize`, `sanitize NAME …`: under
# compute-sanitizer. MACO_SECONDS: what has not ended by then is said to be so. `compare OLD NEW`: measures two folders of bundles in turn,
# `compare --help` says how. Else: one program and its arguments, of
#   {programs}
{limited}{sanitize}called_from=$PWD
cd "$(dirname "$0")" || exit 1
export {environment}
# What runs is unpacked for as long as the script lasts.
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
gzip -dc {packed_unpacker} > "$folder/{unpacker}" && chmod +x "$folder/{unpacker}" || exit 1
unpack() {{
    case $1 in
        test-*) archive={tests_file} ;;
        *) archive={programs_file} ;;
    esac
    [ -f "$archive" ] || {{ echo "$archive was not copied, and \`$1\` is in it" >&2; return 1; }}
    "$folder/{unpacker}" unpack "$archive" "${{2:-$folder}}" "$1"
}}
tests="{tests}"
if [ "$1" = sanitize ]; then
    shift
    sanitize "$@"
elif [ "$1" = tests ]; then
    shift
    tests="$*"
elif [ "$1" = compare ]; then
    # The folders are named from where the script was called. What the comparison unpacks goes with all else.
    cd "$called_from" || exit 1
    TMPDIR="$folder" "$folder/{unpacker}" "$@"
    exit
elif [ $# -gt 0 ]; then
    program=$1
    shift
    unpack "$program" || exit 127
    "$folder/$program" "$@"
    exit
fi
table=
failed=0
# Of a machine that is there for so many seconds, what has not ended by then is named.
seconds=${{MACO_TEST_SECONDS:-600}}
until=$(($(date +%s) + ${{MACO_SECONDS:-86400}}))
for test in $tests; do
    left=$((until - $(date +%s)))
    if [ "$left" -le 0 ]; then
        failed=1
        table="$table$(printf '%-32s %6s %6s %7s %8s %8s  %s' "$test" - - - - - "not begun")
"
        continue
    fi
    [ "$left" -gt "$seconds" ] && left=$seconds
    export MACO_TEST_SECONDS=$left
    echo "== $test"
    # The code of the program, not of `tee`.
    {{
        unpack "$test" && limited "$folder/$test" --ignored gpu --test-threads=1
        echo $? > "$folder/code"
    }} | tee "$folder/output"
    code=$(cat "$folder/code")
    case $code in
        0) result=ok ;;
        *) result="failed ($code)" failed=1 ;;
    esac
    left_out=$(grep -c '^left out: ' "$folder/output")
    # The last one: a test may run its own program again.
    counts=$(sed -n "s/^test result: .* \([0-9]*\) passed; \([0-9]*\) failed; \([0-9]*\) ignored;.* in \([0-9.]*\)s\$/\1 \2 \3 $left_out \4/p" "$folder/output" | tail -n 1)
    table="$table$(printf '%-32s %6s %6s %7s %8s %8s  %s' "$test" ${{counts:-- - - - -}} "$result")
"
done
{table}
exit $failed
"#,
        programs = words(programs),
        environment = ENVIRONMENT.map(|(name, value)| format!("{name}={value}")).join(" "),
        unpacker = archive::UNPACKER,
        packed_unpacker = archive::PACKED_UNPACKER,
        tests_file = archive::TESTS,
        programs_file = archive::PROGRAMS,
        limited = tally::LIMITED,
        sanitize = sanitize::shell_function(&sanitized, commit),
        tests = words(tests),
        table = tally::shell(&tally::TESTS, commit),
    )
}

fn megabytes(file: &Path) -> f64 {
    fs::metadata(file).map_or(0, |metadata| metadata.len()) as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::trial::Dist;
    use super::*;

    #[test]
    fn programs_are_named_by_package_and_target() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","package_id":"path+file:///r/tests/gpu#0.1.0","target":{"name":"plan","kind":["test"]},"profile":{"test":true},"executable":"/t/plan-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","package_id":"path+file:///r#maco@0.1.0","target":{"name":"maco","kind":["lib"]},"profile":{"test":true},"executable":"/t/maco-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","package_id":"path+file:///r#maco@0.1.0","target":{"name":"maco","kind":["lib"]},"profile":{"test":false},"executable":null}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        let names: Vec<String> = executables(messages).into_iter().map(|built| built.name).collect();
        assert_eq!(names, ["gpu-plan", "maco"]);
    }

    const RESULT: &str = "echo \"test result: ok. $1 passed; 0 failed; 2 ignored; 0 measured; 3 filtered out; finished in 0.25s\"";

    #[test]
    fn the_script_runs_every_test_and_fails_when_one_does() {
        let arguments = "[ \"$*\" = '--ignored gpu --test-threads=1' ] || exit 7\n";
        let a = format!("{arguments}set 1\n{RESULT}\necho 'left out: all: nothing is there'\nset 4\n{RESULT}");
        let (code, text) = Dist::new("good", &[("test-a", &a)], &[]).run(|script| script);
        assert_eq!(code, Some(0), "{text}");
        let tests = [("test-a", &*a), ("test-b", "kill -SEGV $$"), ("test-c", &format!("set 5\n{RESULT}\nexit 101"))];
        let (code, text) = Dist::new("bad", &tests, &[]).run(|script| script);
        assert_eq!(code, Some(1), "{text}");
        let (file, page) = tally::page(&text, "m").unwrap();
        assert_eq!(file, "gpu_tests.md");
        assert!(page.contains("Commit 0123abc; m."), "{page}");
        assert!(
            page.ends_with(
                "| test-a | 4 | 0 | 2 | 1 | 0.25 | ok |\n| test-b | - | - | - | - | - | failed (139) |\n| test-c | 5 | 0 | 2 | 0 | 0.25 | failed (101) |\n\
                 | **sum** | 9 | 0 | 4 | 1 | 0.50 | 2 of 3 not ok |\n"
            ),
            "{page}"
        );
    }

    #[test]
    fn the_script_runs_one_program_with_its_arguments() {
        let dist = Dist::new("one", &[("test-a", "exit 9")], &[("mlp", "echo \"<$1> <$2>\"\nexit 5")]);
        assert_eq!(dist.run(|script| script.args(["mlp", "a b", "c"])), (Some(5), "<a b> <c>\n".to_owned()));
        assert_eq!(dist.run(|script| script.arg("missing")).0, Some(127));
    }

    /// Whoever has a machine for so long gets a table of what has ended.
    #[test]
    fn the_script_ends_in_time() {
        let dist = Dist::new("late", &[("test-a", "set 1\nsleep 30"), ("test-b", RESULT)], &[]);
        let (code, text) = dist.run(|script| script.env("MACO_SECONDS", "1"));
        assert_eq!(code, Some(1), "{text}");
        let (_, page) = tally::page(&text, "m").unwrap();
        assert!(page.contains("| test-a | - | - | - | - | - | failed (124) |\n| test-b | - | - | - | - | - | not begun |\n"), "{page}");
    }

    /// Tests need no archive but their own.
    #[test]
    fn either_archive_is_enough_for_its_own() {
        let test = format!("set 1\n{RESULT}");
        let dist = Dist::new("half", &[("test-a", &test)], &[("mlp", "true")]);
        fs::remove_file(dist.root.join(archive::PROGRAMS)).unwrap();
        assert_eq!(dist.run(|script| script).0, Some(0));
        assert_eq!(dist.run(|script| script.arg("mlp")).0, Some(127));
    }

    /// A machine may not be there for as long as all of them take.
    #[test]
    fn the_script_runs_the_tests_that_are_named() {
        let tests = [("test-a", &*format!("set 1\n{RESULT}")), ("test-b", "exit 9"), ("test-c", &format!("set 2\n{RESULT}"))];
        let (code, text) = Dist::new("named", &tests, &[]).run(|script| script.args(["tests", "test-a", "test-c"]));
        assert_eq!(code, Some(0), "{text}");
        let (_, page) = tally::page(&text, "m").unwrap();
        assert!(page.contains("| test-a | 1 |") && page.contains("| test-c | 2 |") && !page.contains("test-b"), "{page}");
    }

    /// Folders are named from where the script is called.
    #[test]
    fn the_script_compares_bundles() {
        let dist = Dist::new("compare", &[("test-a", "exit 9")], &[]);
        let elsewhere = dist.root.join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        let (code, text) = dist.run(|script| script.args(["compare", "../old", "new folder"]).current_dir(&elsewhere));
        assert_eq!((code, text), (Some(4), format!("{} compare <../old> <new folder>\n", elsewhere.display())));
    }

    #[test]
    fn nothing_stays_unpacked() {
        let dist = Dist::new("clean", &[], &[("mlp", "true")]);
        let folder = dist.root.join("tmp");
        fs::create_dir(&folder).unwrap();
        assert_eq!(dist.run(|script| script.arg("mlp").env("TMPDIR", &folder)).0, Some(0));
        assert_eq!(fs::read_dir(folder).unwrap().count(), 0);
    }
}

/// A bundle of shell scripts instead of programs.
#[cfg(test)]
pub mod trial {
    use std::process::Stdio;

    use super::*;

    pub struct Dist {
        pub root: PathBuf,
    }

    pub fn program(file: &Path, text: &str) {
        fs::write(file, format!("#!/bin/sh\n{text}\n")).unwrap();
        make_executable(file).unwrap();
    }

    impl Dist {
        /// Names and scripts of tests and of other programs.
        pub fn new(name: &str, tests: &[(&str, &str)], programs: &[(&str, &str)]) -> Dist {
            let dist = Dist { root: std::env::temp_dir().join(format!("maco-bundle-{name}-{}", std::process::id())) };
            let folder = dist.root.join("programs");
            fs::create_dir_all(&folder).unwrap();
            for (name, text) in tests.iter().chain(programs) {
                program(&folder.join(name), text);
            }
            let unpacker = dist.root.join(archive::UNPACKER);
            for archive in [archive::TESTS, archive::PROGRAMS] {
                fs::write(dist.root.join(archive), "").unwrap();
            }
            // Tests are in one archive, all others in the other.
            program(
                &unpacker,
                "[ \"$1\" = compare ] && echo \"$PWD $1 <$2> <$3>\" && exit 4\n\
                 case $2 in tests*) [ \"${4#test-}\" != \"$4\" ] ;; *) [ \"${4#test-}\" = \"$4\" ] ;; esac && cp \"programs/$4\" \"$3\"",
            );
            capture(Command::new("gzip").arg("--force").arg(&unpacker)).unwrap();
            let names = |all: &[(&str, &str)]| all.iter().map(|(name, _)| (*name).to_owned()).collect();
            fs::write(dist.root.join("run.sh"), script_text(&names(tests), &names(programs), "0123abc")).unwrap();
            dist
        }

        /// Runs the script; its exit code and what it printed.
        pub fn run(&self, with: impl FnOnce(&mut Command) -> &mut Command) -> (Option<i32>, String) {
            let mut script = Command::new("sh");
            script.arg(self.root.join("run.sh")).stdin(Stdio::null()).stderr(Stdio::null());
            let output = with(&mut script).output().unwrap();
            (output.status.code(), String::from_utf8(output.stdout).unwrap())
        }
    }

    impl Drop for Dist {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}
