//! The pipelined CPU executor: loader, consumers and store as threads over modelled shared memory. Its results are those of the plain
//! executor to the last bit, whatever the order of copies and however threads are delayed, and its hangs are told and survived.
//!
//! Takes a quarter of a minute: every role is a thread, and there are more of them than cores; each graph runs with many delays.

mod kernels;

use std::time::{Duration, Instant};

use half::bf16;
use kernels::{ADD, BY, Builder, CENTRE, DOUBLE, LINEAR, SCHEDULES, SLOW, WIDE};
use maco_graph::ir::TensorKind::{In, Out, Temp};
use maco_graph::spec::Element::{Bf16, F32};
use maco_host::{Arguments, Device, Error, Fault, Plan, PlanOptions, Schedule, Symptom, Tensor};

fn integers(count: u64, seed: u32) -> impl Iterator<Item = f32> {
    (0..count as u32).map(move |n| ((n.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 16) % 64) as f32 - 32.0)
}

fn build(device: &Device, builder: &Builder, options: PlanOptions) -> Plan {
    Plan::build(device, builder.clone().program(), &options).unwrap()
}

/// y = x · w[0]ᵀ · w[1]ᵀ … by `layers` square weights; and beside it z = centre(2 (v + by)), so that kinds of tasks change.
struct Layers {
    builder: Builder,
    device: Device,
    x: Tensor<bf16>,
    w: Vec<Tensor<bf16>>,
    v: Tensor<f32>,
    sizes: [u64; 3],
}

impl Layers {
    /// `x` is `m` × `k`, the first weight `n` × `k`, the others `n` × `n`.
    fn new(device: &Device, [m, n, k]: [u64; 3], layers: u32) -> Layers {
        let mut builder = Builder::new("layers").tensor("x", In, Bf16, &[m, k]);
        for layer in 0..layers {
            builder = builder.tensor(&format!("w[{layer}]"), In, Bf16, &[n, if layer == 0 { k } else { n }]);
        }
        builder = builder.tensor("v", In, F32, &[13, 21]).tensor("y", Out, Bf16, &[m, n]).tensor("z", Out, F32, &[13, 21]).scalar("by");
        for layer in 1..layers {
            builder = builder.tensor(&format!("h[{layer}]"), Temp, Bf16, &[m, n]);
        }
        builder = builder.tensor("u", Temp, F32, &[13, 21]);
        for layer in 0..layers {
            let from = if layer == 0 { "x".into() } else { format!("h[{layer}]") };
            let to = if layer + 1 == layers { "y".into() } else { format!("h[{}]", layer + 1) };
            builder = builder.call(&LINEAR, &[&from, &format!("w[{layer}]"), &to], &[]);
            builder = match layer {
                0 => builder.call(&ADD, &["v", "u"], &BY),
                1 => builder.call(&DOUBLE, &["u"], &[]),
                _ => builder,
            };
        }
        builder = builder.call(&CENTRE, &["u", "z"], &[]);
        let halves = |rows: u64, cols: u64, seed: u32| {
            let data: Vec<bf16> = integers(rows * cols, seed).map(|x| bf16::from_f32(x / 64.0)).collect();
            device.upload(&data, [rows, cols]).unwrap()
        };
        let w = (0..layers).map(|layer| halves(n, if layer == 0 { k } else { n }, 77 + layer)).collect();
        let v = device.upload(&integers(13 * 21, 5).collect::<Vec<_>>(), [13, 21]).unwrap();
        Layers { builder, device: device.clone(), x: halves(m, k, 1), w, v, sizes: [m, n, k] }
    }

    fn plan(&self, options: PlanOptions) -> Plan {
        build(&self.device, &self.builder, options)
    }

    fn run(&self, plan: &Plan) -> Result<(Vec<bf16>, Vec<f32>), Error> {
        let [m, n, _] = self.sizes;
        let mut y = [self.device.upload(&vec![bf16::from_f32(-1e4); (m * n) as usize], [m, n]).unwrap()];
        let mut z = self.device.upload(&[-1e4f32; 13 * 21], [13, 21]).unwrap();
        let arguments = Arguments::new().tensor(&self.x).tensors(&self.w).tensor(&self.v).tensors_mut(&mut y).tensor_mut(&mut z);
        plan.run(arguments.scalar(2f32))?;
        Ok((y[0].download().unwrap(), z.download().unwrap()))
    }

    /// What the plain executor makes.
    fn expected(&self) -> (Vec<bf16>, Vec<f32>) {
        self.run(&self.plan(PlanOptions::new())).unwrap()
    }
}

#[test]
fn results_equal_those_of_the_plain_executor() {
    for workers in 1..=4 {
        let device = Device::cpu_with(workers);
        // Ragged in every dimension; K of 0; more steps than the ring has stages; many small tiles.
        for (sizes, layers) in [([130, 200, 100], 3), ([64, 128, 0], 1), ([65, 136, 700], 2), ([300, 72, 8], 4)] {
            let layers = Layers::new(&device, sizes, layers);
            let expected = layers.expected();
            for schedule in SCHEDULES {
                let plan = layers.plan(PlanOptions::new().pipelined(true).schedule(schedule));
                for launch in 0..3 {
                    let found = layers.run(&plan).unwrap();
                    assert!(found == expected, "{sizes:?}, {workers} workers, {schedule:?}, launch {launch}");
                }
            }
        }
    }
}

#[test]
fn a_thousand_random_orders_give_the_same_results() {
    let device = Device::cpu_with(2);
    let layers = Layers::new(&device, [70, 136, 100], 3);
    let expected = layers.expected();
    for schedule in SCHEDULES {
        let plan = layers.plan(PlanOptions::new().pipelined(true).schedule(schedule));
        for seed in 1..=250 {
            plan.set_delays(seed);
            let found = layers.run(&plan).unwrap_or_else(|error| panic!("{schedule:?}, seed {seed}: {error}"));
            assert!(found == expected, "{schedule:?}, seed {seed}");
        }
    }
}

/// How long a hang may take to be told, on a busy machine.
const DEADLINE: Duration = Duration::from_millis(60);

#[test]
fn faults_end_in_their_error_and_are_recovered_from() {
    for workers in [1, 3] {
        let device = Device::cpu_with(workers);
        let layers = Layers::new(&device, [130, 200, 300], 3);
        let expected = layers.expected();
        for schedule in SCHEDULES {
            let plan = layers.plan(PlanOptions::new().pipelined(true).schedule(schedule).deadline(DEADLINE));
            let calls = &plan.graph().calls;
            let (first, second) = (calls[0].tasks.start, calls[2].tasks.end - 1);
            let pushed = matches!(schedule, Schedule::Schedulers(_) | Schedule::SpareWarps(_));
            let mut faults = vec![
                (Fault::LostSignal(first), Symptom::Waited),
                (Fault::LostArrive(first), Symptom::DidNotEnd),
                (Fault::LostArrive(second), Symptom::DidNotEnd),
                (Fault::ExtraBytes(first), Symptom::DidNotEnd),
                (Fault::ExtraBytes(second), Symptom::DidNotEnd),
            ];
            if pushed {
                faults.push((Fault::LostPush(second), Symptom::DidNotEnd));
            }
            for (fault, symptom) in faults {
                let what = format!("{fault:?}, {workers} workers, {schedule:?}");
                plan.inject(Some(fault)).unwrap();
                let begin = Instant::now();
                let hang = match layers.run(&plan) {
                    Err(Error::Hang(hang)) => *hang,
                    Err(other) => panic!("{what}: {other}"),
                    Ok(_) => panic!("{what}: nothing hangs"),
                };
                assert!(begin.elapsed() < Duration::from_secs(5), "{what}: took {:?}", begin.elapsed());
                assert!(hang.waited >= DEADLINE, "{what}: {hang}");
                assert_eq!(&*hang.megakernel, "layers", "{what}");
                // With several workers, one that waits for the task that does not end may be the first to lose patience.
                if workers == 1 || symptom == Symptom::Waited {
                    assert_eq!(hang.symptom, symptom, "{what}: {hang}");
                }
                if hang.symptom == Symptom::DidNotEnd && workers == 1 {
                    assert_eq!(&*hang.task, "linear", "{what}: {hang}");
                }
                assert_eq!(layers.run(&plan).unwrap_err().code(), 48, "{what}");
                plan.recover().unwrap();
                plan.inject(None).unwrap();
                // What does not hang takes longer than that on a busy machine.
                plan.set_deadline(Duration::from_secs(10)).unwrap();
                for seed in [0, 9] {
                    plan.set_delays(seed);
                    assert!(layers.run(&plan).unwrap() == expected, "{what}: after recovery");
                }
                plan.set_delays(0);
                plan.set_deadline(DEADLINE).unwrap();
            }
        }
    }
}

#[test]
fn slow_tasks_are_not_a_hang() {
    // Every tile takes longer than the deadline; some workers wait meanwhile.
    let device = Device::cpu_with(3);
    let builder = Builder::new("slow")
        .tensor("x", In, F32, &[4, 32])
        .tensor("y", Out, F32, &[4, 32])
        .tensor("h", Temp, F32, &[4, 32])
        .scalar("ms")
        .call(&SLOW, &["x", "h"], &BY)
        .call(&DOUBLE, &["h"], &[])
        .call(&CENTRE, &["h", "y"], &[]);
    let data: Vec<f32> = integers(128, 2).collect();
    let x = device.upload(&data, [4, 32]).unwrap();
    for schedule in SCHEDULES {
        let plan = build(&device, &builder, PlanOptions::new().pipelined(true).schedule(schedule).deadline(DEADLINE / 2));
        let mut y = device.zeros::<f32>([4, 32]).unwrap();
        plan.run(Arguments::new().tensor(&x).scalar(100f32).tensor_mut(&mut y)).unwrap();
        let plain = build(&device, &builder, PlanOptions::new());
        let mut expected = device.zeros::<f32>([4, 32]).unwrap();
        plain.run(Arguments::new().tensor(&x).scalar(0f32).tensor_mut(&mut expected)).unwrap();
        assert_eq!(y.download().unwrap(), expected.download().unwrap(), "{schedule:?}");
    }
}

#[test]
fn consumers_that_are_far_ahead_run_every_task_once() {
    // More tasks without waits than there are slots, each of which shows if it is run twice: consumers need not wait for the controller.
    let device = Device::cpu_with(1);
    let builder =
        Builder::new("far").tensor("x", In, F32, &[64, 32]).tensor("y", Out, F32, &[64, 32]).scalar("by").call(&ADD, &["x", "y"], &BY);
    let x = device.upload(&integers(2048, 5).collect::<Vec<f32>>(), [64, 32]).unwrap();
    let expected: Vec<f32> = integers(2048, 5).map(|x| 2.0 * (x + 3.0)).collect();
    let builder = builder.call(&DOUBLE, &["y"], &[]);
    for schedule in [Schedule::Static, Schedule::Tickets] {
        let plan = build(&device, &builder, PlanOptions::new().pipelined(true).schedule(schedule));
        for seed in 0..400 {
            plan.set_delays(seed);
            let mut y = device.zeros::<f32>([64, 32]).unwrap();
            plan.run(Arguments::new().tensor(&x).scalar(3f32).tensor_mut(&mut y)).unwrap();
            assert_eq!(y.download().unwrap(), expected, "seed {seed}, {schedule}");
        }
    }
}

/// y = x · wᵀ by tiles whose chunks go through shared memory twice: an `m` × `n` GEMM of K 64, and its operands.
fn wide(device: &Device, [m, n]: [u64; 2]) -> (Builder, [Tensor<bf16>; 2]) {
    let builder = Builder::new("wide").tensor("x", In, Bf16, &[m, 64]).tensor("w", In, Bf16, &[n, 64]).tensor("y", Out, Bf16, &[m, n]);
    let operand = |rows: u64, seed: u32| {
        let data: Vec<bf16> = integers(rows * 64, seed).map(|x| bf16::from_f32(x / 64.0)).collect();
        device.upload(&data, [rows, 64]).unwrap()
    };
    (builder.call(&WIDE, &["x", "w", "y"], &[]), [operand(m, 3), operand(n, 4)])
}

fn gemms(plan: &Plan, device: &Device, [x, w]: &[Tensor<bf16>; 2]) -> Vec<bf16> {
    let mut y = device.zeros::<bf16>([x.shape()[0], w.shape()[0]]).unwrap();
    plan.run(Arguments::new().tensor(x).tensor(w).tensor_mut(&mut y)).unwrap();
    y.download().unwrap()
}

/// Consumers fill a chunk again when the store role says that TMA has read it, which is a while after it was told to. If that is said too early, as by a store role
/// without `cp.async.bulk.wait_group.read`, what was to be stored first is what was filled in last.
#[test]
fn chunks_that_are_used_again_while_their_stores_are_in_flight_are_noticed() {
    let device = Device::cpu_with(1);
    let (builder, operands) = wide(&device, [128, 256]);
    let expected = gemms(&build(&device, &builder, PlanOptions::new()), &device, &operands);
    for schedule in SCHEDULES {
        let plan = build(&device, &builder, PlanOptions::new().pipelined(true).schedule(schedule));
        assert!(gemms(&plan, &device, &operands) == expected, "{schedule:?}");
        plan.inject(Some(Fault::EarlyFree(0))).unwrap();
        let found = gemms(&plan, &device, &operands);
        // Chunks have 64 columns, and a warpgroup has room for two.
        let late: Vec<bf16> = expected.chunks_exact(256).flat_map(|row| [&row[128..], &row[128..]].concat()).collect();
        assert!(found != expected, "{schedule:?}: nobody notices");
        assert!(found == late, "{schedule:?}: not what is in the chunks last");
        plan.inject(None).unwrap();
        assert!(gemms(&plan, &device, &operands) == expected, "{schedule:?}");
    }
}

/// The same role with its waits: whenever copies read, and whoever is late, results are right; also where the next tile's chunks follow at once.
#[test]
fn chunks_are_used_again_when_they_have_been_read() {
    let device = Device::cpu_with(2);
    let (builder, operands) = wide(&device, [300, 600]);
    let expected = gemms(&build(&device, &builder, PlanOptions::new()), &device, &operands);
    for schedule in SCHEDULES {
        let plan = build(&device, &builder, PlanOptions::new().pipelined(true).schedule(schedule));
        for seed in 0..20 {
            plan.set_delays(seed);
            assert!(gemms(&plan, &device, &operands) == expected, "{schedule:?}, seed {seed}");
        }
    }
}
