//! Rows of results: a table for people, JSON for `docs/results/`.

use std::path::Path;

use serde::Serialize;

use crate::timing::Measured;

/// One measurement beside its peer.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `linear`, `plan`, …
    pub bench: &'static str,
    /// `linear 8192`, `mlp M4096`, …
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
}

impl Row {
    /// A time without a peer; the spread is its own.
    pub fn alone(bench: &'static str, case: impl Into<String>, metric: &'static str, ours: Measured) -> Row {
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
        }
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
            ..Row::alone(bench, case, metric, ours)
        }
    }
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
    if let Some(path) = json {
        std::fs::write(path, serde_json::to_string_pretty(rows)?)?;
    }
    Ok(())
}
