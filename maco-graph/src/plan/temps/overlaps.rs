//! Which tasks, and which groups of them, a task of the writer overwrites elements of.

use maco_abi::AXES;

use super::accesses::Access;
use super::boxes::{Box, Boxes};
use super::order::{Before, Groups, Tasks, same_layout};

/// Of each task that used the memory before, and of each tile of the writer, whether their boxes meet: then the tile must come after the task.
///
/// Sets are of groups, so tiles are first compared with the hull of each group. Its tasks may lie apart: where the hull meets a tile that does not come
/// after the group, their boxes decide one by one.
pub(super) struct Overlaps<'a> {
    of: Tasks<'a>,
    before: &'a [Before],
    groups: &'a Groups,
    tensor: u32,
    writer: Option<Boxes<'a>>,
    /// The hull of each group's boxes; `None` for one with another layout, which meets every tile.
    hulls: Vec<Option<Box>>,
    /// The boxes of each group, by group; not before they are asked for.
    boxes: Option<Vec<(u32, Box)>>,
    axes: Vec<Axis>,
    words: usize,
    /// Boxes of single tasks that have been looked at.
    pub looked: u64,
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
    pub fn new(of: &Tasks<'a>, before: &'a [Before], groups: &'a Groups, tensor: u32, writer: Access) -> Overlaps<'a> {
        let mut hulls: Vec<Option<Box>> = vec![None; groups.count()];
        each_box(of, before, groups, tensor, |group, own| {
            let hull = hulls[group as usize].get_or_insert(own);
            for (hull, own) in hull.iter_mut().zip(own) {
                *hull = (hull.0.min(own.0), hull.1.max(own.1));
            }
        });
        let writer_boxes = boxes(of, writer);
        let rank = of.graph.tensors[tensor as usize].shape.len();
        let grid = &of.calls[writer.call as usize].grid;
        let axes = match &writer_boxes {
            Some(boxes) if hulls.iter().any(Option::is_some) => (0..rank).map(|axis| Axis::new(boxes, axis, grid)).collect(),
            _ => Vec::new(),
        };
        let (of, words) = (*of, hulls.len().div_ceil(64));
        Overlaps { of, before, groups, tensor, writer: writer_boxes, hulls, boxes: None, axes, words, looked: 0 }
    }

    /// Whether `set` has all groups that the writer's tile at `coord` overwrites elements of.
    pub fn within(&mut self, coord: [u32; AXES], set: &[u64]) -> bool {
        self.find(coord);
        (0..self.words).all(|word| {
            let missing = self.near(coord, word) & !set[word];
            let mut groups = (0..64).filter(|bit| missing & (1 << bit) != 0).map(|bit| word as u32 * 64 + bit);
            missing == 0 || !groups.any(|group| self.overwrites(coord, group))
        })
    }

    /// Whether the writer's tile at `coord` overwrites elements of group `group`.
    pub fn meets(&mut self, coord: [u32; AXES], group: u32) -> bool {
        self.find(coord);
        self.near(coord, group as usize / 64) & (1 << (group % 64)) != 0 && self.overwrites(coord, group)
    }

    /// Whether the writer's tile at `coord`, which meets the hull of group `group`, meets one of its boxes.
    fn overwrites(&mut self, coord: [u32; AXES], group: u32) -> bool {
        let (Some(writer), Some(_)) = (&self.writer, self.hulls[group as usize]) else { return true };
        let all = self.boxes.get_or_insert_with(|| {
            let mut all = Vec::new();
            each_box(&self.of, self.before, self.groups, self.tensor, |group, own| all.push((group, own)));
            // Parts of one tile have one box.
            all.sort_unstable();
            all.dedup();
            all
        });
        let tile = writer.of(coord);
        let own = &all[all.partition_point(|&(other, _)| other < group)..];
        let mut own = own.iter().take_while(|&&(other, _)| other == group);
        own.any(|(_, own)| {
            self.looked += 1;
            own.iter().zip(&tile).all(|(own, tile)| own.0 < tile.1 && tile.0 < own.1)
        })
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

    /// The groups of a word of sets whose hull the tile at `coord` meets.
    fn near(&self, coord: [u32; AXES], word: usize) -> u64 {
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

/// Calls `each` with the group and the box of each task of `before`, of those whose temp has the layout of `tensor`.
fn each_box(of: &Tasks<'_>, before: &[Before], groups: &Groups, tensor: u32, mut each: impl FnMut(u32, Box)) {
    for (number, before) in before.iter().enumerate().filter(|(_, before)| same_layout(of.graph, before.tensor, tensor)) {
        let Some(boxes) = boxes(of, before.access) else { continue };
        for (&group, task) in groups.of(number).iter().zip(of.calls[before.access.call as usize].tasks.clone()) {
            each(group, boxes.of(of.tasks[task as usize].coord));
        }
    }
}

fn boxes<'a>(of: &Tasks<'a>, access: Access) -> Option<Boxes<'a>> {
    Boxes::new(&of.graph.calls[access.call as usize], &of.calls[access.call as usize], access.operand)
}
