//! An all-reduce with what a transformer layer has behind it: the residual connection and its RMSNorm.
//!
//! A task has one row, which all threads of the CTA share: each adds the residual to its blocks as they come, and squares them. When the squares of all are added up, each
//! reads its own blocks of the sum again, which are in the L2 cache, and scales them. So no row is too long for registers.

use crate::data::element::Element;
use crate::data::exchange::{across, eight};
use crate::data::inputs::Inputs;
use crate::data::rmsnorm::{scale, scaled, square};
use crate::data::task::Task;
use crate::data::tile::Tile;
use crate::hardware::memory;
use crate::operations::collective::{Flow, Sum};
use crate::operations::simt_consumer::{SimtConsumer, consumers_memory};
use crate::operations::turns::{Turn, Values};

/// The tiles of a task, each of one row.
#[derive(Clone, Copy)]
pub struct Normed<E> {
    pub x: Tile<E, 1, 0>,
    pub residual: Tile<E, 1, 0>,
    pub weight: Tile<E, 1, 0>,
    pub sum: Tile<E, 1, 0>,
    pub y: Tile<E, 1, 0>,
}

impl SimtConsumer {
    /// `sum = (x of all ranks) + residual`, each of both sums rounded, and `y = sum / √(mean(sum²) + epsilon) · weight`. If the launch is aborted, not all is written.
    #[inline(always)]
    pub fn all_reduce_add_rmsnorm<E: Element<Value = f32>>(self, tiles: Normed<E>, task: Task, flow: Flow, epsilon: f32) {
        if const { E::BYTES > 2 } {
            self.normed::<E, 1>(tiles, task, flow, epsilon);
        } else {
            // All of a row of 6144 at a time.
            self.normed::<E, 3>(tiles, task, flow, epsilon);
        }
    }

    /// The same with `T` blocks of a thread together.
    #[inline(always)]
    fn normed<E: Element<Value = f32>, const T: usize>(self, tiles: Normed<E>, task: Task, flow: Flow, epsilon: f32) {
        let Normed { x, residual, weight, sum, y } = tiles;
        let (cols, inputs) = (y.cols(), (x, residual, weight));
        let mut turns = self.turns(y, inputs.wide() & sum.wide() & y.wide() & inputs.covers(y.rows(), cols));
        let (wide_residual, wide_weight, wide_sum, wide_y) = (residual.wide(), weight.wide(), sum.wide(), y.wide());
        let mut squares = 0.0f32;
        let ahead = |turn: &Turn<T>| turns.load(residual, wide_residual, turn);
        let keep = |turn: &Turn<T>, residual: [E::Eight; T], values: Values<E, T>| {
            let mut sums = values;
            let mut n = 0;
            while n < T {
                // Rounded as an all-reduce and an addition by themselves are.
                let (reduced, residual) = (E::open(E::close(values[n])), E::open(residual[n]));
                sums[n] = E::open(E::close(core::array::from_fn(|at| reduced[at] + residual[at])));
                if turn.there[n] {
                    squares += eight(sums[n], &square, &|a, b| a + b);
                }
                n += 1;
            }
            // SAFETY: tiles of one grid do not overlap.
            unsafe { turns.put(sum, wide_sum, turn, sums) };
        };
        let arrived = self.exchange::<E, _, _, T, 1, 0, 1, 0>(x, turns, task, flow, Sum, ahead, keep);
        // All threads come to the barriers, also when the launch is aborted, and those without a block.
        let scale = scale(self.total(squares), cols, epsilon);
        while arrived && turns.any() {
            let turn = turns.next::<T>();
            let (values, weights) = (turns.load(sum, wide_sum, &turn), turns.load(weight, wide_weight, &turn));
            let made = core::array::from_fn(|n| {
                let (v, w) = (E::open(values[n]), E::open(weights[n]));
                core::array::from_fn(|at| scaled(v[at], w[at], scale))
            });
            // SAFETY: as above.
            unsafe { turns.put(y, wide_y, &turn, made) };
        }
    }

    /// The sum of `value` over all threads, in an order that their number alone decides: each has it. Two barriers.
    #[inline(always)]
    fn total(self, value: f32) -> f32 {
        let total = across(value, &|a, b| a + b);
        if self.threads == 1 {
            return total;
        }
        let (smem, warps) = (consumers_memory(), self.threads / self.lanes);
        // All have read the totals of the operation before, also of another body.
        self.sync();
        if self.lane() == 0 {
            // SAFETY: a word of shared memory, this warp's own.
            unsafe { memory::store_shared(smem.total(self.thread / self.lanes), total.to_bits()) };
        }
        self.sync();
        let (mut all, mut warp) = (0.0, 0);
        while warp < warps {
            // SAFETY: a word of shared memory, which is not written before all threads have come to the next total.
            all += f32::from_bits(unsafe { memory::load_shared(smem.total(warp)) });
            warp += 1;
        }
        all
    }
}
