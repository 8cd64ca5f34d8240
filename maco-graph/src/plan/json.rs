//! A plan for other programs: calls, tensors and relations as JSON. Fields keep the names of the first version of the format.

use serde::Serialize;

use super::{DeviceModel, Plan};

#[derive(Serialize)]
struct PlanJson<'a> {
    name: &'a str,
    workers: u32,
    device_model: &'a DeviceModel,
    schedule: &'static str,
    tasks: usize,
    waves: u32,
    /// Tasks in each wave.
    wave_widths: Vec<u32>,
    counters: u32,
    edges: u64,
    tensors: Vec<TensorJson<'a>>,
    calls: Vec<CallJson<'a>>,
    relations: Vec<RelationJson<'a>>,
}

#[derive(Serialize)]
struct TensorJson<'a> {
    name: &'a str,
    kind: String,
    element: &'static str,
    shape: &'a [u64],
}

#[derive(Serialize)]
struct CallJson<'a> {
    task: &'static str,
    then: &'a [String],
    op: u32,
    priority: i32,
    drain: bool,
    /// [`super::PlannedCall::dynamic`].
    balanced: bool,
    axes: Vec<&'static str>,
    tile: &'a [u32],
    grid: &'a [u32],
    /// Split-K: tasks per tile, except the first `whole` tiles, which have one.
    parts: u32,
    whole: u32,
    /// First task and end.
    tasks: [u32; 2],
    /// [`super::PlannedCall::prologue`], and the calls that this one is fused into.
    prologue: Option<u32>,
    made_by: Vec<u32>,
    /// [`super::PlannedCall::pushed_by`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pushed_by: Option<u32>,
    /// [`super::PlannedCall::slots`], if it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    slots: Option<u32>,
    /// [`super::PlannedCall::way`]: `TwoShot`, and who chose it: `table`.
    #[serde(skip_serializing_if = "Option::is_none")]
    way: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'static str>,
    /// Of [`super::PlannedCall::order`]: which share of how many comes first, if it begins elsewhere on each rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_share: Option<[u32; 2]>,
    /// First and last wave; absent when there is no task.
    waves: Option<(u32, u32)>,
    operands: Vec<OperandJson<'a>>,
}

#[derive(Serialize)]
struct OperandJson<'a> {
    param: &'static str,
    access: String,
    tensor: &'a str,
    view: String,
}

#[derive(Serialize)]
struct RelationJson<'a> {
    tensor: &'a str,
    producer: u32,
    producer_param: &'static str,
    consumer: u32,
    consumer_param: &'static str,
    hazard: &'static str,
    /// First counter and end.
    counters: [u32; 2],
    waits: u32,
    edges: u64,
    /// [`super::Relation::in_band`].
    in_band: bool,
}

impl Plan {
    /// Calls, tensors and relations as pretty-printed JSON.
    pub fn json(&self) -> String {
        // Plain structs of numbers and strings always serialise.
        serde_json::to_string_pretty(&self.description()).unwrap_or_default()
    }

    fn description(&self) -> PlanJson<'_> {
        let mut wave_widths = vec![0; self.waves as usize];
        for task in &self.tasks {
            wave_widths[task.wave as usize] += 1;
        }
        let tensors = self.graph.tensors.iter().map(|tensor| TensorJson {
            name: &tensor.name,
            kind: format!("{:?}", tensor.kind),
            element: tensor.element.name(),
            shape: &tensor.shape,
        });
        let relations = self.relations.iter().map(|relation| {
            let (producer_param, consumer_param) = self.parameter_names(relation);
            RelationJson {
                tensor: self.tensor_name(relation.tensor),
                producer: relation.producer,
                producer_param,
                consumer: relation.consumer,
                consumer_param,
                hazard: relation.hazard.name(),
                counters: [relation.counters.start, relation.counters.end],
                waits: relation.waits,
                edges: relation.edges,
                in_band: relation.in_band,
            }
        });
        PlanJson {
            name: &self.graph.name,
            workers: self.workers,
            device_model: &self.model,
            schedule: self.schedule.name(),
            tasks: self.tasks.len(),
            waves: self.waves,
            wave_widths,
            counters: self.counters,
            edges: self.edges,
            tensors: tensors.collect(),
            calls: (0..self.calls.len()).map(|call| self.describe_call(call)).collect(),
            relations: relations.collect(),
        }
    }

    fn describe_call(&self, index: usize) -> CallJson<'_> {
        let (call, planned) = (&self.graph.calls[index], &self.calls[index]);
        let params = call.task.params.iter().filter_map(super::region::tensor_of);
        let operands = params.zip(&call.operands).map(|(param, view)| OperandJson {
            param: param.name,
            access: format!("{:?}", param.access).to_lowercase(),
            tensor: self.tensor_name(view.tensor),
            view: self.view_name(view),
        });
        CallJson {
            task: call.task.name,
            then: &call.fused,
            op: planned.op,
            priority: call.priority,
            drain: call.drain,
            balanced: planned.dynamic,
            axes: call.task.axes.iter().map(|axis| axis.name).collect(),
            tile: &planned.tile,
            grid: &planned.grid,
            parts: planned.parts,
            whole: planned.whole,
            tasks: [planned.tasks.start, planned.tasks.end],
            prologue: planned.prologue,
            made_by: self.fused_into(index as u32),
            pushed_by: planned.pushed_by,
            slots: (planned.slots > 0).then_some(planned.slots),
            way: planned.way.map(|way| way.via.name()),
            why: planned.way.map(|way| way.why.name()),
            first_share: planned.first_share().map(|(first, count)| [first, count]),
            waves: self.waves_of(index),
            operands: operands.collect(),
        }
    }
}
