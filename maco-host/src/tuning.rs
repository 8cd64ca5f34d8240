//! What was measured on a kind of device, as a file has it: tiles and split-K that are the fastest, by task and shapes, what the device costs, and which ways of collectives
//! are the fastest. How to measure them does not belong here (`cargo xtask tune`), nor what a plan does with them.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use maco_graph::ir::{Call, Graph};
use maco_graph::plan::{CallShape, DeviceModel, WayLine};
use serde::de::{Error, IgnoredAny, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::device::Device;
use crate::files::{self, At, FileError, Reader, TUNING};

const VERSION: u64 = 2;
const HELP: &str = "measure again with `cargo xtask tune`, `cargo xtask tune tiles` or `cargo xtask tune ways`";
/// Names a tuning file for programs that have none.
const VARIABLE: &str = "MACO_TUNING";

/// What was measured on one kind of device: for [`crate::PlanOptions::tuning`].
#[derive(Clone, Debug, PartialEq)]
pub struct Tuning {
    /// [`Device::model`] of the device that was measured. Plans for others do not use it.
    pub device: String,
    /// What it costs, by which the planner chooses what nothing else says; none: by [`Device::device_model`].
    pub model: Option<DeviceModel>,
    /// The fastest way of collectives, no two lines for the same calls. What none is for goes as by MACO's own lines.
    pub ways: Vec<WayLine>,
    /// The fastest tile and parts of calls, each for other ones.
    pub entries: Vec<Tuned>,
}

/// What was the fastest for calls of one task with operands of these shapes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuned {
    /// The task's name.
    pub task: String,
    /// Element type of its first tensor.
    pub element: String,
    /// Extents of each tensor, in the order of the task's parameters.
    pub shapes: Vec<Vec<u64>>,
    /// Workers of the plan.
    #[serde(deserialize_with = "above_zero")]
    pub workers: u32,
    /// Tile size in elements, one per grid axis.
    #[serde(deserialize_with = "all_above_zero")]
    pub tile: Vec<u32>,
    /// Split-K parts of each tile, except `whole` tiles.
    #[serde(deserialize_with = "above_zero")]
    pub parts: u32,
    /// Tiles that are not split.
    pub whole: u32,
    /// How long a launch of that call alone took, in nanoseconds.
    pub nanoseconds: u64,
}

/// The file.
#[derive(Serialize, Deserialize)]
struct File {
    maco_tuning: Content,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    version: u64,
    device: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<DeviceModel>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ways: Vec<WayLine>,
    #[serde(default, deserialize_with = "of_different_calls")]
    entries: Vec<Tuned>,
}

impl Tuned {
    fn same_call(&self, other: &Tuned) -> bool {
        self.task == other.task && self.element == other.element && self.shapes == other.shapes && self.workers == other.workers
    }

    fn is_for(&self, graph: &Graph, call: &Call, workers: u32) -> bool {
        let element = call.operands.first().map(|view| graph.tensors[view.tensor as usize].element.name());
        let shapes = || call.operands.iter().map(|view| view.axes.iter().map(|axis| axis.extent));
        self.workers == workers
            && self.task == call.task.name
            && Some(&*self.element) == element
            && shapes().len() == self.shapes.len()
            && shapes().zip(&self.shapes).all(|(found, wanted)| found.eq(wanted.iter().copied()))
    }
}

impl Tuning {
    /// Nothing measured yet on `device`.
    pub fn new(device: &Device) -> Tuning {
        Tuning { device: device.model(), model: None, ways: Vec::new(), entries: Vec::new() }
    }

    /// Adds an entry, in place of one for the same calls.
    pub fn add(&mut self, tuned: Tuned) {
        match self.entries.iter_mut().find(|entry| entry.same_call(&tuned)) {
            Some(entry) => *entry = tuned,
            None => self.entries.push(tuned),
        }
    }

    /// Replaces the lines of these collectives between so many ranks by `ways`.
    pub fn replace_ways(&mut self, ways: Vec<WayLine>) {
        self.ways.retain(|old| ways.iter().all(|new| (&new.collective, new.ranks) != (&old.collective, old.ranks)));
        self.ways.extend(ways);
    }

    /// Writes it as JSON.
    ///
    /// # Errors
    /// MACO0067 when the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), FileError> {
        let Tuning { device, model, ways, entries } = self.clone();
        files::write(TUNING, path.as_ref(), &File { maco_tuning: Content { version: VERSION, device, model, ways, entries } })
    }

    /// Reads what [`Tuning::write`] wrote.
    ///
    /// # Errors
    /// MACO0067: which file, which line and field, what was expected there and what was found.
    pub fn read(path: impl AsRef<Path>) -> Result<Tuning, FileError> {
        let path = path.as_ref();
        let text = files::text(TUNING, path)?;
        let root = files::parsed(TUNING, path, HELP, &text)?;
        let Some(object) = root.get("maco_tuning").and_then(serde_json::Value::as_object) else {
            return Err(FileError::Foreign { code: TUNING, path: path.into(), missing: "maco_tuning", help: HELP });
        };
        // Before the fields, which another version may have others of.
        let reader = Reader { code: TUNING, path, help: HELP };
        At { reader: &reader, location: "maco_tuning".into(), object }.version(VERSION)?;
        let File { maco_tuning: Content { device, model, ways, entries, .. } } = files::typed(TUNING, path, HELP, &text)?;
        check_ways(path, &text, &ways)?;
        Ok(Tuning { device, model, ways, entries })
    }

    /// What it says the device costs, if it is of this kind of device.
    pub(crate) fn model_of(&self, device: &Device) -> Option<DeviceModel> {
        self.model.clone().filter(|_| self.device == device.model())
    }

    /// Its lines for collectives, if it is of this kind of device.
    pub(crate) fn ways_of(&self, device: &Device) -> &[WayLine] {
        if self.device == device.model() { &self.ways } else { &[] }
    }

    /// What it says about the calls of `graph`. Tiles and parts that a task no longer has are left to the planner, as
    /// are calls that nobody measured.
    pub(crate) fn shapes(&self, graph: &Graph, device: &Device, workers: u32) -> Vec<CallShape> {
        if self.device != device.model() {
            return Vec::new();
        }
        let calls = (0..).zip(&graph.calls);
        let shape = |(n, call): (u32, &Call)| {
            let tuned = self.entries.iter().find(|tuned| tuned.is_for(graph, call, workers))?;
            let form = call.task.form(&tuned.tile, call.element)?;
            // What the source says has precedence; a measurement of one form is not used for the other.
            let other = call
                .tile
                .as_ref()
                .and_then(|tile| call.task.form(tile, call.element))
                .is_some_and(|forced| forced.first_instance != form.first_instance);
            (!other && call.split.unwrap_or(tuned.parts) <= form.spec.max_split_k()).then(|| CallShape {
                call: n,
                tile: Some(tuned.tile.clone()),
                split: Some(tuned.parts),
                whole: tuned.whole,
            })
        };
        calls.filter_map(shape).collect()
    }
}

/// What the file that the environment names says; none if it names none.
pub(crate) fn of_environment() -> Result<Option<Tuning>, FileError> {
    named(std::env::var_os(VARIABLE))
}

fn named(path: Option<OsString>) -> Result<Option<Tuning>, FileError> {
    path.filter(|path| !path.is_empty()).map(Tuning::read).transpose()
}

fn above_zero<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    match u32::deserialize(from)? {
        0 => Err(D::Error::invalid_value(Unexpected::Unsigned(0), &"a whole number above 0")),
        number => Ok(number),
    }
}

fn all_above_zero<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u32>, D::Error> {
    let numbers = Vec::<u32>::deserialize(from)?;
    if numbers.contains(&0) { Err(D::Error::invalid_value(Unexpected::Unsigned(0), &"whole numbers above 0")) } else { Ok(numbers) }
}

/// Refuses lines that say nothing, and two that are for the same bytes. `text` is that of the file.
fn check_ways(path: &Path, text: &[u8], ways: &[WayLine]) -> Result<(), FileError> {
    let fault = |n: usize| {
        let met = || ways[..n].iter().position(|other| other.meets(&ways[n]));
        let twice = |first| format!("it is for some of the bytes that `maco_tuning.ways[{first}]` is for");
        ways[n].fault().or_else(|| met().map(twice))
    };
    let Some((n, why)) = (0..ways.len()).find_map(|n| Some((n, fault(n)?))) else { return Ok(()) };
    let field = format!("maco_tuning.ways[{n}]").into();
    Err(FileError::Line { code: TUNING, path: path.into(), line: line_of(text, n), field, why: why.into(), help: HELP })
}

/// Where item `n` of the list `ways` begins, in a file that was read.
fn line_of(text: &[u8], n: usize) -> usize {
    let text = str::from_utf8(text).unwrap_or_default();
    // Only a key has a colon behind it, and one object alone has that key.
    let list = text.match_indices("\"ways\"").find_map(|(at, key)| {
        let value = text[at + key.len()..].trim_start().strip_prefix(':')?;
        value.trim_start().strip_prefix('[')
    });
    let next = |rest: &'_ str| rest.len() - rest.trim_start_matches(|char: char| char.is_whitespace() || char == ',').len();
    let mut at = text.len() - list.map_or(0, str::len);
    at += next(&text[at..]);
    for _ in 0..n {
        let mut items = serde_json::Deserializer::from_str(&text[at..]).into_iter::<IgnoredAny>();
        items.next();
        at += items.byte_offset();
        at += next(&text[at..]);
    }
    1 + text[..at].matches('\n').count()
}

/// Entries, no two of which are for the same calls.
fn of_different_calls<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Tuned>, D::Error> {
    struct Entries;

    impl<'de> Visitor<'de> for Entries {
        type Value = Vec<Tuned>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of measurements")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<Tuned>, A::Error> {
            let mut entries: Vec<Tuned> = Vec::new();
            while let Some(entry) = from.next_element::<Tuned>()? {
                if let Some(first) = entries.iter().position(|other| other.same_call(&entry)) {
                    return Err(A::Error::custom(format!(
                        "entry {} is for the same calls as entry {first}, counted from 0",
                        entries.len()
                    )));
                }
                entries.push(entry);
            }
            Ok(entries)
        }
    }

    from.deserialize_seq(Entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_that_names_nothing_is_no_mistake() {
        assert_eq!(named(None).unwrap(), None);
        assert_eq!(named(Some(OsString::new())).unwrap(), None);
    }

    #[test]
    fn a_named_file_counts_for_its_kind_of_device_alone() {
        let path = std::env::temp_dir().join(format!("maco-tuning-{}.json", std::process::id()));
        let device = Device::cpu_with(2);
        let model = DeviceModel { hop: 7.0, ..DeviceModel::DEFAULT };
        Tuning { model: Some(model.clone()), ..Tuning::new(&device) }.write(&path).unwrap();
        let found = named(Some(path.clone().into())).unwrap().unwrap();
        assert_eq!(found.model_of(&device), Some(model));
        assert_eq!(Tuning { device: "another".into(), ..found }.model_of(&device), None);
        std::fs::remove_file(&path).unwrap();
        let missing = named(Some(path.into())).unwrap_err();
        assert!(missing.code() == 67 && missing.to_string().contains("cannot be read"), "{missing}");
    }
}
