//! Tiles and split-K that were measured to be the fastest, by task, shapes and device. How to measure them does not belong here, nor what a
//! plan does with them.

use std::path::Path;

use maco_graph::ir::{Call, Graph};
use maco_graph::plan::CallShape;
use serde_json::json;

use crate::device::Device;
use crate::files::{self, At, FileError, Reader, TUNING};

const VERSION: u64 = 2;
const HELP: &str = "measure again with `cargo xtask tune`";

/// The fastest tile and parts of calls on one kind of device: for [`crate::PlanOptions::tuning`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// [`Device::model`] of the device that was measured. Plans for others do not use it.
    pub device: String,
    /// Each for other calls.
    pub entries: Vec<Tuned>,
}

/// What was the fastest for calls of one task with operands of these shapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuned {
    /// The task's name.
    pub task: String,
    /// Element type of its first tensor.
    pub element: String,
    /// Extents of each tensor, in the order of the task's parameters.
    pub shapes: Vec<Vec<u64>>,
    /// Workers of the plan.
    pub workers: u32,
    /// Tile size in elements, one per grid axis.
    pub tile: Vec<u32>,
    /// Split-K parts of each tile, except `whole` tiles.
    pub parts: u32,
    /// Tiles that are not split.
    pub whole: u32,
    /// How long a launch of that call alone took, in nanoseconds.
    pub nanoseconds: u64,
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
        Tuning { device: device.model(), entries: Vec::new() }
    }

    /// Adds an entry, in place of one for the same calls.
    pub fn add(&mut self, tuned: Tuned) {
        match self.entries.iter_mut().find(|entry| entry.same_call(&tuned)) {
            Some(entry) => *entry = tuned,
            None => self.entries.push(tuned),
        }
    }

    /// Writes it as JSON.
    ///
    /// # Errors
    /// MACO0067 when the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), FileError> {
        let one = |tuned: &Tuned| {
            json!({
                "task": tuned.task,
                "element": tuned.element,
                "shapes": tuned.shapes,
                "workers": tuned.workers,
                "tile": tuned.tile,
                "parts": tuned.parts,
                "whole": tuned.whole,
                "nanoseconds": tuned.nanoseconds,
            })
        };
        let entries: Vec<_> = self.entries.iter().map(one).collect();
        let text = json!({"maco_tuning": {"version": VERSION, "device": self.device, "entries": entries}});
        files::write(TUNING, path.as_ref(), &text)
    }

    /// Reads what [`Tuning::write`] wrote.
    ///
    /// # Errors
    /// MACO0067: which file, which entry and field, what was expected there and what was found.
    pub fn read(path: impl AsRef<Path>) -> Result<Tuning, FileError> {
        const WORDS: u64 = 1 << 32;
        let path = path.as_ref();
        let root = files::json(TUNING, path, HELP)?;
        let Some(object) = root.get("maco_tuning").and_then(serde_json::Value::as_object) else {
            return Err(FileError::Foreign { code: TUNING, path: path.into(), missing: "maco_tuning", help: HELP });
        };
        let reader = Reader { code: TUNING, path, help: HELP };
        let at = At { reader: &reader, location: "maco_tuning".into(), object };
        at.version(VERSION)?;
        let entries = at.all("entries", |at| {
            let above = |field: &str| match at.below(field, WORDS, "a whole number")? {
                0 => Err(reader.field(&at.location, field, "a whole number above 0", at.object.get(field))),
                number => Ok(number),
            };
            let tile = at.numbers("tile", WORDS)?;
            if tile.contains(&0) {
                return Err(reader.field(&at.location, "tile", "whole numbers above 0", at.object.get("tile")));
            }
            Ok(Tuned {
                task: at.text("task")?.to_owned(),
                element: at.text("element")?.to_owned(),
                shapes: at.lists("shapes")?,
                workers: above("workers")?,
                tile,
                parts: above("parts")?,
                whole: at.below("whole", WORDS, "a whole number")?,
                nanoseconds: at.whole("nanoseconds")?,
            })
        })?;
        let tuning = Tuning { device: at.text("device")?.to_owned(), entries };
        for (n, entry) in tuning.entries.iter().enumerate() {
            if let Some(first) = tuning.entries[..n].iter().position(|other| other.same_call(entry)) {
                let location = format!("maco_tuning.entries[{n}]");
                return Err(reader.field(&location, "task", format!("calls that entries[{first}] is not for"), None));
            }
        }
        Ok(tuning)
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
