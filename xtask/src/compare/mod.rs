//! Two bundles measured in turn on one GPU: is the new one slower anywhere?
//!
//! What is measured does not belong here, that is what the programs of `benches/` do, nor how a row is judged (`table`).

mod side;
mod table;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;
use std::{env, fs};

use clap::ValueEnum;

use crate::failure::Failure;
use side::{Side, Time};
use table::Table;

/// What to compare; `main.rs` says how.
#[derive(clap::Args)]
pub struct Options {
    /// The folder of a bundle, as `cargo xtask bundle` writes it to dist/
    old: PathBuf,
    /// The folder of the other bundle
    new: PathBuf,
    /// What to measure; without any, all of them
    #[arg(value_enum)]
    bench: Vec<Bench>,
    /// Processes of each bench and bundle
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Begin no further process after so many seconds; the first round always runs whole
    #[arg(long)]
    seconds: Option<u64>,
    /// Show only rows whose `bench: case, metric` holds this
    #[arg(long, value_name = "PATTERN", default_value = "")]
    rows: String,
    /// Write the compared rows here as JSON, with the fields that the rows of `bench` have: OLD is the peer of NEW
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Arguments of every program, after `--`, such as `--case M256` of `gemm`, or `--rounds 5` for fewer samples in a process
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// A program of `benches/` that needs a GPU and whose rows are times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Bench {
    Gemm,
    Mlp,
    Memory,
    Chain,
    Gemv,
    Moe,
    Dispatch,
}

impl Bench {
    /// As `cargo xtask bench` calls it.
    fn name(self) -> &'static str {
        match self {
            Bench::Gemm => "gemm",
            Bench::Mlp => "mlp",
            Bench::Memory => "memory",
            Bench::Chain => "chain",
            Bench::Gemv => "gemv",
            Bench::Moe => "moe",
            Bench::Dispatch => "dispatch",
        }
    }

    /// As the bundle calls it: package and program.
    fn program(self) -> String {
        format!("benches-{}", self.name())
    }

    /// Leaves PyTorch out, which is no part of either bundle, and makes both measure the same random work.
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Bench::Memory | Bench::Moe => &["--python", "none"],
            Bench::Dispatch => &["--seed", "1"],
            _ => &[],
        }
    }
}

/// Measures, prints the table, and fails if a row is slower or a program has failed.
pub fn compare(options: &Options) -> Result<(), Failure> {
    let mut measured = Measured::new(options)?;
    measured.measure(options);
    let Measured { sides: [old, new], failures, .. } = &measured;
    let table = Table::new(&old.times, &new.times, &options.rows);
    print!("{table}");
    if let Some(path) = &options.json {
        fs::write(path, table.json()?).map_err(Failure::io("write", path))?;
    }
    let mut wrong = failures.clone();
    if table.rows.is_empty() {
        wrong.push(match options.rows.as_str() {
            "" => "no row was measured of both bundles".to_owned(),
            pattern => format!("no row that was measured of both bundles holds `{pattern}`: leave `--rows` out to see all"),
        });
    }
    let slower = table.slower();
    if slower > 0 {
        wrong.push(format!("{slower} of {} rows are slower", table.rows.len()));
    }
    if wrong.is_empty() { Ok(()) } else { Err(Failure::Text(wrong.join("\n"))) }
}

/// Both bundles, unpacked into a folder that goes with this.
struct Measured {
    folder: PathBuf,
    sides: [Side; 2],
    /// What went wrong with a bench, which is not begun again.
    failures: Vec<String>,
}

impl Measured {
    fn new(options: &Options) -> Result<Measured, Failure> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("maco-compare-{}-{number}", std::process::id()));
        let side = |name: &'static str, bundle: &PathBuf| Side::new(name, bundle, &folder.join(name));
        let sides = side("OLD", &options.old).and_then(|old| Ok([old, side("NEW", &options.new)?]));
        match sides {
            Ok(sides) => Ok(Measured { folder, sides, failures: Vec::new() }),
            Err(failure) => {
                let _ = fs::remove_dir_all(&folder); // the failure is what counts
                Err(failure)
            }
        }
    }

    fn measure(&mut self, options: &Options) {
        let mut benches = if options.bench.is_empty() { Bench::value_variants().to_vec() } else { options.bench.clone() };
        let begin = Instant::now();
        let over = |seconds: u64| begin.elapsed().as_secs() >= seconds;
        for round in 1..=options.rounds {
            for bench in benches.clone() {
                if round > 1 && options.seconds.is_some_and(over) {
                    eprintln!("no time for more: round {round} of {} ends before {}", options.rounds, bench.name());
                    return;
                }
                if let Err(failure) = self.round(bench, round, options) {
                    eprintln!("{failure}");
                    self.failures.push(failure.to_string());
                    benches.retain(|other| *other != bench);
                }
            }
        }
    }

    /// One process of each bundle. Times count only if both have any, so that both have as many rounds.
    fn round(&mut self, bench: Bench, round: u32, options: &Options) -> Result<(), Failure> {
        let first = usize::from(round.is_multiple_of(2));
        let mut times: [Vec<Time>; 2] = Default::default();
        for of in [first, 1 - first] {
            let side = &mut self.sides[of];
            let begin = Instant::now();
            times[of] = side.run(bench.name(), &bench.program(), bench.arguments(), &options.arguments)?;
            let seconds = begin.elapsed().as_secs_f64();
            eprintln!("round {round} of {}, {}, {}: {} rows in {seconds:.0} s", options.rounds, bench.name(), side.name, times[of].len());
        }
        self.sides.iter_mut().zip(times).for_each(|(side, times)| side.take(times));
        Ok(())
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder); // of the system's temporary ones
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::bundle::trial::Dist;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    /// A program that writes rows of these times, in microseconds, one for each of its runs, and which arguments it had into the bundle.
    fn program(dist: &str, times: &str) -> String {
        format!(
            r#"log="${{TMPDIR:-/tmp}}/maco-compare-test-{dist}-{id}"
echo "$*" >> "$log"
set -- $1 $2 {times}
json=$2
shift 1
shift "$(($(wc -l < "$log")))"
row() {{ echo "{{\"bench\":\"gemm\",\"case\":\"$1\",\"metric\":\"$2\",\"unit\":\"$3\",\"value\":$4,\"peer\":\"copy\"}}"; }}
{{ echo "["; row M1 time us "$1"; echo ,; row M1 time us "$1"; echo ,; row M1 ratio x 5; echo ,; row "only {dist}" time us 1; echo "]"; }} > "$json""#,
            id = std::process::id()
        )
    }

    struct Log(PathBuf);

    impl Log {
        fn of(dist: &str) -> Log {
            Log(env::temp_dir().join(format!("maco-compare-test-{dist}-{}", std::process::id())))
        }

        fn lines(&self) -> Vec<String> {
            fs::read_to_string(&self.0).unwrap_or_default().lines().map(str::to_owned).collect()
        }
    }

    impl Drop for Log {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    fn options(old: &Dist, new: &Dist, more: &[&str]) -> Options {
        let folders = [&old.root, &new.root].map(|root| root.to_string_lossy().into_owned());
        let line = ["compare"].into_iter().chain(folders.iter().map(String::as_str)).chain(more.iter().copied());
        Line::try_parse_from(line).unwrap().options
    }

    fn gemm(name: &str, times: &str) -> (Dist, Log) {
        (Dist::new(name, &[], &[("benches-gemm", &program(name, times))]), Log::of(name))
    }

    #[test]
    fn bundles_take_turns_and_a_slower_row_is_an_error() {
        let ((old, old_log), (new, _new_log)) = (gemm("compare-old", "100 110 100 110"), gemm("compare-new", "200 210 220 230"));
        let json = env::temp_dir().join(format!("maco-compare-json-{}", std::process::id()));
        let options = options(&old, &new, &["gemm", "--json", json.to_str().unwrap(), "--", "--case", "M1"]);
        let failure = compare(&options).unwrap_err().to_string();
        assert_eq!(failure, "1 of 1 rows are slower");
        assert!(old_log.lines().len() == 4 && old_log.lines().iter().all(|line| line.ends_with("/rows.json --case M1")));
        let written = fs::read_to_string(&json).unwrap();
        fs::remove_file(json).unwrap();
        let rows: serde_json::Value = serde_json::from_str(&written).unwrap();
        assert_eq!(rows.as_array().unwrap().len(), 1);
        assert_eq!((&rows[0]["case"], &rows[0]["metric"]), (&"gemm: M1".into(), &"time".into()));
        assert_eq!((&rows[0]["value"], &rows[0]["peer_value"]), (&215.0.into(), &105.0.into()));
        assert_eq!((&rows[0]["spread"], &rows[0]["slower"]), (&1.1.into(), &true.into()));
    }

    #[test]
    fn the_same_twice_is_no_error_and_needs_no_second_round() {
        let ((old, log), (new, _new_log)) = (gemm("compare-a", "100 100 100 100"), gemm("compare-b", "101 101 101 101"));
        compare(&options(&old, &new, &["gemm", "--seconds", "0"])).unwrap();
        assert_eq!(log.lines().len(), 1);
        let failure = compare(&options(&old, &new, &["gemm", "--rounds", "1", "--rows", "M7"])).unwrap_err().to_string();
        assert!(failure.contains("holds `M7`"), "{failure}");
    }

    #[test]
    fn who_is_first_changes_from_round_to_round() {
        let (old, new) = ("compare-turn", "compare-turn");
        let (old_dist, log) = gemm(old, "1 2 3 4");
        let mut options = options(&old_dist, &old_dist, &["gemm", "--rounds", "2"]);
        options.new = options.old.clone();
        assert_eq!(new, old);
        compare(&options).unwrap();
        // Where each wrote its rows.
        let sides: Vec<bool> = log.lines().iter().map(|line| line.contains("/OLD/")).collect();
        assert_eq!(sides, [true, false, false, true]);
    }

    #[test]
    fn errors_name_the_bundle_the_bench_and_what_to_do() {
        let ((old, _old_log), (new, _new_log)) = (gemm("compare-good", "100 100"), gemm("compare-none", "100 100"));
        let failure = compare(&options(&old, &new, &["gemm", "mlp", "--rounds", "1"])).unwrap_err().to_string();
        assert!(failure.contains("OLD") && failure.contains("`mlp`") && failure.contains("compare-good"), "{failure}");
        // What works is compared nevertheless.
        assert!(!failure.contains("no row"), "{failure}");

        let broken = Dist::new("compare-broken", &[], &[("benches-gemm", "echo 'no GPU is there' >&2\nexit 3")]);
        let failure = compare(&options(&old, &broken, &["gemm", "--rounds", "1"])).unwrap_err().to_string();
        let run = format!("{}/run.sh benches-gemm", broken.root.display());
        for part in ["`gemm` of NEW", "no GPU is there", &run, "no row was measured"] {
            assert!(failure.contains(part), "{part}: {failure}");
        }

        let mut nowhere = options(&old, &new, &["gemm"]);
        nowhere.new = new.root.join("nowhere");
        let failure = compare(&nowhere).unwrap_err().to_string();
        assert!(failure.contains("NEW") && failure.contains("give the folder of a bundle"), "{failure}");

        fs::remove_file(new.root.join(crate::archive::PROGRAMS)).unwrap();
        let failure = compare(&options(&old, &new, &["gemm"])).unwrap_err().to_string();
        assert!(failure.contains("NEW") && failure.contains("programs.tar.zst") && failure.contains("copy"), "{failure}");
    }

    #[test]
    fn pytorch_is_not_started() {
        assert_eq!(Bench::Moe.arguments(), ["--python", "none"]);
        assert_eq!(Bench::Memory.program(), "benches-memory");
        assert!(Bench::value_variants().iter().all(|bench| bench.to_possible_value().unwrap().get_name() == bench.name()));
    }
}
