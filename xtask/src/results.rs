//! Published measurements: rows of JSON become tables in `docs/results/` and the main rows in README.md, logs of tests become pages.
//!
//! Measuring does not belong here (`bench`, `bundle`). Figures are never typed: this is the only writer of both places.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::command::capture;
use crate::failure::Failure;
use crate::packages::root;
use crate::{plot, tally};

/// What to publish.
#[derive(clap::Args)]
pub struct Options {
    /// JSON files that `cargo xtask bench … --json FILE` wrote, and files whose names end in `.log` with what `dist/run.sh` or
    /// `dist/run.sh sanitize` printed; without any, pictures and README.md are made again from `docs/results/`
    files: Vec<PathBuf>,
    /// The machine they were measured on, such as "NVIDIA H200, driver 580.159, CUDA 13.0"
    #[arg(long, required_unless_present = "check")]
    machine: Option<String>,
    /// The commit they were measured at; by default the one checked out. A log names its own
    #[arg(long)]
    commit: Option<String>,
    /// Only see whether pictures and README.md hold what `docs/results/` says
    #[arg(long)]
    check: bool,
}

#[derive(Deserialize)]
struct Row {
    bench: String,
    case: String,
    metric: String,
    unit: String,
    value: f64,
    peer: String,
    peer_value: Option<f64>,
    ratio: Option<f64>,
    spread: Option<f64>,
    /// Floating-point operations and bytes of what was timed; no operations of what is bound by memory.
    flops: Option<f64>,
    bytes: Option<f64>,
}

/// Rows that README.md shows, in this order, where they are published: a bench and how the row's case begins.
const MAIN: [(&str, &str); 10] = [
    ("gemm", "M8192 N8192 K8192"),
    ("gemm", "M256 N18944 K3584"),
    ("gemm", "geometric mean"),
    ("mlp", "M4096 H14336 K4096"),
    ("mlp", "M256 H14336 K4096"),
    ("mlp", "geometric mean"),
    ("memory", "256 MiB: geometric mean"),
    ("chain", "16 layers"),
    ("plan", "10^4: 100 updates"),
    ("build", "a kernel edited"),
];
const BEGIN: &str = "<!-- results: made by `cargo xtask results`, do not edit -->\n";
const END: &str = "<!-- /results -->";

/// Writes the tables.
pub fn results(options: &Options) -> Result<(), Failure> {
    let folder = root().join("docs/results");
    if !options.check {
        let commit = match &options.commit {
            Some(commit) => commit.clone(),
            None => commit()?,
        };
        let machine = options.machine.as_deref().unwrap_or_default();
        for file in &options.files {
            if file.extension().is_some_and(|end| end == "log") {
                let log = fs::read_to_string(file).map_err(Failure::io("read", file))?;
                let (name, text) = tally::page(&log, machine).map_err(|failure| Failure::Text(format!("{}: {failure}", file.display())))?;
                write(&folder.join(name), &text)?;
                continue;
            }
            let json = fs::read_to_string(file).map_err(Failure::io("read", file))?;
            let rows = parse(file, &json)?;
            let Some(first) = rows.first() else { return Err(Failure::Text(format!("{}: no rows", file.display()))) };
            let bench = first.bench.clone();
            write(&folder.join(format!("{bench}.json")), &json)?;
            let head = format!(
                "# `cargo xtask bench {bench}`\n\nCommit {commit}; {machine}. Made by `cargo xtask results`; the rows are in [{bench}.json]({bench}.json).\n\n"
            );
            let shown: String = drawn(&rows, machine)?.iter().map(|(kind, _)| format!("\n![{bench}]({bench}{kind})\n")).collect();
            write(&folder.join(format!("{bench}.md")), &(head + &table(&rows) + &shown))?;
        }
    }
    pictures(&folder, options.check)?;
    readme(&folder, options.check)
}

/// Names and ratios of rows with a peer.
fn beside(rows: &[Row]) -> Vec<(String, f64)> {
    let named = |row: &Row| Some((format!("{} · {} · {}", row.case, row.metric, row.peer), row.ratio.filter(|ratio| *ratio > 0.0)?));
    rows.iter().filter(|row| !row.peer.is_empty()).filter_map(named).collect()
}

/// What each row whose operations are known has reached, of MACO and of the peer.
fn reached(rows: &[Row]) -> Vec<plot::Reached> {
    let reached = rows.iter().filter_map(|row| {
        let (flops, bytes, theirs) = (row.flops.filter(|flops| *flops > 0.0)?, row.bytes?, row.peer_value?);
        // Per microsecond.
        Some(plot::Reached { intensity: flops / bytes, ours: flops / row.value * 1e6, theirs: flops / theirs * 1e6 })
    });
    reached.collect()
}

/// How fast each row without operations has moved its bytes, of MACO and of the peer.
fn moved(rows: &[Row]) -> Vec<plot::Moved> {
    let moved = rows.iter().filter(|row| row.flops == Some(0.0)).filter_map(|row| {
        let (bytes, theirs) = (row.bytes?, row.peer_value?);
        // Per microsecond.
        Some(plot::Moved { name: format!("{} · {}", row.case, row.peer), ours: bytes / row.value * 1e6, theirs: bytes / theirs * 1e6 })
    });
    moved.collect()
}

/// The pictures of a bench on `machine`: how their names end, and what they hold.
fn drawn(rows: &[Row], machine: &str) -> Result<Vec<(&'static str, String)>, Failure> {
    let Some(first) = rows.first() else { return Ok(Vec::new()) };
    let (bench, beside, reached, moved) = (&first.bench, beside(rows), reached(rows), moved(rows));
    let mut drawn = Vec::new();
    if !beside.is_empty() {
        drawn.push((".svg", plot::ratios(&format!("{bench}: the peer's ÷ ours, above 1 is better"), &beside)?));
    }
    if !reached.is_empty() {
        drawn.push((".roofline.svg", plot::roofline(&format!("{bench}: what is reached, and the roofline"), &reached, machine)?));
    }
    if reached.is_empty() && !moved.is_empty() {
        drawn.push((".roofline.svg", plot::bandwidth(&format!("{bench}: what is reached, and the memory's roof"), &moved, machine)?));
    }
    Ok(drawn)
}

/// The pictures of all benches, which stand beside pages that name their machines.
fn pictures(folder: &Path, check: bool) -> Result<(), Failure> {
    let files = fs::read_dir(folder).map_err(Failure::io("read", folder))?.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = files.filter(|file| file.extension().is_some_and(|end| end == "json")).collect();
    files.sort();
    for file in files {
        let page = file.with_extension("md");
        let json = fs::read_to_string(&file).map_err(Failure::io("read", &file))?;
        let text = fs::read_to_string(&page).map_err(Failure::io("read", &page))?;
        for (kind, wanted) in drawn(&parse(&file, &json)?, &text)? {
            let picture = file.with_extension(&kind[1..]);
            match check {
                false => write(&picture, &wanted)?,
                true if fs::read_to_string(&picture).is_ok_and(|found| found == wanted) => {}
                true => return Err(Failure::Text(format!("{} does not show its rows; run `cargo xtask results`", picture.display()))),
            }
        }
    }
    Ok(())
}

/// The commit that is checked out; `-dirty` behind it if files differ from it.
pub fn commit() -> Result<String, Failure> {
    let mut git = Command::new("git");
    git.args(["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]).current_dir(root());
    Ok(capture(&mut git)?.trim().to_owned())
}

fn readme(folder: &Path, check: bool) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for (bench, begin) in MAIN {
        let file = folder.join(format!("{bench}.json"));
        if let Ok(json) = fs::read_to_string(&file) {
            let published = parse(&file, &json)?;
            let first = published.into_iter().find(|row| row.case.starts_with(begin));
            rows.extend(first.map(|row| Row { case: format!("{bench}: {}", row.case), ..row }));
        }
    }
    let path = root().join("README.md");
    let text = fs::read_to_string(&path).map_err(Failure::io("read", &path))?;
    let wanted = between(&text, &table(&rows)).ok_or_else(|| Failure::Text("README.md has no place for results".into()))?;
    match (check, wanted == text) {
        (_, true) => Ok(()),
        (true, false) => Err(Failure::Text("README.md does not show what docs/results holds; run `cargo xtask results`".into())),
        (false, false) => write(&path, &wanted),
    }
}

fn parse(file: &Path, json: &str) -> Result<Vec<Row>, Failure> {
    serde_json::from_str(json).map_err(|error| Failure::Text(format!("{}: {error}", file.display())))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(Failure::io("write", path))
}

/// The text with the table between the two marks.
fn between(text: &str, table: &str) -> Option<String> {
    let start = text.find(BEGIN)? + BEGIN.len();
    let end = start + text[start..].find(END)?;
    Some(format!("{}{table}{}", &text[..start], &text[end..]))
}

fn table(rows: &[Row]) -> String {
    let mut text = String::from("| case | metric | MACO | peer | peer's | ratio | peer against itself |\n|---|---|---|---|---|---|---|\n");
    let number = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.3}"));
    for row in rows {
        text += &format!(
            "| {} | {}, {} | {:.3} | {} | {} | {} | {} |\n",
            row.case,
            row.metric,
            row.unit,
            row.value,
            row.peer,
            number(row.peer_value),
            number(row.ratio),
            number(row.spread)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let text = format!("a\n{BEGIN}old\n{END}\nb");
        assert_eq!(between(&text, "new\n").unwrap(), format!("a\n{BEGIN}new\n{END}\nb"));
        assert!(between("no marks", "new").is_none());
    }

    #[test]
    fn a_row_without_a_peer_has_empty_cells() {
        let rows = parse(
            Path::new("x"),
            r#"[{"bench":"plan","case":"c","metric":"plan","unit":"ms","value":1.5,"peer":"","peer_value":null,"ratio":null,"spread":null}]"#,
        );
        assert!(table(&rows.unwrap()).ends_with("| c | plan, ms | 1.500 |  |  |  |  |\n"));
    }

    #[test]
    fn rows_whose_work_is_known_have_a_roofline() {
        let row = |work: &str| {
            format!(
                r#"[{{"bench":"gemm","case":"c","metric":"time","unit":"us","value":2,"peer":"graph","peer_value":4,"ratio":2,"spread":1{work}}}]"#
            )
        };
        let kinds = |work| {
            let rows = parse(Path::new("x"), &row(work)).unwrap();
            drawn(&rows, "NVIDIA H200").unwrap().into_iter().map(|(kind, _)| kind).collect::<Vec<_>>()
        };
        assert_eq!(kinds(""), [".svg"]);
        assert_eq!(kinds(r#","flops":8000,"bytes":100"#), [".svg", ".roofline.svg"]);
        let rows = parse(Path::new("x"), &row(r#","flops":8000,"bytes":100"#)).unwrap();
        assert_eq!(reached(&rows), [plot::Reached { intensity: 80.0, ours: 4e9, theirs: 2e9 }]);
        assert_eq!(moved(&rows), []);
        // Without operations there is no place on a roofline, but bytes have a roof too.
        assert_eq!(kinds(r#","flops":0,"bytes":100"#), [".svg", ".roofline.svg"]);
        let rows = parse(Path::new("x"), &row(r#","flops":0,"bytes":100"#)).unwrap();
        assert_eq!(moved(&rows), [plot::Moved { name: "c · graph".into(), ours: 5e7, theirs: 2.5e7 }]);
        assert_eq!(reached(&rows), []);
    }

    #[test]
    fn the_readme_shows_the_published_rows() {
        let folder = root().join("docs/results");
        pictures(&folder, true).unwrap();
        readme(&folder, true).unwrap();
    }
}
