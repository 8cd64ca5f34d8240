//! A profile as a table: one row per operation, and a line for each scheduler.

use std::collections::BTreeSet;
use std::fmt;

use comfy_table::{CellAlignment, Table, presets};

use super::{Kind, Profile, Role};

/// What a profile comes to, operation by operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Rows, in program order.
    pub operations: Vec<OperationSummary>,
    /// Schedulers, which run no tasks and are in none of the rows.
    pub schedulers: Vec<SchedulerSummary>,
    /// Nanoseconds of the launch.
    pub elapsed: u64,
    /// Part of the workers' time in which tasks ran, in percent.
    pub busy: f64,
    /// Records for which there was no room.
    pub dropped: u64,
    title: String,
    /// What workers are: `SMs`, or `workers` of a CPU.
    workers_are: &'static str,
}

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationSummary {
    /// The name of the task.
    pub name: String,
    /// The name, with which call of the task it is where there are several: `linear (2 of 3)`.
    pub label: String,
    /// Elements of a tile along each grid axis.
    pub tile: Vec<u32>,
    /// Tasks that were recorded.
    pub tasks: u32,
    /// Nanoseconds in which they ran, summed over workers; while several warps of a worker run tasks by themselves, each task has its part of the time.
    pub time: u64,
    /// Nanoseconds that one of them lasted, which is not a part.
    pub mean: f64,
    /// The least time in which the workers could have done it, in percent of the time it took them: each counts as one multiprocessor's
    /// share of the device. None where the device, or the bytes, are not known.
    pub roofline: Option<f64>,
    /// Part of the time that workers spent on it in which they waited until a task might run, and ran none, in percent.
    pub wait: f64,
    /// Part of the time from which to which tasks of it ran, on whatever worker, in which tasks of other operations ran too, in percent.
    pub overlap: f64,
    /// Workers that ran it.
    pub workers: u32,
}

/// One scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerSummary {
    /// Its name, with its multiprocessor.
    pub name: String,
    /// Part of the launch in which it served, in percent; else it looked for messages in vain.
    pub busy: f64,
    /// How often it found some behind a vain look.
    pub times: usize,
    /// Nanoseconds that it served then, in the mean.
    pub mean: f64,
}

/// What the tasks of an operation come to, or of all.
#[derive(Clone, Debug, Default)]
pub(super) struct Sum {
    pub(super) tasks: u32,
    /// Nanoseconds of the workers' time in which they ran.
    pub(super) time: f64,
    /// Nanoseconds that they lasted.
    pub(super) lasted: u64,
    /// Nanoseconds of the workers' time in which they were waited for.
    pub(super) wait: f64,
    pub(super) workers: BTreeSet<u32>,
    /// Nanoseconds in which any ran, on whatever worker, and in which no task of another operation did.
    pub(super) any: u64,
    pub(super) alone: u64,
}

impl Sum {
    /// With those of another operation, or of another rank; which workers are another rank's is not known.
    pub(super) fn add(&mut self, other: &Sum) {
        self.tasks += other.tasks;
        self.time += other.time;
        self.lasted += other.lasted;
        self.wait += other.wait;
        self.any += other.any;
        self.alone += other.alone;
    }

    pub(super) fn mean(&self) -> f64 {
        self.lasted as f64 / f64::from(self.tasks.max(1))
    }

    /// In percent of the time that workers spent on them.
    pub(super) fn waited(&self) -> f64 {
        percent(self.wait, self.wait + self.time)
    }

    /// Part of the time in which any ran in which tasks of several operations did, in percent.
    pub(super) fn overlap(&self) -> f64 {
        percent((self.any - self.alone) as f64, self.any as f64)
    }
}

pub(super) fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { 100.0 * part / whole } else { 0.0 }
}

impl Profile {
    /// The table: operation, tasks, time, % of roofline, wait %, overlap %, multiprocessors or workers of a CPU.
    pub fn summary(&self) -> Summary {
        let (sums, total) = self.sums();
        let operations = self.operations.iter().zip(&sums).enumerate().map(|(number, (operation, sum))| {
            let ideal = self.roofline.zip(operation.bytes).map(|(roof, bytes)| {
                let seconds = (bytes as f64 / roof.bytes_per_second).max(operation.flops as f64 / roof.flops_per_second);
                // Of all its tasks, spread over all multiprocessors; of those that were recorded, one after the other.
                seconds * 1e9 * f64::from(roof.multiprocessors) * percent(sum.tasks.into(), operation.tasks.into()) / 100.0
            });
            OperationSummary {
                name: operation.name.clone(),
                label: self.operation_label(number),
                tile: operation.tile.clone(),
                tasks: sum.tasks,
                time: sum.time.round() as u64,
                mean: sum.mean(),
                roofline: ideal.filter(|_| sum.time > 0.0).map(|ideal| percent(ideal, sum.time)),
                wait: sum.waited(),
                overlap: sum.overlap(),
                workers: sum.workers.len() as u32,
            }
        });
        let schedulers = self.schedulers.iter().enumerate().map(|(number, scheduler)| SchedulerSummary {
            name: scheduler.label(number),
            busy: percent(scheduler.serving() as f64, self.elapsed as f64),
            times: scheduler.busy.len(),
            mean: scheduler.serving() as f64 / scheduler.busy.len().max(1) as f64,
        });
        Summary {
            operations: operations.collect(),
            schedulers: schedulers.collect(),
            elapsed: self.elapsed,
            busy: self.busy(&total),
            dropped: self.dropped,
            workers_are: self.workers_are(),
            title: format!("{} on {}: {} workers, {}", self.megakernel, self.device, self.workers, self.schedule),
        }
    }

    /// What workers are.
    pub(super) fn workers_are(&self) -> &'static str {
        if self.multiprocessors.is_empty() { "workers" } else { "SMs" }
    }

    /// Part of the workers' time in which tasks ran, in percent.
    pub(super) fn busy(&self, total: &Sum) -> f64 {
        percent(total.time, self.elapsed as f64 * f64::from(self.workers))
    }

    /// Of each operation, and of all: there `alone` is the time in which tasks of one ran.
    pub(super) fn sums(&self) -> (Vec<Sum>, Sum) {
        let mut sums = vec![Sum::default(); self.operations.len()];
        for (span, time) in self.spans.iter().zip(self.attributed_time()).filter(|(span, _)| span.kind.role() == Role::Consume) {
            let sum = &mut sums[self.tasks[span.task as usize].operation as usize];
            if span.kind == Kind::Wait {
                sum.wait += time;
            } else {
                sum.tasks += 1;
                sum.time += time;
                sum.lasted += span.duration();
                sum.workers.insert(span.worker);
            }
        }
        let mut total = Sum::default();
        for sum in &sums {
            total.add(sum);
            total.workers.extend(&sum.workers);
        }
        self.overlaps(&mut sums, &mut total);
        (sums, total)
    }

    /// Fills in [`Sum::any`] and [`Sum::alone`].
    fn overlaps(&self, sums: &mut [Sum], total: &mut Sum) {
        let mut changes: Vec<(u64, bool, usize)> = Vec::new();
        for span in self.runs().filter(|span| span.duration() > 0) {
            let operation = self.tasks[span.task as usize].operation as usize;
            changes.extend([(span.start, true, operation), (span.end, false, operation)]);
        }
        changes.sort_unstable();
        // Tasks that run of each operation, and operations of which any do.
        let mut running = vec![0u32; sums.len()];
        let mut active: BTreeSet<usize> = BTreeSet::new();
        let mut before = 0;
        for (now, begins, number) in changes {
            let (passed, alone) = (now - before, if active.len() == 1 { now - before } else { 0 });
            for &at in &active {
                sums[at].any += passed;
                sums[at].alone += alone;
            }
            total.any += if active.is_empty() { 0 } else { passed };
            total.alone += alone;
            before = now;
            running[number] = if begins { running[number] + 1 } else { running[number] - 1 };
            if running[number] > 0 {
                active.insert(number);
            } else {
                active.remove(&number);
            }
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}; {}, tasks ran in {:.0} % of the workers' time", self.title, time(self.elapsed as f64), self.busy)?;
        if self.dropped > 0 {
            writeln!(f, "{} records found no room and are missing below (`Plan::profile_keeping` makes room)", self.dropped)?;
        }
        let mut table = Table::new();
        table.load_preset(presets::ASCII_MARKDOWN);
        table.set_header(["operation", "tile", "tasks", "time", "mean", "% of roofline", "wait %", "overlap %", self.workers_are]);
        for row in &self.operations {
            table.add_row([
                row.label.clone(),
                row.tile.iter().map(u32::to_string).collect::<Vec<_>>().join(" × "),
                row.tasks.to_string(),
                time(row.time as f64),
                time(row.mean),
                row.roofline.map_or_else(String::new, |percent| format!("{percent:.1}")),
                format!("{:.1}", row.wait),
                format!("{:.1}", row.overlap),
                row.workers.to_string(),
            ]);
        }
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(f, "{table}")?;
        for row in &self.schedulers {
            writeln!(f, "{}: busy {:.1} % of the time, {} times, {} in the mean", row.name, row.busy, row.times, time(row.mean))?;
        }
        Ok(())
    }
}

/// Nanoseconds in a unit that reads well.
pub(super) fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        n if n < 1e3 => format!("{n:.0} ns"),
        n if n < 1e6 => format!("{:.2} µs", n / 1e3),
        n if n < 1e9 => format!("{:.2} ms", n / 1e6),
        n => format!("{:.2} s", n / 1e9),
    }
}
