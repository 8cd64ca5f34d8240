//! A plan for people: text by `Display`, Graphviz by [`Plan::dot`].

use std::fmt::{self, Display, Formatter, Write};

use super::check::operand_name;
use super::workload::rounds_to_tf32;
use super::{Plan, Relation, Schedule, Way};
use crate::ir::{Call, ScalarSource, View};
use crate::spec::Via;

impl Display for Plan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let schedule = self.schedule;
        writeln!(
            f,
            "{}: {} calls, {} tasks in {} waves on {} workers ({schedule}), {} relations, {} edges through {} counters",
            self.graph.name,
            self.calls.len(),
            self.tasks.len(),
            self.waves,
            self.workers,
            self.relations.len(),
            self.edges,
            self.counters,
        )?;
        writeln!(f, "  device model: {}", self.model)?;
        let names: Vec<String> = (0..self.calls.len()).map(|call| self.call_name(call)).collect();
        let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        for (index, name) in names.iter().enumerate() {
            let (call, planned) = (&self.graph.calls[index], &self.calls[index]);
            let tasks = planned.tasks.len();
            write!(f, "  #{index:<3} {name:width$}  tile {:9} grid {:9} {tasks:6} tasks", by(&planned.tile), by(&planned.grid))?;
            match planned.whole {
                _ if call.task.collective().is_some() => write!(f, "{}", self.described_exchange(index as u32))?,
                _ if planned.parts == 1 => {}
                0 => write!(f, "  split in {}", planned.parts)?,
                whole => write!(f, "  behind {whole} tiles split in {}", planned.parts)?,
            }
            if let Some((first, count)) = planned.first_share() {
                write!(f, "  from share {first} of {count}")?;
            }
            if rounds_to_tf32(call) {
                write!(f, "  in tf32")?;
            }
            match self.waves_of(index) {
                Some((first, last)) if first == last => write!(f, "  wave {first}")?,
                Some((first, last)) => write!(f, "  waves {first}-{last}")?,
                None => match &self.fused_into(index as u32)[..] {
                    [] => write!(f, "  empty")?,
                    by => write!(f, "  fused into {}", numbers(by))?,
                },
            }
            if let Some(prologue) = planned.prologue {
                write!(f, "  prologue #{prologue}")?;
            }
            if let Some(Some(workers)) = self.ranges.get(index) {
                write!(f, "  workers {}-{}", workers.start, workers.end - 1)?;
            }
            if call.drain && schedule == Schedule::Static {
                write!(f, "  {}", if planned.dynamic { "dynamic" } else { "drained" })?;
            }
            writeln!(f, "  ({})", self.arguments(call))?;
        }
        for overlap in &self.graph.overlaps {
            let waves = overlap.waves.map_or_else(String::new, |waves| format!(", in {waves} waves"));
            writeln!(f, "  {} beside {}{waves}", numbers(&overlap.comm), numbers(&overlap.compute))?;
        }
        for phase in &self.graph.phases {
            writeln!(f, "  {} behind {}", numbers(&phase.comm), numbers(&phase.behind))?;
        }
        for relation in &self.relations {
            writeln!(
                f,
                "  #{} → #{}  {}  `{}`: {} waits, {} edges, counters {}..{}{}",
                relation.producer,
                relation.consumer,
                relation.hazard,
                self.tensor_name(relation.tensor),
                relation.waits,
                relation.edges,
                relation.counters.start,
                relation.counters.end,
                if relation.in_band { ", in-band flags" } else { "" },
            )?;
        }
        Ok(())
    }
}

impl Plan {
    /// The call graph for Graphviz: a box per call, an arrow per relation.
    pub fn dot(&self) -> String {
        let mut dot = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_dot(&mut dot);
        dot
    }

    /// How the tiles of a collective go, and who chose it ([`super::Why`]): `packets (table)`, or `two-shot, sent by #1 (model)`. Nothing of a user's own exchange, and of a call
    /// that is no collective.
    pub fn exchange(&self, call: u32) -> Option<String> {
        let planned = self.calls.get(call as usize)?;
        let Way { via, why } = planned.way?;
        let sent = match planned.pushed_by {
            Some(by) if planned.whole > 0 => format!(", {} tiles sent by #{by}, others by tasks", planned.whole),
            Some(by) => format!(", sent by #{by}"),
            None => ", sent by tasks".to_owned(),
        };
        let slots = if planned.slots > 0 { format!(", {} slots in turn", planned.slots) } else { String::new() };
        let how = match via {
            Via::Automatic => return None,
            Via::Packets => format!("packets{slots}"),
            Via::OneShot => format!("one-shot{sent}{slots}"),
            Via::TwoShot => format!("two-shot{sent}{slots}"),
            Via::Nccl => "by NCCL beside the kernel".to_owned(),
        };
        Some(format!("{how} ({})", why.name()))
    }

    /// [`Plan::exchange`] behind what is said before it.
    fn described_exchange(&self, call: u32) -> String {
        self.exchange(call).map_or_else(String::new, |way| format!("  {way}"))
    }

    fn write_dot(&self, dot: &mut String) -> fmt::Result {
        writeln!(dot, "digraph {} {{", quoted(&self.graph.name))?;
        writeln!(dot, "  node [shape=box, fontname=\"monospace\"];")?;
        writeln!(dot, "  edge [fontname=\"monospace\"];")?;
        for (index, planned) in self.calls.iter().enumerate() {
            let name = self.call_name(index);
            let split = match planned.whole {
                _ if self.graph.calls[index].task.collective().is_some() => self.described_exchange(index as u32),
                _ if planned.parts == 1 => String::new(),
                0 => format!(" in {} parts", planned.parts),
                whole => format!(", those behind the first {whole} in {} parts", planned.parts),
            };
            let fusion = match (&self.fused_into(index as u32)[..], planned.prologue) {
                ([], None) => String::new(),
                ([], Some(prologue)) => format!("\nprologue #{prologue}"),
                (by, _) => format!("\nfused into {}", numbers(by)),
            };
            let label = format!(
                "#{index} {name}\n{} tiles of {}{split}\n{}{fusion}",
                by(&planned.grid),
                by(&planned.tile),
                self.arguments(&self.graph.calls[index])
            );
            writeln!(dot, "  c{index} [label={}];", quoted(&label))?;
        }
        for relation in &self.relations {
            let flags = if relation.in_band { ", in-band flags" } else { "" };
            let label = format!("{}\n{}\n{} edges{flags}", self.tensor_name(relation.tensor), relation.hazard, relation.edges);
            let style = if relation.hazard == super::Hazard::Raw { "solid" } else { "dashed" };
            writeln!(dot, "  c{} -> c{} [style={style}, label={}];", relation.producer, relation.consumer, quoted(&label))?;
        }
        writeln!(dot, "}}")
    }

    /// The task's name with what is fused into it: `linear.gelu`, `linear.first(silu).add`.
    pub(super) fn call_name(&self, call: usize) -> String {
        let call = &self.graph.calls[call];
        std::iter::once(call.task.name).chain(call.fused.iter().map(String::as_str)).collect::<Vec<_>>().join(".")
    }

    pub(super) fn tensor_name(&self, tensor: u32) -> &str {
        &self.graph.tensors[tensor as usize].name
    }

    /// First and last wave of a call's tasks.
    pub(super) fn waves_of(&self, call: usize) -> Option<(u32, u32)> {
        let range = &self.calls[call].tasks;
        let waves = self.tasks[range.start as usize..range.end as usize].iter().map(|task| task.wave);
        Some((waves.clone().min()?, waves.max()?))
    }

    /// What the relation's two calls call the tensor: `y` and `x`.
    pub(super) fn parameter_names(&self, relation: &Relation) -> (&'static str, &'static str) {
        let name = |call: u32, operand| operand_name(self.graph.calls[call as usize].task, operand);
        (name(relation.producer, relation.producer_operand), name(relation.consumer, relation.consumer_operand))
    }

    fn arguments(&self, call: &Call) -> String {
        let mut scalars = call.scalars.iter();
        let mut operands = call.operands.iter();
        let argument = |param: &crate::spec::Param| match param {
            crate::spec::Param::Tensor(_) => operands.next().map(|view| self.view_name(view)),
            crate::spec::Param::Scalar { ty, .. } => scalars.next().map(|source| self.scalar_name(*source, *ty)),
        };
        call.task.params.iter().filter_map(argument).collect::<Vec<_>>().join(", ")
    }

    /// `x`, or `qkv[0..64, 0..128]` for a part, or with steps for anything else.
    pub(super) fn view_name(&self, view: &View) -> String {
        let tensor = &self.graph.tensors[view.tensor as usize];
        if *view == View::whole(view.tensor, tensor) {
            return tensor.name.clone();
        }
        let mut name = format!("{}[", tensor.name);
        for (axis, offset) in view.offset.iter().enumerate() {
            let along: Vec<_> = view.axes.iter().filter(|view_axis| usize::from(view_axis.axis) == axis).collect();
            let part = match along[..] {
                [] => format!("{offset}"),
                [only] if only.step == 1 => format!("{offset}..{}", offset + only.extent),
                _ => along.iter().fold(format!("{offset}"), |part, axis| format!("{part} + {}·{}", axis.extent, axis.step)),
            };
            name += if axis == 0 { "" } else { ", " };
            name += &part;
        }
        let axes: Vec<u8> = view.axes.iter().map(|axis| axis.axis).collect();
        name + if axes.is_sorted() { "]" } else { "]ᵀ" }
    }

    fn scalar_name(&self, source: ScalarSource, ty: crate::spec::ScalarType) -> String {
        use crate::spec::ScalarType;
        match (source, ty) {
            (ScalarSource::Parameter(index), _) => self.graph.scalars[index as usize].name.clone(),
            (ScalarSource::Literal(bits), ScalarType::F32) => format!("{:?}", f32::from_bits(bits)),
            (ScalarSource::Literal(bits), ScalarType::U32) => format!("{bits}"),
            (ScalarSource::Literal(bits), ScalarType::I32) => format!("{}", bits as i32),
        }
    }
}

/// `#3, #4`
fn numbers(calls: &[u32]) -> String {
    calls.iter().map(|call| format!("#{call}")).collect::<Vec<_>>().join(", ")
}

/// `128×256`, or `1` for a grid without axes.
fn by(extents: &[u32]) -> String {
    if extents.is_empty() { "1".into() } else { extents.iter().map(u32::to_string).collect::<Vec<_>>().join("×") }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
