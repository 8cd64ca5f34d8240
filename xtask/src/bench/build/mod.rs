//! What builds cost, against the limits they must keep on two cores: that of a user's package, and those of the repository itself.
//!
//! Measuring does not belong here (`example`, `repository`), only which rows there are, their limits and how they are shown.

mod assembler;
mod example;
mod repository;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::packages::target;
use crate::setup;

/// What to measure of builds.
#[derive(clap::Args)]
pub struct Options {
    /// Write the rows here as JSON; rows that a file there has already and that are not measured now stay
    #[arg(long)]
    json: Option<PathBuf>,
    /// Only these, with commas between
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// The example that is built
    #[arg(long, default_value = "mlp")]
    example: String,
    /// The test that is edited: a folder of tests/ and a test program in it
    #[arg(long, default_value = "kernels/dense", value_name = "PACKAGE/TEST")]
    test: String,
    /// How often `example` and `edit` are measured; the fastest counts, since other work on the machine only ever adds
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

/// Rows that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Part {
    /// `cargo build` of an example: the first ever, with `core` cached, a kernel edited, nothing changed; each less the host build alone
    Example,
    /// `.ci/run` in a clean clone of the commit that is checked out, with no cache outside it but toolchains and the sources of crates
    Ci,
    /// `cargo xtask bundle` in a clean clone, and again after a comment and after other arithmetic in maco-device
    Bundle,
    /// `cargo test` of one test program after an edit of its file, in a clean clone where it was built before
    Edit,
    /// The longest that `ptxas` works on one piece in what `ci` and `bundle` run; of these, `bundle` if neither is asked for
    Ptxas,
}

/// A row of results; the same fields as those of `benches/`.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
struct Row {
    bench: String,
    case: String,
    metric: String,
    unit: String,
    value: f64,
    peer: String,
    peer_value: f64,
    /// Above 1: within the limit.
    ratio: f64,
}

impl Row {
    fn new(case: &str, metric: &str, unit: &str, value: f64, limit: f64) -> Row {
        // Noise can make a difference negative.
        let value = value.max(0.0);
        Row {
            bench: "build".to_owned(),
            case: case.to_owned(),
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            value,
            peer: "limit".to_owned(),
            peer_value: limit,
            ratio: limit / value.max(1e-3),
        }
    }

    /// The time of a whole command.
    fn minutes(case: &str, seconds: f64, limit: f64) -> Row {
        Row::new(case, "wall clock", "min", seconds / 60.0, limit)
    }

    /// The same in seconds.
    fn seconds(case: &str, seconds: f64, limit: f64) -> Row {
        Row::new(case, "wall clock", "s", seconds, limit)
    }
}

/// Measures, prints a table, and fails when a row is over its limit.
pub fn measure(options: &Options) -> Result<(), Failure> {
    let mut report = Report { rows: Vec::new(), json: options.json.as_deref() };
    let parts: BTreeSet<Part> = match &*options.only {
        [] => Part::value_variants().iter().copied().collect(),
        only => only.iter().copied().collect(),
    };
    setup::setup(false)?;
    if parts.contains(&Part::Example) {
        report.add(example::measure(&options.example, options.rounds)?)?;
    }
    if parts.iter().any(|part| *part != Part::Example) {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if cores != 2 {
            eprintln!("the limits are those of 2 cores, here are {cores}");
        }
        let directory = target().join("bench-build");
        repository::measure(&directory, &parts, options, &mut report)?;
    }
    print!("{}", table(&report.rows));
    let over: Vec<String> = report.rows.iter().filter(|row| row.ratio < 1.0).map(|row| format!("`{}`", row.case)).collect();
    if over.is_empty() { Ok(()) } else { Err(Failure::Checks(over)) }
}

/// What has been measured so far; written as soon as it is known, since what comes next may take an hour.
struct Report<'a> {
    rows: Vec<Row>,
    json: Option<&'a Path>,
}

impl Report<'_> {
    fn add(&mut self, rows: Vec<Row>) -> Result<(), Failure> {
        rows.iter().for_each(|row| eprintln!("{}: {:.2} {}", row.case, row.value, row.unit));
        self.rows.extend(rows);
        let Some(path) = self.json else { return Ok(()) };
        let before: Vec<Row> = match fs::read_to_string(path) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| Failure::Text(format!("{}: {error}", path.display())))?,
            Err(_) => Vec::new(), // the first time
        };
        let text = serde_json::to_string_pretty(&merged(before, &self.rows)).map_err(|error| Failure::Text(error.to_string()))?;
        fs::write(path, text).map_err(Failure::io("write", path))
    }
}

/// The rows of before, each replaced by the new one of its case; behind them the other new ones.
fn merged(before: Vec<Row>, new: &[Row]) -> Vec<Row> {
    let of = |row: &Row| new.iter().find(|new| new.case == row.case).cloned();
    let mut rows: Vec<Row> = before.into_iter().map(|row| of(&row).unwrap_or(row)).collect();
    let more: Vec<Row> = new.iter().filter(|new| rows.iter().all(|row| row.case != new.case)).cloned().collect();
    rows.extend(more);
    rows
}

fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.case.len()).max().unwrap_or(0);
    let mut text = format!("| {:<width$} | must reach | measured |\n|-{:-<width$}-|------------|----------|\n", "row", "");
    for Row { case, unit, value, peer_value, ratio, .. } in rows {
        let mark = if *ratio < 1.0 { " OVER" } else { "" };
        text += &format!("| {case:<width$} | ≤ {peer_value:>4} {unit:<3} | {value:>4.1} {unit:<3} |{mark}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_whether_the_limit_is_kept() {
        assert!(Row::seconds("first ever", 20.0, 30.0).ratio > 1.0);
        assert!(Row::seconds("first ever", 40.0, 30.0).ratio < 1.0);
        assert_eq!(Row::seconds("first ever", -0.1, 30.0).value, 0.0);
        assert_eq!(Row::minutes(".ci/run", 90.0, 28.0).value, 1.5);
    }

    #[test]
    fn a_row_that_is_over_its_limit_is_marked() {
        let rows = [Row::minutes("bundle from nothing", 65.0 * 60.0, 30.0), Row::seconds("an edit", 7.25, 60.0)];
        assert_eq!(
            table(&rows),
            "| row                 | must reach | measured |\n\
             |---------------------|------------|----------|\n\
             | bundle from nothing | ≤   30 min | 65.0 min | OVER\n\
             | an edit             | ≤   60 s   |  7.2 s   |\n"
        );
    }

    #[test]
    fn rows_that_are_not_measured_stay_in_the_file() {
        let path = std::env::temp_dir().join(format!("maco-build-rows-{}.json", std::process::id()));
        let published = crate::packages::root().join("docs/results/build.json");
        fs::copy(published, &path).unwrap();
        let mut report = Report { rows: Vec::new(), json: Some(&path) };
        report.add(vec![Row::minutes("bundle from nothing", 60.0, 30.0)]).unwrap();
        report.add(vec![Row::seconds("core cached", 7.0, 12.0)]).unwrap();
        let rows: Vec<Row> = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        fs::remove_file(&path).unwrap();
        let values = |case: &str| rows.iter().filter(|row| row.case == case).map(|row| row.value).collect::<Vec<_>>();
        assert_eq!((values("bundle from nothing"), values("core cached"), values("first ever").len()), (vec![1.0], vec![7.0], 1));
    }
}
