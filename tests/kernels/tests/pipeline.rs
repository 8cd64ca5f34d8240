//! The pipelined CPU executor gives the bits of the plain one: every kind of task, ragged shapes, every schedule, some workers, and
//! many orders of copies and threads.
//!
//! Takes a minute: every role is a thread, and there are more of them than cores.
mod support;

use std::time::Duration;

use kernels::{dense, faults, regions, uneven};
use maco::{Device, Error, PlanOptions, Schedule, Tensor, TensorElement, bf16, f16};
use support::{From64, Matrix, poisoned};

/// Seeds of delays for each schedule of a small kernel.
const SEEDS: u32 = 60;

fn schedules(workers: u32) -> [Schedule; 4] {
    [Schedule::Static, Schedule::Tickets, Schedule::Schedulers(workers.min(2)), Schedule::SpareWarps(workers)]
}

fn bits<E: TensorElement + From64>(tensor: &Tensor<E>) -> Vec<u64> {
    tensor.download().unwrap().into_iter().map(|value| value.to64().to_bits()).collect()
}

/// What `$run` returns is the same under every schedule, for 1 to 4 workers, and under `$seeds` seeds of delays with 2.
macro_rules! agrees {
    ($seeds:expr, $kernel:path, $dims:expr, |$device:ident, $plan:ident| $run:expr) => {{
        use $kernel as kernel;
        for workers in 1..=4 {
            let $device = &Device::cpu_with(workers);
            let expected: Vec<u64> = {
                let $plan = &kernel::plan($device, $dims).unwrap();
                $run.unwrap()
            };
            for schedule in schedules(workers) {
                let $plan = &kernel::plan_with($device, $dims, &PlanOptions::new().pipelined(true).schedule(schedule)).unwrap();
                for seed in 0..if workers == 2 { $seeds } else { 3 } {
                    $plan.set_delays(seed);
                    let what = format!("{:?}, {workers} workers, {schedule:?}, seed {seed}", $dims);
                    let found: Result<Vec<u64>, Error> = $run;
                    let found = found.unwrap_or_else(|error| panic!("{what}: {error}"));
                    assert!(found == expected, "{what}: other bits");
                }
            }
        }
    }};
}

/// Elements that need rounding.
fn fractions<E: TensorElement + From64>(device: &Device, rows: u64, cols: u64, seed: u64) -> Tensor<E> {
    Matrix::integers(rows as usize, cols as usize, seed, 100).map(|v| v / 64.0).upload(device)
}

fn output<E: TensorElement + From64>(device: &Device, rows: u64, cols: u64) -> Tensor<E> {
    poisoned(device, rows as usize, cols as usize)
}

/// M, N, K: one tile, ragged in every dimension, less than a box, an empty contraction, more steps than the ring has stages.
const SIZES: [[u64; 3]; 6] = [[64, 128, 64], [130, 264, 200], [1, 10, 72], [65, 3, 1], [70, 136, 0], [129, 130, 1100]];

#[test]
fn gemms() {
    for [m, n, k] in SIZES {
        agrees!(SEEDS / 6, dense::gemm, dense::gemm::Dims { M: m, K: k, N: n }, |device, plan| {
            let (x, w, mut y) = (fractions(device, m, k, 1), fractions(device, n, k, 2), output::<bf16>(device, m, n));
            plan.run(&x, &w, &mut y).map(|_| bits(&y))
        });
    }
}

#[test]
fn gemms_in_f16_and_of_matrices_across_the_contraction() {
    for [m, n, k] in [[130, 264, 200], [129, 130, 1100]] {
        agrees!(2, dense::gemm_f16, dense::gemm_f16::Dims { M: m, K: k, N: n }, |device, plan| {
            let (x, w, mut y) = (fractions(device, m, k, 1), fractions(device, n, k, 2), output::<f16>(device, m, n));
            plan.run(&x, &w, &mut y).map(|_| bits(&y))
        });
        agrees!(2, dense::plain_gemm, dense::plain_gemm::Dims { M: m, K: k, N: n }, |device, plan| {
            let (a, b, mut y) = (fractions(device, m, k, 1), fractions(device, k, n, 2), output::<bf16>(device, m, n));
            plan.run(&a, &b, &mut y).map(|_| bits(&y))
        });
    }
}

/// Stages of 24, 32, 40 and 48 KiB follow one another, and tiles leave their last chunks to the next task.
#[test]
fn tiles_of_all_shapes() {
    for [m, n, k] in [[130, 520, 200], [70, 136, 0], [65, 258, 700]] {
        agrees!(SEEDS / 3, dense::tiles, dense::tiles::Dims { M: m, K: k, N: n }, |device, plan| {
            let (x, w) = (fractions(device, m, k, 1), fractions(device, n, k, 2));
            let mut y = [(); 4].map(|()| output::<bf16>(device, m, n));
            let [a, b, c, d] = &mut y;
            plan.run(&x, &w, a, b, c, d).map(|_| y.iter().flat_map(bits).collect())
        });
    }
}

#[test]
fn two_layers() {
    for [m, h, k] in [[128, 256, 64], [130, 520, 264]] {
        agrees!(SEEDS / 2, dense::mlp, dense::mlp::Dims { M: m, K: k, H: h }, |device, plan| {
            let (x, up, down) = (fractions(device, m, k, 1), fractions(device, h, k, 2), fractions(device, k, h, 3));
            let mut y = output::<bf16>(device, m, k);
            plan.run(&x, &up, &down, &mut y).map(|_| bits(&y))
        });
    }
}

/// GEMMs and element-wise tasks by turns.
#[test]
fn kinds_that_change() {
    let [m, k] = [130, 136];
    agrees!(SEEDS, dense::layers, dense::layers::Dims { M: m, K: k }, |device, plan| {
        let (x, w) = (fractions(device, m, k, 1), [2, 3, 4].map(|seed| fractions(device, k, k, seed)));
        let mut y = output::<bf16>(device, m, k);
        plan.run(&x, &w, 0.3, &mut y).map(|_| bits(&y))
    });
    agrees!(SEEDS / 3, dense::diamond, dense::diamond::Dims { M: m, K: k }, |device, plan| {
        let (x, w, v) = (fractions(device, m, k, 1), fractions(device, k, k, 2), fractions(device, k, k, 3));
        let mut y = output::<bf16>(device, m, k);
        plan.run(&x, &w, &v, &mut y).map(|_| bits(&y))
    });
    agrees!(SEEDS / 3, dense::blocks, dense::blocks::Dims { M: 70, K: k, H: 200 }, |device, plan| {
        let (x, up, down) = (fractions(device, 70, k, 1), fractions(device, 200, k, 2), fractions(device, k, 200, 3));
        let mut y = output::<bf16>(device, 70, k);
        plan.run(&x, &up, &down, &mut y).map(|_| bits(&y))
    });
}

/// No tensor core, so no ring: rows, halos, updates in place, gathers.
#[test]
fn direct_tasks() {
    let [m, n] = [150, 200];
    agrees!(SEEDS, regions::blurred, regions::blurred::Dims { M: m, N: n }, |device, plan| {
        let (mut x, mut y) = (fractions::<f32>(device, m, n, 1), output::<f32>(device, m, n));
        plan.run(&mut x, 0.3, &mut y).map(|_| [bits(&x), bits(&y)].concat())
    });
    agrees!(SEEDS / 3, regions::normed, regions::normed::Dims { M: m, N: n }, |device, plan| {
        let weight: Vec<f32> = (0..n).map(|n| n as f32 / 77.0).collect();
        let (x, weight) = (fractions::<f32>(device, m, n, 1), device.upload(&weight, [n]).unwrap());
        let [mut soft, mut rms] = [(); 2].map(|()| output::<f32>(device, m, n));
        let mut sums = output::<f32>(device, m, 1);
        plan.run(&x, &weight, &mut soft, &mut rms, &mut sums).map(|_| [bits(&soft), bits(&rms), bits(&sums)].concat())
    });
    agrees!(SEEDS / 3, regions::embedded, regions::embedded::Dims { M: m, V: 40, N: n }, |device, plan| {
        let ids: Vec<u32> = (0..m as u32).map(|n| n * 7919 % 43).collect();
        let (ids, table) = (device.upload(&ids, [m]).unwrap(), fractions::<f32>(device, 40, n, 1));
        let mut y = output::<f32>(device, m, n);
        plan.run(&ids, &table, 0.3, &mut y).map(|_| bits(&y))
    });
    agrees!(SEEDS / 3, regions::reversed, regions::reversed::Dims { N: 2048 }, |device, plan| {
        let (x, mut y) = (device.upload(&[1.5f32; 2048], [2048u64]).unwrap(), device.zeros::<f32>([2048u64]).unwrap());
        plan.run(&x, &mut y).map(|_| bits(&y))
    });
}

/// Tasks that workers claim, of both kinds.
#[test]
fn drained_tasks() {
    let [m, n] = [50, 90];
    agrees!(SEEDS / 3, uneven::counted, uneven::counted::Dims { M: m, N: n }, |device, plan| {
        let x = Matrix::integers(m as usize, n as usize, 7, 500).map(f64::abs).upload::<f32>(device);
        let [mut y, mut z] = [(); 2].map(|()| output::<f32>(device, m, n));
        plan.run(&x, 2.0, &mut y, &mut z).map(|_| [bits(&y), bits(&z)].concat())
    });
    let [m, k] = [130, 136];
    agrees!(SEEDS / 3, uneven::gemms, uneven::gemms::Dims { M: m, K: k }, |device, plan| {
        let (x, w) = (fractions(device, m, k, 1), [2, 3].map(|seed| fractions(device, k, k, seed)));
        let mut y = output::<bf16>(device, m, k);
        plan.run(&x, &w, 0.3, &mut y).map(|_| bits(&y))
    });
}

/// A task of every kind in a row.
#[test]
fn kinds_of_tasks() {
    let [m, k, n] = [72, 100, 512];
    agrees!(SEEDS, faults::kinds, faults::kinds::Dims { M: m, K: k, N: n }, |device, plan| {
        let ids: Vec<u32> = (0..m as u32).map(|n| n * 7919 % 79).collect();
        let (x, w, ids) = (fractions(device, m, k, 1), fractions(device, n, k, 2), device.upload(&ids, [m]).unwrap());
        let mut y = output::<f32>(device, m, n);
        plan.run(&x, &w, &ids, &mut y).map(|_| bits(&y))
    });
}

/// A body that waits for a flag that is never raised is let through when its worker loses patience; then the plan recovers.
#[test]
fn a_body_that_waits() {
    let n = 256 * 30;
    let data: Vec<f32> = (0..n).map(|n| n as f32).collect();
    let device = Device::cpu_with(2);
    let x = device.upload(&data, [n]).unwrap();
    let [down, up] = [0u32, 1].map(|flag| device.upload(&[flag], [1]).unwrap());
    for schedule in schedules(2) {
        let options = PlanOptions::new().pipelined(true).deadline(Duration::from_millis(100)).schedule(schedule);
        let plan = faults::gated::plan_with(&device, faults::gated::Dims { N: n as u64 }, &options).unwrap();
        let run = |flag: &Tensor<u32>| {
            let mut y = device.upload(&vec![-1f32; n], [n]).unwrap();
            plan.run(flag, &x, &mut y).map(|_| y.download().unwrap())
        };
        for _ in 0..2 {
            assert_eq!(run(&up).unwrap(), data, "{schedule:?}");
            assert_eq!(run(&down).unwrap_err().code(), 47, "{schedule:?}");
            assert_eq!(run(&up).unwrap_err().code(), 48, "{schedule:?}");
            plan.recover().unwrap();
        }
    }
}
