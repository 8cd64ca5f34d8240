//! The operations of random graphs: the task that does each, and how large its results can be. Numbers are in `oracle.rs`.

use kernels::random;
use maco::{TaskSpec, tasks};

/// A task of the set [`random::ops`], with what it reads beside `x`, its first argument.
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
    /// y = max(x, 0)
    Relu,
    /// y = the remainder of x / 8
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
    /// x *= number
    Scale,
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

/// For tensors of `f32`; the more often, the more likely.
pub const OF_F32: [Op; 24] = [
    Op::Add,
    Op::Add,
    Op::Mul,
    Op::Copy,
    Op::Relu,
    Op::Wrap,
    Op::Narrow,
    Op::Stencil,
    Op::Stencil,
    Op::Transpose,
    Op::Transpose,
    Op::Merge,
    Op::Merge,
    Op::Pick,
    Op::SumRows,
    Op::ColumnSums,
    Op::Scale,
    Op::Nudge,
    Op::Bias,
    Op::Accumulate,
    Op::Negate,
    Op::Negate,
    Op::Lift,
    Op::Lift,
];
/// For tensors of bf16.
pub const OF_BF16: [Op; 12] =
    [Op::Linear, Op::Linear, Op::Linear, Op::Matmul, Op::Matmul, Op::Add, Op::Mul, Op::Copy, Op::Widen, Op::SumRows, Op::Scale, Op::Bias];

impl Op {
    pub fn spec(self) -> &'static TaskSpec {
        match self {
            Op::Linear => &tasks::linear::SPEC,
            Op::Matmul => &tasks::matmul::SPEC,
            Op::Add => &tasks::add::SPEC,
            Op::Mul => &tasks::mul::SPEC,
            Op::Copy => &tasks::copy::SPEC,
            Op::Relu => &tasks::relu::SPEC,
            Op::Wrap => &random::wrap::SPEC,
            Op::Widen => &random::widen::SPEC,
            Op::Narrow => &random::narrow::SPEC,
            Op::Stencil => &random::stencil::SPEC,
            Op::Transpose => &random::transpose::SPEC,
            Op::Merge => &random::merge::SPEC,
            Op::Pick => &random::pick::SPEC,
            Op::SumRows => &tasks::sum_rows::SPEC,
            Op::ColumnSums => &random::column_sums::SPEC,
            Op::Scale => &tasks::scale::SPEC,
            Op::Nudge => &random::nudge::SPEC,
            Op::Negate => &random::negate::SPEC,
            Op::Lift => &random::lift::SPEC,
            Op::Bias => &tasks::bias::SPEC,
            Op::Accumulate => &random::accumulate::SPEC,
        }
    }

    /// Whether it changes its first argument instead of making a tensor.
    pub fn in_place(self) -> bool {
        matches!(self, Op::Scale | Op::Nudge | Op::Lift | Op::Bias | Op::Accumulate)
    }

    /// Largest magnitude of a result, from those of what is read. `[rows, cols]` are those of `x`.
    pub fn bound(self, reads: &[f64], [rows, cols]: [usize; 2], number: i64) -> f64 {
        let x = reads[0];
        match self {
            Op::Linear | Op::Matmul => x * reads[1] * cols as f64,
            Op::Mul => x * reads[1],
            Op::Add | Op::Bias | Op::Accumulate => x + reads[1],
            Op::Wrap => 7.0,
            Op::Stencil => 4.0 * x,
            Op::Merge => x + 2.0 * reads[1] + reads[2] + reads[3] + 3.0 * reads[4],
            Op::SumRows => x * cols as f64,
            Op::ColumnSums => x * rows as f64,
            Op::Scale => x * number.abs() as f64,
            Op::Nudge | Op::Lift => x + number.abs() as f64,
            Op::Copy | Op::Relu | Op::Widen | Op::Narrow | Op::Transpose | Op::Pick | Op::Negate => x,
        }
    }
}
