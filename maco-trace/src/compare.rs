//! Two traces, operation by operation.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};
use maco_host::profile::{OperationSummary, Profile};

/// What an operation comes to.
#[derive(Clone, Copy)]
struct Sum {
    tasks: u32,
    /// Nanoseconds of the workers' time.
    time: u64,
    wait: u64,
    /// Nanoseconds that the tasks lasted.
    lasted: f64,
}

/// Which operation, in both traces: the name of its task, and how many calls of that come before.
type Call = (String, usize);

/// The operations of a profile, in program order.
fn sums(profile: &Profile) -> Vec<(Call, Sum)> {
    let rows = profile.summary().operations;
    let call = |n: usize| (rows[n].name.clone(), rows[..n].iter().filter(|row| row.name == rows[n].name).count());
    let sum = |row: &OperationSummary| Sum {
        tasks: row.tasks,
        time: row.time,
        lasted: row.mean * f64::from(row.tasks),
        // A row says which part of both waiting was.
        wait: if row.wait < 100.0 { (row.time as f64 * row.wait / (100.0 - row.wait)) as u64 } else { 0 },
    };
    rows.iter().enumerate().map(|(n, row)| (call(n), sum(row))).collect()
}

/// Part of the time in which schedulers served, in the mean, in percent; none without schedulers.
fn schedulers(profile: &Profile) -> Option<f64> {
    let rows = profile.summary().schedulers;
    (!rows.is_empty()).then(|| rows.iter().map(|row| row.busy).sum::<f64>() / rows.len() as f64)
}

/// The table, with the launches above it.
pub fn table(before: &Profile, after: &Profile) -> String {
    let mut text = String::new();
    for (word, profile) in [("before", before), ("after", after)] {
        // Writing to a text does not fail.
        let _ = writeln!(
            text,
            "{word}: {} on {}, {} workers, {}: {:.2} µs",
            profile.megakernel,
            profile.device,
            profile.workers,
            profile.schedule,
            profile.elapsed as f64 / 1e3
        );
    }
    let _ = writeln!(text, "elapsed: {}", change(before.elapsed as f64, after.elapsed as f64));
    let (old, new) = (schedulers(before), schedulers(after));
    if old.is_some() || new.is_some() {
        let show = |busy: Option<f64>| busy.map_or("–".into(), |busy| format!("{busy:.1}"));
        let _ = writeln!(text, "schedulers busy: {} → {} % of the time", show(old), show(new));
    }
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(["operation", "tasks", "time, µs", "change", "mean, µs", "wait %"]);
    let (old, new) = (sums(before), sums(after));
    let of = |sums: &[(Call, Sum)], call: &Call| sums.iter().find(|(known, _)| known == call).map(|(_, sum)| *sum);
    let calls = |name: &str| [&old, &new].map(|sums| sums.iter().filter(|((known, _), _)| known == name).count()).into_iter().max();
    let added = new.iter().filter(|(call, _)| of(&old, call).is_none());
    for (call, _) in old.iter().chain(added) {
        let label = match calls(&call.0) {
            Some(all @ 2..) => format!("{} ({} of {all})", call.0, call.1 + 1),
            _ => call.0.clone(),
        };
        let (old, new) = (of(&old, call), of(&new, call));
        let both = |show: &dyn Fn(&Sum) -> String| match (&old, &new) {
            (Some(old), Some(new)) if show(old) == show(new) => show(old),
            (old, new) => format!("{} → {}", old.as_ref().map_or("–".into(), show), new.as_ref().map_or("–".into(), show)),
        };
        table.add_row([
            label,
            both(&|sum| sum.tasks.to_string()),
            both(&|sum| format!("{:.2}", sum.time as f64 / 1e3)),
            old.zip(new).map_or_else(String::new, |(old, new)| change(old.time as f64, new.time as f64)),
            both(&|sum| format!("{:.2}", sum.lasted / 1e3 / f64::from(sum.tasks.max(1)))),
            both(&|sum| format!("{:.1}", 100.0 * sum.wait as f64 / (sum.wait + sum.time).max(1) as f64)),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let _ = writeln!(text, "{table}");
    text
}

fn change(old: f64, new: f64) -> String {
    if old > 0.0 { format!("{:+.1} %", 100.0 * (new - old) / old) } else { String::new() }
}
