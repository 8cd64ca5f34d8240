//! A thousand seeds of delays on a CPU and on a GPU, every schedule: not a bit changes.
//!
//! Takes a minute: a thousand seeds, each in ten plans.
#![allow(dead_code)]

#[path = "../../kernels/tests/support/rounds.rs"]
mod rounds;

use delays::kernels::mixed;
use maco::{Device, PlanOptions, Schedule, Tensor, bf16};
use rounds::{rounds, short};

/// M, K and H.
type Sizes = [usize; 3];
const LARGE: Sizes = [320, 192, 320];
/// Tiles that end outside, as of the large one, and a twelfth of the arithmetic: a CPU does it a thousand times.
const SMALL: Sizes = [160, 64, 160];

fn data(n: usize, seed: u64, limit: i64) -> Vec<bf16> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as i64
    };
    // Mostly zeros: sums stay exact.
    (0..n).map(|_| if next() % 16 == 0 { bf16::from_f32((next() % (2 * limit + 1) - limit) as f32) } else { bf16::from_f32(0.0) }).collect()
}

fn options(device: &Device) -> Vec<PlanOptions> {
    let all = device.workers();
    let few = 5.min(all);
    let ctas = |schedulers: u32| if device.is_gpu() { all - schedulers } else { all };
    [
        (Schedule::Static, 1),
        (Schedule::Static, few),
        (Schedule::Static, all),
        (Schedule::Tickets, few),
        (Schedule::Tickets, all),
        (Schedule::Schedulers(1), few.min(ctas(1))),
        (Schedule::Schedulers(2.min(few)), ctas(2)),
        (Schedule::SpareWarps(few), few),
        (Schedule::SpareWarps(3.min(all)), all),
    ]
    .map(|(schedule, workers)| PlanOptions::new().workers(workers).schedule(schedule))
    .into_iter()
    .chain([PlanOptions::new().workers(ctas(1)).schedule(Schedule::Schedulers(1)).look_ahead(true)])
    .collect()
}

/// Runs `mixed` in each of the plans under `seeds` seeds, no two of which are the same; the results of all.
fn run(device: &Device, options: &[PlanOptions], seeds: u32, sizes: Sizes) -> Vec<(Vec<bf16>, Vec<bf16>)> {
    let [m, k, h] = sizes;
    let upload = |data: Vec<bf16>, shape: [u64; 2]| -> Tensor<bf16> { device.upload(&data, shape).unwrap() };
    let x = upload(data(m * k, 1, 3), [m as u64, k as u64]);
    let up = upload(data(h * k, 2, 2), [h as u64, k as u64]);
    let down = upload(data(k * h, 3, 2), [k as u64, h as u64]);
    let ids: Vec<u32> = (0..m as u32).map(|n| (n * 131 + 7) % m as u32).collect();
    let ids = device.upload(&ids, [m as u64]).unwrap();
    let start = data(m * k, 4, 9);
    let mut results: Vec<(Vec<bf16>, Vec<bf16>)> = Vec::new();
    let plans = options.len() as u32;
    for (nth, options) in (0..).zip(options) {
        let plan = mixed::plan_with(device, mixed::Dims { M: m as u64, K: k as u64, H: h as u64 }, options).unwrap();
        for seed in (0..seeds).map(|round| round * plans + nth) {
            plan.set_delays(seed);
            let mut tape = upload(start.clone(), [m as u64, k as u64]);
            let poison = vec![bf16::from_f32(f32::NAN); m * k];
            let mut y = upload(poison, [m as u64, k as u64]);
            plan.run(&x, &up, &down, &ids, 2.0, &mut tape, &mut y).unwrap_or_else(|error| panic!("seed {seed}, {options:?}: {error}"));
            let result = (tape.download().unwrap(), y.download().unwrap());
            if let Some(first) = results.first() {
                assert!(result == *first, "seed {seed} changes the result: {options:?}");
            } else {
                assert!(result.1.iter().all(|v| v.is_finite()));
                results.push(result);
            }
        }
    }
    results
}

/// Both forms of the CPU executor: a thread for each worker, and one for each role of it.
#[test]
fn cpu_a_thousand_seeds() {
    let device = Device::cpu_with(4);
    let plain = options(&device);
    let pipelined = plain.iter().map(|options| options.clone().pipelined(true));
    let options: Vec<_> = plain.iter().cloned().chain(pipelined).collect();
    run(&device, &options, rounds(1000).div_ceil(options.len()) as u32 + 1, SMALL);
}

#[test]
#[ignore = "gpu"]
fn gpu_a_thousand_seeds() {
    let device = Device::gpu(0).expect("a GPU");
    let options = options(&device);
    let sizes = if short() { SMALL } else { LARGE };
    // Every element of the CPU's result, too.
    let cpu = Device::cpu_with(4);
    let expected = run(&cpu, &[PlanOptions::new()], 1, sizes);
    let found = run(&device, &options, rounds(1000).div_ceil(options.len()) as u32 + 1, sizes);
    assert!(found == expected, "the GPU's result is not the CPU's");
}
