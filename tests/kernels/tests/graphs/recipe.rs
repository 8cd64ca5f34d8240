//! From a list of small numbers to a program that is legal whatever the numbers are, so that a failing one shrinks.

use super::op::{Op, Ops};
use proptest::prelude::*;

/// Every number is exact in `f32` below this.
const EXACT: f64 = (1 << 23) as f64;

/// Numbers for one call.
type Line = Vec<u16>;

/// A random graph, and what to plan it for.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The lengths that axes may have, but for 1.
    pub sizes: [u16; 3],
    pub lines: Vec<Line>,
    /// Always the smallest tiles.
    pub small: bool,
    pub workers: u16,
    pub schedule: How,
    /// On a CPU, workers of static lists are pipelines.
    pub pipelined: bool,
    /// Schedulers push tasks before they are ready.
    pub look_ahead: bool,
    /// Of the second task set.
    pub second: bool,
}

/// How tasks reach the workers, and how many schedulers there are if they push.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    Static,
    Tickets,
    Schedulers(u16),
    SpareWarps(u16),
}

impl How {
    /// Every second is a static list: what becomes of edges depends on the worker there.
    fn new(number: u16) -> How {
        let several = 1 + number / 6 % 8;
        match number % 6 {
            0..3 => How::Static,
            3 => How::Tickets,
            4 => How::Schedulers(several),
            _ => How::SpareWarps(several),
        }
    }
}

/// Element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    F32,
    Bf16,
    /// Rows for [`Op::Pick`].
    Ids,
}

/// A tensor of a program.
#[derive(Clone, Debug)]
pub struct Node {
    pub element: Element,
    pub shape: Vec<usize>,
    pub input: bool,
    /// Whether the caller sees what it holds in the end.
    pub output: bool,
    /// Largest magnitude: of an input, what it is filled with; of [`Element::Ids`], one more than the largest index.
    pub bound: f64,
    /// Nothing has read the last write yet.
    unread: bool,
}

/// A call of a program.
#[derive(Clone, Debug)]
pub struct Step {
    pub op: Op,
    /// What it reads; the first one is what an in-place operation changes.
    pub reads: Vec<usize>,
    pub write: usize,
    pub number: i64,
    pub tile: Option<Vec<u32>>,
    pub drain: bool,
}

/// Calls in program order over tensors.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub nodes: Vec<Node>,
    pub steps: Vec<Step>,
    /// Of the second task set.
    pub second: bool,
}

/// Recipes of up to `lines` calls on axes of up to `most` elements.
pub fn recipes(lines: usize, most: u16) -> impl Strategy<Value = Recipe> {
    let size = || prop_oneof![1..=most, Just(most), Just(64.min(most)), Just(1)];
    let lines = prop::collection::vec(prop::collection::vec(any::<u16>(), 16), 1..=lines);
    let how = (any::<u16>(), any::<bool>(), any::<bool>(), any::<bool>());
    ([size(), size(), size()], lines, any::<bool>(), any::<u16>(), how).prop_map(|(sizes, lines, small, workers, how)| Recipe {
        sizes,
        lines,
        small,
        workers,
        schedule: How::new(how.0),
        pipelined: how.1,
        look_ahead: how.2,
        second: how.3,
    })
}

impl Recipe {
    /// The same for the same seed.
    pub fn from_seed(seed: u64, lines: usize, most: u16) -> Recipe {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as u16
        };
        let sizes = [(); 3].map(|()| 1 + next() % most);
        let count = 1 + next() as usize % lines;
        let lines = (0..count).map(|_| (0..16).map(|_| next()).collect()).collect();
        Recipe {
            sizes,
            lines,
            small: next() % 2 == 0,
            workers: next(),
            schedule: How::new(next()),
            pipelined: next() % 2 == 0,
            look_ahead: next() % 2 == 0,
            second: next() % 2 == 0,
        }
    }

    pub fn program(&self) -> Program {
        let mut program = Program { second: self.second, ..Program::default() };
        for line in &self.lines {
            program.add(self, &mut Draw(line.iter()));
        }
        // What nobody reads must be an output.
        for node in &mut program.nodes {
            node.output |= !node.input && node.unread;
        }
        program
    }
}

/// Numbers of a line, then zeros.
struct Draw<'a>(std::slice::Iter<'a, u16>);

impl Draw<'_> {
    fn below(&mut self, limit: usize) -> usize {
        self.0.next().map_or(0, |&number| usize::from(number) % limit)
    }

    fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == chances - 1
    }

    fn size(&mut self, recipe: &Recipe) -> usize {
        recipe.sizes[self.below(3)].into()
    }
}

impl Program {
    /// Whether step `n` and the next one touch a tensor that one of them writes.
    pub fn depend(&self, n: usize) -> bool {
        let Some(next) = self.steps.get(n + 1) else { return false };
        let step = &self.steps[n];
        step.write == next.write || next.reads.contains(&step.write) || step.reads.contains(&next.write)
    }

    fn add(&mut self, recipe: &Recipe, draw: &mut Draw<'_>) {
        let x = self.first(recipe, draw);
        let ops = match self.nodes[x].element {
            Element::Bf16 => Ops::of(recipe.second).of_bf16,
            _ => Ops::of(recipe.second).of_f32,
        };
        let op = ops[draw.below(ops.len())];
        // A graph cannot change its inputs.
        let op = if op.in_place() && self.nodes[x].input { self.instead(x, Op::Copy) } else { op };
        let number = [2, -1, 3, -2][draw.below(4)];
        let reads = self.reads(op, x, recipe, draw);
        let bounds: Vec<f64> = reads.iter().map(|&read| self.nodes[read].bound).collect();
        if op.bound(&bounds, self.matrix(x), number) > EXACT {
            // One of them is too large: make it small instead, or ready for that.
            let largest = reads
                .iter()
                .copied()
                .filter(|&read| self.nodes[read].shape.len() == 2)
                .max_by(|&a, &b| self.nodes[a].bound.total_cmp(&self.nodes[b].bound));
            let largest = largest.unwrap_or(x);
            return self.push(self.instead(largest, Op::Wrap), vec![largest], 0, recipe, draw);
        }
        self.push(op, reads, number, recipe, draw);
    }

    /// An operation of `f32`, or that which makes such elements.
    fn instead(&self, x: usize, op: Op) -> Op {
        if self.nodes[x].element == Element::Bf16 { Op::Widen } else { op }
    }

    /// The last result, any earlier matrix, or a new input.
    fn first(&mut self, recipe: &Recipe, draw: &mut Draw<'_>) -> usize {
        let matrices: Vec<usize> = (0..self.nodes.len()).filter(|&node| self.nodes[node].shape.len() == 2).collect();
        match (draw.below(4), self.steps.last()) {
            (0 | 1, Some(last)) if self.nodes[last.write].shape.len() == 2 => last.write,
            (0..3, _) if !matrices.is_empty() => matrices[draw.below(matrices.len())],
            _ => {
                let element = if draw.one_in(2) { Element::Bf16 } else { Element::F32 };
                let shape = vec![draw.size(recipe), draw.size(recipe)];
                self.input(element, shape, 3.0)
            }
        }
    }

    fn matrix(&self, node: usize) -> [usize; 2] {
        [self.nodes[node].shape[0], self.nodes[node].shape[1]]
    }

    fn input(&mut self, element: Element, shape: Vec<usize>, bound: f64) -> usize {
        self.nodes.push(Node { element, shape, input: true, output: false, bound, unread: false });
        self.nodes.len() - 1
    }

    /// A tensor of that shape: one there is, if the numbers say so, else a new input. Never `not`.
    fn some(&mut self, element: Element, shape: Vec<usize>, not: Option<usize>, draw: &mut Draw<'_>) -> usize {
        let fits = |&node: &usize| self.nodes[node].element == element && self.nodes[node].shape == shape && Some(node) != not;
        let fitting: Vec<usize> = (0..self.nodes.len()).filter(fits).collect();
        let known = draw.below(5);
        if known < 4 && !fitting.is_empty() { fitting[draw.below(fitting.len())] } else { self.input(element, shape, 3.0) }
    }

    /// The operands of `op` on `x`.
    fn reads(&mut self, op: Op, x: usize, recipe: &Recipe, draw: &mut Draw<'_>) -> Vec<usize> {
        let element = self.nodes[x].element;
        let [rows, cols] = self.matrix(x);
        let alike = vec![rows, cols];
        match op {
            Op::Linear => {
                let shape = vec![draw.size(recipe), cols];
                vec![x, self.some(element, shape, None, draw)]
            }
            Op::Matmul => {
                let shape = vec![cols, draw.size(recipe)];
                vec![x, self.some(element, shape, None, draw)]
            }
            Op::Add | Op::Mul => vec![x, self.some(element, alike, None, draw)],
            Op::Accumulate => vec![x, self.some(element, alike, Some(x), draw)],
            Op::Bias => vec![x, self.some(element, vec![cols], None, draw)],
            Op::Merge => {
                let others = [(); 4].map(|()| self.some(element, alike.clone(), None, draw));
                [vec![x], others.to_vec()].concat()
            }
            Op::Pick => {
                let count = draw.size(recipe);
                // Rows of x, so no ids made for another number of rows.
                vec![x, self.input(Element::Ids, vec![count], rows as f64)]
            }
            _ => vec![x],
        }
    }

    fn push(&mut self, op: Op, reads: Vec<usize>, number: i64, recipe: &Recipe, draw: &mut Draw<'_>) {
        let x = reads[0];
        let bounds: Vec<f64> = reads.iter().map(|&read| self.nodes[read].bound).collect();
        let bound = op.bound(&bounds, self.matrix(x), number);
        let write = if op.in_place() { x } else { self.result(op, &reads, draw) };
        for &read in &reads {
            self.nodes[read].unread = false;
        }
        let node = &mut self.nodes[write];
        // Rounding to bf16 adds up to 2⁻⁸.
        node.bound = if node.element == Element::Bf16 { (bound * 1.01).ceil() } else { bound };
        node.unread = true;
        node.output |= draw.one_in(6);
        let forced = draw.one_in(2);
        let tile = op
            .spec()
            .axes
            .iter()
            .map(|axis| if recipe.small { axis.tiles.iter().min() } else { axis.tiles.get(draw.below(axis.tiles.len())) });
        let tile = tile.map(|tile| *tile.expect("a task has tiles")).collect();
        let drain = draw.one_in(3);
        self.steps.push(Step { op, reads, write, number, tile: (forced || recipe.small).then_some(tile), drain });
    }

    /// Where the result goes: over a tensor whose contents have been read, or into a new one.
    fn result(&mut self, op: Op, reads: &[usize], draw: &mut Draw<'_>) -> usize {
        let [rows, cols] = self.matrix(reads[0]);
        let second = |axis: usize| self.nodes[reads[1]].shape[axis];
        let shape = match op {
            Op::Linear => vec![rows, second(0)],
            Op::Matmul => vec![rows, second(1)],
            Op::Transpose => vec![cols, rows],
            Op::Pick => vec![second(0), cols],
            Op::SumRows => vec![rows, 1],
            Op::ColumnSums => vec![cols],
            _ => vec![rows, cols],
        };
        let element = match op {
            Op::Narrow => Element::Bf16,
            Op::Widen | Op::SumRows => Element::F32,
            _ => self.nodes[reads[0]].element,
        };
        let again = |&node: &usize| {
            let known = &self.nodes[node];
            known.element == element && known.shape == shape && !known.input && !known.unread && !reads.contains(&node)
        };
        let fitting: Vec<usize> = (0..self.nodes.len()).filter(again).collect();
        if draw.one_in(3) && !fitting.is_empty() {
            return fitting[draw.below(fitting.len())];
        }
        self.nodes.push(Node { element, shape, input: false, output: false, bound: 0.0, unread: false });
        self.nodes.len() - 1
    }
}
