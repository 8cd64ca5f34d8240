//! GPU tests under NVIDIA's compute-sanitizer, which looks for bad accesses (`memcheck`) and for races in shared memory (`racecheck`).

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bundle;
use crate::command::run;
use crate::failure::Failure;
use crate::gpu;
use crate::packages::root;

/// What it is called on a path.
const PROGRAM: &str = "compute-sanitizer";

/// Parts of the names of tests that measure time, hold multiprocessors or wait for deadlines: they say nothing where everything is slow.
const TIMED: [&str; 5] = ["hangs", "faults", "residency", "starvation", "latency"];
/// The same of single tests in other programs.
const SKIPPED: &str = "--skip abort --skip dropped";

/// Builds the bundle and runs its tests under the sanitizer.
pub fn sanitize() -> Result<(), Failure> {
    gpu::count().map_err(|why| Failure::Text(format!("nothing to run on: {why}")))?;
    if find(&places(env::var_os("PATH"), env::var_os("CUDA_HOME"))).is_none() {
        return Err(Failure::Text(format!("no `{PROGRAM}` in PATH, CUDA_HOME or /usr/local/cuda: install the CUDA toolkit")));
    }
    bundle::bundle()?;
    run(Command::new(root().join("dist/run.sh")).arg("sanitize"))
}

/// Whether a test program is worth running under the sanitizer.
pub fn worthwhile(test: &str) -> bool {
    !TIMED.iter().any(|timed| test.contains(timed))
}

/// Where the program may be.
fn places(path: Option<impl AsRef<std::ffi::OsStr>>, cuda: Option<impl Into<PathBuf>>) -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = path.map(|path| env::split_paths(&path).collect()).unwrap_or_default();
    places.extend(cuda.map(|cuda| cuda.into().join("bin")));
    places.push("/usr/local/cuda/bin".into());
    places
}

fn find(places: &[PathBuf]) -> Option<PathBuf> {
    places.iter().map(|place| place.join(PROGRAM)).find(|program| Path::is_file(program))
}

/// The shell function of the bundle's script that does it: a machine with a GPU need not have Rust.
pub fn shell_function(tests: &[&str]) -> String {
    format!(
        r#"sanitize() {{
    PATH="$PATH:${{CUDA_HOME:-/usr/local/cuda}}/bin:/usr/local/cuda/bin"
    if ! command -v {PROGRAM} > /dev/null; then
        echo "no {PROGRAM} in PATH, CUDA_HOME or /usr/local/cuda" >&2
        exit 2
    fi
    # Everything is slow there: fewer rounds, and more time before a wait counts as a hang.
    export MACO_TESTS=short MACO_DEADLINE_SCALE="${{MACO_DEADLINE_SCALE:-100}}"
    table=
    failed=0
    for test in {}; do
        for tool in memcheck racecheck; do
            echo "== $tool $test"
            begin=$(date +%s)
            {PROGRAM} --tool "$tool" --error-exitcode 99 "./$test" --ignored gpu {SKIPPED} --test-threads=1
            code=$?
            case $code in
                0) result=ok ;;
                99) result="errors found" failed=1 ;;
                *) result="failed ($code)" failed=1 ;;
            esac
            table="$table$(printf '%-10s %-32s %-14s %4d s' "$tool" "$test" "$result" $(($(date +%s) - begin)))
"
        done
    done
    printf '\n%s' "$table"
    exit $failed
}}
"#,
        tests.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Stdio;

    /// The function runs every test under both tools, prints a table, and fails when one of them does.
    #[test]
    fn the_script_says_what_failed() {
        let directory = env::temp_dir().join(format!("maco-sanitize-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let executable = |name: &str, text: &str| {
            let path = directory.join(name);
            fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            crate::fetch::make_executable(&path).unwrap();
        };
        executable(PROGRAM, "[ \"$2$5\" = racecheck./test-b ] && exit 99\nshift 4\nexec \"$@\"");
        executable("test-a", "echo \"$MACO_TESTS $MACO_DEADLINE_SCALE $*\"");
        executable("test-b", "exit 0");
        executable("test-c", "exit 3");
        let script = |tests: &[&str]| {
            let text = format!("{}sanitize\n", shell_function(tests));
            let path = format!("{}:{}", directory.display(), env::var("PATH").unwrap_or_default());
            let mut shell = Command::new("sh");
            shell.args(["-c", &text]).current_dir(&directory).env("PATH", path).env_remove("MACO_DEADLINE_SCALE").stdin(Stdio::null());
            let output = shell.output().unwrap();
            (output.status.code(), String::from_utf8(output.stdout).unwrap())
        };
        let (code, text) = script(&["test-a"]);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("short 100 --ignored gpu --skip abort --skip dropped --test-threads=1"), "{text}");
        let (code, text) = script(&["test-a", "test-b", "test-c"]);
        assert_eq!(code, Some(1), "{text}");
        let rows: Vec<Vec<&str>> =
            text.lines().skip_while(|line| !line.is_empty()).skip(1).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows.len(), 6, "{text}");
        assert_eq!(rows[0][..3], ["memcheck", "test-a", "ok"]);
        assert_eq!(rows[3][..4], ["racecheck", "test-b", "errors", "found"]);
        assert_eq!(rows[5][..4], ["racecheck", "test-c", "failed", "(3)"]);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn tests_of_time_are_left_out() {
        assert!(worthwhile("test-kernels-dense") && worthwhile("test-kernels-random"));
        assert!(!worthwhile("test-kernels-hangs") && !worthwhile("test-kernels-faults"));
    }

    #[test]
    fn the_program_is_looked_for_where_cuda_is() {
        let places = places(Some("/a:/b"), Some("/c"));
        assert_eq!(places, ["/a", "/b", "/c/bin", "/usr/local/cuda/bin"].map(PathBuf::from));
        assert_eq!(find(&["/nowhere".into()]), None);
    }
}
