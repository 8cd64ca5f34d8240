//! Cost model of memory-bound calls, which read and write each tile once: element-wise, or row by row.
//!
//! Which tiles there are to choose from does not belong here. Such a call takes the time of its bytes, whatever the tiles. Tiles add two costs:
//! workers end up to one task apart, and each task has a fixed cost. Large tiles increase the first, small tiles the second.

/// Least bytes that a task reads for its tiles to come through the shared-memory ring: with fewer, direct loads are faster than the loader.
pub const RING_BYTES: u64 = 16 * 1024;

/// Fixed cycles of a task whose tiles came through the ring while the task before was computed. On an H200 `copy` of 128 MiB took 75.4 µs in 4096 tasks of
/// 16 × 1024 and 80.3 µs in 1024 of 64 × 1024. One large task more takes 6.1 µs longer than one small task more; the rest of the difference is the fixed
/// cost of 23 more tasks per worker.
const TASK_CYCLES: f64 = 90.0;

/// Least cycles of a task, whatever its bytes: the same warps compute one task after the other. On an H200 `add` of 64 MiB took 1.7 µs for each task of 4 × 1024
/// `bf16` (d5a325d), where its bytes take 0.8 µs.
const LEAST_CYCLES: f64 = 3000.0;

/// The tasks of a call: their number, and the mean bytes of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tasks {
    pub count: f64,
    pub read: f64,
    pub written: f64,
}

impl Tasks {
    /// Cycles of the bytes, and fixed cycles, for so many workers at `rate` bytes per cycle each. `unpipelined`: fixed cycles of a task whose loads begin
    /// only with it.
    pub fn cycles(self, workers: f64, rate: f64, unpipelined: f64) -> (f64, f64) {
        let (each, rounds) = ((self.read + self.written) / rate, self.count / workers);
        if rounds <= 1.0 {
            return (each, unpipelined);
        }
        let fixed = if self.read < RING_BYTES as f64 { unpipelined } else { TASK_CYCLES };
        ((rounds + 1.0) * each.max(LEAST_CYCLES), unpipelined + rounds * fixed)
    }
}

#[cfg(test)]
mod tests {
    use super::Tasks;

    /// Microseconds of a copy of 2 × 128 MiB in tasks of so many rows of 1024 two-byte elements, by 132 workers at 1.8 GHz.
    fn copy(rows: f64) -> f64 {
        let bytes = rows * 2048.0;
        let tasks = Tasks { count: f64::from(128 << 20) / bytes, read: bytes, written: bytes };
        let (load, rest) = tasks.cycles(132.0, 18.0, 800.0);
        (load + rest) / 1800.0
    }

    #[test]
    fn smaller_tasks_save_the_measured_time() {
        let spared = copy(64.0) - copy(16.0);
        assert!((spared - (80.3 - 75.4)).abs() < 0.5, "{spared} µs");
    }

    #[test]
    fn tasks_have_a_fixed_cost() {
        assert!(copy(4.0) > copy(8.0), "too small for the ring");
        assert!(copy(8.0) > copy(12.0));
        assert!(copy(4.0) > copy(16.0) * 2.0, "a task of a quarter of the bytes takes most of the time");
    }
}
