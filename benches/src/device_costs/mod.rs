//! What a device costs, from times of launches: the numbers of a [`DeviceModel`] are solved for, nothing is measured here (`measure.rs` and the program
//! `tune`).

mod line;
pub mod measure;
mod plans;

use anyhow::ensure;
use maco::{DeviceModel, Origin};

use line::Line;

/// Bytes that a task of a chain of dependent tiles, or of the copy that stands for a launch, reads and writes: 4 × 1024 two-byte elements, twice.
pub const SMALL_TILE_BYTES: f64 = (2 * 4 * 1024 * 2) as f64;
/// Calls of the chain.
pub const CHAIN: f64 = 100.0;
/// K steps of the two GEMMs of a tile that are compared, and of each part of a split one.
pub const STEPS: [u64; 2] = [32, 64];
/// Elements of K of a step, and their bytes.
pub const STEP: u64 = 64;
const STEP_BYTES: f64 = 128.0;
/// Bytes of partial sums of an element of a part where every part is a task of its own wave: one sum is written, and those of both parts are read.
const PART_BYTES: f64 = 4.0 * 3.0;

/// A time, and how much was done in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Bytes, or rounds of tasks over the workers.
    pub work: f64,
    /// All of it, in nanoseconds.
    pub nanoseconds: f64,
}

impl Sample {
    /// Nanoseconds that each unit of work of `longer` takes beyond those of `self`: what both have beside the work cancels.
    fn each(self, longer: Sample) -> f64 {
        (longer.nanoseconds - self.nanoseconds) / (longer.work - self.work)
    }
}

/// GEMMs of one tile: the work is rounds of tasks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gemms {
    /// Rows and columns.
    pub tile: [u64; 2],
    /// One and many GEMMs of the lower number of steps, and of the higher one.
    pub whole: [[Sample; 2]; 2],
    /// Of the higher one, in two parts.
    pub parts: [Sample; 2],
}

/// What was measured of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurements {
    /// Multiprocessors, one worker each.
    pub workers: u32,
    /// The driver's copies of two sizes; the work is bytes, read and written.
    pub copies: [Sample; 2],
    /// GEMVs of a tile whose operands lie in the L2 cache, one and many; and the bytes that a task loads.
    pub cached: ([Sample; 2], f64),
    /// GEMVs of a tile that is bound by its multiply-adds, one and many; and the operations of a task.
    pub multiplied: ([Sample; 2], f64),
    /// GEMMs of several tiles; the tensor cores are what the last one waits for, loads are what the others do.
    pub gemms: Vec<Gemms>,
    /// MACO's copy of as many bytes in small and in large tiles, and the bytes that a task of each reads and writes.
    pub ring: [(Sample, f64); 2],
    /// MACO's additions of two sizes in tiles that are too short for their bytes to count.
    pub short: [Sample; 2],
    /// Nanoseconds of a launch that copies [`SMALL_TILE_BYTES`] with each of some workers.
    pub launch: f64,
    /// Nanoseconds of a launch of [`CHAIN`] calls, a tile of [`SMALL_TILE_BYTES`] in the L2 cache for each worker.
    pub chain: f64,
    /// Nanoseconds of a task without work: of a list, and with a ticket.
    pub empty: [f64; 2],
    /// Nanoseconds from task to task of a chain that alternates between two workers.
    pub hop: f64,
}

impl Measurements {
    /// The model of the device that is called so; what is not measured is that of `known`.
    ///
    /// # Errors
    /// Which number came out as impossible: something else ran beside, or clocks changed.
    pub fn fit(&self, name: &str, known: &DeviceModel) -> anyhow::Result<DeviceModel> {
        let workers = f64::from(self.workers);
        let copy = 1.0 / self.copies[0].each(self.copies[1]) / workers;
        let l2 = rate(self.cached);
        let steps = self.gemms.iter().map(|gemms| (gemms, gemms.step())).collect::<Vec<_>>();
        let Some(((largest, shortest), loads)) = steps.split_last().filter(|(_, loads)| loads.len() > 1) else {
            anyhow::bail!("GEMMs of three tiles or more have to be measured");
        };
        let step = Line::through(loads.iter().map(|(gemms, step)| (gemms.step_bytes(), *step)));
        let beside = Line::through(steps.iter().map(|(gemms, step)| (gemms.elements(), gemms.beside(*step))));
        let part = Line::through(self.gemms.iter().map(|gemms| (gemms.elements() * PART_BYTES, gemms.part())));
        // Of a launch: itself, one tile from memory. Of a chain: a launch, and tiles from the cache.
        let (first, other) = (SMALL_TILE_BYTES / copy, SMALL_TILE_BYTES / l2);
        let tile = ((self.chain - self.launch - CHAIN * other + first) / (CHAIN - 1.0)).max(0.0);
        let [(small, small_bytes), (large, large_bytes)] = self.ring;
        let longer_rounds = (large_bytes - small_bytes) / copy;
        let ring_tile = ((small.nanoseconds - large.nanoseconds + longer_rounds) / (small.work - large.work)).max(0.0);
        let model = DeviceModel {
            name: name.to_owned().into(),
            origin: Origin::Measured,
            copy,
            l2,
            tensor: 2.0 * largest.elements() * STEP as f64 / shortest,
            gemv: rate(self.multiplied),
            step: step.begin,
            step_rate: 1.0 / step.slope,
            gemm_tile: beside.begin,
            gemm_element: beside.slope,
            tile,
            ring_tile,
            least_tile: (self.short[0].each(self.short[1]) - ring_tile).max(0.0),
            part: part.begin,
            part_rate: 1.0 / part.slope,
            ticket: ((self.empty[1] - self.empty[0]) / 2.0).max(0.0),
            hop: self.hop,
            launch: (self.launch - first - tile).max(0.0),
            // These take several GPUs: `bench comm`.
            packet_tile: known.packet_tile,
            packet_rate: known.packet_rate,
            signalled_tile: known.signalled_tile,
            signalled_rate: known.signalled_rate,
            partial_sums: known.partial_sums,
        };
        for (name, value, unit) in model.numbers() {
            ensure!(
                value.is_finite() && value >= 0.0 && (value > 0.0 || unit == "ns"),
                "`{name}` came out as {value} {unit}: measure again with nothing else on the GPU"
            );
        }
        Ok(model)
    }
}

/// Work of a task, in the time that a round of tasks takes.
fn rate(([one, many], work): ([Sample; 2], f64)) -> f64 {
    work / one.each(many)
}

impl Gemms {
    fn elements(&self) -> f64 {
        (self.tile[0] * self.tile[1]) as f64
    }

    /// Bytes that a step loads.
    fn step_bytes(&self) -> f64 {
        (self.tile[0] + self.tile[1]) as f64 * STEP_BYTES
    }

    /// Nanoseconds of a tile of either number of steps.
    fn tile(&self, which: usize) -> f64 {
        let [one, many] = self.whole[which];
        one.each(many)
    }

    /// Nanoseconds of a step.
    fn step(&self) -> f64 {
        (self.tile(1) - self.tile(0)) / (STEPS[1] - STEPS[0]) as f64
    }

    /// What a tile takes beside steps of so many nanoseconds.
    fn beside(&self, step: f64) -> f64 {
        self.tile(0) - step * STEPS[0] as f64
    }

    /// What a part takes longer than a whole tile of as many steps.
    fn part(&self) -> f64 {
        self.parts[0].each(self.parts[1]) - self.tile(0)
    }
}

#[cfg(test)]
mod tests;
