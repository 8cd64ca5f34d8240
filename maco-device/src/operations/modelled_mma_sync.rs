//! The main loop of a GEMV on the host: a thread is a warpgroup, and takes half of each page.

use crate::data::element::HalfElement;
use crate::data::inputs::Inputs;
use crate::data::tile::Tile;
use crate::hardware::memory;
use crate::operations::row_stages;
use crate::operations::wgmma_accumulator;

/// Sums that are made of each dot product: one per warpgroup.
pub const PARTS: u32 = 2;

/// What belongs to a stage: nothing is loaded before it is needed.
#[derive(Clone, Copy)]
pub struct Columns(u32);

/// This warpgroup's part of the sums.
pub struct MmaSync<const I: usize, const J: usize>(Vec<f32>);

/// # Safety
/// None here; on a GPU the tile is read.
pub unsafe fn columns<E: HalfElement, const I: usize, const J: usize>(_: Tile<E, I, 0>, k: u32, _: u32) -> Columns {
    Columns(k)
}

impl<const I: usize, const J: usize> MmaSync<I, J> {
    /// All zero.
    pub fn new() -> Self {
        MmaSync(vec![0.0; I * J])
    }

    /// Adds the products of this warpgroup's half of a stage that begins with column `k` of `w` and lies at `stage`.
    ///
    /// # Safety
    /// The stage is full, and the tensors are live; nobody writes the tiles.
    pub unsafe fn add<E: HalfElement>(&mut self, columns: Columns, x: Tile<E, I, 0>, w: (u32, u32), k: u32, stage: u32, thread: u32) {
        assert_eq!(columns.0, k, "columns of another stage");
        let half = row_stages::columns(J) / 2;
        let first = k + thread / 128 * half;
        for col in first..(first + half).min(w.1) {
            for n in 0..w.0 {
                // SAFETY: inside the stage.
                let b = unsafe { wgmma_accumulator::element_at::<E>(stage + (n * row_stages::columns(J) + (col - k)) * 2) };
                for m in 0..x.rows() {
                    self.0[m as usize * J + n as usize] += x.at(m, col) * b;
                }
            }
        }
    }

    /// Writes this warpgroup's sums to `scratch`: `PARTS` times `J` columns of `I` rows.
    ///
    /// # Safety
    /// `scratch` is shared memory that nobody else uses but the other warpgroup, which does the same.
    pub unsafe fn write(&self, scratch: u32, thread: u32) {
        for (n, sum) in self.0.iter().enumerate() {
            let place = n % J * I + n / J;
            // SAFETY: passed on from the caller.
            unsafe { memory::store_shared(scratch + (thread / 128 * (I * J) as u32 + place as u32) * 4, sum.to_bits()) };
        }
    }
}
