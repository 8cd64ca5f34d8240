//! A profile in Chrome's trace event format, which Perfetto (ui.perfetto.dev) and `chrome://tracing` show: a process per worker, a thread
//! per role, and one per warp that ran tasks by itself, an arrow for each dependency; and behind the workers a process per scheduler.
//!
//! What else a profile knows is in `otherData.maco`, with the version of its format, so that nothing is lost by writing and reading.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::{Profile, Role, SERVE, Span};
use crate::files::{FileError, TRACE};

/// Version of `otherData.maco`.
pub(super) const VERSION: u64 = 1;

/// Track of a worker's first warp, behind those of its roles.
pub(super) const FIRST_WARP: u32 = Role::ALL.len() as u32;

/// The track of a span.
pub(super) fn track(span: &Span) -> u32 {
    span.warp.map_or(span.kind.role() as u32, |warp| FIRST_WARP + warp)
}

/// Arrows of a file that has one for every dependency. With more, only the one that ended last of each counter has an arrow: viewers
/// choke on millions.
pub const MOST_ARROWS: usize = 50_000;

impl Profile {
    /// Writes the trace.
    ///
    /// # Errors
    /// MACO0064 when the file cannot be written.
    pub fn write_chrome(&self, path: impl AsRef<Path>) -> Result<(), FileError> {
        let path = path.as_ref();
        let failed = |source| FileError::Io { code: TRACE, path: path.into(), action: "written", source };
        let mut file = BufWriter::new(File::create(path).map_err(failed)?);
        self.write_to(&mut file).and_then(|()| file.flush()).map_err(failed)
    }

    /// An event per line, so that a file can be looked at and compared.
    fn write_to(&self, to: &mut impl Write) -> std::io::Result<()> {
        writeln!(to, "{{\"displayTimeUnit\": \"ns\",\n\"otherData\": {{\"maco\": {}}},\n\"traceEvents\": [", self.header())?;
        let mut first = true;
        let mut event = |value: Value| {
            let comma = if std::mem::take(&mut first) { "" } else { ",\n" };
            write!(to, "{comma}{value}")
        };
        let warps: BTreeSet<(u32, u32)> = self.spans.iter().filter_map(|span| Some((span.worker, span.warp?))).collect();
        for worker in 0..self.workers {
            let name = match self.multiprocessors.get(worker as usize) {
                Some(sm) => format!("worker {worker} (SM {sm})"),
                None => format!("worker {worker}"),
            };
            event(json!({"ph": "M", "name": "process_name", "pid": worker, "tid": 0, "args": {"name": name}}))?;
            event(json!({"ph": "M", "name": "process_sort_index", "pid": worker, "tid": 0, "args": {"sort_index": worker}}))?;
            for role in Role::ALL {
                event(json!({"ph": "M", "name": "thread_name", "pid": worker, "tid": role as u32, "args": {"name": role.name()}}))?;
            }
            for &(_, warp) in warps.range((worker, 0)..=(worker, u32::MAX)) {
                let name = format!("{}, warp {warp}", Role::Consume.name());
                event(json!({"ph": "M", "name": "thread_name", "pid": worker, "tid": FIRST_WARP + warp, "args": {"name": name}}))?;
            }
        }
        for (number, scheduler) in self.schedulers.iter().enumerate() {
            let pid = self.workers as usize + number;
            event(json!({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": scheduler.label(number)}}))?;
            event(json!({"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}}))?;
            event(json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": 0, "args": {"name": SERVE}}))?;
        }
        for span in &self.spans {
            let place = &self.tasks[span.task as usize];
            event(json!({
                "ph": "X",
                "name": self.operations[place.operation as usize].name,
                "cat": span.kind.name(),
                "pid": span.worker,
                "tid": track(span),
                "ts": micro(span.start),
                "dur": micro(span.duration()),
                "args": {"task": span.task, "tile": place.tile},
            }))?;
        }
        for (number, scheduler) in self.schedulers.iter().enumerate() {
            for busy in &scheduler.busy {
                event(json!({
                    "ph": "X",
                    "name": SERVE,
                    "cat": SERVE,
                    "pid": self.workers as usize + number,
                    "tid": 0,
                    "ts": micro(busy.start),
                    "dur": micro(busy.duration()),
                }))?;
            }
        }
        for (id, (from, to)) in self.arrows().into_iter().enumerate() {
            let arrow = |ph, span: &Span, at| {
                json!({"ph": ph, "id": id, "name": "needs", "cat": "dependency", "pid": span.worker, "tid": track(span),
                       "ts": micro(at), "bp": "e"})
            };
            // Inside its span, not at the end, which belongs to what follows.
            event(arrow("s", from, from.end.saturating_sub(1).max(from.start)))?;
            event(arrow("f", to, to.start))?;
        }
        writeln!(to, "\n]}}")
    }

    /// Spans that an arrow joins: all dependencies, or of each counter the one that ended last.
    pub(super) fn arrows(&self) -> Vec<(&Span, &Span)> {
        let run_of = self.run_of();
        let all: usize = self.dependencies.iter().map(|group| group.producers.len() * group.consumers.len()).sum();
        let mut arrows = Vec::new();
        for group in &self.dependencies {
            let mut producers: Vec<&Span> = group.producers.iter().filter_map(|&task| run_of[task as usize]).collect();
            if all > MOST_ARROWS {
                producers.sort_by_key(|span| std::cmp::Reverse(span.end));
                producers.truncate(1);
            }
            let consumers = group.consumers.iter().filter_map(|&task| run_of[task as usize]);
            arrows.extend(consumers.flat_map(|to| producers.iter().map(move |&from| (from, to))));
        }
        arrows
    }

    fn header(&self) -> Value {
        let roofline = self.roofline.map(|roof| {
            json!({
                "bytes_per_second": roof.bytes_per_second,
                "flops_per_second": roof.flops_per_second,
                "multiprocessors": roof.multiprocessors,
            })
        });
        let operations: Vec<Value> = self
            .operations
            .iter()
            .map(|operation| {
                json!({
                    "name": operation.name,
                    "tile": operation.tile,
                    "tasks": operation.tasks,
                    "bytes": operation.bytes,
                    "flops": operation.flops,
                })
            })
            .collect();
        let tasks: Vec<Value> = self.tasks.iter().map(|task| json!({"operation": task.operation, "tile": task.tile})).collect();
        let dependencies: Vec<Value> =
            self.dependencies.iter().map(|group| json!({"producers": group.producers, "consumers": group.consumers})).collect();
        let schedulers: Vec<Value> = self.schedulers.iter().map(|scheduler| json!({"multiprocessor": scheduler.multiprocessor})).collect();
        json!({
            "version": VERSION,
            "megakernel": self.megakernel,
            "device": self.device,
            "schedule": self.schedule,
            "workers": self.workers,
            "multiprocessors": self.multiprocessors,
            "schedulers": schedulers,
            "elapsed_ns": self.elapsed,
            "dropped": self.dropped,
            "roofline": roofline,
            "operations": operations,
            "tasks": tasks,
            "dependencies": dependencies,
        })
    }
}

/// Microseconds, the unit of the format; thousandths are exact for days.
fn micro(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}
