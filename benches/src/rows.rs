//! Rows of results: a table for people, JSON for `docs/results/`.

use std::path::Path;

use anyhow::Context;
use indicatif::ProgressBar;
use serde::Serialize;

use crate::timing::{Measured, progress};

/// One measurement beside its peer.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `gemm`, `plan`, …
    pub bench: &'static str,
    /// `M4096 N4096 K4096`, `16 layers`, …
    pub case: String,
    /// What was measured.
    pub metric: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// MACO's value.
    pub value: f64,
    /// The other system, or empty.
    pub peer: &'static str,
    /// Its value.
    pub peer_value: Option<f64>,
    /// Above 1: MACO is better.
    pub ratio: Option<f64>,
    /// The same system against itself in the same run, as a ratio: how far 1.00 is uncertain.
    pub spread: Option<f64>,
    /// Of what the times are: what a roofline needs.
    #[serde(flatten)]
    pub work: Option<Work>,
}

/// The least that has to be done, whoever does it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Work {
    /// Floating-point operations of GEMMs, two for each product of numbers; 0 of what is bound by memory, whose roof is the bytes'.
    pub flops: u64,
    /// Bytes of all that is read and of all that is written, each once.
    pub bytes: u64,
}

impl Work {
    /// Of what is bound by memory: bytes alone.
    pub fn moving(bytes: u64) -> Work {
        Work { flops: 0, bytes }
    }

    /// y\[m, n\] = x\[m, k\] · w\[n, k\]ᵀ, of two-byte elements.
    pub fn gemm(m: u64, n: u64, k: u64) -> Work {
        Work { flops: 2 * m * n * k, bytes: 2 * (m * k + n * k + m * n) }
    }
}

impl Row {
    /// A time without a peer; the spread is its own.
    pub fn without_peer(bench: &'static str, case: impl Into<String>, metric: &'static str, ours: Measured) -> Row {
        Row {
            bench,
            case: case.into(),
            metric,
            unit: "us",
            value: ours.value,
            peer: "",
            peer_value: None,
            ratio: None,
            spread: Some(ours.spread()),
            work: None,
        }
    }

    /// The same, of `work`.
    pub fn of(self, work: Work) -> Row {
        Row { work: Some(work), ..self }
    }

    /// In short, for a terminal.
    fn line(&self) -> String {
        let Row { case, metric, unit, value, peer, .. } = self;
        let beside = self.ratio.map_or(String::new(), |ratio| format!(", {ratio:.3} x {peer}"));
        format!("{case}: {metric} {value:.3} {unit}{beside}")
    }

    /// A time beside a peer's.
    pub fn against(
        bench: &'static str,
        case: impl Into<String>,
        metric: &'static str,
        ours: Measured,
        peer: &'static str,
        theirs: Measured,
    ) -> Row {
        Row {
            peer,
            peer_value: Some(theirs.value),
            ratio: Some(theirs.value / ours.value),
            spread: Some(theirs.spread()),
            ..Row::without_peer(bench, case, metric, ours)
        }
    }
}

/// The geometric mean and the least of the rows' ratios to `peer` in `metric`; nothing if no row has one.
pub fn summary(rows: &[Row], metric: &str, peer: &'static str) -> Vec<Row> {
    let measured = rows.iter().filter(|row| row.metric == metric && row.peer == peer);
    let ratios: Vec<(f64, &Row)> = measured.filter_map(|row| Some((row.ratio?, row))).collect();
    let Some((least, worst)) = ratios.iter().min_by(|a, b| a.0.total_cmp(&b.0)) else { return Vec::new() };
    let mean = (ratios.iter().map(|(ratio, _)| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
    let row = |case: String, value: f64| Row {
        bench: worst.bench,
        case,
        metric: "ratio",
        unit: "x",
        value,
        peer,
        peer_value: None,
        ratio: Some(value),
        spread: None,
        work: None,
    };
    vec![row(format!("geometric mean of {}", ratios.len()), mean), row(format!("least, {}", worst.case), *least)]
}

/// A run of cases, under a bar with the name of the current one. Rows are told, and written, as soon as there are any: what takes long may
/// be stopped.
pub struct Run<'a> {
    bar: ProgressBar,
    json: Option<&'a Path>,
    /// Of all cases so far.
    pub rows: Vec<Row>,
}

impl Run<'_> {
    /// Of so many cases.
    pub fn new(cases: usize, json: Option<&Path>) -> Run<'_> {
        Run { bar: progress(cases), json, rows: Vec::new() }
    }

    /// Measures a case.
    pub fn case<R: IntoIterator<Item = Row>>(&mut self, name: &str, measure: impl FnOnce() -> anyhow::Result<R>) -> anyhow::Result<()> {
        self.bar.set_message(name.to_owned());
        let new = self.rows.len();
        self.rows.extend(measure().with_context(|| name.to_owned())?);
        self.bar.suspend(|| self.rows[new..].iter().for_each(|row| eprintln!("{}", row.line())));
        self.bar.inc(1);
        write(&self.rows, self.json)
    }

    /// Ends with a table.
    pub fn finish(self) -> anyhow::Result<()> {
        self.bar.finish_and_clear();
        publish(&self.rows, self.json)
    }
}

fn write(rows: &[Row], json: Option<&Path>) -> anyhow::Result<()> {
    let Some(path) = json else { return Ok(()) };
    std::fs::write(path, serde_json::to_string_pretty(rows)?).with_context(|| path.display().to_string())
}

/// Prints the table and writes the JSON.
pub fn publish(rows: &[Row], json: Option<&Path>) -> anyhow::Result<()> {
    let mut table = comfy_table::Table::new();
    table.load_preset(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header(["case", "metric", "MACO", "peer", "peer's", "ratio", "peer against itself"]);
    for row in rows {
        let number = |v: Option<f64>| v.map_or(String::new(), |v| format!("{v:.3}"));
        table.add_row([
            row.case.clone(),
            format!("{} [{}]", row.metric, row.unit),
            format!("{:.3}", row.value),
            row.peer.to_owned(),
            number(row.peer_value),
            number(row.ratio),
            number(row.spread),
        ]);
    }
    println!("{table}");
    write(rows, json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_work_and_the_times() {
        let row = Row::without_peer("gemm", "a", "time", Measured::of(&[2.0]));
        let json = |row: &Row| serde_json::to_string(row).unwrap();
        assert!(!json(&row).contains("flops"));
        assert!(json(&row.clone().of(Work::gemm(2, 3, 4))).ends_with(r#""flops":48,"bytes":52}"#));
        assert!(json(&row.of(Work::moving(7))).ends_with(r#""flops":0,"bytes":7}"#));
    }

    #[test]
    fn rows_measured_before_a_failure_are_kept() {
        let path = std::env::temp_dir().join(format!("maco-rows-{}.json", std::process::id()));
        let mut run = Run::new(2, Some(&path));
        run.case("a", || Ok([Row::against("gemm", "a", "time", Measured::of(&[2.0]), "copy", Measured::of(&[3.0]))])).unwrap();
        assert_eq!(run.rows[0].line(), "a: time 2.000 us, 1.500 x copy");
        let error = run.case("b", || Err::<Vec<Row>, _>(anyhow::anyhow!("no memory"))).unwrap_err();
        assert_eq!(format!("{error:#}"), "b: no memory");
        assert_eq!(std::fs::read_to_string(&path).unwrap().matches("\"case\"").count(), 1);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_summary_is_of_one_metric_and_one_peer() {
        let row =
            |case: &str, metric, peer, theirs| Row::against("gemm", case, metric, Measured::of(&[2.0]), peer, Measured::of(&[theirs]));
        let rows = [
            row("a", "time", "graph", 1.0),
            row("b", "time", "graph", 4.0),
            row("c", "other", "graph", 9.0),
            row("d", "time", "copy", 9.0),
        ];
        let [mean, least] = summary(&rows, "time", "graph").try_into().unwrap();
        assert_eq!((mean.case.as_str(), mean.ratio), ("geometric mean of 2", Some(1.0)));
        assert_eq!((least.case.as_str(), least.value), ("least, a", 0.5));
        assert!(summary(&rows, "time", "nobody").is_empty());
    }
}
