//! A launch on the CPU wakes parked threads, and starts none.

mod kernels;

use std::time::{Duration, Instant};

use kernels::{ADD, Builder};
use maco_graph::ir::ScalarSource;
use maco_graph::ir::TensorKind::{In, Out};
use maco_graph::spec::Element::F32;
use maco_host::{Arguments, Device, Plan, PlanOptions};

fn threads() -> Option<usize> {
    std::fs::read_dir("/proc/self/task").ok().map(|entries| entries.count())
}

// The only test of its process: others would start threads of their own.
#[test]
fn a_run_starts_no_thread() {
    for workers in [1, 2, 4] {
        let device = Device::cpu_with(workers);
        let builder = Builder::new("small").tensor("x", In, F32, &[8, 16]).tensor("y", Out, F32, &[8, 16]).call(
            &ADD,
            &["x", "y"],
            &[ScalarSource::Literal(0)],
        );
        let before = threads();
        let plan = Plan::build(&device, builder.program(), &PlanOptions::new()).unwrap();
        let x = device.zeros::<f32>([8, 16]).unwrap();
        let mut y = device.zeros::<f32>([8, 16]).unwrap();
        let mut run = || {
            let start = Instant::now();
            plan.run(Arguments::new().tensor(&x).tensor_mut(&mut y)).unwrap();
            start.elapsed()
        };
        run();
        let after = threads();
        assert_eq!(after, before.map(|before| before + workers as usize));
        let mut times: Vec<Duration> = (0..1000).map(|_| run()).collect();
        assert_eq!(threads(), after);
        times.sort_unstable();
        let median = times[times.len() / 2];
        println!("{workers} workers: median {median:?}, fastest {:?}", times[0]);
        // Two orders of magnitude above what it takes, to hold on a busy machine.
        assert!(median < Duration::from_millis(5), "median {median:?}");
        drop((plan, x, y, device));
        assert_eq!(threads(), before, "a device takes its threads with it");
    }
}
