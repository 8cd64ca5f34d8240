//! Which groups of tasks a task of the writer overwrites elements of.

use maco_abi::AXES;

use super::accesses::Access;
use super::boxes::{Box, Boxes};
use super::order::{Before, Groups, Tasks, same_layout};

/// Of each group, and of each interval of the writer's tiles along an axis, whether they meet.
pub(super) struct Overlaps<'a> {
    writer: Option<Boxes<'a>>,
    /// The hull of each group's boxes; `None` for one with another layout, which meets every tile.
    hulls: Vec<Option<Box>>,
    axes: Vec<Axis>,
    words: usize,
}

/// What meets the intervals along one axis.
struct Axis {
    axis: usize,
    /// By grid axis: what the tile's coordinate counts in `known`.
    weights: [u32; AXES],
    /// By interval: where its set begins, from 1; 0 if it has not been asked for.
    known: Vec<u32>,
    sets: Vec<u64>,
}

impl<'a> Overlaps<'a> {
    pub fn new(of: &Tasks<'a>, before: &[Before], groups: &Groups, tensor: u32, writer: Access) -> Overlaps<'a> {
        let mut hulls = vec![None; groups.count()];
        for (number, before) in before.iter().enumerate() {
            if !same_layout(of.graph, before.tensor, tensor) {
                continue;
            }
            let Some(boxes) = boxes(of, before.access) else { continue };
            for (&group, task) in groups.of(number).iter().zip(of.calls[before.access.call as usize].tasks.clone()) {
                let own = boxes.of(of.tasks[task as usize].coord);
                let hull = hulls[group as usize].get_or_insert(own);
                for (hull, own) in hull.iter_mut().zip(own) {
                    *hull = (hull.0.min(own.0), hull.1.max(own.1));
                }
            }
        }
        let writer_boxes = boxes(of, writer);
        let rank = of.graph.tensors[tensor as usize].shape.len();
        let grid = &of.calls[writer.call as usize].grid;
        let axes = match &writer_boxes {
            Some(boxes) if hulls.iter().any(Option::is_some) => (0..rank).map(|axis| Axis::new(boxes, axis, grid)).collect(),
            _ => Vec::new(),
        };
        Overlaps { writer: writer_boxes, words: hulls.len().div_ceil(64), hulls, axes }
    }

    /// Whether `set` has all groups that the writer's tile at `coord` overwrites elements of.
    pub fn within(&mut self, coord: [u32; AXES], set: &[u64]) -> bool {
        self.find(coord);
        (0..self.words).all(|word| self.required(coord, word) & !set[word] == 0)
    }

    /// Whether the writer's tile at `coord` overwrites elements of group `group`.
    pub fn meets(&mut self, coord: [u32; AXES], group: u32) -> bool {
        self.find(coord);
        self.required(coord, group as usize / 64) & (1 << (group % 64)) != 0
    }

    /// Finds what meets the intervals of the tile at `coord`.
    fn find(&mut self, coord: [u32; AXES]) {
        let Some(writer) = &self.writer else { return };
        for axis in &mut self.axes {
            let known = &mut axis.known[index(axis.weights, coord)];
            if *known > 0 {
                continue;
            }
            let (first, end) = writer.of(coord)[axis.axis];
            let start = axis.sets.len();
            *known = start as u32 + 1;
            axis.sets.resize(start + self.words, 0);
            for (group, hull) in self.hulls.iter().enumerate() {
                let apart = hull.is_some_and(|hull| hull[axis.axis].1 <= first || end <= hull[axis.axis].0);
                axis.sets[start + group / 64] |= u64::from(!apart) << (group % 64);
            }
        }
    }

    fn required(&self, coord: [u32; AXES], word: usize) -> u64 {
        let all = match self.hulls.len() - word * 64 {
            groups @ ..64 => (1 << groups) - 1,
            _ => u64::MAX,
        };
        let sets = self.axes.iter().map(|axis| axis.sets[axis.known[index(axis.weights, coord)] as usize - 1 + word]);
        sets.fold(all, |all, set| all & set)
    }
}

impl Axis {
    fn new(writer: &Boxes<'_>, axis: usize, grid: &[u32]) -> Axis {
        let mut weights = [0; AXES];
        let mut intervals = 1;
        for (number, &tiles) in grid.iter().enumerate().take(AXES) {
            if writer.moves(axis, number) {
                weights[number] = intervals;
                intervals *= tiles;
            }
        }
        Axis { axis, weights, known: vec![0; intervals as usize], sets: Vec::new() }
    }
}

fn index(weights: [u32; AXES], coord: [u32; AXES]) -> usize {
    weights.iter().zip(coord).map(|(weight, coord)| weight * coord).sum::<u32>() as usize
}

fn boxes<'a>(of: &Tasks<'a>, access: Access) -> Option<Boxes<'a>> {
    Boxes::new(&of.graph.calls[access.call as usize], &of.calls[access.call as usize], access.operand)
}
