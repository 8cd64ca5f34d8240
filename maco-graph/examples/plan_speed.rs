//! How long a plan takes: `cargo run --release --example plan_speed -p maco-graph`.
//!
//! Limits: 5 ms for 10⁴ tasks, 60 ms for 10⁵, on one core. Prints the best and the median of several runs.

use std::time::{Duration, Instant};

use maco_graph::ir::{Call, Graph, Tensor, TensorKind, View};
use maco_graph::plan::{Options, plan};
use maco_graph::spec::{Access, Axis, DimSpec, Element, ElementSpec, Index, Param, Placement, TaskKind, TaskSpec, TensorParam};

const fn tensor(name: &'static str, access: Access, dims: &'static [DimSpec], region: &'static [Index]) -> Param {
    Param::Tensor(TensorParam { name, access, element: ElementSpec::Generic, dims, region, staged: true })
}

const M_K: &[DimSpec] = &[DimSpec::Symbol(0), DimSpec::Symbol(2)];
const N_K: &[DimSpec] = &[DimSpec::Symbol(1), DimSpec::Symbol(2)];
const M_N: &[DimSpec] = &[DimSpec::Symbol(0), DimSpec::Symbol(1)];
const I_J: &[Index] = &[Index::Tile(0), Index::Tile(1)];

static LINEAR: TaskSpec = TaskSpec {
    name: "linear",
    kind: TaskKind::Gemm { splits_k: false },
    axes: &[Axis { name: "i", tiles: &[64, 128] }, Axis { name: "j", tiles: &[128, 256] }],
    dims: &["M", "N", "K"],
    equal: &[],
    gemv: None,
    elements: &[Element::Bf16, Element::F16],
    params: &[
        tensor("x", Access::Read, M_K, &[Index::Tile(0), Index::All]),
        tensor("w", Access::Read, N_K, &[Index::Tile(1), Index::All]),
        tensor("y", Access::Write, M_N, I_J),
    ],
};
static SCALE: TaskSpec = TaskSpec {
    name: "scale",
    kind: TaskKind::Gemm { splits_k: false },
    axes: &[Axis { name: "i", tiles: &[64] }, Axis { name: "j", tiles: &[64] }],
    dims: &["M", "N"],
    equal: &[],
    gemv: None,
    elements: &[Element::Bf16],
    params: &[tensor("x", Access::Update, &[DimSpec::Symbol(0), DimSpec::Symbol(1)], I_J)],
};

#[derive(Default)]
struct Chain(Graph);

impl Chain {
    fn tensor(&mut self, kind: TensorKind, shape: [u64; 2]) -> u32 {
        let index = self.0.tensors.len() as u32;
        self.0.tensors.push(Tensor {
            name: format!("t{index}"),
            kind,
            element: Element::Bf16,
            shape: shape.to_vec(),
            placement: Placement::Replicated,
        });
        index
    }

    fn call(&mut self, task: &'static TaskSpec, tensors: &[u32], tile: Option<Vec<u32>>) {
        let operands = tensors.iter().map(|&tensor| View::whole(tensor, &self.0.tensors[tensor as usize])).collect();
        self.0.calls.push(Call { tile, ..Call::new(task, operands) });
    }

    /// `layers` times up and down: h (m × wide) = x · wᵀ, x (m × k) = h · wᵀ.
    fn mlp(layers: usize, m: u64, wide: u64, k: u64) -> Graph {
        let mut chain = Chain::default();
        let mut x = chain.tensor(TensorKind::In, [m, k]);
        for _ in 0..layers {
            let (up, down) = (chain.tensor(TensorKind::In, [wide, k]), chain.tensor(TensorKind::In, [k, wide]));
            let (h, y) = (chain.tensor(TensorKind::Temp, [m, wide]), chain.tensor(TensorKind::Temp, [m, k]));
            chain.call(&LINEAR, &[x, up, h], None);
            chain.call(&LINEAR, &[h, down, y], None);
            x = y;
        }
        chain.0
    }

    /// `calls` layers of one row of ten tiles.
    fn small(calls: usize) -> Graph {
        let mut chain = Chain::default();
        let mut x = chain.tensor(TensorKind::In, [64, 1280]);
        for _ in 0..calls {
            let (w, y) = (chain.tensor(TensorKind::In, [1280, 1280]), chain.tensor(TensorKind::Temp, [64, 1280]));
            chain.call(&LINEAR, &[x, w, y], Some(vec![64, 128]));
            x = y;
        }
        chain.0
    }

    /// `chains` independent chains of `calls` calls of 8 × 10 tiles, call after call of each in turn: many temps in use at the same time.
    fn chains(chains: usize, calls: usize) -> Graph {
        let mut chain = Chain::default();
        let mut ends: Vec<u32> = (0..chains).map(|_| chain.tensor(TensorKind::In, [512, 1280])).collect();
        for _ in 0..calls {
            for x in &mut ends {
                let (w, y) = (chain.tensor(TensorKind::In, [1280, 1280]), chain.tensor(TensorKind::Temp, [512, 1280]));
                chain.call(&LINEAR, &[*x, w, y], Some(vec![64, 128]));
                *x = y;
            }
        }
        chain.0
    }

    /// One tensor of `tiles` × `tiles` tiles of 64 × 64, updated in place `calls` times: one wait and one signal per tile.
    fn updates(calls: usize, tiles: u64) -> Graph {
        let mut chain = Chain::default();
        let x = chain.tensor(TensorKind::InOut, [tiles * 64, tiles * 64]);
        for _ in 0..calls {
            chain.call(&SCALE, &[x], None);
        }
        chain.0
    }

    /// One tensor of `slices` slices, each updated by a call of its own, `rounds` times.
    fn slices(slices: u64, rounds: usize) -> Graph {
        let mut chain = Chain::default();
        let x = chain.tensor(TensorKind::State, [slices * 64, 640]);
        for _ in 0..rounds {
            for slice in 0..slices {
                chain.call(&SCALE, &[x], None);
                if let Some(view) = chain.0.calls.last_mut().and_then(|call| call.operands.first_mut()) {
                    view.offset[0] = slice * 64;
                    view.axes[0].extent = 64;
                }
            }
        }
        chain.0
    }
}

fn measure(name: &str, graph: &Graph, runs: usize) {
    measure_with(name, graph, runs, true);
    measure_with(&format!("{name}, temps apart"), graph, runs, false);
}

fn measure_with(name: &str, graph: &Graph, runs: usize, share_temps: bool) {
    let mut times = Vec::with_capacity(runs);
    let mut summary = String::new();
    for _ in 0..runs {
        let graph = graph.clone();
        let start = Instant::now();
        match plan(graph, &Options { share_temps, ..Options::new(132) }) {
            Ok(plan) => {
                times.push(start.elapsed());
                summary = format!(
                    "{:6} tasks, {:4} calls, {:6} counters, {:8} edges",
                    plan.tasks.len(),
                    plan.calls.len(),
                    plan.counters,
                    plan.edges
                );
            }
            Err(error) => return println!("{name}: {error}"),
        }
    }
    times.sort();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    println!("{name:41} {summary}: best {:7.3} ms, median {:7.3} ms", ms(times[0]), ms(times[runs / 2]));
}

fn main() {
    measure("MLP 4096 × 14336 × 4096", &Chain::mlp(4, 4096, 14336, 4096), 101);
    measure("MLP 4096 × 14336 × 4096", &Chain::mlp(43, 4096, 14336, 4096), 31);
    measure("1000 calls of 10 tiles", &Chain::small(1_000), 101);
    measure("10000 calls of 10 tiles", &Chain::small(10_000), 31);
    measure("2 chains of 50 calls", &Chain::chains(2, 50), 31);
    measure("100 chains of 20 calls", &Chain::chains(100, 20), 31);
    measure("500 slices, twice", &Chain::slices(500, 2), 31);
    measure("updates of 33 × 33 tiles", &Chain::updates(9, 33), 101);
    measure("updates of 100 × 100 tiles", &Chain::updates(10, 100), 31);
}
