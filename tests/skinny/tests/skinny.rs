//! GEMVs against `f64`, for every shape that streams and some that do not, on the CPU and a GPU.
#[path = "../../kernels/tests/support/mod.rs"]
mod support;

use maco::{Device, PlanOptions, Schedule, Tensor, bf16, f16};
use skinny::kernels::{LINKS, chain, gated, half, one, square, stored};
use support::{Matrix, poisoned, rounds::rounds};

on_every_device!(shapes, halves, chains, gates, what_is_streamed_may_be_a_result, schedules);

fn options(device: &Device) -> Vec<PlanOptions> {
    let plain = PlanOptions::new();
    if device.is_gpu() { vec![plain] } else { vec![plain.clone(), plain.pipelined(true)] }
}

fn shapes(device: &Device) {
    for options in options(device) {
        for (m, n, k) in [
            (1, 8, 1024),
            (1, 1, 1),
            (1, 2048, 2048),
            (2, 13, 40),
            (3, 24, 7),
            (5, 100, 1000),
            (8, 64, 1032),
            (9, 17, 2056),
            (16, 40, 520),
            (17, 9, 24),
            (33, 31, 129),
            (4, 16, 0),
            // Rows in pieces: fewer than a box has, more, and rows that do not fill one.
            (1, 40, 256),
            (3, 13, 768),
            (9, 20, 4352),
        ] {
            let (x, w) = (Matrix::integers(m, k, 1, 2), Matrix::sparse(n, k, 2));
            let plan = one::plan_with(device, one::Dims { M: m as u64, N: n as u64, K: k as u64 }, &options).unwrap();
            assert_eq!(plan.graph().workload(0).flops, 2 * (m * n * k) as u64);
            let mut y = poisoned::<bf16>(device, m, n);
            let (a, b): (Tensor<bf16>, Tensor<bf16>) = (x.upload(device), w.upload(device));
            for _ in 0..2 {
                plan.run(&a, &b, &mut y).unwrap();
                x.times(&w.t()).bf16().within(&y, 0.0, &format!("{m} × {n} × {k}"));
            }
        }
    }
}

fn halves(device: &Device) {
    for options in options(device) {
        let (m, n, k) = (3, 70, 1111);
        let (x, w) = (Matrix::integers(m, k, 3, 2), Matrix::sparse(n, k, 4));
        let plan = half::plan_with(device, half::Dims { M: m as u64, N: n as u64, K: k as u64 }, &options).unwrap();
        let mut y = poisoned::<f16>(device, m, n);
        let (a, b): (Tensor<f16>, Tensor<f16>) = (x.upload(device), w.upload(device));
        plan.run(&a, &b, &mut y).unwrap();
        x.times(&w.t()).map(|v| v.max(0.0)).within(&y, 0.0, "f16");
    }
}

fn chains(device: &Device) {
    for options in options(device) {
        for (m, k) in [(1, 2048), (2, 264), (11, 65)] {
            let plan = chain::plan_with(device, chain::Dims { M: m as u64, K: k as u64 }, &options).unwrap();
            // Signed permutations: sums of one product.
            let turn = |n: usize| Matrix::new(k, k, |r, c| if c == (r * 7 + n) % k { if r % 3 == 0 { -1.0 } else { 1.0 } } else { 0.0 });
            let x = Matrix::integers(m, k, 5, 100);
            let weights: [Tensor<bf16>; LINKS] = std::array::from_fn(|n| turn(n).upload(device));
            let mut y: [Tensor<bf16>; LINKS] = std::array::from_fn(|_| poisoned(device, m, k));
            let a: Tensor<bf16> = x.upload(device);
            let expected: [Matrix; LINKS] = {
                let mut last = x.clone();
                std::array::from_fn(|n| {
                    last = last.times(&turn(n).t());
                    last.clone()
                })
            };
            for launch in 0..if device.is_gpu() { rounds(50) } else { 2 } {
                plan.run(&a, &weights, &mut y).unwrap();
                for (n, (y, expected)) in y.iter().zip(&expected).enumerate() {
                    expected.within(y, 0.0, &format!("link {n} of launch {launch}, {m} × {k}"));
                }
            }
        }
    }
}

fn gates(device: &Device) {
    for options in options(device) {
        for (m, k, h) in [(1, 256, 640), (4, 72, 33)] {
            let x = Matrix::integers(m, k, 6, 2);
            let [gate, up] = [7, 8].map(|seed| Matrix::new(h, k, |r, c| if (r + seed * c) % k == 0 { 1.0 } else { 0.0 }));
            let down = Matrix::new(k, h, |r, c| if r % h == c { 1.0 } else { 0.0 });
            let plan = gated::plan_with(device, gated::Dims { M: m as u64, K: k as u64, H: h as u64 }, &options).unwrap();
            let (mut inner, mut y) = (poisoned::<bf16>(device, m, h), poisoned::<bf16>(device, m, k));
            let [a, b, c, d] = [&x, &gate, &up, &down].map(|matrix| matrix.upload::<bf16>(device));
            plan.run(&a, &b, &c, &d, &mut inner, &mut y).unwrap();
            let (open, raised) = (x.times(&gate.t()).map(|v| v.max(0.0)), x.times(&up.t()));
            let expected = Matrix::new(m, h, |r, c| open.at(r, c) * raised.at(r, c));
            expected.within(&inner, 0.0, "the gated unit");
            let product = expected.times(&down.t());
            Matrix::new(m, k, |r, c| product.at(r, c) + x.at(r, c)).within(&y, 0.0, "with its residual");
        }
    }
}

/// Then it is not loaded before it is there, whether threads stored it or TMA.
fn what_is_streamed_may_be_a_result(device: &Device) {
    for options in options(device) {
        for (m, k) in [(16, 512), (7, 24)] {
            let (x, a) = (Matrix::integers(m, k, 9, 1), Matrix::new(k, k, |r, c| if (r + 1) % k == c { 2.0 } else { 0.0 }));
            let (x_, a_): (Tensor<bf16>, Tensor<bf16>) = (x.upload(device), a.upload(device));
            let turned = x.times(&a.t());
            let squared = x.times(&turned.t()).bf16();
            macro_rules! check {
                ($kernel:ident) => {
                    let plan = $kernel::plan_with(device, $kernel::Dims { M: m as u64, K: k as u64 }, &options).unwrap();
                    for _ in 0..if device.is_gpu() { rounds(50) } else { 2 } {
                        let (mut h, mut y) = (poisoned::<bf16>(device, m, k), poisoned::<bf16>(device, m, m));
                        plan.run(&x_, &a_, &mut h, &mut y).unwrap();
                        turned.within(&h, 0.0, concat!(stringify!($kernel), ": the operand"));
                        squared.within(&y, 0.0, concat!(stringify!($kernel), ": the product"));
                    }
                };
            }
            check!(square);
            check!(stored);
        }
    }
}

fn schedules(device: &Device) {
    for schedule in [Schedule::Static, Schedule::Tickets, Schedule::Schedulers(1), Schedule::SpareWarps(2)] {
        let workers = device.workers() - u32::from(device.is_gpu());
        for options in options(device) {
            let options = options.schedule(schedule).workers(workers.max(2));
            let (m, n, k) = (2, 500, 300);
            let (x, w) = (Matrix::integers(m, k, 1, 2), Matrix::sparse(n, k, 2));
            let Ok(plan) = one::plan_with(device, one::Dims { M: m as u64, N: n as u64, K: k as u64 }, &options) else { continue };
            let mut y = poisoned::<bf16>(device, m, n);
            plan.run(&x.upload(device), &w.upload(device), &mut y).unwrap();
            x.times(&w.t()).bf16().within(&y, 0.0, &format!("{schedule}"));
        }
    }
}
