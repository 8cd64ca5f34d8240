//! One of the two bundles: takes its programs out, runs them, keeps their times.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::archive;
use crate::bundle::ENVIRONMENT;
use crate::command::capture;
use crate::failure::Failure;

/// What a row is called in both bundles: bench, case, metric, unit. All that makes a case another one, such as a shape, is part of its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub bench: String,
    pub case: String,
    pub metric: String,
    pub unit: String,
}

/// A row of one process.
#[derive(Clone, Debug, PartialEq)]
pub struct Time {
    pub key: Key,
    pub value: f64,
}

/// The times of a row, round by round; rows in the order in which they came.
#[derive(Debug, Default)]
pub struct Times {
    pub order: Vec<Key>,
    pub of: BTreeMap<Key, Vec<f64>>,
}

/// A bundle.
pub struct Side {
    /// `OLD` or `NEW`.
    pub name: &'static str,
    /// Of all rounds that count.
    pub times: Times,
    bundle: PathBuf,
    /// Where its programs are unpacked.
    folder: PathBuf,
    unpacked: BTreeSet<String>,
}

impl Side {
    /// The bundle in `bundle`, which unpacks itself: an older one may be packed in another way.
    pub fn new(name: &'static str, bundle: &Path, folder: &Path) -> Result<Side, Failure> {
        let bundle = fs::canonicalize(bundle).map_err(|error| {
            Failure::Text(format!(
                "{name}, {}: {error}; give the folder of a bundle, which `cargo xtask bundle` writes to dist/",
                bundle.display()
            ))
        })?;
        for file in [archive::PACKED_UNPACKER, archive::PROGRAMS] {
            if !bundle.join(file).is_file() {
                return Err(Failure::Text(format!(
                    "{name}, {}: no {file}; copy it there too, or make the bundle again: `cargo xtask bundle`",
                    bundle.display()
                )));
            }
        }
        fs::create_dir_all(folder).map_err(Failure::io("create", folder))?;
        let script = format!("gzip -dc {packed} > \"$0\" && chmod +x \"$0\"", packed = archive::PACKED_UNPACKER);
        let unpacker = folder.join(archive::UNPACKER);
        capture(Command::new("sh").args(["-c", &script]).arg(&unpacker).current_dir(&bundle))?;
        Ok(Side { name, bundle, folder: folder.to_owned(), unpacked: BTreeSet::new(), times: Times::default() })
    }

    /// Runs a bench once; its times.
    pub fn run(&mut self, bench: &str, program: &str, given: &[&str], more: &[String]) -> Result<Vec<Time>, Failure> {
        let Side { name, bundle, folder, .. } = &*self;
        let (name, shown) = (*name, bundle.display().to_string());
        if !self.unpacked.contains(program) {
            let mut unpack = Command::new(folder.join(archive::UNPACKER));
            unpack.args(["unpack", archive::PROGRAMS]).arg(folder).arg(program).current_dir(bundle);
            capture(&mut unpack).map_err(|failure| {
                Failure::Text(format!("`{bench}` of {name}, {shown}, cannot be unpacked: {failure}\nName benches that both bundles have."))
            })?;
            self.unpacked.insert(program.to_owned());
        }
        let json = self.folder.join("rows.json");
        let _ = fs::remove_file(&json); // of the bench before
        let mut command = Command::new(self.folder.join(program));
        command.arg("--json").arg(&json).args(given).args(more).envs(ENVIRONMENT);
        let failed = |why: String| {
            let arguments: String = given.iter().copied().chain(more.iter().map(String::as_str)).map(|one| format!(" {one}")).collect();
            Failure::Text(format!(
                "`{bench}` of {name}, {shown}, failed: {why}\nRun `{shown}/run.sh {program}{arguments}` to see all of it."
            ))
        };
        capture(&mut command).map_err(|failure| match failure {
            Failure::Quiet { output, .. } => failed(output),
            other => failed(other.to_string()),
        })?;
        let text = fs::read_to_string(&json).map_err(|error| failed(format!("it wrote no rows: {error}")))?;
        times(bench, &text).map_err(|error| failed(format!("its rows cannot be read: {error}")))
    }

    /// Another round of a bench.
    pub fn take(&mut self, times: Vec<Time>) {
        for Time { key, value } in times {
            if !self.times.of.contains_key(&key) {
                self.times.order.push(key.clone());
            }
            self.times.of.entry(key).or_default().push(value);
        }
    }
}

/// The times among the rows of a bench. Rows that differ in the peer alone repeat MACO's time: the first counts.
fn times(bench: &str, json: &str) -> Result<Vec<Time>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Row {
        case: String,
        metric: String,
        unit: String,
        value: f64,
    }
    let rows: Vec<Row> = serde_json::from_str(json)?;
    let mut seen = BTreeSet::new();
    let timed = rows.into_iter().filter(|row| ["ns", "us", "ms", "s"].contains(&row.unit.as_str()) && row.value > 0.0);
    let times = timed
        .map(|row| Time { key: Key { bench: bench.to_owned(), case: row.case, metric: row.metric, unit: row.unit }, value: row.value });
    Ok(times.filter(|time| seen.insert(time.key.clone())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_rows_of_every_bench_have_times() {
        let folder = crate::packages::root().join("docs/results");
        for (bench, count) in [("gemm", 51), ("mlp", 22), ("memory", 46), ("chain", 1), ("gemv", 5), ("moe", 4), ("dispatch", 22)] {
            let json = fs::read_to_string(folder.join(format!("{bench}.json"))).unwrap();
            assert!(times(bench, &json).unwrap().len() >= count / 2, "{bench}");
        }
    }

    #[test]
    fn only_times_count_and_each_once() {
        let row = |case: &str, unit: &str, value: f64| format!(r#"{{"case":"{case}","metric":"m","unit":"{unit}","value":{value}}}"#);
        let json = format!("[{},{},{},{}]", row("a", "us", 1.0), row("a", "us", 1.0), row("a", "x", 2.0), row("b", "ms", 3.0));
        let found: Vec<(String, f64)> = times("gemm", &json).unwrap().into_iter().map(|time| (time.key.case, time.value)).collect();
        assert_eq!(found, [("a".to_owned(), 1.0), ("b".to_owned(), 3.0)]);
        assert!(times("gemm", "[{}]").is_err());
    }
}
