//! Two traces, operation by operation.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};
use maco_host::profile::Profile;

/// What all operations of one name come to.
#[derive(Clone, Copy, Default)]
struct Sum {
    tasks: u32,
    /// Nanoseconds of the workers' time.
    time: u64,
    wait: u64,
    /// Nanoseconds that the tasks lasted.
    lasted: f64,
}

/// The operations of a profile by name, in program order.
fn sums(profile: &Profile) -> Vec<(String, Sum)> {
    let mut sums: Vec<(String, Sum)> = Vec::new();
    for row in profile.summary().operations {
        let at = sums.iter().position(|(name, _)| *name == row.name).unwrap_or_else(|| {
            sums.push((row.name.clone(), Sum::default()));
            sums.len() - 1
        });
        let sum = &mut sums[at].1;
        sum.tasks += row.tasks;
        sum.time += row.time;
        sum.lasted += row.mean * f64::from(row.tasks);
        // A row says which part of both waiting was.
        sum.wait += if row.wait < 100.0 { (row.time as f64 * row.wait / (100.0 - row.wait)) as u64 } else { 0 };
    }
    sums
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
    let of = |sums: &[(String, Sum)], name: &str| sums.iter().find(|(known, _)| known == name).map(|(_, sum)| *sum);
    let added = new.iter().filter(|(name, _)| of(&old, name).is_none());
    for (name, _) in old.iter().chain(added) {
        let (old, new) = (of(&old, name), of(&new, name));
        let both = |show: &dyn Fn(&Sum) -> String| match (&old, &new) {
            (Some(old), Some(new)) if show(old) == show(new) => show(old),
            (old, new) => format!("{} → {}", old.as_ref().map_or("–".into(), show), new.as_ref().map_or("–".into(), show)),
        };
        table.add_row([
            name.clone(),
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
