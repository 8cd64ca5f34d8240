//! Measured costs of tasks, the input of list scheduling in `maco-graph`.

use std::collections::BTreeMap;
use std::path::Path;

use maco_graph::plan::{Cost, Costs};
use serde_json::json;

use super::{Kind, Profile};
use crate::files::{self, At, COSTS, FileError, Reader};

const VERSION: u64 = 1;
const HELP: &str = "write the costs again with `profile::write_costs`";

impl Profile {
    /// What a task of each operation and tile cost here, in nanoseconds, and what a hop from worker to worker did, if
    /// there was one: for [`crate::PlanOptions::costs`]. Where warps run tasks by themselves, one costs its part of the worker's time, not the time it took: a worker gets as
    /// many of them done. Operations that did not run are left out.
    pub fn costs(&self) -> Costs {
        let mut sums: BTreeMap<(&str, &[u32]), (f64, f64)> = BTreeMap::new();
        for (span, time) in self.spans.iter().zip(self.attributed_time()).filter(|(span, _)| span.kind == Kind::Run) {
            let operation = &self.operations[self.tasks[span.task as usize].operation as usize];
            let sum = sums.entry((&operation.name, &operation.tile)).or_default();
            *sum = (sum.0 + time, sum.1 + 1.0);
        }
        let entries = sums.into_iter().map(|((task, tile), (time, tasks))| Cost {
            task: task.to_owned(),
            tile: tile.to_vec(),
            nanoseconds: (time / tasks).round().max(1.0) as u64,
        });
        Costs { hop: self.hop(), entries: entries.collect() }
    }
}

/// Writes costs as JSON, for later plans.
///
/// # Errors
/// MACO0065 when the file cannot be written.
pub fn write_costs(costs: &Costs, path: impl AsRef<Path>) -> Result<(), FileError> {
    let path = path.as_ref();
    let one = |cost: &Cost| json!({"operation": cost.task, "tile": cost.tile, "nanoseconds": cost.nanoseconds});
    let text = json!({
        "maco_costs": {"version": VERSION, "hop_nanoseconds": costs.hop, "costs": costs.entries.iter().map(one).collect::<Vec<_>>()}
    });
    files::write(COSTS, path, &text)
}

/// Reads what [`write_costs`] wrote.
///
/// # Errors
/// MACO0065: which file, which entry and field, what was expected there and what was found.
pub fn read_costs(path: impl AsRef<Path>) -> Result<Costs, FileError> {
    let path = path.as_ref();
    let root = files::json(COSTS, path, HELP)?;
    let Some(object) = root.get("maco_costs").and_then(serde_json::Value::as_object) else {
        return Err(FileError::Foreign { code: COSTS, path: path.into(), missing: "maco_costs", help: HELP });
    };
    let reader = Reader { code: COSTS, path, help: HELP };
    let at = At { reader: &reader, location: "maco_costs".into(), object };
    at.version(VERSION)?;
    let entries = at.all("costs", |at| {
        let nanoseconds = at.whole("nanoseconds")?;
        if nanoseconds == 0 {
            return Err(reader.field(&at.location, "nanoseconds", "a whole number above 0", at.object.get("nanoseconds")));
        }
        Ok(Cost { task: at.text("operation")?.to_owned(), tile: at.numbers("tile", 1 << 32)?, nanoseconds })
    })?;
    let hop = match at.object.get("hop_nanoseconds") {
        Some(serde_json::Value::Null) => None,
        _ => Some(at.whole("hop_nanoseconds")?),
    };
    Ok(Costs { hop, entries })
}
