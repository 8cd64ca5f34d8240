//! The operations of random graphs: the task that does each, and how large its results can be. Numbers are in `oracle.rs`.

use kernels::random;
use maco::{TaskSpec, tasks};

/// A task of the sets [`random::ops`] and [`random::more_ops`], with what it reads beside `x`, its first argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// y = x · wᵀ
    Linear,
    /// y = x · b
    Matmul,
    /// y = x + b
    Add,
    /// y = x · b, element by element
    Mul,
    /// y = x
    Copy,
    /// y = x less the nearest multiple of 8
    Wrap,
    /// y = x, in `f32`
    Widen,
    /// y = x, in bf16
    Narrow,
    /// Three elements of x each
    Stencil,
    /// y = xᵀ
    Transpose,
    /// Five tensors
    Merge,
    /// y = x[ids]
    Pick,
    /// y = sums of rows
    SumRows,
    /// y = sums of columns
    ColumnSums,
    /// x += number
    Nudge,
    /// y = -x, by tasks of one warp
    Negate,
    /// x += number, by tasks of one warp
    Lift,
    /// x += b in every row
    Bias,
    /// x += a
    Accumulate,
}

/// Operations of one task set, by the elements of the first argument; the more often, the more likely.
pub struct Ops {
    pub of_f32: &'static [Op],
    pub of_bf16: &'static [Op],
}

/// [`random::ops`].
const LINEAR: Ops = Ops {
    of_f32: &[
        Op::Copy,
        Op::Wrap,
        Op::Narrow,
        Op::Merge,
        Op::Merge,
        Op::Transpose,
        Op::Transpose,
        Op::Nudge,
        Op::Accumulate,
        Op::Negate,
        Op::Lift,
    ],
    of_bf16: &[Op::Linear, Op::Linear, Op::Add, Op::Widen, Op::Widen],
};
/// [`random::more_ops`].
const MATMUL: Ops = Ops {
    of_f32: &[Op::Mul, Op::Copy, Op::Wrap, Op::Narrow, Op::Stencil, Op::Stencil, Op::Pick, Op::ColumnSums, Op::Bias, Op::Negate, Op::Lift],
    of_bf16: &[Op::Matmul, Op::Matmul, Op::SumRows, Op::Widen, Op::Widen],
};

impl Ops {
    /// Those of the second set, or of the first.
    pub fn of(second: bool) -> &'static Ops {
        if second { &MATMUL } else { &LINEAR }
    }
}

impl Op {
    pub fn spec(self) -> &'static TaskSpec {
        match self {
            Op::Linear => &tasks::linear::SPEC,
            Op::Matmul => &tasks::matmul::SPEC,
            Op::Add => &tasks::add::SPEC,
            Op::Mul => &tasks::mul::SPEC,
            Op::Copy => &tasks::copy::SPEC,
            Op::Wrap => &random::wrap::SPEC,
            Op::Widen => &random::widen::SPEC,
            Op::Narrow => &random::narrow::SPEC,
            Op::Stencil => &random::stencil::SPEC,
            Op::Transpose => &random::transpose::SPEC,
            Op::Merge => &random::merge::SPEC,
            Op::Pick => &random::pick::SPEC,
            Op::SumRows => &tasks::sum_rows::SPEC,
            Op::ColumnSums => &random::column_sums::SPEC,
            Op::Nudge => &random::nudge::SPEC,
            Op::Negate => &random::negate::SPEC,
            Op::Lift => &random::lift::SPEC,
            Op::Bias => &tasks::bias::SPEC,
            Op::Accumulate => &random::accumulate::SPEC,
        }
    }

    /// Whether it changes its first argument instead of making a tensor.
    pub fn in_place(self) -> bool {
        matches!(self, Op::Nudge | Op::Lift | Op::Bias | Op::Accumulate)
    }

    /// Largest magnitude of a result, from those of what is read. `[rows, cols]` are those of `x`.
    pub fn bound(self, reads: &[f64], [rows, cols]: [usize; 2], number: i64) -> f64 {
        let x = reads[0];
        match self {
            Op::Linear | Op::Matmul => x * reads[1] * cols as f64,
            Op::Mul => x * reads[1],
            Op::Add | Op::Bias | Op::Accumulate => x + reads[1],
            Op::Wrap => 4.0,
            Op::Stencil => 4.0 * x,
            Op::Merge => x + 2.0 * reads[1] + reads[2] + reads[3] + 3.0 * reads[4],
            Op::SumRows => x * cols as f64,
            Op::ColumnSums => x * rows as f64,
            Op::Nudge | Op::Lift => x + number.abs() as f64,
            Op::Copy | Op::Widen | Op::Narrow | Op::Transpose | Op::Pick | Op::Negate => x,
        }
    }
}
