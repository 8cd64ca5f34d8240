//! Reads what `chrome` writes, and says where a file is wrong.

use std::path::Path;

use serde_json::{Map, Value};

use super::chrome::VERSION;
use super::error::{TRACE, TraceError};
use super::{Group, Kind, Operation, Profile, Roofline, Span, TaskPlace};

const HELP: &str = "record and write the trace again with `Profile::write_chrome`";

/// Whole numbers beyond which nanoseconds are no longer exact.
const MOST: f64 = (1u64 << 53) as f64;

impl Profile {
    /// Reads a trace that [`Profile::write_chrome`] wrote.
    ///
    /// # Errors
    /// MACO0064: which file, which event or entry of `otherData.maco`, which field, what was expected there and what was found.
    pub fn read_chrome(path: impl AsRef<Path>) -> Result<Profile, TraceError> {
        let path = path.as_ref();
        let root = json(TRACE, path, HELP)?;
        let reader = Reader { code: TRACE, path, help: HELP };
        let Some(maco) = root.get("otherData").and_then(|other| other.get("maco")).and_then(Value::as_object) else {
            return Err(TraceError::Foreign {
                code: TRACE,
                path: path.into(),
                missing: "otherData.maco",
                help: "pass a trace that `Profile::write_chrome` wrote; traces of other programs can be seen with ui.perfetto.dev",
            });
        };
        let header = At { reader: &reader, place: "otherData.maco".into(), object: maco };
        header.version(VERSION)?;
        let mut profile = header.profile()?;
        let events = root.get("traceEvents").and_then(Value::as_array);
        let events = events.ok_or_else(|| reader.field("the file", "traceEvents", "an array of events", root.get("traceEvents")))?;
        for (index, event) in events.iter().enumerate() {
            let place = format!("event {index}");
            let object = event.as_object().ok_or_else(|| reader.field(&place, "", "an object", Some(event)))?;
            let at = At { reader: &reader, place, object };
            if at.text("ph")? == "X" {
                profile.spans.push(at.span(&profile)?);
            }
        }
        Ok(profile)
    }
}

/// The file as JSON.
pub(super) fn json(code: &'static str, path: &Path, help: &'static str) -> Result<Value, TraceError> {
    let text = std::fs::read(path).map_err(|source| TraceError::Io { code, path: path.into(), action: "read", source })?;
    serde_json::from_slice(&text).map_err(|error| TraceError::Json { code, path: path.into(), why: error.to_string().into(), help })
}

/// Whose errors these are.
pub(super) struct Reader<'a> {
    pub(super) code: &'static str,
    pub(super) path: &'a Path,
    pub(super) help: &'static str,
}

impl Reader<'_> {
    pub(super) fn field(&self, place: &str, field: &str, expected: impl Into<Box<str>>, found: Option<&Value>) -> TraceError {
        TraceError::Field {
            code: self.code,
            path: self.path.into(),
            place: place.into(),
            field: field.into(),
            expected: expected.into(),
            found: found.map_or_else(|| "nothing".to_owned(), brief).into(),
            help: self.help,
        }
    }
}

/// A value on one short line.
fn brief(value: &Value) -> String {
    const MOST: usize = 60;
    let text = value.to_string();
    if text.chars().count() <= MOST { text } else { format!("{}…", text.chars().take(MOST).collect::<String>()) }
}

/// An object of the file, and where it lies.
pub(super) struct At<'a> {
    pub(super) reader: &'a Reader<'a>,
    pub(super) place: String,
    pub(super) object: &'a Map<String, Value>,
}

impl<'a> At<'a> {
    fn wrong(&self, field: &str, expected: impl Into<Box<str>>) -> TraceError {
        self.reader.field(&self.place, field, expected, self.object.get(field))
    }

    pub(super) fn version(&self, expected: u64) -> Result<(), TraceError> {
        match self.whole("version")? {
            found if found == expected => Ok(()),
            found => Err(TraceError::Version {
                code: self.reader.code,
                path: self.reader.path.into(),
                found,
                expected,
                help: "read it with the version of MACO that wrote it, or write it again",
            }),
        }
    }

    pub(super) fn text(&self, field: &str) -> Result<&'a str, TraceError> {
        self.object.get(field).and_then(Value::as_str).ok_or_else(|| self.wrong(field, "a text"))
    }

    pub(super) fn whole(&self, field: &str) -> Result<u64, TraceError> {
        self.object.get(field).and_then(Value::as_u64).ok_or_else(|| self.wrong(field, "a whole number"))
    }

    /// A whole number below `end`.
    pub(super) fn below(&self, field: &str, end: u64, what: &str) -> Result<u32, TraceError> {
        let value = self.object.get(field).and_then(Value::as_u64).filter(|&value| value < end).and_then(|value| u32::try_from(value).ok());
        value.ok_or_else(|| self.wrong(field, format!("{what} below {end}")))
    }

    fn positive(&self, field: &str) -> Result<f64, TraceError> {
        let value = self.object.get(field).and_then(Value::as_f64).filter(|&value| value > 0.0 && value.is_finite());
        value.ok_or_else(|| self.wrong(field, "a number above 0"))
    }

    /// Microseconds, as nanoseconds.
    fn micro(&self, field: &str) -> Result<u64, TraceError> {
        let value = self.object.get(field).and_then(Value::as_f64).map(|value| (value * 1e3).round());
        let value = value.filter(|value| (0.0..MOST).contains(value));
        value.map(|value| value as u64).ok_or_else(|| self.wrong(field, "microseconds, 0 or more"))
    }

    /// Whole numbers below `end`.
    pub(super) fn numbers(&self, field: &str, end: u64) -> Result<Vec<u32>, TraceError> {
        let expected = || format!("whole numbers below {end}");
        let array = self.object.get(field).and_then(Value::as_array).ok_or_else(|| self.wrong(field, expected()))?;
        let number = |(index, value): (usize, &Value)| {
            let number = value.as_u64().filter(|&value| value < end).and_then(|value| u32::try_from(value).ok());
            number.ok_or_else(|| self.reader.field(&self.place, &format!("{field}[{index}]"), expected(), Some(value)))
        };
        array.iter().enumerate().map(number).collect()
    }

    /// An array of objects, each as `read` reads it.
    pub(super) fn all<T>(&self, field: &str, read: impl Fn(At<'_>) -> Result<T, TraceError>) -> Result<Vec<T>, TraceError> {
        let array = self.object.get(field).and_then(Value::as_array).ok_or_else(|| self.wrong(field, "an array of objects"))?;
        let one = |(index, value): (usize, &Value)| {
            let place = format!("{}.{field}[{index}]", self.place);
            let object = value.as_object().ok_or_else(|| self.reader.field(&place, "", "an object", Some(value)))?;
            read(At { reader: self.reader, place, object })
        };
        array.iter().enumerate().map(one).collect()
    }

    fn profile(&self) -> Result<Profile, TraceError> {
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
        let roofline = match self.object.get("roofline") {
            Some(Value::Null) => None,
            Some(Value::Object(object)) => {
                let at = At { reader: self.reader, place: format!("{}.roofline", self.place), object };
                Some(Roofline {
                    bytes_per_second: at.positive("bytes_per_second")?,
                    flops_per_second: at.positive("flops_per_second")?,
                    multiprocessors: at.below("multiprocessors", WORDS, "a number of multiprocessors")?,
                })
            }
            _ => return Err(self.wrong("roofline", "an object or null")),
        };
        Ok(Profile {
            megakernel: self.text("megakernel")?.to_owned(),
            device: self.text("device")?.to_owned(),
            schedule: self.text("schedule")?.to_owned(),
            workers,
            multiprocessors,
            elapsed: self.whole("elapsed_ns")?,
            dropped: self.whole("dropped")?,
            roofline,
            operations,
            tasks,
            spans: Vec::new(),
            dependencies,
        })
    }

    fn span(&self, profile: &Profile) -> Result<Span, TraceError> {
        let word = self.text("cat")?;
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == word);
        let kind = kind.ok_or_else(|| self.wrong("cat", "`wait`, `run`, `load` or `store`"))?;
        let arguments = self.object.get("args").and_then(Value::as_object).ok_or_else(|| self.wrong("args", "an object"))?;
        let arguments = At { reader: self.reader, place: format!("{}: args", self.place), object: arguments };
        let task = arguments.below("task", profile.tasks.len() as u64, "a task")?;
        let worker = self.below("pid", profile.workers.into(), "a worker")?;
        if self.whole("tid")? != kind.role() as u64 {
            return Err(self.wrong("tid", format!("{}, the track of `{word}`", kind.role() as u32)));
        }
        let start = self.micro("ts")?;
        Ok(Span { worker, kind, task, start, end: start + self.micro("dur")? })
    }
}
