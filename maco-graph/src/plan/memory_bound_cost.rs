//! How long a call takes that reads and writes its tiles once and contracts nothing: element-wise, or row by row.
//!
//! Which tiles there are to choose from does not belong here. What such a call takes is the time of its bytes, whatever the tiles, and what tiles add to it:
//! workers do not end together, by about the time of a task, and each task has a price. Large tiles make the first larger, small ones the second.

/// Bytes that a task must read for its tiles to come through the ring of shared memory: of fewer, the way through the loader takes longer than
/// the loads.
pub const RING_BYTES: u64 = 16 * 1024;

/// Cycles that a task adds whose tiles came through the ring while the one before was computed. On an H200 `copy` of 128 MiB took 75.4 µs in 4096 tasks of
/// 16 × 1024 and 80.3 µs in 1024 of 64 × 1024: a task of the large tiles more takes 6.1 µs longer than one of the small ones, 23 tasks more of
/// each worker took the rest of it.
const TASK_CYCLES: f64 = 90.0;

/// Cycles that a task takes at least, whatever its bytes: the same warps do one after the other. On an H200 `add` of 64 MiB took 1.7 µs for each task of 4 × 1024
/// `bf16` (d5a325d), where its bytes take 0.8.
const LEAST_CYCLES: f64 = 3000.0;

/// The tasks of a call: how many, and bytes of the mean one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tasks {
    pub count: f64,
    pub read: f64,
    pub written: f64,
}

impl Tasks {
    /// Cycles of the bytes, and of all else, by so many workers, of which each gets `rate` bytes per cycle; `alone` cycles are those of a task whose loads begin
    /// with it.
    pub fn cycles(self, workers: f64, rate: f64, alone: f64) -> (f64, f64) {
        let (each, rounds) = ((self.read + self.written) / rate, self.count / workers);
        if rounds <= 1.0 {
            return (each, alone);
        }
        let price = if self.read < RING_BYTES as f64 { alone } else { TASK_CYCLES };
        ((rounds + 1.0) * each.max(LEAST_CYCLES), alone + rounds * price)
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
    fn smaller_tasks_are_as_much_faster_as_was_measured() {
        let spared = copy(64.0) - copy(16.0);
        assert!((spared - (80.3 - 75.4)).abs() < 0.5, "{spared} µs");
    }

    #[test]
    fn tasks_have_a_price() {
        assert!(copy(4.0) > copy(8.0), "too small for the ring");
        assert!(copy(8.0) > copy(12.0));
        assert!(copy(4.0) > copy(16.0) * 2.0, "a task of a quarter of the bytes takes most of the time");
    }
}
