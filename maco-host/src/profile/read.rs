//! Reads what `chrome` writes, and says where a file is wrong.

use std::path::Path;

use serde_json::Value;

use super::chrome::{FIRST_WARP, TraceOffset, VERSION, offsets};
use super::{Busy, Group, Kind, Operation, Profile, RankClock, Role, Roofline, SERVE, Scheduler, Span, TaskPlace};
use crate::files::{At, FileError, Reader, TRACE, parsed, text};

/// Where a file has what is MACO's.
const MACO: &str = "otherData.maco";
const HELP: &str = "record and write the trace again with `Profile::write_chrome`";

impl Profile {
    /// Reads a trace that [`Profile::write_chrome`] wrote.
    ///
    /// # Errors
    /// MACO0064: which file, which event or entry of `otherData.maco`, which field, what was expected there and what was found.
    pub fn read_chrome(path: impl AsRef<Path>) -> Result<Profile, FileError> {
        let path = path.as_ref();
        let mut profiles = read(path, &text(TRACE, path)?)?;
        match (profiles.len(), profiles.pop()) {
            (1, Some(profile)) => Ok(profile),
            (ranks, _) => Err(FileError::Field {
                code: TRACE,
                path: path.into(),
                location: MACO.into(),
                field: "ranks".into(),
                expected: "the trace of one rank".into(),
                found: format!("those of {ranks}").into(),
                help: "pass the trace that the rank wrote itself",
            }),
        }
    }
}

/// The profiles of a trace, in the order in which they were written; `text` is what is in the file.
pub(super) fn read(path: &Path, text: &[u8]) -> Result<Vec<Profile>, FileError> {
    let root: Value = parsed(TRACE, path, HELP, text)?;
    let reader = Reader { code: TRACE, path, help: HELP };
    let Some(maco) = root.get("otherData").and_then(|other| other.get("maco")).and_then(Value::as_object) else {
        return Err(FileError::Foreign {
            code: TRACE,
            path: path.into(),
            missing: MACO,
            help: "pass a trace that `Profile::write_chrome` wrote; traces of other programs can be seen with ui.perfetto.dev",
        });
    };
    let header = At { reader: &reader, location: MACO.into(), object: maco };
    header.version(VERSION)?;
    let mut profiles = if maco.contains_key("ranks") { header.all("ranks", |at| at.profile())? } else { vec![header.profile()?] };
    let offsets = offsets(&profiles);
    let events = root.get("traceEvents").and_then(Value::as_array);
    let events = events.ok_or_else(|| reader.field("the file", "traceEvents", "an array of events", root.get("traceEvents")))?;
    for (index, event) in events.iter().enumerate() {
        let location = format!("event {index}");
        let object = event.as_object().ok_or_else(|| reader.field(&location, "", "an object", Some(event)))?;
        let at = At { reader: &reader, location, object };
        if at.text("ph")? == "X" {
            // Of the last rank that begins with such a process, or an earlier one.
            let process = object.get("pid").and_then(Value::as_u64).unwrap_or(0);
            let rank = offsets.partition_point(|offset| offset.process <= process).saturating_sub(1);
            let Some((profile, &offset)) = profiles.get_mut(rank).zip(offsets.get(rank)) else {
                return Err(header.wrong("ranks", "one rank or more"));
            };
            if at.text("cat")? == SERVE {
                let (scheduler, busy) = at.busy(profile, offset)?;
                profile.schedulers[scheduler].busy.push(busy);
            } else {
                let span = at.span(profile, offset)?;
                profile.spans.push(span);
            }
        }
    }
    Ok(profiles)
}

impl At<'_> {
    fn profile(&self) -> Result<Profile, FileError> {
        const WORDS: u64 = 1 << 32;
        let operations = self.all("operations", |at| {
            Ok(Operation {
                name: at.text("name")?.to_owned(),
                tile: at.numbers("tile", WORDS)?,
                tasks: at.below("tasks", WORDS, "a number of tasks")?,
                bytes: match at.object.get("bytes") {
                    Some(Value::Null) => None,
                    _ => Some(at.whole("bytes")?),
                },
                flops: at.whole("flops")?,
            })
        })?;
        let tasks = self.all("tasks", |at| {
            Ok(TaskPlace { operation: at.below("operation", operations.len() as u64, "an operation")?, tile: at.numbers("tile", WORDS)? })
        })?;
        let count = tasks.len() as u64;
        let dependencies = self.all("dependencies", |at| {
            Ok(Group { producers: at.numbers("producers", count)?, consumers: at.numbers("consumers", count)? })
        })?;
        let workers = self.below("workers", WORDS, "a number of workers")?;
        let multiprocessors = self.numbers("multiprocessors", WORDS)?;
        if !multiprocessors.is_empty() && multiprocessors.len() != workers as usize {
            return Err(self.wrong("multiprocessors", format!("none, or one for each of {workers} workers")));
        }
        // Traces that are older than schedulers' tracks have none.
        let schedulers = match self.object.get("schedulers") {
            None => Vec::new(),
            Some(_) => self.all("schedulers", |at| {
                let multiprocessor = match at.object.get("multiprocessor") {
                    Some(Value::Null) => None,
                    _ => Some(at.below("multiprocessor", WORDS, "a multiprocessor")?),
                };
                Ok(Scheduler { multiprocessor, busy: Vec::new() })
            })?,
        };
        let roofline = match self.object.get("roofline") {
            Some(Value::Null) => None,
            Some(Value::Object(object)) => {
                let at = At { reader: self.reader, location: format!("{}.roofline", self.location), object };
                Some(Roofline {
                    bytes_per_second: at.positive("bytes_per_second")?,
                    flops_per_second: at.positive("flops_per_second")?,
                    multiprocessors: at.below("multiprocessors", WORDS, "a number of multiprocessors")?,
                })
            }
            _ => return Err(self.wrong("roofline", "an object or null")),
        };
        let rank = match self.object.get("rank") {
            None | Some(Value::Null) => None,
            Some(Value::Object(object)) => {
                let at = At { reader: self.reader, location: format!("{}.rank", self.location), object };
                let ranks = at.below("ranks", WORDS, "a number of ranks")?;
                let job = u64::from_str_radix(at.text("job")?, 16).map_err(|_| at.wrong("job", "a number of 16 hexadecimal digits"))?;
                let rank = at.below("rank", ranks.into(), "a rank")?;
                // Sums of them have room.
                let time = |field| at.whole(field).ok().filter(|&time| time < 1 << 62).ok_or_else(|| at.wrong(field, "nanoseconds"));
                Some(RankClock { rank, ranks, job, origin: time("origin_ns")?, error: time("error_ns")? })
            }
            _ => return Err(self.wrong("rank", "an object or nothing")),
        };
        Ok(Profile {
            megakernel: self.text("megakernel")?.to_owned(),
            rank,
            device: self.text("device")?.to_owned(),
            schedule: self.text("schedule")?.to_owned(),
            workers,
            multiprocessors,
            schedulers,
            elapsed: self.whole("elapsed_ns")?,
            dropped: self.whole("dropped")?,
            roofline,
            operations,
            tasks,
            spans: Vec::new(),
            dependencies,
        })
    }

    fn span(&self, profile: &Profile, offset: TraceOffset) -> Result<Span, FileError> {
        let word = self.text("cat")?;
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == word);
        let kind = kind.ok_or_else(|| self.wrong("cat", "`wait`, `run`, `load`, `store` or `serve`"))?;
        let arguments = self.object.get("args").and_then(Value::as_object).ok_or_else(|| self.wrong("args", "an object"))?;
        let arguments = At { reader: self.reader, location: format!("{}: args", self.location), object: arguments };
        let task = arguments.below("task", profile.tasks.len() as u64, "a task")?;
        let worker = self.below("pid", offset.process + u64::from(profile.workers), "a worker")? - offset.process as u32;
        let warp = self.warp(kind)?;
        let start = self.start(offset)?;
        Ok(Span { worker, warp, kind, task, start, end: start + self.micro("dur")? })
    }

    /// The warp whose track a span of this kind is on, if it is not that of its role.
    fn warp(&self, kind: Kind) -> Result<Option<u32>, FileError> {
        let (track, role, consume) = (self.whole("tid")?, kind.role() as u32, kind.role() == Role::Consume);
        if track == u64::from(role) {
            return Ok(None);
        }
        let warp = track.checked_sub(FIRST_WARP.into()).filter(|&warp| consume && warp < Span::WARPS.into());
        let expected = || match consume {
            true => format!("{role}, or of a warp {FIRST_WARP} to {}, the tracks of `{}`", FIRST_WARP + Span::WARPS - 1, kind.name()),
            false => format!("{role}, the track of `{}`", kind.name()),
        };
        warp.map(|warp| Some(warp as u32)).ok_or_else(|| self.wrong("tid", expected()))
    }

    /// When something began, from the begin of its profile on.
    fn start(&self, offset: TraceOffset) -> Result<u64, FileError> {
        let begin = || format!("{} or more, the begin of the rank", offset.shift as f64 / 1e3);
        self.micro("ts")?.checked_sub(offset.shift).ok_or_else(|| self.wrong("ts", begin()))
    }

    /// When a scheduler served, and which one.
    fn busy(&self, profile: &Profile, offset: TraceOffset) -> Result<(usize, Busy), FileError> {
        let (workers, schedulers) = (offset.process as usize + profile.workers as usize, profile.schedulers.len());
        let process = self.whole("pid")? as usize;
        let number = process.checked_sub(workers).filter(|&number| number < schedulers);
        let number = number.ok_or_else(|| match schedulers {
            0 => self.wrong("cat", "no `serve` where there are no schedulers"),
            _ => self.wrong("pid", format!("a scheduler: {workers} to {}", workers + schedulers - 1)),
        })?;
        if self.whole("tid")? != 0 {
            return Err(self.wrong("tid", "0, the track of `serve`"));
        }
        let start = self.start(offset)?;
        Ok((number, Busy { start, end: start + self.micro("dur")? }))
    }
}
