//! Task specs and graphs that the planner's tests share.
#![allow(dead_code)] // every test binary uses its own part

pub mod collectives;
pub mod random;
pub mod simulate;

use maco_graph::ir::{Call, Graph, Tensor, TensorKind, View, ViewAxis};
use maco_graph::spec::{Access, Axis, DimSpec, Element, ElementSpec, Index, NOT_NAMED, Param, Placement, TaskKind, TaskSpec, TensorParam};

use Access::{Read, Reduce, Update, Write};
use Index::{All, Data, Halo, Tile, TileOver};

pub const fn tensor(name: &'static str, access: Access, region: &'static [Index]) -> Param {
    const DIMS: [DimSpec; 4] = [DimSpec::Symbol(0), DimSpec::Symbol(1), DimSpec::Symbol(2), DimSpec::Symbol(3)];
    let (dims, _) = DIMS.split_at(region.len());
    Param::Tensor(TensorParam { name, access, element: ElementSpec::Fixed(Element::Bf16), dims, region, staged: false })
}

pub const fn task(name: &'static str, axes: &'static [Axis], params: &'static [Param]) -> TaskSpec {
    TaskSpec { name, kind: TaskKind::Tiles, axes, dims: &["A", "B", "C", "D"], equal: &[], elements: &[], params, gemv: None }
}

pub const fn axis(name: &'static str, tiles: &'static [u32]) -> Axis {
    Axis { name, tiles }
}

/// The GEMM of the built-in library, with its real tiles.
pub static GEMM: TaskSpec = TaskSpec {
    kind: TaskKind::Gemm { splits_k: false },
    ..task(
        "linear",
        &[axis("i", &[64, 128]), axis("j", &[128, 256])],
        &[tensor("x", Read, &[Tile(0), All]), tensor("w", Read, &[Tile(1), All]), tensor("y", Write, &[Tile(0), Tile(1)])],
    )
};

const fn staged(param: Param) -> Param {
    match param {
        Param::Tensor(tensor) => Param::Tensor(TensorParam { staged: true, ..tensor }),
        other => other,
    }
}

/// [`GEMM`] with staged operands and split-K.
pub static STAGED_GEMM: TaskSpec = TaskSpec {
    kind: TaskKind::Gemm { splits_k: true },
    params: &[
        staged(tensor("x", Read, &[Tile(0), All])),
        staged(tensor("w", Read, &[Tile(1), All])),
        staged(tensor("y", Write, &[Tile(0), Tile(1)])),
    ],
    ..GEMM
};

/// Two tensors of the tiles of the library's `all_reduce`, as a kind of it.
pub const COLLECTIVE: TaskSpec = task(
    "all_reduce",
    &[axis("i", &[64]), axis("j", &[256])],
    &[tensor("part", Read, &[Tile(0), Tile(1)]), tensor("y", Write, &[Tile(0), Tile(1)])],
);
pub static SCALE64: TaskSpec = task("scale", &[axis("i", &[64]), axis("j", &[64])], &[tensor("x", Update, &[Tile(0), Tile(1)])]);

// Small tiles, so that small tensors have many.
pub static LINEAR: TaskSpec = task(
    "linear",
    &[axis("i", &[2, 4]), axis("j", &[3, 6])],
    &[tensor("x", Read, &[Tile(0), All]), tensor("w", Read, &[Tile(1), All]), tensor("y", Write, &[Tile(0), Tile(1)])],
);
pub static SCALE: TaskSpec = task("scale", &[axis("i", &[2]), axis("j", &[4])], &[tensor("x", Update, &[Tile(0), Tile(1)])]);
pub static ADD: TaskSpec = task(
    "add",
    &[axis("i", &[3]), axis("j", &[2, 5])],
    &[tensor("a", Read, &[Tile(0), Tile(1)]), tensor("b", Read, &[Tile(0), Tile(1)]), tensor("c", Write, &[Tile(0), Tile(1)])],
);
pub static FILL: TaskSpec = task("fill", &[axis("i", &[2, 3]), axis("j", &[2, 4])], &[tensor("y", Write, &[Tile(0), Tile(1)])]);
pub static NORM: TaskSpec = task("norm", &[axis("i", &[1, 3])], &[tensor("x", Read, &[Tile(0), All]), tensor("y", Write, &[Tile(0), All])]);
pub static STENCIL: TaskSpec = task(
    "stencil",
    &[axis("i", &[2]), axis("j", &[3])],
    &[tensor("x", Read, &[Halo { axis: 0, before: 1, after: 1 }, Tile(1)]), tensor("y", Write, &[Tile(0), Tile(1)])],
);
pub static CAUSAL: TaskSpec =
    task("causal", &[axis("i", &[1])], &[tensor("x", Read, &[Halo { axis: 0, before: 12, after: 0 }]), tensor("y", Write, &[Tile(0)])]);
pub static HEADS: TaskSpec = task(
    "heads",
    &[axis("h", &[1, 2]), axis("i", &[2])],
    &[
        tensor("q", Read, &[Tile(1), Tile(0), All]),
        tensor("k", Read, &[All, TileOver(0, 2), All]),
        tensor("o", Write, &[Tile(1), Tile(0), All]),
    ],
);
pub static GATHER: TaskSpec = task(
    "gather",
    &[axis("i", &[2]), axis("j", &[4])],
    &[tensor("x", Read, &[Data(NOT_NAMED), Tile(1)]), tensor("ids", Read, &[Tile(0)]), tensor("y", Write, &[Tile(0), Tile(1)])],
);
pub static SCATTER: TaskSpec = task(
    "scatter",
    &[axis("i", &[2]), axis("j", &[4])],
    &[tensor("x", Read, &[Tile(0), Tile(1)]), tensor("y", Write, &[Data(NOT_NAMED), Tile(1)])],
);
pub static CUBE: TaskSpec = task(
    "cube",
    &[axis("b", &[1]), axis("i", &[2, 3]), axis("j", &[2])],
    &[tensor("x", Read, &[Tile(0), Tile(2), Tile(1)]), tensor("y", Update, &[Tile(0), Tile(1), Tile(2)])],
);
pub static DIAGONAL: TaskSpec =
    task("diagonal", &[axis("i", &[2])], &[tensor("x", Read, &[Tile(0), Tile(0)]), tensor("y", Write, &[Tile(0)])]);
pub static ROWSUM: TaskSpec = task("rowsum", &[axis("i", &[4])], &[tensor("x", Read, &[Tile(0), All]), tensor("y", Write, &[Tile(0)])]);
pub static WHOLE: TaskSpec = task("whole", &[], &[tensor("x", Read, &[All, All]), tensor("y", Write, &[All])]);
pub static BUMP: TaskSpec = task("bump", &[axis("i", &[1, 5])], &[tensor("x", Reduce, &[Tile(0)])]);

/// Everything the random graphs call.
pub static POOL: [&TaskSpec; 15] =
    [&LINEAR, &SCALE, &ADD, &FILL, &NORM, &STENCIL, &CAUSAL, &HEADS, &GATHER, &SCATTER, &CUBE, &DIAGONAL, &ROWSUM, &WHOLE, &BUMP];

/// A graph under construction.
#[derive(Default)]
pub struct Build(pub Graph);

impl Build {
    pub fn tensor(&mut self, name: &str, kind: TensorKind, shape: &[u64]) -> u32 {
        self.0.tensors.push(Tensor {
            name: name.into(),
            kind,
            element: Element::Bf16,
            shape: shape.to_vec(),
            placement: Placement::Replicated,
        });
        self.0.tensors.len() as u32 - 1
    }

    pub fn temp(&mut self, name: &str, shape: &[u64]) -> u32 {
        self.tensor(name, TensorKind::Temp, shape)
    }

    pub fn input(&mut self, name: &str, shape: &[u64]) -> u32 {
        self.tensor(name, TensorKind::In, shape)
    }

    pub fn whole(&self, tensor: u32) -> View {
        View::whole(tensor, &self.0.tensors[tensor as usize])
    }

    /// Elements `from..to` along `axis`.
    pub fn slice(&self, tensor: u32, axis: usize, from: u64, to: u64) -> View {
        let mut view = self.whole(tensor);
        view.offset[axis] = from;
        view.axes[axis].extent = to - from;
        view
    }

    /// The last axis cut into `parts` of equal size.
    pub fn split(&self, tensor: u32, parts: u64) -> View {
        let mut view = self.whole(tensor);
        let last = view.axes.pop().expect("a tensor has an axis");
        let size = last.extent / parts;
        view.axes.push(ViewAxis { axis: last.axis, step: size, extent: parts });
        view.axes.push(ViewAxis { axis: last.axis, step: 1, extent: size });
        view
    }

    pub fn call(&mut self, task: &'static TaskSpec, tensors: &[u32]) -> &mut Call {
        let views = tensors.iter().map(|&tensor| self.whole(tensor)).collect();
        self.call_on(task, views)
    }

    pub fn call_on(&mut self, task: &'static TaskSpec, operands: Vec<View>) -> &mut Call {
        self.0.calls.push(Call::new(task, operands));
        self.0.calls.last_mut().expect("just pushed")
    }
}
