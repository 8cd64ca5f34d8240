//! Random graphs from a script of small numbers, so that a failing one shrinks.

use maco_graph::ir::{Graph, TensorKind, View, ViewAxis};
use maco_graph::plan::{Options, PlanError, Schedule, plan};
use maco_graph::spec::{Index, Param, TaskSpec};
use proptest::prelude::*;

use super::{Build, POOL};

/// Numbers for one call.
type Line = Vec<u16>;

/// A graph and what to plan it for.
#[derive(Clone, Debug)]
pub struct Script {
    pub calls: Vec<Line>,
    pub workers: u32,
    pub schedule: Schedule,
    /// For random runs.
    pub dice: Vec<u16>,
}

/// Random scripts of up to `calls` calls.
pub fn scripts(calls: usize) -> impl Strategy<Value = Script> {
    let lines = prop::collection::vec(prop::collection::vec(any::<u16>(), 40), 1..=calls);
    let workers = prop_oneof![1u32..6, Just(200)];
    let schedule = prop_oneof![
        2 => Just(Schedule::Static),
        1 => Just(Schedule::Tickets),
        1 => (1u32..9).prop_map(Schedule::Schedulers),
    ];
    (lines, workers, schedule, prop::collection::vec(any::<u16>(), 64)).prop_map(|(calls, workers, schedule, dice)| {
        let schedule = match schedule {
            // Each has a worker.
            Schedule::Schedulers(several) => Schedule::Schedulers(several.min(workers)),
            other => other,
        };
        Script { calls, workers, schedule, dice }
    })
}

/// Draws numbers from a list, then from a generator that the list seeds.
pub struct Draw<'a> {
    numbers: std::slice::Iter<'a, u16>,
    state: u64,
    endless: bool,
}

impl<'a> Draw<'a> {
    /// Zeros after the list.
    pub fn new(numbers: &'a [u16]) -> Draw<'a> {
        Draw { numbers: numbers.iter(), state: 0, endless: false }
    }

    /// Pseudo-random numbers after the list.
    pub fn endless(numbers: &'a [u16]) -> Draw<'a> {
        let state = numbers.iter().fold(1, |state: u64, &n| state.wrapping_mul(0x100_0000_01b3) ^ u64::from(n));
        Draw { numbers: numbers.iter(), state, endless: true }
    }

    pub fn below(&mut self, limit: usize) -> usize {
        let number = match self.numbers.next() {
            Some(&number) => u64::from(number),
            None if self.endless => {
                self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                self.state >> 33
            }
            None => 0,
        };
        number as usize % limit
    }

    fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == chances - 1
    }
}

impl Script {
    pub fn options(&self) -> Options {
        Options { schedule: self.schedule, ..Options::new(self.workers) }
    }

    /// The graph. Calls that would race with themselves are left out.
    pub fn graph(&self) -> Graph {
        let mut build = Build::default();
        build.0.name = "random".into();
        build.tensor("a", TensorKind::InOut, &[12, 12]);
        build.temp("b", &[12, 12]);
        build.tensor("v", TensorKind::Out, &[30]);
        build.tensor("s", TensorKind::State, &[5, 6, 8]);
        for line in &self.calls {
            let tensors = build.0.tensors.len();
            add_call(&mut build, &mut Draw::new(line));
            match plan(build.0.clone(), &self.options()) {
                Ok(_) => {}
                Err(PlanError::WriteOverlap { .. } | PlanError::Alias { .. } | PlanError::ReduceOverlap { .. }) => {
                    build.0.calls.pop();
                    build.0.tensors.truncate(tensors);
                }
                Err(error) => panic!("a legal graph was refused: {error}"),
            }
        }
        build.0
    }
}

fn add_call(build: &mut Build, draw: &mut Draw<'_>) {
    let task = POOL[draw.below(POOL.len())];
    let most = if task.params.iter().any(|param| matches!(param, Param::Tensor(param) if param.region.len() > 2)) { 5 } else { 12 };
    let extents: Vec<u64> = task.axes.iter().map(|_| extent(draw, most)).collect();
    let mut operands = Vec::new();
    for param in task.params {
        let Param::Tensor(param) = param else { continue };
        let shape = param.region.iter().map(|&index| match index {
            Index::All | Index::Data(_) => extent(draw, 8),
            Index::Tile(axis) | Index::Halo { axis, .. } => whole_groups(task, axis, extents[usize::from(axis)]),
            Index::TileOver(axis, over) => whole_groups(task, axis, extents[usize::from(axis)]) / u64::from(over),
        });
        let shape: Vec<u64> = shape.collect();
        operands.push(view(build, draw, &shape));
    }
    let tile: Vec<u32> = task.axes.iter().map(|axis| axis.tiles[draw.below(axis.tiles.len())]).collect();
    let forced = draw.one_in(2);
    let priority = [0, 0, 0, 1, -1][draw.below(5)];
    let drain = draw.one_in(3);
    let call = build.call_on(task, operands);
    call.tile = forced.then_some(tile);
    call.priority = priority;
    call.drain = drain;
}

/// 1 to `most`, half the time `most`, now and then 0.
fn extent(draw: &mut Draw<'_>, most: usize) -> u64 {
    if draw.one_in(40) { 0 } else { (draw.below(2 * most) as u64 + 1).min(most as u64) }
}

/// `extent`, rounded up to a multiple of what regions divide the axis by.
fn whole_groups(task: &TaskSpec, axis: u8, extent: u64) -> u64 {
    let regions = task.params.iter().filter_map(|param| match param {
        Param::Tensor(param) => Some(param.region),
        Param::Scalar { .. } => None,
    });
    let over = regions.flatten().filter_map(|&index| match index {
        Index::TileOver(a, over) if a == axis => Some(u64::from(over)),
        _ => None,
    });
    extent.next_multiple_of(over.max().unwrap_or(1))
}

/// A view of `shape` of some tensor: sliced, with axes swapped or left out, two of its axes on one of the tensor's.
fn view(build: &mut Build, draw: &mut Draw<'_>, shape: &[u64]) -> View {
    let first = draw.below(build.0.tensors.len());
    for offset in 0..build.0.tensors.len() {
        let tensor = (first + offset) % build.0.tensors.len();
        if let Some(view) = view_of(build, draw, tensor as u32, shape) {
            return view;
        }
    }
    let tensor = build.temp("extra", shape);
    build.whole(tensor)
}

fn view_of(build: &Build, draw: &mut Draw<'_>, tensor: u32, shape: &[u64]) -> Option<View> {
    let extents = &build.0.tensors[tensor as usize].shape;
    let swap = draw.one_in(4);
    let split = draw.one_in(3);
    let mut free: Vec<usize> = (0..extents.len()).collect();
    if swap {
        free.reverse();
    }
    let mut view = View { tensor, offset: vec![0; extents.len()], axes: Vec::new() };
    let mut index = 0;
    while index < shape.len() {
        let axis = *free.first()?;
        free.remove(0);
        let room = extents[axis];
        let left = shape.len() - index;
        let span = if left >= 2 && (split || free.len() < left - 1) {
            // Outer and inner half on one axis, with a gap now and then.
            let step = shape[index + 1].max(1) + u64::from(draw.one_in(3));
            view.axes.push(ViewAxis { axis: axis as u8, step, extent: shape[index] });
            view.axes.push(ViewAxis { axis: axis as u8, step: 1, extent: shape[index + 1] });
            let span = shape[index].saturating_sub(1) * step + shape[index + 1].max(1);
            index += 2;
            span
        } else {
            view.axes.push(ViewAxis { axis: axis as u8, step: 1, extent: shape[index] });
            index += 1;
            shape[index - 1]
        };
        let slack = room.checked_sub(span)?;
        view.offset[axis] = draw.below(slack as usize + 1) as u64;
    }
    for axis in free {
        if extents[axis] == 0 {
            return None;
        }
        view.offset[axis] = draw.below(extents[axis] as usize) as u64;
    }
    Some(view)
}
