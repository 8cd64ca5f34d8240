//! The critical path of a launch.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::summary::time;
use super::{Kind, Profile, Span};

/// From the task that ended last back to the start: each step began when what the next one names had ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CriticalPath {
    /// In order of time.
    pub steps: Vec<Step>,
    /// Nanoseconds of the launch.
    pub elapsed: u64,
    labels: Vec<String>,
}

/// One task of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When it ran, and where.
    pub span: Span,
    /// Nanoseconds between the end of the step before, or the start of the launch, and its begin: signals, waits, loads.
    pub gap: u64,
    /// Whether it waited for the step before by a dependency; else its worker was busy with that.
    pub dependent: bool,
}

impl CriticalPath {
    /// Nanoseconds in which tasks of the path ran.
    pub fn running(&self) -> u64 {
        self.steps.iter().map(|step| step.span.duration()).sum()
    }
}

impl Profile {
    /// The critical path as it was measured: before each task comes whichever ended last of those that it waited for and of the one
    /// that its worker ran before.
    pub fn critical_path(&self) -> CriticalPath {
        let run_of = self.run_of();
        // Of each group, the producer that ended last; of each task, the groups that it waits for.
        let last: Vec<Option<&Span>> = self
            .dependencies
            .iter()
            .map(|group| group.producers.iter().filter_map(|&task| run_of[task as usize]).max_by_key(|span| span.end))
            .collect();
        let mut waits: Vec<Vec<&Span>> = vec![Vec::new(); self.tasks.len()];
        for (group, last) in self.dependencies.iter().zip(&last) {
            group.consumers.iter().for_each(|&task| waits[task as usize].extend(*last));
        }
        let before = self.before();
        let mut steps = Vec::new();
        let mut current = self.runs().max_by_key(|span| (span.end, span.start)).copied();
        // Clocks of several multiprocessors agree to within a microsecond, so that what came before may seem to have ended later; but
        // no task is its own cause.
        let mut seen = vec![false; self.tasks.len()];
        while let Some(span) = current.filter(|span| !std::mem::replace(&mut seen[span.task as usize], true)) {
            let cause = waits[span.task as usize].iter().copied().filter(|cause| cause.start <= span.start).max_by_key(|cause| cause.end);
            let busy: Option<&Span> = before[span.task as usize];
            let dependent = match (cause, busy) {
                (Some(cause), Some(busy)) => cause.end >= busy.end,
                (cause, _) => cause.is_some(),
            };
            let previous = if dependent { cause } else { busy };
            let gap = span.start.saturating_sub(previous.map_or(0, |previous| previous.end));
            steps.push(Step { span, gap, dependent });
            current = previous.copied();
        }
        steps.reverse();
        let labels = steps.iter().map(|step| self.label(step.span.task)).collect();
        CriticalPath { steps, elapsed: self.elapsed, labels }
    }

    /// The run before that of each task on the same worker. A warp that runs tasks by itself comes from its own one before, or from what all warps ran; all
    /// warps come from whatever any of them ended last.
    fn before(&self) -> Vec<Option<&Span>> {
        let mut lists: BTreeMap<(u32, Option<u32>), Vec<&Span>> = BTreeMap::new();
        self.runs().for_each(|span| lists.entry((span.worker, span.warp)).or_default().push(span));
        lists.values_mut().for_each(|list| list.sort_by_key(|span| (span.start, span.end)));
        let mut before = vec![None; self.tasks.len()];
        for (&(worker, warp), list) in &lists {
            let last = if warp.is_none() { Some(u32::MAX) } else { None };
            let others: Vec<&Vec<&Span>> =
                lists.range((worker, None)..=(worker, last)).filter(|&(&(_, other), _)| other != warp).map(|(_, list)| list).collect();
            for (place, span) in list.iter().enumerate() {
                let own = place.checked_sub(1).map(|place| list[place]);
                let ended = |list: &Vec<&'_ Span>| list.partition_point(|other| other.end <= span.start).checked_sub(1);
                let others = others.iter().filter_map(|list| Some(list[ended(list)?]));
                before[span.task as usize] = own.into_iter().chain(others).max_by_key(|span| span.end);
            }
        }
        before
    }

    /// Nanoseconds between the end of a task and the begin of another one that had waited for it on another worker: the median. None
    /// where no worker had to wait.
    pub fn hop(&self) -> Option<u64> {
        let run_of = self.run_of();
        let mut hops: Vec<u64> = Vec::new();
        let mut latest = vec![None::<&Span>; self.tasks.len()];
        for group in &self.dependencies {
            let last = group.producers.iter().filter_map(|&task| run_of[task as usize]).max_by_key(|span| span.end);
            for &consumer in &group.consumers {
                let latest = &mut latest[consumer as usize];
                *latest = (*latest).into_iter().chain(last).max_by_key(|span| span.end);
            }
        }
        let waited: HashMap<u32, &Span> = self.spans.iter().filter(|span| span.kind == Kind::Wait).map(|span| (span.task, span)).collect();
        for (task, run) in run_of.iter().enumerate() {
            let (Some(run), Some(cause), Some(wait)) = (run, latest[task], waited.get(&(task as u32))) else { continue };
            // It was waiting when the last of them ended.
            if cause.worker != run.worker && wait.start <= cause.end && cause.end <= run.start {
                hops.push(run.start - cause.end);
            }
        }
        hops.sort_unstable();
        hops.get(hops.len() / 2).copied()
    }
}

impl fmt::Display for CriticalPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (running, elapsed) = (self.running(), self.elapsed.max(1));
        writeln!(
            f,
            "{} tasks one after the other: {} of {} ({:.0} %), the rest are gaps",
            self.steps.len(),
            time(running as f64),
            time(self.elapsed as f64),
            100.0 * running as f64 / elapsed as f64
        )?;
        for (step, label) in self.steps.iter().zip(&self.labels) {
            let why = if step.dependent { "after what it waited for" } else { "after its worker's task before" };
            writeln!(
                f,
                "{:>12}  {:>10}  worker {:<4} {label}  (gap {} {why})",
                time(step.span.start as f64),
                time(step.span.duration() as f64),
                step.span.worker,
                time(step.gap as f64)
            )?;
        }
        Ok(())
    }
}
