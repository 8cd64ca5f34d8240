//! Cost model of memory-bound calls, which read and write each tile once: element-wise, or row by row.
//!
//! Which tiles there are to choose from does not belong here. Such a call takes the time of its bytes, whatever the tiles. Tiles add two costs:
//! workers end up to one task apart, and each task has a fixed cost. Large tiles increase the first, small tiles the second.

use maco_abi::RING_BYTES;

use super::DeviceModel;

/// The tasks of a call: their number, and the mean bytes of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tasks {
    pub count: f64,
    pub read: f64,
    pub written: f64,
}

impl Tasks {
    /// Nanoseconds of the bytes, and fixed ones, for so many workers.
    pub fn nanoseconds(self, workers: f64, model: &DeviceModel) -> (f64, f64) {
        let (each, rounds) = ((self.read + self.written) / model.copy, self.count / workers);
        if rounds <= 1.0 {
            return (each, model.tile);
        }
        let fixed = if self.read < f64::from(RING_BYTES) { model.tile } else { model.ring_tile };
        ((rounds + 1.0) * each.max(model.least_tile), model.tile + rounds * fixed)
    }
}

#[cfg(test)]
mod tests {
    use super::{DeviceModel, Tasks};

    /// Nanoseconds of a copy of 2 × 128 MiB in tasks of so many rows of 1024 two-byte elements, by 132 workers.
    fn copy(rows: f64) -> f64 {
        let bytes = rows * 2048.0;
        let tasks = Tasks { count: f64::from(128 << 20) / bytes, read: bytes, written: bytes };
        let (load, rest) = tasks.nanoseconds(132.0, &DeviceModel::DEFAULT);
        load + rest
    }

    #[test]
    fn smaller_tasks_save_a_part_of_the_last_round() {
        let each = |rows: f64| rows * 4096.0 / DeviceModel::DEFAULT.copy;
        let tasks = |rows: f64| f64::from(128 << 20) / (rows * 2048.0) / 132.0;
        let expected = each(64.0) - each(16.0) - (tasks(16.0) - tasks(64.0)) * DeviceModel::DEFAULT.ring_tile;
        assert!((copy(64.0) - copy(16.0) - expected).abs() < 1.0, "{}", copy(64.0) - copy(16.0));
    }

    #[test]
    fn tasks_have_a_fixed_cost() {
        assert!(copy(4.0) > copy(8.0), "too small for the ring");
        assert!(copy(8.0) > copy(12.0));
        assert!(copy(4.0) > copy(16.0) * 2.0, "a task of a quarter of the bytes takes most of the time");
    }
}
