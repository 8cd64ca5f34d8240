//! Sums made in parts by several tasks: right for every tile, shape and schedule, and the same bits every time.
//!
//! Takes a quarter of a minute: every tile, number of parts and schedule is a plan of its own, and is compared with a sequential sum.
mod support;

use kernels::{dense, split};
use maco::{CallShape, Device, PlanOptions, Schedule, Tensor, bf16, f16};
use support::{Matrix, poisoned, rounds::rounds};

on_every_device!(parts, chain, plain, every_shape, same_bits, after_an_abort);

/// M, N, K: one tile, several, ragged in every dimension, fewer steps than parts, no step, more steps than the ring has stages.
const SIZES: [(usize, usize, usize); 6] = [(64, 128, 128), (130, 264, 700), (1, 10, 72), (65, 3, 1), (70, 136, 0), (129, 130, 1100)];

const SCHEDULES: [Schedule; 4] = [Schedule::Static, Schedule::Tickets, Schedule::Schedulers(1), Schedule::SpareWarps(1)];

/// Runs the plan on fresh outputs and, on a CPU, in both executors.
fn variants(device: &Device, options: PlanOptions) -> Vec<PlanOptions> {
    if device.is_gpu() { vec![options] } else { vec![options.clone(), options.pipelined(true)] }
}

fn parts(device: &Device) {
    for (m, n, k) in SIZES {
        let (x, w) = (Matrix::integers(m, k, 1, 2), Matrix::sparse(n, k, 2));
        let (exact, positive) = (x.times(&w.t()).bf16(), x.times(&w.t()).map(|v| v.max(0.0)).bf16());
        for schedule in SCHEDULES {
            for options in variants(device, PlanOptions::new().schedule(schedule)) {
                let dims = split::parts::Dims { M: m as u64, K: k as u64, N: n as u64 };
                let plan = split::parts::plan_with(device, dims, &options).unwrap();
                let steps = k.div_ceil(64).max(1) as u32;
                let planned: Vec<u32> = plan.graph().calls.iter().map(|call| call.parts).collect();
                assert_eq!(planned, [2, 3, 5, 8].map(|parts: u32| parts.min(steps)));
                // Twice: what the first launch leaves must not matter.
                for round in 0..2 {
                    let mut y = [(); 4].map(|()| poisoned::<bf16>(device, m, n));
                    let [a, b, c, d] = &mut y;
                    plan.run(&x.upload(device), &w.upload(device), a, b, c, d).unwrap();
                    for (y, expected) in y.iter().zip([&exact, &positive, &positive, &exact]) {
                        expected.exactly(y, &format!("{m} × {n} × {k}, {schedule}, launch {round}"));
                    }
                }
            }
        }
    }
}

fn chain(device: &Device) {
    for (m, h, k) in [(128, 256, 64), (130, 520, 264), (3, 40, 24)] {
        let (x, up, down) = (Matrix::integers(m, k, 1, 1), Matrix::sparse(h, k, 2), Matrix::sparse(k, h, 3));
        let expected = x.times(&up.t()).map(|v| v.max(0.0)).bf16().times(&down.t()).bf16().map(|v| 2.0 * v).bf16();
        for schedule in SCHEDULES {
            for options in variants(device, PlanOptions::new().schedule(schedule)) {
                let dims = split::chain::Dims { M: m as u64, K: k as u64, H: h as u64 };
                let plan = split::chain::plan_with(device, dims, &options).unwrap();
                let mut y = poisoned::<bf16>(device, m, k);
                plan.run(&x.upload(device), &up.upload(device), &down.upload(device), &mut y).unwrap();
                expected.exactly(&y, &format!("{m} {h} {k}, {schedule}"));
            }
        }
    }
}

fn plain(device: &Device) {
    for (m, n, k) in SIZES {
        let (a, b) = (Matrix::integers(m, k, 5, 2), Matrix::sparse(k, n, 6));
        for options in variants(device, PlanOptions::new()) {
            let plan = split::plain::plan_with(device, split::plain::Dims { M: m as u64, K: k as u64, N: n as u64 }, &options).unwrap();
            let mut y = poisoned::<f16>(device, m, n);
            plan.run(&a.upload(device), &b.upload(device), &mut y).unwrap();
            a.times(&b).exactly(&y, &format!("{m} × {n} × {k}"));
        }
    }
}

/// Random sizes, tiles and parts, forced from outside.
fn every_shape(device: &Device) {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut below = |end: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) % end
    };
    for round in 0..rounds(24) {
        let (m, n, k) = (1 + below(300), 1 + below(300), 1 + below(700));
        let (x, w) = (Matrix::integers(m as usize, k as usize, 1, 2), Matrix::sparse(n as usize, k as usize, 2));
        let tile = vec![64 << below(2), 128 << below(2)];
        let shape = CallShape { call: 0, tile: Some(tile), split: Some(1 + below(12) as u32), whole: below(5) as u32 };
        let options = PlanOptions::new().shapes(vec![shape.clone()]).schedule(SCHEDULES[below(4) as usize]);
        let variants = variants(device, options);
        let options = &variants[round % variants.len()];
        let plan = dense::gemm::plan_with(device, dense::gemm::Dims { M: m, K: k, N: n }, options).unwrap();
        let mut y = poisoned::<bf16>(device, m as usize, n as usize);
        for _ in 0..2 {
            plan.run(&x.upload(device), &w.upload(device), &mut y).unwrap();
        }
        x.times(&w.t()).bf16().exactly(&y, &format!("{m} × {n} × {k}, {shape:?}"));
    }
}

/// Sums that need rounding at every step, and have bits enough to show it: whoever ends last, the parts are added up in one order.
fn same_bits(device: &Device) {
    let (m, n, k) = (190, 300, 1000);
    let waves =
        |rows, cols, seed| -> Tensor<f16> { Matrix::integers(rows, cols, seed, 1000).map(|v| v.sin() * (v / 200.0).exp2()).upload(device) };
    let (x, w) = (waves(m, k, 1), waves(n, k, 2));
    let bits = |tensor: &Tensor<f16>| tensor.download().unwrap().iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    for (parts, whole) in [(2, 0), (3, 2), (7, 0)] {
        for tile in [[64, 128], [128, 256]] {
            let mut expected = None;
            for schedule in SCHEDULES {
                let shape = CallShape { call: 0, tile: Some(tile.into()), split: Some(parts), whole };
                let options = PlanOptions::new().shapes(vec![shape]).schedule(schedule);
                for options in variants(device, options) {
                    let dims = dense::gemm_f16::Dims { M: m as u64, K: k as u64, N: n as u64 };
                    let plan = dense::gemm_f16::plan_with(device, dims, &options).unwrap();
                    let mut y = poisoned::<f16>(device, m, n);
                    for seed in 0..rounds(40) as u32 / if device.is_gpu() { 1 } else { 10 } {
                        plan.set_delays(seed);
                        plan.run(&x, &w, &mut y).unwrap();
                        let found = bits(&y);
                        assert!(*expected.get_or_insert_with(|| found.clone()) == found, "{parts} parts, {schedule}, {tile:?}: other bits");
                    }
                }
            }
        }
    }
}

/// Parts that arrived before a launch was aborted are forgotten.
fn after_an_abort(device: &Device) {
    let (m, n, k) = (130, 264, 700);
    let (x, w) = (Matrix::integers(m, k, 1, 2), Matrix::sparse(n, k, 2));
    let dims = split::plain::Dims { M: m as u64, K: k as u64, N: n as u64 };
    for options in variants(device, PlanOptions::new().deadline(std::time::Duration::from_millis(200))) {
        let plan = split::plain::plan_with(device, dims, &options).unwrap();
        let mut y = poisoned::<f16>(device, m, n);
        // The last part of the first tile does not end.
        plan.inject(Some(maco::Fault::LostArrive(2))).unwrap();
        assert_eq!(plan.run(&x.upload(device), &w.t().upload(device), &mut y).unwrap_err().code(), 47);
        plan.inject(None).unwrap();
        plan.recover().unwrap();
        plan.run(&x.upload(device), &w.t().upload(device), &mut y).unwrap();
        x.times(&w.t()).exactly(&y, "after an abort");
    }
}
