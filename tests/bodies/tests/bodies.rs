//! Generated bodies that keep the rules do what they say one operation after another, on any number of workers, with every schedule, whatever is late.
//! Those that read outside their region are stopped on the CPU, and read zeros there on a GPU.
//!
//! `MACO_BODIES=first..last cargo test -p bodies` is for other seeds than those of CI. The bodies that do not compile are in `tests/bodies.rs` of the root.
//!
//! Takes a quarter of a minute: each body runs in every schedule with one to five workers, also with a thread for each role.
mod support;

use maco::{Device, PlanOptions, Schedule};
use support::{Setup, short};

#[allow(warnings, reason = "what is generated is not read")]
mod checks {
    use super::support::*;
    use bodies::kernels;

    include!(concat!(env!("OUT_DIR"), "/generated/checks.rs"));
}

/// M, N, K, V and B: several tiles and pieces of tiles, fewer elements than a tile, whole tiles and more than one step of a GEMM.
const SIZES: [[usize; 5]; 3] = [[72, 132, 12, 10, 3], [4, 12, 3, 5, 1], [96, 64, 80, 8, 2]];

fn schedules(workers: u32) -> Vec<Schedule> {
    vec![Schedule::Static, Schedule::Tickets, Schedule::Schedulers(1), Schedule::SpareWarps(1), Schedule::SpareWarps(workers)]
}

fn run(device: &Device, plans: &[PlanOptions], sizes: &[[usize; 5]], delays: u32) {
    for &sizes in sizes {
        let setup = Setup { device: device.clone(), plans: plans.to_vec(), sizes, delays };
        for (name, check) in checks::RIGHT {
            println!("{name} of {sizes:?}");
            check(&setup);
        }
    }
}

#[test]
fn cpu_every_schedule_and_number_of_workers() {
    let device = Device::cpu_with(5);
    let mut plans = Vec::new();
    for workers in 1..=5 {
        for schedule in schedules(workers) {
            let options = PlanOptions::new().workers(workers).schedule(schedule);
            plans.push(options.clone());
            // A thread for each role, which is slow.
            if workers % 2 == 0 {
                plans.push(options.pipelined(true));
            }
        }
    }
    run(&device, &plans, &SIZES, 3);
}

/// Seeds test little if they leave operations out.
#[test]
fn the_usual_seeds_have_every_operation() {
    const TEXT: &str = include_str!(concat!(env!("OUT_DIR"), "/generated/kernels.rs"));
    let all = [
        "cta.zip(",
        "cta.map(",
        "cta.generate(",
        "cta.blocks(",
        "cta.transpose(",
        "cta.rows(",
        "cta.columns(",
        "cta.take(",
        "cta.scatter(",
        "cta.index_copy(",
        "cta.index_add(",
        "cta.sums(",
        "cta.mma(",
        "cta.mma_pair(",
        "cta.gemv",
        ".slice(",
        ".t()",
        ".swap(",
        ".split(",
        ".split_k(",
        "temp::<",
        "#[update(",
        "#[maco::helper(Rows)]",
        "#[maco::helper(Tiles)]",
        "#[maco::helper(Columns)]",
        "#[maco::helper(Indexed)]",
        "#[maco::helper(Gemm)]",
        "#[maco::helper(Gemv)]",
        "b = 1, ",
        "where M == N",
        "by: f32,\n) {",
        "Tensor<f32, ",
        "Tensor<bf16, ",
        "Tensor<f16, ",
        "Tensor<i32, ",
    ];
    let missing: Vec<&str> = all.into_iter().filter(|what| !TEXT.contains(what)).collect();
    assert!(std::env::var_os("MACO_BODIES").is_some() || missing.is_empty(), "{missing:?}");
}

#[test]
fn cpu_reads_outside_are_errors() {
    let device = Device::cpu_with(2);
    let setup = Setup { device, plans: vec![PlanOptions::new()], sizes: SIZES[0], delays: 1 };
    assert!(!checks::OUTSIDE.is_empty());
    for (name, check) in checks::OUTSIDE {
        println!("{name}");
        check(&setup);
    }
}

#[test]
#[ignore = "gpu"]
fn gpu_bodies() {
    let device = Device::gpu(0).expect("a GPU");
    let all = device.workers();
    let few = 5.min(all);
    let plans =
        [(Schedule::Static, few), (Schedule::Tickets, all), (Schedule::Schedulers(1), few.min(all - 1)), (Schedule::SpareWarps(few), few)]
            .map(|(schedule, workers)| PlanOptions::new().workers(workers).schedule(schedule));
    let sizes = if short() { &SIZES[..2] } else { &SIZES };
    // Device code sleeps too; of 0 not at all.
    run(&device, &plans, sizes, 2);
}

#[test]
#[ignore = "gpu"]
fn gpu_reads_outside_are_zeros() {
    let device = Device::gpu(0).expect("a GPU");
    let setup = Setup { device, plans: vec![PlanOptions::new()], sizes: SIZES[0], delays: 1 };
    for (name, check) in checks::OUTSIDE {
        println!("{name}");
        check(&setup);
    }
}
