//! Rows of both bundles side by side, and which of them are slower.

use std::fmt;

use serde::Serialize;

use super::side::{Key, Times};
use crate::failure::Failure;

/// A row below this, less what OLD differs from itself, is slower.
const LIMIT: f64 = 0.98;

/// A row that both bundles have; the fields that rows of `benches/` have, and some more. `cargo xtask results` publishes them.
#[derive(Clone, Debug, Serialize, PartialEq)]
pub struct Row {
    bench: &'static str,
    /// Bench and case.
    case: String,
    metric: String,
    unit: String,
    /// NEW's median.
    value: f64,
    peer: &'static str,
    /// OLD's median.
    peer_value: f64,
    /// Above 1: NEW is faster.
    ratio: f64,
    /// OLD against itself, 1 or more; of one round there is none.
    spread: Option<f64>,
    slower: bool,
    /// Round by round.
    old: Vec<f64>,
    new: Vec<f64>,
}

impl Row {
    fn new(key: &Key, old: &[f64], new: &[f64]) -> Row {
        let (value, peer_value, spread) = (median(new), median(old), spread(old));
        let ratio = peer_value / value;
        Row {
            bench: "compare",
            case: format!("{}: {}", key.bench, key.case),
            metric: key.metric.clone(),
            unit: key.unit.clone(),
            value,
            peer: "OLD",
            peer_value,
            ratio,
            spread,
            slower: ratio < LIMIT - (spread.unwrap_or(1.0) - 1.0),
            old: old.to_vec(),
            new: new.to_vec(),
        }
    }
}

/// What is printed in the end.
#[derive(Debug)]
pub struct Table {
    /// In the order in which OLD has them.
    pub rows: Vec<Row>,
    /// Names of rows that OLD alone has, and NEW alone.
    only: [Vec<String>; 2],
}

impl Table {
    /// Of rows whose names hold `pattern`.
    pub fn new(old: &Times, new: &Times, pattern: &str) -> Table {
        let shown = |times: &Times| times.order.iter().filter(|key| name(key).contains(pattern)).cloned().collect::<Vec<_>>();
        let only = |times: &Times, other: &Times| -> Vec<String> {
            shown(times).iter().filter(|key| !other.of.contains_key(key)).map(name).collect()
        };
        let both = shown(old).into_iter().filter_map(|key| Some(Row::new(&key, old.of.get(&key)?, new.of.get(&key)?)));
        Table { rows: both.collect(), only: [only(old, new), only(new, old)] }
    }

    /// How many rows are.
    pub fn slower(&self) -> usize {
        self.rows.iter().filter(|row| row.slower).count()
    }

    /// The rows for `cargo xtask results` and for programs.
    pub fn json(&self) -> Result<String, Failure> {
        serde_json::to_string_pretty(&self.rows).map_err(|error| Failure::Text(error.to_string()))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.rows.iter().map(|row| format!("{}, {} [{}]", row.case, row.metric, row.unit)).collect();
        let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max("row".len());
        writeln!(f, "{:<width$} {:>12} {:>12} {:>7} {:>7}", "row", "OLD", "NEW", "ratio", "spread")?;
        for (name, row) in names.iter().zip(&self.rows) {
            let spread = row.spread.map_or("-".to_owned(), |spread| format!("{spread:.3}"));
            let mark = if row.slower { "  SLOWER" } else { "" };
            writeln!(f, "{name:<width$} {:>12.3} {:>12.3} {:>7.3} {spread:>7}{mark}", row.peer_value, row.value, row.ratio)?;
        }
        for (side, names) in ["OLD", "NEW"].into_iter().zip(&self.only) {
            names.iter().try_for_each(|name| writeln!(f, "only {side} has: {name}"))?;
        }
        if !self.rows.is_empty() {
            let mean = (self.rows.iter().map(|row| row.ratio.ln()).sum::<f64>() / self.rows.len() as f64).exp();
            writeln!(f, "geometric mean of the ratios: {mean:.3}")?;
        }
        writeln!(f, "{} of {} rows are slower: their ratio is below {LIMIT} less the spread", self.slower(), self.rows.len())
    }
}

fn name(key: &Key) -> String {
    format!("{}: {}, {}", key.bench, key.case, key.metric)
}

/// The middle; of an even number of values, the mean of the two in the middle.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

/// The medians of the odd and of the even rounds, the larger by the smaller.
fn spread(rounds: &[f64]) -> Option<f64> {
    let half = |first: usize| rounds.iter().copied().skip(first).step_by(2).collect::<Vec<_>>();
    (rounds.len() > 1).then(|| {
        let [odd, even] = [median(&half(0)), median(&half(1))];
        odd.max(even) / odd.min(even)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(rows: &[(&str, &[f64])]) -> Times {
        let key = |case: &str| Key { bench: "gemm".into(), case: case.into(), metric: "time".into(), unit: "us".into() };
        Times {
            order: rows.iter().map(|(case, _)| key(case)).collect(),
            of: rows.iter().map(|(case, values)| (key(case), values.to_vec())).collect(),
        }
    }

    #[test]
    fn the_spread_is_that_of_odd_and_even_rounds() {
        assert_eq!(spread(&[5.0]), None);
        assert_eq!(spread(&[5.0, 4.0]), Some(1.25));
        assert_eq!(spread(&[4.0, 5.0, 4.0, 5.0, 9.0]), Some(1.25));
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0, 2.0, 3.0])), (2.0, 2.5));
    }

    #[test]
    fn a_row_is_slower_beyond_the_limit_and_the_spread() {
        let slower = |old: &[f64], new: f64| Table::new(&times(&[("a", old)]), &times(&[("a", &[new])]), "").slower() == 1;
        assert!(!slower(&[100.0], 90.0) && !slower(&[100.0], 102.0));
        assert!(slower(&[100.0], 102.1));
        // As much as OLD differs from itself.
        assert!(!slower(&[101.0, 99.0, 101.0, 99.0], 104.0));
        assert!(slower(&[101.0, 99.0, 101.0, 99.0], 105.0));
    }

    #[test]
    fn rows_of_one_bundle_are_told_and_not_compared() {
        let (old, new) =
            (times(&[("b", &[2.0]), ("a", &[1.0]), ("gone", &[1.0])]), times(&[("a", &[1.0]), ("b", &[4.0]), ("more", &[1.0])]));
        let table = Table::new(&old, &new, "");
        assert_eq!(
            table.to_string(),
            "row                         OLD          NEW   ratio  spread\n\
             gemm: b, time [us]        2.000        4.000   0.500       -  SLOWER\n\
             gemm: a, time [us]        1.000        1.000   1.000       -\n\
             only OLD has: gemm: gone, time\n\
             only NEW has: gemm: more, time\n\
             geometric mean of the ratios: 0.707\n\
             1 of 2 rows are slower: their ratio is below 0.98 less the spread\n"
        );
        let table = Table::new(&old, &new, "a, time");
        assert_eq!((table.rows.len(), table.slower()), (1, 0));
        assert!(table.only.iter().all(Vec::is_empty));
    }
}
