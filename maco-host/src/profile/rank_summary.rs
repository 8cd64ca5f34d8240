//! Profiles of several ranks as one table: a row per operation, one for all, and a line for each rank.

use std::collections::BTreeSet;
use std::fmt;

use comfy_table::{CellAlignment, Table, presets};

use super::RankProfiles;
use super::summary::{Sum, time};

/// What the profiles of all ranks come to.
#[derive(Clone, Debug, PartialEq)]
pub struct RankSummary {
    /// Rows, in program order.
    pub operations: Vec<RankOperationSummary>,
    /// All operations.
    pub total: RankOperationSummary,
    /// Nanoseconds from the begin of the first rank to the end of the last one.
    pub elapsed: u64,
    /// By how many nanoseconds times of two ranks may be wrong against each other, either way.
    pub clock_error: u64,
    /// Records for which there was no room, of all ranks.
    pub dropped: u64,
    title: String,
    workers_are: &'static str,
    /// A line for each.
    ranks: Vec<String>,
}

/// One row: an operation on all ranks, or all operations.
#[derive(Clone, Debug, PartialEq)]
pub struct RankOperationSummary {
    /// The name of the task, with which call of the task it is where there are several; `total` of all.
    pub label: String,
    /// Elements of a tile along each grid axis; none where ranks have several, and of all operations.
    pub tile: Option<Vec<u32>>,
    /// Tasks that were recorded.
    pub tasks: u32,
    /// Nanoseconds of the workers' time in which they ran, summed over workers and ranks.
    pub time: u64,
    /// Nanoseconds that one of them lasted.
    pub mean: f64,
    /// Part of the time that workers spent on them in which they waited until a task might run, in percent.
    pub wait: f64,
    /// Part of the time in which any of them ran on a rank, in which tasks of other operations ran on the same rank too, in percent: of communication, what is hidden. Of all
    /// operations, the part in which tasks of several ran.
    pub overlap: f64,
    /// Workers of a rank that ran them: the least of any rank, and the most.
    pub workers: [u32; 2],
}

impl RankProfiles {
    /// The table: operation, tasks, time, wait %, overlap %, and multiprocessors or workers of a rank, of each operation and in total.
    pub fn summary(&self) -> RankSummary {
        let of_ranks: Vec<(Vec<Sum>, Sum)> = self.ranks().iter().map(|profile| profile.sums()).collect();
        let row = |label: String, tile, sums: &[&Sum]| {
            let mut all = Sum::default();
            sums.iter().for_each(|sum| all.add(sum));
            let workers = || sums.iter().map(|sum| sum.workers.len() as u32);
            RankOperationSummary {
                label,
                tile,
                tasks: all.tasks,
                time: all.time.round() as u64,
                mean: all.mean(),
                wait: all.waited(),
                overlap: all.overlap(),
                workers: [workers().min().unwrap_or(0), workers().max().unwrap_or(0)],
            }
        };
        let Some(first) = self.ranks().first() else { unreachable!("there is a rank") };
        let operations = (0..first.operations.len()).map(|number| {
            let tile = &first.operations[number].tile;
            let alike = self.ranks().iter().all(|profile| profile.operations[number].tile == *tile);
            let sums: Vec<&Sum> = of_ranks.iter().map(|(sums, _)| &sums[number]).collect();
            row(first.operation_label(number), alike.then(|| tile.clone()), &sums)
        });
        let totals: Vec<&Sum> = of_ranks.iter().map(|(_, total)| total).collect();
        let shifts = self.shifts();
        let ranks = self.ranks().iter().enumerate().map(|(rank, profile)| {
            format!(
                "rank {rank} on {}: {} workers, {}, from {} on for {}, tasks ran in {:.0} % of the workers' time",
                profile.device,
                profile.workers,
                profile.schedule,
                time(shifts[rank] as f64),
                time(profile.elapsed as f64),
                profile.busy(totals[rank])
            )
        });
        let kinds: BTreeSet<&str> = self.ranks().iter().map(|profile| profile.workers_are()).collect();
        RankSummary {
            operations: operations.collect(),
            total: row("total".into(), None, &totals),
            elapsed: self.elapsed(),
            clock_error: self.clock_error(),
            dropped: self.ranks().iter().map(|profile| profile.dropped).sum(),
            title: format!("{} on {} ranks", first.megakernel, self.ranks().len()),
            workers_are: if kinds.len() == 1 { first.workers_are() } else { "workers" },
            ranks: ranks.collect(),
        }
    }
}

impl fmt::Display for RankSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.title, time(self.elapsed as f64))?;
        writeln!(f, "clocks of ranks agree to ±{}", time(self.clock_error as f64))?;
        if self.dropped > 0 {
            writeln!(f, "{} records found no room and are missing below (`Plan::profile_keeping` makes room)", self.dropped)?;
        }
        let mut table = Table::new();
        table.load_preset(presets::ASCII_MARKDOWN);
        let of_rank = format!("{} of a rank", self.workers_are);
        table.set_header(["operation", "tile", "tasks", "time", "mean", "wait %", "overlap %", &of_rank]);
        for row in self.operations.iter().chain([&self.total]) {
            let [least, most] = row.workers;
            table.add_row([
                row.label.clone(),
                row.tile.iter().flatten().map(u32::to_string).collect::<Vec<_>>().join(" × "),
                row.tasks.to_string(),
                time(row.time as f64),
                time(row.mean),
                format!("{:.1}", row.wait),
                format!("{:.1}", row.overlap),
                if least == most { most.to_string() } else { format!("{least} to {most}") },
            ]);
        }
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(f, "{table}")?;
        self.ranks.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}
