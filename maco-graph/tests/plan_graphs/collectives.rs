//! Collectives of the library with one tile each, and graphs with them.

use maco_graph::spec::{Access, Collective, Index, Reduction, TaskKind, TaskSpec};

use super::{ADD, Build, COLLECTIVE, STAGED_GEMM, axis, task, tensor};
use maco_graph::ir::{Graph, TensorKind};

const TILE: &[Index] = &[Index::Tile(0), Index::Tile(1)];
const PLANE: &[Index] = &[Index::Tile(0), Index::Tile(1), Index::Tile(2)];

pub static SUM: TaskSpec = TaskSpec { kind: TaskKind::Collective(Collective::AllReduce(Reduction::Sum)), ..COLLECTIVE };
pub static SCATTER: TaskSpec = TaskSpec {
    kind: TaskKind::Collective(Collective::ReduceScatter(Reduction::Sum)),
    ..task(
        "reduce_scatter",
        &[axis("i", &[64]), axis("j", &[256])],
        &[tensor("part", Access::Read, &[Index::All, Index::Tile(0), Index::Tile(1)]), tensor("y", Access::Write, TILE)],
    )
};
pub static GATHER: TaskSpec = TaskSpec {
    kind: TaskKind::Collective(Collective::AllGather),
    ..task(
        "all_gather",
        &[axis("r", &[1]), axis("i", &[64]), axis("j", &[256])],
        &[tensor("x", Access::Read, &[Index::Tile(1), Index::Tile(2)]), tensor("y", Access::Write, PLANE)],
    )
};

/// #0 a GEMM and #1 its sum over all ranks; #2 a GEMM that needs neither; #3 adds both.
pub fn sum_beside_gemm() -> Graph {
    let mut build = Build::default();
    let (x, w) = (build.input("x", &[1024, 64]), build.input("w", &[2048, 64]));
    let (part, sum) = (build.temp("part", &[1024, 2048]), build.temp("sum", &[1024, 2048]));
    let (other, y) = (build.temp("other", &[1024, 2048]), build.tensor("y", TensorKind::Out, &[1024, 2048]));
    build.call(&STAGED_GEMM, &[x, w, part]);
    build.call(&SUM, &[part, sum]);
    build.call(&STAGED_GEMM, &[x, w, other]);
    build.call(&ADD, &[sum, other, y]);
    build.0
}
