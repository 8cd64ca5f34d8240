//! GPU tests under NVIDIA's compute-sanitizer, which looks for bad accesses (`memcheck`) and for races in shared memory (`racecheck`).

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bundle;
use crate::command::run;
use crate::failure::Failure;
use crate::gpu;
use crate::packages::root;
use crate::tally;

/// What it is called on a path.
const PROGRAM: &str = "compute-sanitizer";

/// Parts of the names of tests that measure time, hold multiprocessors or wait for deadlines: they say nothing where everything is slow.
const TIMED: [&str; 6] = ["hangs", "faults", "residency", "starvation", "latency", "profiled"];
/// The same of single tests in other programs, where a CTA that stops is asked by words that others write meanwhile; and graphs of thousands of tasks, which racecheck does not get through in an hour: smaller ones
/// run the same code.
const SKIPPED: &str = "--skip abort --skip dropped --skip hundred_thousand --skip thousands_of --skip a_long_chain --skip a_wide_fan --skip loses_the_device --skip never_runs";

/// Builds the bundle and runs its tests under the sanitizer.
pub fn sanitize() -> Result<(), Failure> {
    gpu::count().map_err(|why| Failure::Text(format!("nothing to run on: {why}")))?;
    if find(&places(env::var_os("PATH"), env::var_os("CUDA_HOME"))).is_none() {
        return Err(Failure::Text(format!("no `{PROGRAM}` in PATH, CUDA_HOME or /usr/local/cuda: install the CUDA toolkit")));
    }
    bundle::bundle(true)?;
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
pub fn shell_function(tests: &[&str], commit: &str) -> String {
    format!(
        r#"# One test under one tool, in a folder of its own: programs have tests of seconds and of minutes.
sanitize_one() {{
    echo "== $1 $2"
    begin=$(date +%s)
    # Calls that the driver refuses are what many tests are about.
    limited {PROGRAM} --tool "$1" --report-api-errors no --error-exitcode 99 "$folder/${{2%%::*}}" --ignored --exact "${{2#*::}}" --test-threads=1
    code=$?
    case $code in
        0) result=ok ;;
        99) result="errors found" ;;
        *) result="failed ($code)" ;;
    esac
    printf '%-10s %-32s %5d  %s\n' "$1" "$2" $(($(date +%s) - begin)) "$result" > "$3/row"
}}
# Racecheck loses launches of two host threads ("failure to track a kernel launch"), and may then wait for ever. And it follows each access to shared
# memory, of which tensors of more than 2^31 elements without gaps have gigabytes: they are about addresses of device memory, and others run the same bodies.
left_out() {{
    case "$1 $2" in
        "racecheck "*_from_two_threads) return 0 ;;
        "racecheck "*::gpu_copies_without_gaps | "racecheck "*::gpu_rows_without_gaps) return 0 ;;
        "racecheck "*::gpu_columns_without_gaps | "racecheck "*::gpu_transposes_without_gaps) return 0 ;;
        *) return 1 ;;
    esac
}}
# All that nobody else has begun, as long as there is time, on one of the GPUs. What takes longest comes first: races.
sanitize_every() {{
    [ "${{MACO_GPUS:-1}}" -gt 1 ] && export CUDA_VISIBLE_DEVICES=$(($1 % MACO_GPUS))
    for tool in $tools; do
        for test in $units; do
            left_out "$tool" "$test" && continue
            left=$((until - $(date +%s)))
            [ "$left" -gt 0 ] || return
            own="$folder/$tool-$test"
            mkdir "$own" 2> /dev/null || continue
            [ "$left" -gt "$seconds" ] && left=$seconds
            export MACO_TEST_SECONDS=$left
            sanitize_one "$tool" "$test" "$own" > "$own/output" 2>&1
            cat "$own/output"
        done
    done
}}
# What is named, one `PROGRAM::TEST` each; the programs are unpacked.
sanitize_units() {{
    for named in "$@"; do
        program=${{named%%::*}}
        [ -x "$folder/$program" ] || unpack "$program" || exit 127
        case $named in
            *::*) echo "$named" ;;
            *) "$folder/$program" --ignored --list --format terse gpu {SKIPPED} | sed -n "s/^\(.*\): test\$/$program::\1/p" ;;
        esac
    done
}}
sanitize() {{
    PATH="$PATH:${{CUDA_HOME:-/usr/local/cuda}}/bin:/usr/local/cuda/bin"
    if ! command -v {PROGRAM} > /dev/null; then
        echo "no {PROGRAM} in PATH, CUDA_HOME or /usr/local/cuda" >&2
        exit 2
    fi
    # Everything is slow there, and the more so the more CTAs poll: fewer rounds, fewer workers, and more time before a wait counts as a hang.
    export MACO_TESTS=short MACO_MULTIPROCESSORS="${{MACO_MULTIPROCESSORS:-24}}" \
        MACO_DEADLINE_SCALE="${{MACO_DEADLINE_SCALE:-1000}}"
    # Most of the time is the host's: tests run side by side, and their output comes when each ends.
    # Of a machine that is there for so many seconds, what has not ended by then is named.
    tools=${{MACO_TOOLS:-racecheck memcheck}} seconds=${{MACO_TEST_SECONDS:-600}}
    until=$(($(date +%s) + ${{MACO_SECONDS:-86400}}))
    units=$(sanitize_units ${{*:-{}}}) || exit
    of=0
    while [ "$of" -lt "${{MACO_JOBS:-4}}" ]; do
        sanitize_every "$of" &
        of=$((of + 1))
    done
    wait
    table=
    failed=0
    for tool in $tools; do
        for test in $units; do
            left_out "$tool" "$test" && continue
            row=$(cat "$folder/$tool-$test/row" 2> /dev/null || printf '%-10s %-32s %5d  %s' "$tool" "$test" 0 "not begun")
            table="$table$row
"
            case $row in
                *" ok") ;;
                *) failed=1 ;;
            esac
        done
    done
    {}
    exit $failed
}}
"#,
        tests.join(" "),
        tally::shell(&tally::SANITIZER, commit)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::trial::{Dist, program};

    /// Every test of every program runs under both tools; the table says how, and the script fails when one does.
    #[test]
    fn the_script_says_what_failed() {
        let listing = |then: &str| format!("[ \"$2\" = --list ] && echo 'gpu::one: test' && exit 0\n{then}");
        let [a, b, c] = ["echo \"$MACO_TESTS $MACO_DEADLINE_SCALE $*\"", "exit 0", "exit 3"].map(listing);
        let tests = [("test-a", &*a), ("test-b", &b), ("test-c", &c), ("test-hangs", "exit 4")];
        let with = |tests: &[(&str, &str)], named: &[&str], set: &[(&str, &str)]| {
            let dist = Dist::new("sanitize", tests, &[]);
            program(&dist.root.join(PROGRAM), "case $2$7 in racecheck*/test-b) exit 99 ;; esac\nshift 6\nexec \"$@\"");
            let path = format!("{}:{}", dist.root.display(), env::var("PATH").unwrap_or_default());
            dist.run(|script| {
                script.arg("sanitize").args(named).env("PATH", path).env_remove("MACO_DEADLINE_SCALE").envs(set.iter().copied())
            })
        };
        let run = |tests: &[(&str, &str)], named: &[&str]| with(tests, named, &[]);
        let (code, text) = run(&tests[..1], &[]);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("short 1000 --ignored --exact gpu::one --test-threads=1"), "{text}");
        for named in ["test-a", "test-a::gpu::one"] {
            let (code, text) = run(&tests, &[named]);
            assert!(code == Some(0) && text.contains("racecheck  test-a::gpu::one") && !text.contains("test-b"), "{text}");
        }
        let (code, text) = run(&tests, &[]);
        assert_eq!(code, Some(1), "{text}");
        let (file, page) = tally::page(&text, "m").unwrap();
        assert_eq!(file, "sanitizer.md");
        let rows: Vec<Vec<&str>> = page.lines().filter(|line| line.contains("test-")).map(|line| line.split(" | ").collect()).collect();
        assert_eq!(rows.len(), 6, "{text}");
        assert_eq!((&rows[0][..2], rows[0][3]), (&["| memcheck", "test-a::gpu::one"][..], "ok |"));
        assert_eq!((&rows[3][..2], rows[3][3]), (&["| racecheck", "test-b::gpu::one"][..], "errors found |"));
        assert_eq!((&rows[5][..2], rows[5][3]), (&["| racecheck", "test-c::gpu::one"][..], "failed (3) |"));
        let (code, text) = with(&tests, &["test-a", "test-b"], &[("MACO_TOOLS", "memcheck")]);
        assert!(code == Some(0) && !text.contains("racecheck "), "{text}");
        let left_out = ["one_from_two_threads", "gpu_rows_without_gaps", "gpu_columns_without_gaps", "gpu_transposes_without_gaps"];
        for named in left_out.map(|test| format!("test-a::{test}")) {
            let named = &*named;
            let (code, text) = run(&tests, &[named]);
            assert!(code == Some(0) && text.contains(&format!("memcheck   {named}")) && !text.contains("racecheck "), "{text}");
        }
        let named = ("test-gpus", &*listing("echo \"on $CUDA_VISIBLE_DEVICES.\"; sleep 1"));
        let (code, text) = with(&[named], &[], &[("MACO_JOBS", "2"), ("MACO_GPUS", "2")]);
        assert!(code == Some(0) && ["on 0.", "on 1."].iter().all(|on| text.contains(on)), "{text}");
        let (code, text) = with(&tests[..1], &[], &[("MACO_SECONDS", "0")]);
        assert_eq!((code, text.matches("not begun").count()), (Some(1), 2), "{text}");
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
