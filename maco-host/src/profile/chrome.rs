//! A profile in Chrome's trace event format, which Perfetto (ui.perfetto.dev) and `chrome://tracing` show: a process per worker, a thread
//! per role, and one per warp that ran tasks by itself, an arrow for each dependency; and behind the workers a process per scheduler.
//! In a trace of several ranks the processes of one are behind those of the rank before, and all times are from the begin of the first one.
//!
//! What else a profile knows is in `otherData.maco`, with the version of its format, so that nothing is lost by writing and reading.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::{Profile, RankClock, Role, SERVE, Span};
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

/// Where the events of one profile are in a file, which may have those of several ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct TraceOffset {
    /// The process of its first worker.
    pub(super) process: u64,
    /// Nanoseconds from time 0 of the file to that of the profile.
    pub(super) shift: u64,
}

/// One profile behind another, on the clock of the host: time 0 is that of the first to begin.
pub(super) fn offsets(profiles: &[Profile]) -> Vec<TraceOffset> {
    let origin = |profile: &Profile| profile.rank.map_or(0, |clock| clock.origin);
    let first = profiles.iter().map(origin).min().unwrap_or(0);
    let mut process = 0;
    let offset = |profile: &Profile| {
        let offset = TraceOffset { process, shift: origin(profile) - first };
        process += u64::from(profile.workers) + profile.schedulers.len() as u64;
        offset
    };
    profiles.iter().map(offset).collect()
}

/// Writes a trace of one rank, or of several.
pub(super) fn write(path: &Path, profiles: &[Profile]) -> Result<(), FileError> {
    let failed = |source| FileError::Io { code: TRACE, path: path.into(), action: "written", source };
    let mut file = BufWriter::new(File::create(path).map_err(failed)?);
    write_to(&mut file, profiles).and_then(|()| file.flush()).map_err(failed)
}

/// An event per line, so that a file can be looked at and compared.
pub(super) fn write_to(to: &mut impl Write, profiles: &[Profile]) -> std::io::Result<()> {
    let header = match profiles {
        [profile] => profile.header(),
        _ => json!({"version": VERSION, "ranks": profiles.iter().map(Profile::header).collect::<Vec<_>>()}),
    };
    writeln!(to, "{{\"displayTimeUnit\": \"ns\",\n\"otherData\": {{\"maco\": {header}}},\n\"traceEvents\": [")?;
    let mut first = true;
    let mut event = |value: Value| {
        let comma = if std::mem::take(&mut first) { "" } else { ",\n" };
        write!(to, "{comma}{value}")
    };
    let mut arrows = 0;
    for (profile, offset) in profiles.iter().zip(offsets(profiles)) {
        arrows += profile.write_events(offset, arrows, &mut event)?;
    }
    writeln!(to, "\n]}}")
}

impl Profile {
    /// Writes the trace.
    ///
    /// # Errors
    /// MACO0064 when the file cannot be written.
    pub fn write_chrome(&self, path: impl AsRef<Path>) -> Result<(), FileError> {
        write(path.as_ref(), std::slice::from_ref(self))
    }

    /// Writes its events; its arrows have numbers from `first_arrow` on. How many there are.
    fn write_events(
        &self,
        TraceOffset { process, shift }: TraceOffset,
        first_arrow: usize,
        event: &mut impl FnMut(Value) -> std::io::Result<()>,
    ) -> std::io::Result<usize> {
        let at = |nanoseconds: u64| micro(shift + nanoseconds);
        let warps: BTreeSet<(u32, u32)> = self.spans.iter().filter_map(|span| Some((span.worker, span.warp?))).collect();
        let named = |pid: u64, name: String| {
            [
                json!({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}),
                json!({"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}}),
            ]
        };
        let of_worker = |worker: u32| process + u64::from(worker);
        for worker in 0..self.workers {
            let pid = of_worker(worker);
            named(pid, self.worker_label(worker)).into_iter().try_for_each(&mut *event)?;
            for role in Role::ALL {
                event(json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": role as u32, "args": {"name": role.name()}}))?;
            }
            for &(_, warp) in warps.range((worker, 0)..=(worker, u32::MAX)) {
                let name = format!("{}, warp {warp}", Role::Consume.name());
                event(json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": FIRST_WARP + warp, "args": {"name": name}}))?;
            }
        }
        let of_scheduler = |number: usize| of_worker(self.workers) + number as u64;
        for (number, scheduler) in self.schedulers.iter().enumerate() {
            let pid = of_scheduler(number);
            named(pid, self.of_rank(scheduler.label(number))).into_iter().try_for_each(&mut *event)?;
            event(json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": 0, "args": {"name": SERVE}}))?;
        }
        for span in &self.spans {
            let task = &self.tasks[span.task as usize];
            event(json!({
                "ph": "X",
                "name": self.operations[task.operation as usize].name,
                "cat": span.kind.name(),
                "pid": of_worker(span.worker),
                "tid": track(span),
                "ts": at(span.start),
                "dur": micro(span.duration()),
                "args": {"task": span.task, "tile": task.tile},
            }))?;
        }
        for (number, scheduler) in self.schedulers.iter().enumerate() {
            for busy in &scheduler.busy {
                event(json!({
                    "ph": "X",
                    "name": SERVE,
                    "cat": SERVE,
                    "pid": of_scheduler(number),
                    "tid": 0,
                    "ts": at(busy.start),
                    "dur": micro(busy.duration()),
                }))?;
            }
        }
        let arrows = self.arrows();
        for (id, (from, to)) in (first_arrow..).zip(&arrows) {
            let arrow = |ph, span: &Span, time| {
                json!({"ph": ph, "id": id, "name": "needs", "cat": "dependency", "pid": of_worker(span.worker), "tid": track(span),
                       "ts": at(time), "bp": "e"})
            };
            // Inside its span, not at the end, which belongs to what follows.
            event(arrow("s", from, from.end.saturating_sub(1).max(from.start)))?;
            event(arrow("f", to, to.start))?;
        }
        Ok(arrows.len())
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
        let mut header = json!({
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
        });
        if let Some(RankClock { rank, ranks, job, origin, error }) = self.rank {
            let job = format!("{job:016x}");
            header["rank"] = json!({"rank": rank, "ranks": ranks, "job": job, "origin_ns": origin, "error_ns": error});
        }
        header
    }
}

/// Microseconds, the unit of the format; thousandths are exact for days.
fn micro(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}
