//! Hand-written tasks, as the macros would make them: a spec each, and one dispatch.
#![allow(dead_code)]

use std::time::Duration;

use maco_device::access::{Read, TaskTile, Update, Write};
use maco_device::kind::{Gemm, Rows};
use maco_device::region::{At, Size, Whole};
use maco_device::{Cpu, Cta, Identity, Operations, Task, bf16};
use maco_graph::ir::{Call, Graph, Scalar, ScalarSource, Tensor, TensorKind, View};
use maco_graph::spec::{Access, Axis, DimSpec, Element, ElementSpec, Index, Param, Placement, ScalarType, TaskKind, TaskSpec, TensorParam};
use maco_host::{Embedded, Program, Schedule};

/// The one scalar of a program.
pub const BY: [ScalarSource; 1] = [ScalarSource::Parameter(0)];
/// One of each kind.
pub const SCHEDULES: [Schedule; 4] = [Schedule::Static, Schedule::Tickets, Schedule::Schedulers(1), Schedule::SpareWarps(1)];

const MN: &[DimSpec] = &[DimSpec::Symbol(0), DimSpec::Symbol(1)];
const MK: &[DimSpec] = &[DimSpec::Symbol(0), DimSpec::Symbol(2)];
const NK: &[DimSpec] = &[DimSpec::Symbol(1), DimSpec::Symbol(2)];
const TILE: &[Index] = &[Index::Tile(0), Index::Tile(1)];
const I_ALL: &[Index] = &[Index::Tile(0), Index::All];
const J_ALL: &[Index] = &[Index::Tile(1), Index::All];

const fn tensor(name: &'static str, access: Access, element: Element, dims: &'static [DimSpec], region: &'static [Index]) -> Param {
    let staged = matches!(element, Element::Bf16);
    Param::Tensor(TensorParam { name, access, element: ElementSpec::Fixed(element), dims, region, staged })
}

const fn task(name: &'static str, axes: &'static [Axis], params: &'static [Param]) -> TaskSpec {
    TaskSpec { name, kind: TaskKind::Tiles, axes, dims: &["M", "N", "K"], equal: &[], elements: &[], params, gemv: None }
}

const GRID: &[Axis] = &[Axis { name: "i", tiles: &[4] }, Axis { name: "j", tiles: &[8] }];

/// y = x + by
pub static ADD: TaskSpec = task(
    "add",
    GRID,
    &[
        tensor("x", Access::Read, Element::F32, MN, TILE),
        tensor("y", Access::Write, Element::F32, MN, TILE),
        Param::Scalar { name: "by", ty: ScalarType::F32 },
    ],
);
/// x = 2 x
pub static DOUBLE: TaskSpec = task("double", GRID, &[tensor("x", Access::Update, Element::F32, MN, TILE)]);
/// y[i, ..] = x[i, ..] - sum of the row
pub static CENTRE: TaskSpec = task(
    "centre",
    &[Axis { name: "i", tiles: &[2] }],
    &[tensor("x", Access::Read, Element::F32, MN, I_ALL), tensor("y", Access::Write, Element::F32, MN, I_ALL)],
);
/// y = x · wᵀ
pub static LINEAR: TaskSpec = task(
    "linear",
    &[Axis { name: "i", tiles: &[64] }, Axis { name: "j", tiles: &[128] }],
    &[
        tensor("x", Access::Read, Element::Bf16, MK, I_ALL),
        tensor("w", Access::Read, Element::Bf16, NK, J_ALL),
        tensor("y", Access::Write, Element::Bf16, MN, TILE),
    ],
);
/// The same by tiles of which each warpgroup stores four chunks, twice as many as it has room for.
pub static WIDE: TaskSpec =
    TaskSpec { name: "wide", axes: &[Axis { name: "i", tiles: &[128] }, Axis { name: "j", tiles: &[256] }], ..LINEAR };
/// y = x, slowly: each tile sleeps for `by` milliseconds.
pub static SLOW: TaskSpec = task(
    "slow",
    GRID,
    &[
        tensor("x", Access::Read, Element::F32, MN, TILE),
        tensor("y", Access::Write, Element::F32, MN, TILE),
        Param::Scalar { name: "by", ty: ScalarType::F32 },
    ],
);
/// y = x, but panics where the first element of a tile is negative.
pub static STRICT: TaskSpec =
    task("strict", GRID, &[tensor("x", Access::Read, Element::F32, MN, TILE), tensor("y", Access::Write, Element::F32, MN, TILE)]);
/// x is only named; the GPU tests' kernel of this task runs for `ms` milliseconds.
pub static SPIN: TaskSpec = task(
    "spin",
    GRID,
    &[
        tensor("x", Access::Update, Element::F32, MN, TILE),
        Param::Scalar { name: "ms", ty: ScalarType::F32 },
        Param::Scalar { name: "count", ty: ScalarType::U32 },
    ],
);
/// y = x, but a tile whose first element is negative never ends.
pub static FOREVER: TaskSpec =
    task("forever", GRID, &[tensor("x", Access::Read, Element::F32, MN, TILE), tensor("y", Access::Write, Element::F32, MN, TILE)]);
/// Raw device code without a CPU reference.
pub static RAW: TaskSpec = TaskSpec { kind: TaskKind::Simt { cpu: false, early_start: false, shared: 0, boxes: &[] }, ..DOUBLE };

/// Position in [`TASKS`] is the number of the task's only instance.
pub static TASKS: [&TaskSpec; 10] = [&ADD, &DOUBLE, &CENTRE, &LINEAR, &SLOW, &STRICT, &RAW, &SPIN, &FOREVER, &WIDE];

pub fn dispatch(cpu: &mut Cpu, task: Task, slot: u32) {
    let (i, j) = (task.coord(0), task.coord(1));
    // Axes and dimensions by number.
    type I = At<Size<0>, Size<0>>;
    type J = At<Size<1>, Size<1>>;
    type K = Whole<Size<2>>;
    let tile = |operand| TaskTile::<f32, (I, J), Update, 4, 8>::new(task.tile(operand, 0, i * 4, j * 8));
    let row = |operand| task.tile(operand, 0, i * 2, 0);
    macro_rules! gemm {
        ($rows:literal, $columns:literal) => {{
            let mut cta = Cta::<Gemm, Cpu, Identity>::new(cpu, task);
            let x = TaskTile::<bf16, (I, K), Read, $rows, 0>::new(task.tile(0, 0, i * $rows, 0));
            let w = TaskTile::<bf16, (J, K), Read, $columns, 0>::new(task.tile(1, 0, j * $columns, 0));
            let mut acc = cta.accumulator::<_, $rows, $columns>();
            for k in cta.steps(x, w) {
                cta.mma(&mut acc, x.tile(k), w.tile(k));
            }
            cta.store(acc, TaskTile::<bf16, (I, J), Write, $rows, $columns>::new(task.tile(2, 0, i * $rows, j * $columns)));
            return;
        }};
    }
    match slot {
        3 => gemm!(64, 128),
        9 => gemm!(128, 256),
        _ => {}
    }
    let cta = Cta::<Rows, Cpu, Identity>::new(cpu, task);
    match slot {
        0 => {
            let by = task.scalar::<f32>(0);
            cta.zip(tile(0), tile(1), move |x| x + by);
        }
        1 => {
            cta.map(tile(0), |x| 2.0 * x);
        }
        2 => {
            let (x, y) = (TaskTile::<f32, (I, K), Read, 2, 0>::new(row(0)), TaskTile::<f32, (I, K), Write, 2, 0>::new(row(1)));
            cta.rows(x, y, |x, y| {
                let sum = x.sum(|v| v);
                let x = x.elements();
                y.set(|column| x.at(column) - sum);
            });
        }
        4 => {
            std::thread::sleep(Duration::from_secs_f32(task.scalar::<f32>(0) / 1e3));
            cta.zip(tile(0), tile(1), |x| x);
        }
        5 => {
            cta.zip(tile(0), tile(1), |x| {
                assert!(x >= 0.0, "{x} is negative");
                x
            });
        }
        8 => {
            cta.zip(tile(0), tile(1), |x| {
                while std::hint::black_box(x) < 0.0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                x
            });
        }
        _ => {}
    }
}

/// Builds a call graph by names.
#[derive(Clone)]
pub struct Builder(Graph);

/// y = centre(2 first(x)), of `m` by `n`; `first` has the program's one scalar.
pub fn chain(first: &'static TaskSpec, m: u64, n: u64) -> Builder {
    Builder::new("chain")
        .tensor("x", TensorKind::In, Element::F32, &[m, n])
        .tensor("y", TensorKind::Out, Element::F32, &[m, n])
        .tensor("h", TensorKind::Temp, Element::F32, &[m, n])
        .scalar("by")
        .call(first, &["x", "h"], &BY)
        .call(&DOUBLE, &["h"], &[])
        .call(&CENTRE, &["h", "y"], &[])
}

impl Builder {
    pub fn new(name: &str) -> Builder {
        Builder(Graph { name: name.into(), ..Graph::default() })
    }

    /// Parameters before temps.
    pub fn tensor(mut self, name: &str, kind: TensorKind, element: Element, shape: &[u64]) -> Builder {
        self.0.tensors.push(Tensor { name: name.into(), kind, element, shape: shape.into(), placement: Placement::Replicated });
        self
    }

    pub fn scalar(mut self, name: &str) -> Builder {
        self.0.scalars.push(Scalar { name: name.into() });
        self
    }

    /// A call on whole tensors.
    pub fn call(self, task: &'static TaskSpec, tensors: &[&str], scalars: &[ScalarSource]) -> Builder {
        let views = tensors.iter().map(|name| {
            let index = self.0.tensors.iter().position(|tensor| tensor.name == *name).expect("a tensor of that name");
            View::whole(index as u32, &self.0.tensors[index])
        });
        let operands = views.collect();
        self.call_views(task, operands, scalars)
    }

    pub fn call_views(mut self, task: &'static TaskSpec, operands: Vec<View>, scalars: &[ScalarSource]) -> Builder {
        let slot = TASKS.iter().position(|known| known.name == task.name && known.kind == task.kind).expect("a known task") as u32;
        self.0.calls.push(Call { slot, scalars: scalars.into(), ..Call::new(task, operands) });
        self
    }

    pub fn graph(self) -> Graph {
        self.0
    }

    pub fn program(self) -> Program {
        Program {
            name: "by_hand",
            graph: self.0,
            entry: "maco_by_hand",
            embedded: Embedded::NONE,
            cpu: dispatch,
            fuse_elementwise: false,
            workers: None,
            schedulers: None,
        }
    }
}
