//! Plans on the CPU device: numbers, hangs, panics, recovery.

mod kernels;

use std::env;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use half::bf16;
use kernels::{ADD, BY, Builder, CENTRE, FOREVER, LINEAR, RAW, SCHEDULES, SLOW, STRICT, chain};
use maco_graph::ir::TensorKind::{In, InOut, Out, State, Temp};
use maco_graph::ir::{ScalarSource, View, ViewAxis};
use maco_graph::spec::Element::{Bf16, F32};
use maco_host::{Arguments, CudaGraph, Device, Error, Event, Fault, Plan, PlanOptions, Schedule, Stream, Symptom, Tensor};

fn chain_expected(x: &[f32], n: usize, by: f32) -> Vec<f32> {
    x.chunks(n)
        .flat_map(|row| {
            let row: Vec<f32> = row.iter().map(|x| 2.0 * (x + by)).collect();
            let sum: f32 = row.iter().sum();
            row.into_iter().map(move |x| x - sum)
        })
        .collect()
}

/// Small integers, so that sums are exact in any order.
fn integers(count: usize, seed: u32) -> Vec<f32> {
    (0..count as u32).map(|n| ((n.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 16) % 64) as f32 - 32.0).collect()
}

fn build(device: &Device, builder: Builder, options: PlanOptions) -> Plan {
    Plan::build(device, builder.program(), &options).unwrap()
}

#[test]
fn a_chain_is_exact_on_any_number_of_workers() {
    for workers in [1, 2, 3, 8] {
        let device = Device::cpu_with(workers);
        for schedule in SCHEDULES {
            for (m, n) in [(13, 21), (4, 8), (1, 1), (64, 40)] {
                let plan = build(&device, chain(&ADD, m, n), PlanOptions::new().schedule(schedule));
                assert_eq!(plan.workers(), workers);
                let mut y = device.zeros::<f32>([m, n]).unwrap();
                // More launches than counter banks, with other arguments each time.
                for launch in 0..7 {
                    let data = integers((m * n) as usize, launch);
                    let x = device.upload(&data, [m, n]).unwrap();
                    let by = launch as f32;
                    let report = plan.run(Arguments::new().tensor(&x).scalar(by).tensor_mut(&mut y)).unwrap();
                    assert_eq!((report.tasks, report.workers), (plan.tasks(), workers));
                    assert_eq!(y.download().unwrap(), chain_expected(&data, n as usize, by), "{m} × {n}, {workers} workers, {schedule:?}");
                }
            }
        }
    }
}

#[test]
fn many_launches_of_a_deep_graph() {
    let device = Device::cpu_with(4);
    let (m, n) = (24, 32);
    let mut builder = Builder::new("deep").tensor("x", InOut, F32, &[m, n]);
    for _ in 0..20 {
        builder = builder.call(&ADD, &["x", "x"], &[ScalarSource::Literal(1f32.to_bits())]);
    }
    // In place through two parameters of one call is an alias: the planner refuses it.
    assert_eq!(Plan::build(&device, builder.program(), &PlanOptions::new()).unwrap_err().code(), 1);

    let mut builder = Builder::new("deep").tensor("x", InOut, F32, &[m, n]).tensor("h", Temp, F32, &[m, n]);
    for _ in 0..10 {
        builder = builder.call(&ADD, &["x", "h"], &[ScalarSource::Literal(1f32.to_bits())]);
        builder = builder.call(&ADD, &["h", "x"], &[ScalarSource::Literal(2f32.to_bits())]);
    }
    for schedule in SCHEDULES {
        let plan = build(&device, Builder::new("deep"), PlanOptions::new());
        assert_eq!(plan.tasks(), 0);
        plan.run(Arguments::new()).unwrap();
        let plan = build(&device, builder.clone(), PlanOptions::new().schedule(schedule));
        let mut x = device.zeros::<f32>([m, n]).unwrap();
        for launch in 1..=200 {
            plan.run(Arguments::new().tensor_mut(&mut x)).unwrap();
            if launch % 50 == 0 {
                assert_eq!(x.download().unwrap(), vec![30.0 * launch as f32; (m * n) as usize], "{schedule:?}");
            }
        }
    }
}

#[test]
fn two_linear_layers_match_the_oracle() {
    let (m, k, n) = (130usize, 100usize, 200usize);
    let device = Device::cpu_with(3);
    let builder = Builder::new("mlp")
        .tensor("x", In, Bf16, &[m as u64, k as u64])
        .tensor("w[0]", In, Bf16, &[n as u64, k as u64])
        .tensor("w[1]", In, Bf16, &[n as u64, n as u64])
        .tensor("y", Out, Bf16, &[m as u64, n as u64])
        .tensor("h", Temp, Bf16, &[m as u64, n as u64])
        .call(&LINEAR, &["x", "w[0]", "h"], &[])
        .call(&LINEAR, &["h", "w[1]", "y"], &[]);
    let small = |count: usize, seed| integers(count, seed).into_iter().map(|x| bf16::from_f32(x / 64.0)).collect::<Vec<_>>();
    let (x, w0, w1) = (small(m * k, 1), small(n * k, 2), small(n * n, 3));
    let linear = |x: &[bf16], w: &[bf16], k: usize| -> Vec<bf16> {
        x.chunks(k)
            .flat_map(|x| w.chunks(k).map(move |w| bf16::from_f32(x.iter().zip(w).map(|(x, w)| x.to_f32() * w.to_f32()).sum())))
            .collect()
    };
    let expected = linear(&linear(&x, &w0, k), &w1, n);

    let plan = build(&device, builder, PlanOptions::new());
    let x = device.upload(&x, [m, k]).unwrap();
    let w = [device.upload(&w0, [n, k]).unwrap(), device.upload(&w1, [n, n]).unwrap()];
    let mut y = [device.zeros::<bf16>([m, n]).unwrap()];
    let arguments = Arguments::new().tensor(&x).tensors(&w).tensors_mut(&mut y);
    plan.run(&arguments).unwrap();
    plan.run(&arguments).unwrap();
    drop(arguments);
    assert_eq!(y[0].download().unwrap(), expected);
}

#[test]
fn views_state_and_borrowed_memory() {
    // Two column slices of `cache` are written by two calls; the rest keeps its value.
    let device = Device::cpu_with(2);
    let columns = |from| View {
        tensor: 1,
        offset: vec![0, from],
        axes: vec![ViewAxis { axis: 0, step: 1, extent: 6 }, ViewAxis { axis: 1, step: 1, extent: 10 }],
    };
    let builder = Builder::new("slices").tensor("x", In, F32, &[6, 10]).tensor("cache", State, F32, &[6, 40]).scalar("by");
    let whole = View {
        tensor: 0,
        offset: vec![0, 0],
        axes: vec![ViewAxis { axis: 0, step: 1, extent: 6 }, ViewAxis { axis: 1, step: 1, extent: 10 }],
    };
    let builder = builder.call_views(&ADD, vec![whole, columns(3)], &BY).call_views(
        &ADD,
        vec![columns(3), columns(25)],
        &[ScalarSource::Literal(10f32.to_bits())],
    );
    let plan = build(&device, builder, PlanOptions::new());

    let mut memory = vec![-1f32; 6 * 50];
    let data = integers(60, 9);
    let x = device.upload(&data, [6, 10]).unwrap();
    // SAFETY: six rows of forty floats at a stride of fifty; alive and unshared until the tensor is dropped.
    let mut cache = unsafe { Tensor::from_raw(&device, memory.as_mut_ptr(), [6, 40], 50).unwrap() };
    plan.run(Arguments::new().tensor(&x).scalar(1.0f32).tensor_mut(&mut cache)).unwrap();
    drop(cache);
    for (at, &found) in memory.iter().enumerate() {
        let (row, column) = (at / 50, at % 50);
        let expected = match column {
            3..13 => data[row * 10 + column - 3] + 1.0,
            25..35 => data[row * 10 + column - 25] + 11.0,
            _ => -1.0,
        };
        assert_eq!(found, expected, "row {row}, column {column}");
    }
}

#[test]
fn a_lost_signal_is_reported_in_the_users_names_and_recovered_from() {
    for schedule in SCHEDULES {
        for workers in [1, 3] {
            let device = Device::cpu_with(workers);
            let deadline = Duration::from_millis(60);
            let plan = build(&device, chain(&ADD, 16, 24), PlanOptions::new().schedule(schedule).deadline(deadline));
            let data = integers(16 * 24, 0);
            let x = device.upload(&data, [16, 24]).unwrap();
            let mut y = device.zeros::<f32>([16, 24]).unwrap();
            let mut run = |by: f32| plan.run(Arguments::new().tensor(&x).scalar(by).tensor_mut(&mut y));
            run(1.0).unwrap();

            // The second call doubles `h` in place, tile by tile; its last tile loses its signals.
            let lost = plan.graph().calls[1].tasks.end - 1;
            plan.inject(Some(Fault::LostSignal(lost))).unwrap();
            if (schedule, workers) == (Schedule::Static, 1) {
                // Nobody needs them: the one worker knows what it has done.
                run(1.0).unwrap();
                continue;
            }
            let start = Instant::now();
            let Err(Error::Hang(hang)) = run(1.0) else { panic!("the run must hang") };
            assert!(start.elapsed() < Duration::from_secs(2), "took {:?}", start.elapsed());
            assert!(hang.waited >= deadline && hang.waited < deadline * 8, "{hang}");
            assert_eq!((&*hang.megakernel, &*hang.task, hang.call), ("chain", "centre", 2));
            let dependency = hang.dependency.as_ref().expect("the plan knows the counter");
            assert_eq!((&*dependency.tensor, &*dependency.producer, dependency.call), ("h", "double", 1));
            assert_eq!(dependency.hazard, "read after write");
            assert_eq!(hang.seen + 1, hang.expected, "{hang}");
            assert_eq!(hang.multiprocessor, None);
            let text = hang.to_string();
            let executor = if plan.graph().schedule.schedulers() == 0 { "signals (worker " } else { "signals (scheduler 0)" };
            for part in ["MACO0047", "`chain`", "`centre` tile [", "`h` from task `double`", executor, "recover()"] {
                assert!(text.contains(part), "{part} is missing: {text}");
            }

            // Sticky until recovered; recovery does not mend the fault.
            for _ in 0..2 {
                let error = run(1.0).unwrap_err();
                assert_eq!(error.code(), 48);
                assert!(error.to_string().contains("MACO0047"), "{error}");
                assert_eq!(plan.check().unwrap_err().code(), 48);
            }
            plan.recover().unwrap();
            plan.check().unwrap();
            assert_eq!(run(1.0).unwrap_err().code(), 47);
            plan.recover().unwrap();
            plan.inject(None).unwrap();
            for by in [2.0, 3.0, 4.0] {
                run(by).unwrap();
            }
            assert_eq!(y.download().unwrap(), chain_expected(&data, 24, 4.0));
        }
    }
}

#[test]
fn a_task_that_does_not_end_is_named() {
    for schedule in SCHEDULES {
        let device = Device::cpu_with(1);
        let deadline = Duration::from_millis(40);
        let plan = build(&device, chain(&ADD, 16, 24), PlanOptions::new().schedule(schedule).deadline(deadline));
        let data = integers(16 * 24, 0);
        let x = device.upload(&data, [16, 24]).unwrap();
        let mut y = device.zeros::<f32>([16, 24]).unwrap();
        let mut run = |by: f32| plan.run(Arguments::new().tensor(&x).scalar(by).tensor_mut(&mut y));
        let stuck = plan.graph().calls[1].tasks.start + 5;
        let mut faults = vec![Fault::LostArrive(stuck)];
        if schedule.schedulers() > 0 {
            faults.push(Fault::LostPush(stuck));
        }
        for fault in faults {
            plan.inject(Some(fault)).unwrap();
            let Err(Error::Hang(hang)) = run(1.0) else { panic!("the run must hang") };
            let coord = &plan.graph().tasks[stuck as usize].coord[..2];
            assert_eq!((hang.symptom, &*hang.task, hang.call, &*hang.tile), (Symptom::DidNotEnd, "double", 1, coord), "{schedule}: {hang}");
            assert!(hang.waited >= deadline && hang.waited < deadline * 8 && hang.dependency.is_none(), "{hang}");
            assert!(hang.to_string().contains("did not end within"), "{hang}");
            assert_eq!(run(1.0).unwrap_err().code(), 48);
            plan.inject(None).unwrap();
            plan.recover().unwrap();
            run(3.0).unwrap();
        }
        assert_eq!(y.download().unwrap(), chain_expected(&data, 24, 3.0));
    }
}

#[test]
fn the_number_of_launches_wraps() {
    let device = Device::cpu_with(3);
    for schedule in SCHEDULES {
        let plan = build(&device, chain(&ADD, 16, 24), PlanOptions::new().schedule(schedule));
        let data = integers(16 * 24, 0);
        let x = device.upload(&data, [16, 24]).unwrap();
        let mut y = device.zeros::<f32>([16, 24]).unwrap();
        for start in [u32::MAX - 3, (1 << 31) - 2] {
            plan.launched(start).unwrap();
            for launch in 0..8 {
                plan.run(Arguments::new().tensor(&x).scalar(launch as f32).tensor_mut(&mut y)).unwrap();
                assert_eq!(y.download().unwrap(), chain_expected(&data, 24, launch as f32), "{schedule}, launch {launch} from {start}");
            }
        }
    }
}

#[test]
fn a_hang_of_one_plan_leaves_others_alone() {
    let device = Device::cpu_with(2);
    let bad = build(&device, chain(&ADD, 8, 8), PlanOptions::new().deadline(Duration::from_millis(30)));
    let good = build(&device, chain(&ADD, 8, 8), PlanOptions::new());
    let data = integers(64, 5);
    let x = device.upload(&data, [8, 8]).unwrap();
    let mut y = device.zeros::<f32>([8, 8]).unwrap();
    bad.inject(Some(Fault::LostArrive(0))).unwrap();
    assert_eq!(bad.run(Arguments::new().tensor(&x).scalar(0f32).tensor_mut(&mut y)).unwrap_err().code(), 47);
    good.run(Arguments::new().tensor(&x).scalar(1f32).tensor_mut(&mut y)).unwrap();
    assert_eq!(y.download().unwrap(), chain_expected(&data, 8, 1.0));
}

#[test]
fn slow_tasks_are_not_a_hang() {
    // Every tile takes longer than the deadline; of three workers, two wait while the third runs the fourth tile.
    let device = Device::cpu_with(3);
    let builder = Builder::new("slow")
        .tensor("x", In, F32, &[4, 32])
        .tensor("y", Out, F32, &[4, 32])
        .tensor("h", Temp, F32, &[4, 32])
        .scalar("ms")
        .call(&SLOW, &["x", "h"], &BY)
        .call(&CENTRE, &["h", "y"], &[]);
    let plan = build(&device, builder, PlanOptions::new().deadline(Duration::from_millis(20)));
    let data = integers(128, 2);
    let x = device.upload(&data, [4, 32]).unwrap();
    let mut y = device.zeros::<f32>([4, 32]).unwrap();
    let report = plan.run(Arguments::new().tensor(&x).scalar(60f32).tensor_mut(&mut y)).unwrap();
    assert!(report.elapsed >= Duration::from_millis(120), "{report:?}");
    let halves: Vec<f32> = chain_expected(&data, 32, 0.0).into_iter().map(|x| x / 2.0).collect();
    assert_eq!(y.download().unwrap(), halves);
}

#[test]
fn a_panic_in_a_body_is_an_error_that_names_the_tile() {
    let device = Device::cpu_with(2);
    let builder = Builder::new("strict")
        .tensor("x", In, F32, &[8, 16])
        .tensor("y", Out, F32, &[8, 16])
        .tensor("h", Temp, F32, &[8, 16])
        .scalar("by")
        .call(&ADD, &["x", "h"], &BY)
        .call(&STRICT, &["h", "y"], &[]);
    for (schedule, pipelined) in SCHEDULES.into_iter().flat_map(|schedule| [(schedule, false), (schedule, true)]) {
        let plan = build(&device, builder.clone(), PlanOptions::new().schedule(schedule).pipelined(pipelined));
        let mut data = vec![1f32; 128];
        data[5 * 16 + 9] = -7.0;
        let x = device.upload(&data, [8, 16]).unwrap();
        let mut y = device.zeros::<f32>([8, 16]).unwrap();
        let error = plan.run(Arguments::new().tensor(&x).scalar(0f32).tensor_mut(&mut y)).unwrap_err();
        let Error::Panicked { task, call, tile, message, .. } = &error else { panic!("{error}") };
        assert_eq!((&**task, *call, &**tile, &**message), ("strict", 1, &[1, 1][..], "-7 is negative"));
        assert_eq!(plan.run(Arguments::new().tensor(&x).scalar(9f32).tensor_mut(&mut y)).unwrap_err().code(), 48);
        plan.recover().unwrap();
        plan.run(Arguments::new().tensor(&x).scalar(9f32).tensor_mut(&mut y)).unwrap();
        assert_eq!(y.download().unwrap()[5 * 16 + 9], 2.0);
    }
}

#[test]
fn a_panic_ends_the_waits_of_others() {
    let device = Device::cpu_with(3);
    let builder = Builder::new("early")
        .tensor("x", In, F32, &[8, 16])
        .tensor("y", Out, F32, &[8, 16])
        .tensor("h", Temp, F32, &[8, 16])
        .call(&STRICT, &["x", "h"], &[])
        .call(&CENTRE, &["h", "y"], &[]);
    let plan = build(&device, builder, PlanOptions::new().deadline(Duration::from_secs(20)));
    let mut data = vec![1f32; 128];
    data[0] = -1.0;
    let x = device.upload(&data, [8, 16]).unwrap();
    let mut y = device.zeros::<f32>([8, 16]).unwrap();
    let start = Instant::now();
    assert_eq!(plan.run(Arguments::new().tensor(&x).tensor_mut(&mut y)).unwrap_err().code(), 51);
    assert!(start.elapsed() < Duration::from_secs(10), "took {:?}", start.elapsed());
}

#[test]
fn one_plan_runs_once_at_a_time_and_plans_of_a_device_take_turns() {
    let device = Device::cpu_with(2);
    let slow =
        || Builder::new("slow").tensor("x", In, F32, &[4, 8]).tensor("y", Out, F32, &[4, 8]).scalar("ms").call(&SLOW, &["x", "y"], &BY);
    let (first, second) = (build(&device, slow(), PlanOptions::new()), build(&device, slow(), PlanOptions::new()));
    let x = device.upload(&integers(32, 1), [4, 8]).unwrap();
    let run = |plan: &Plan, ms: f32| {
        let mut y = device.zeros::<f32>([4, 8]).unwrap();
        plan.run(Arguments::new().tensor(&x).scalar(ms).tensor_mut(&mut y)).map(|_| y.download().unwrap())
    };
    std::thread::scope(|scope| {
        let begun = Instant::now();
        let long = scope.spawn(|| run(&first, 300.0));
        std::thread::sleep(Duration::from_millis(100));
        let error = run(&first, 0.0).unwrap_err();
        assert_eq!(error.code(), 46, "{error}");
        assert!(begun.elapsed() < Duration::from_millis(300), "the error must not wait");
        assert_eq!(run(&second, 0.0).unwrap(), integers(32, 1));
        assert!(begun.elapsed() >= Duration::from_millis(300), "the other plan waits its turn");
        assert_eq!(long.join().unwrap().unwrap(), integers(32, 1));
    });
    run(&first, 0.0).unwrap();
}

#[test]
fn what_a_plan_cannot_be_built_for() {
    let device = Device::cpu_with(2);
    let code = |builder: Builder, options: PlanOptions| {
        Plan::build(&device, builder.program(), &options).map(|_| ()).map_err(|error| error.code())
    };
    assert_eq!(code(chain(&ADD, 8, 8), PlanOptions::new().workers(2)), Ok(()));
    assert_eq!(code(chain(&ADD, 8, 8), PlanOptions::new().workers(3)), Err(39));
    assert_eq!(code(chain(&ADD, 8, 8), PlanOptions::new().workers(0)), Err(21));
    assert_eq!(code(chain(&ADD, 8, 8), PlanOptions::new().max_tasks(3)), Err(27));
    assert_eq!(code(chain(&ADD, 8, 8), PlanOptions::new().deadline(Duration::ZERO)), Err(59));
    let raw = Builder::new("raw").tensor("x", InOut, F32, &[4, 8]).call(&RAW, &["x"], &[]);
    let error = Plan::build(&device, raw.program(), &PlanOptions::new()).unwrap_err();
    assert_eq!(error.code(), 52);
    assert!(error.to_string().contains("cpu = reference_fn"), "{error}");
    let mut program = chain(&ADD, 8, 8).program();
    program.workers = Some(3);
    assert_eq!(Plan::build(&device, program, &PlanOptions::new()).unwrap_err().code(), 39);
    let mut program = chain(&ADD, 8, 8).program();
    (program.workers, program.schedulers) = (Some(1), Some(1));
    let plan = Plan::build(&device, program, &PlanOptions::new()).unwrap();
    assert_eq!((plan.workers(), plan.graph().schedule), (1, Schedule::Schedulers(1)));
}

#[test]
fn streams_on_a_cpu_run_at_once_and_graphs_need_a_gpu() {
    let device = Device::cpu_with(2);
    let plan = build(&device, chain(&ADD, 8, 8), PlanOptions::new());
    let data = integers(64, 3);
    let x = device.upload(&data, [8, 8]).unwrap();
    let mut y = device.zeros::<f32>([8, 8]).unwrap();
    let stream = Stream::new(&device).unwrap();
    let pending = plan.run_on(&stream, Arguments::new().tensor(&x).scalar(1f32).tensor_mut(&mut y)).unwrap();
    assert!(pending.is_done().unwrap());
    pending.wait().unwrap();
    stream.synchronize().unwrap();
    assert_eq!(y.download().unwrap(), chain_expected(&data, 8, 1.0));
    let default = Stream::default_of(&device);
    assert!(default.as_raw().is_null());
    plan.run_on(&default, Arguments::new().tensor(&x).scalar(2f32).tensor_mut(&mut y)).unwrap().wait().unwrap();
    default.synchronize().unwrap();
    assert_eq!(y.download().unwrap(), chain_expected(&data, 8, 2.0));

    let other = Stream::new(&Device::cpu_with(2)).unwrap();
    let wrong = plan.run_on(&other, Arguments::new().tensor(&x).scalar(1f32).tensor_mut(&mut y));
    assert_eq!(wrong.unwrap_err().code(), 33);
    assert_eq!(plan.bind(Arguments::new().tensor(&x).scalar(1f32).tensor_mut(&mut y)).unwrap_err().code(), 56);
    assert_eq!(CudaGraph::capture(&stream, |_| Ok::<(), Error>(())).unwrap_err().code(), 56);
    assert_eq!(Event::new(&device).unwrap_err().code(), 56);
    // SAFETY: the pointer is refused before anybody uses it.
    assert_eq!(unsafe { Stream::from_raw(&device, std::ptr::null_mut()) }.unwrap_err().code(), 56);
}

#[test]
fn wrong_arguments_change_nothing() {
    let device = Device::cpu_with(2);
    let plan = build(&device, chain(&ADD, 8, 8), PlanOptions::new());
    let data = integers(64, 4);
    let x = device.upload(&data, [8, 8]).unwrap();
    let wide = device.zeros::<f32>([8, 9]).unwrap();
    let mut y = device.zeros::<f32>([8, 8]).unwrap();
    plan.run(Arguments::new().tensor(&x).scalar(1f32).tensor_mut(&mut y)).unwrap();
    let before = y.download().unwrap();
    let error = plan.run(Arguments::new().tensor(&wide).scalar(5f32).tensor_mut(&mut y)).unwrap_err();
    assert_eq!(error.code(), 31);
    assert!(error.to_string().contains("`x` of megakernel `chain` has shape [8, 8] in this plan, but its argument has [8, 9]"), "{error}");
    assert_eq!(plan.run(Arguments::new().tensor(&x).tensor_mut(&mut y)).unwrap_err().code(), 30);
    let foreign = Device::cpu_with(2).upload(&data, [8, 8]).unwrap();
    assert_eq!(plan.run(Arguments::new().tensor(&foreign).scalar(5f32).tensor_mut(&mut y)).unwrap_err().code(), 33);
    // SAFETY: `x` and `y` live longer than these; the plan refuses to run with them.
    let (mut alias, part) = unsafe {
        (
            Tensor::from_raw(&device, x.as_ptr().cast_mut(), [8, 8], 8).unwrap(),
            Tensor::from_raw(&device, y.as_mut_ptr(), [8, 8], 8).unwrap(),
        )
    };
    assert_eq!(plan.run(Arguments::new().tensor(&x).scalar(5f32).tensor_mut(&mut alias)).unwrap_err().code(), 34);
    assert_eq!(plan.run(Arguments::new().tensor(&x).scalar(5f32).tensor(&part)).unwrap_err().code(), 36);
    assert_eq!(y.download().unwrap(), before);
    plan.run(Arguments::new().tensor(&x).scalar(2f32).tensor_mut(&mut y)).unwrap();
    assert_eq!(y.download().unwrap(), chain_expected(&data, 8, 2.0));
}

#[test]
fn the_deadline_can_be_changed() {
    let device = Device::cpu_with(1);
    let plan = build(&device, chain(&ADD, 8, 8), PlanOptions::new().deadline(Duration::from_secs(3600)));
    let x = device.zeros::<f32>([8, 8]).unwrap();
    let mut y = device.zeros::<f32>([8, 8]).unwrap();
    plan.set_deadline(Duration::from_millis(25)).unwrap();
    assert_eq!(plan.set_deadline(Duration::ZERO).unwrap_err().code(), 59);
    plan.inject(Some(Fault::LostArrive(0))).unwrap();
    let error = plan.run(Arguments::new().tensor(&x).scalar(0f32).tensor_mut(&mut y)).unwrap_err();
    assert_eq!(error.code(), 47);
}

#[test]
fn a_plan_outlives_its_device_handle_and_moves_between_threads() {
    let plan = build(&Device::cpu_with(2), chain(&ADD, 8, 8), PlanOptions::new());
    let device = plan.device().clone();
    let handle = std::thread::spawn(move || {
        let x = device.zeros::<f32>([8, 8]).unwrap();
        let mut y = device.zeros::<f32>([8, 8]).unwrap();
        plan.run(Arguments::new().tensor(&x).scalar(1f32).tensor_mut(&mut y)).unwrap();
        y.download().unwrap()
    });
    assert_eq!(handle.join().unwrap(), chain_expected(&[0.0; 64], 8, 1.0));
}

#[test]
fn plans_for_the_graph_variable() {
    // Run by the test below in a process of its own; harmless otherwise.
    build(&Device::cpu_with(1), chain(&ADD, 8, 8), PlanOptions::new());
}

#[test]
fn maco_graph_writes_every_plan() {
    let directory = env::temp_dir().join(format!("maco-graph-{}", std::process::id()));
    let status = Command::new(env::current_exe().unwrap())
        .args(["--exact", "plans_for_the_graph_variable"])
        .env("MACO_GRAPH", &directory)
        .output()
        .unwrap();
    assert!(status.status.success());
    for extension in ["txt", "dot", "json"] {
        let text = std::fs::read_to_string(directory.join(format!("chain.{extension}"))).unwrap();
        assert!(text.contains("centre"), "{text}");
    }
    std::fs::remove_dir_all(&directory).unwrap();
    let bad = Command::new(env::current_exe().unwrap())
        .args(["--exact", "plans_for_the_graph_variable"])
        .env("MACO_DEADLINE_SCALE", "fast")
        .output()
        .unwrap();
    assert!(!bad.status.success());
    assert!(String::from_utf8_lossy(&bad.stdout).contains("Environment") || String::from_utf8_lossy(&bad.stderr).contains("Environment"));
}

/// Said once, however many plans there are.
#[test]
fn a_debug_build_says_that_it_is_slow() {
    let mut command = Command::new(env::current_exe().unwrap());
    let output = command.args(["--exact", "a_hang_of_one_plan_leaves_others_alone", "--nocapture"]).output().unwrap();
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).matches("note: this is a debug build").count();
    assert_eq!(said, usize::from(cfg!(debug_assertions)));
}

/// A body that never ends is named, whichever worker has it. What it goes on to use is lost, everything else goes on, and the process ends.
#[test]
fn a_body_that_does_not_end_is_an_error() {
    const INNER: &str = "MACO_TEST_ENDLESS";
    let Ok(inner) = env::var(INNER) else {
        // In processes of their own, since threads stay behind.
        let start = |inner: &str| {
            let mut command = Command::new(env::current_exe().unwrap());
            command.args(["--exact", "a_body_that_does_not_end_is_an_error", "--nocapture"]).env(INNER, inner);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        for child in ["plain", "pipelined"].map(start) {
            let begin = Instant::now();
            let output = child.wait_with_output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("lost as expected"), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
            assert!(begin.elapsed() < Duration::from_secs(120), "{:?}", begin.elapsed());
        }
        return;
    };
    let device = Device::cpu_with(2);
    let builder = Builder::new("hang")
        .tensor("x", In, F32, &[8, 8])
        .tensor("y", Out, F32, &[8, 8])
        .tensor("h", Temp, F32, &[8, 8])
        .call(&FOREVER, &["x", "h"], &[])
        .call(&CENTRE, &["h", "y"], &[]);
    let options = PlanOptions::new().deadline(Duration::from_millis(100)).pipelined(inner == "pipelined");
    let plan = build(&device, builder, options);
    let other = build(&device, chain(&ADD, 8, 8), PlanOptions::new());
    let data: Vec<f32> = integers(64, 3).into_iter().map(f32::abs).collect();
    let mut bad = data.clone();
    bad[8 * 5 + 3] = -1.0;
    let mut x = device.upload(&data, [8, 8]).unwrap();
    let [mut y, mut z] = [(); 2].map(|()| device.zeros::<f32>([8, 8]).unwrap());
    plan.run(Arguments::new().tensor(&x).tensor_mut(&mut y)).unwrap();
    x.upload_from(&bad).unwrap();
    // What is queued on a CPU has ended when that returns, or never will: nothing else waits for it.
    let stream = Stream::new(&device).unwrap();
    let error = match &*inner {
        "plain" => plan.run(Arguments::new().tensor(&x).tensor_mut(&mut y)).unwrap_err(),
        _ => plan.run_on(&stream, Arguments::new().tensor(&x).tensor_mut(&mut y)).unwrap_err(),
    };
    assert_eq!(error.code(), 92);
    stream.synchronize().unwrap();
    assert!(error.to_string().contains("megakernel `hang`: task `forever` tile [1, 0] (call #0) did not end within"), "{error}");
    // The plan, and the tensors of the run.
    let again = plan.run(Arguments::new().tensor(&z).tensor_mut(&mut y)).unwrap_err();
    assert_eq!(again.to_string(), error.to_string());
    for result in [plan.recover(), plan.check(), plan.fill_temporaries(0), plan.inject(None)] {
        assert_eq!(result.unwrap_err().code(), 92);
    }
    let lost = y.download().unwrap_err();
    assert!(lost.code() == 92 && lost.to_string().contains("task `forever` tile [1, 0]"), "{lost}");
    assert_eq!(x.upload_from(&data).unwrap_err().code(), 92);
    assert_eq!(other.run(Arguments::new().tensor(&x).scalar(1f32).tensor_mut(&mut z)).unwrap_err().code(), 92);
    // Other plans and other tensors of the device.
    let x = device.upload(&data, [8, 8]).unwrap();
    other.run(Arguments::new().tensor(&x).scalar(1f32).tensor_mut(&mut z)).unwrap();
    assert_eq!(z.download().unwrap(), chain_expected(&data, 8, 1.0));
    println!("lost as expected");
}

/// What a GPU would refuse is refused on the CPU: when the plan is made, as far as that does not depend on arguments.
#[test]
fn slices_that_tma_cannot_copy_are_refused() {
    let linear = |first: u64, last: u64| {
        let builder =
            Builder::new("part").tensor("x", In, Bf16, &[64, 72]).tensor("w", In, Bf16, &[128, 64]).tensor("y", Out, Bf16, &[64, 128]);
        let graph = builder.clone().graph();
        let mut views: Vec<View> = (0..3).map(|at| View::whole(at, &graph.tensors[at as usize])).collect();
        views[0].offset[1] = first;
        views[0].axes[1].extent = last - first;
        builder.call_views(&LINEAR, views, &[])
    };
    let device = Device::cpu_with(1);
    for options in [PlanOptions::new(), PlanOptions::new().pipelined(true)] {
        let error = Plan::build(&device, linear(1, 65).program(), &options).unwrap_err();
        assert_eq!(error.code(), 53, "{error}");
        assert!(
            error.to_string().contains("`x`, passed to task `linear` as `x`, cannot be copied by TMA: its first element is 2 bytes"),
            "{error}"
        );
        // Eight columns are 16 bytes.
        let plan = build(&device, linear(8, 72), options);
        let x = device.zeros::<bf16>([64, 72]).unwrap();
        let w = device.zeros::<bf16>([128, 64]).unwrap();
        let mut y = device.zeros::<bf16>([64, 128]).unwrap();
        plan.run(Arguments::new().tensor(&x).tensor(&w).tensor_mut(&mut y)).unwrap();
        // Of memory that is borrowed, only the run knows.
        let mut memory = vec![bf16::ZERO; 64 * 73 + 8];
        // SAFETY: memory with these rows that outlives the tensor and is not used meanwhile.
        let odd = unsafe { Tensor::from_raw(&device, memory.as_mut_ptr(), [64, 72], 73) }.unwrap();
        let error = plan.run(Arguments::new().tensor(&odd).tensor(&w).tensor_mut(&mut y)).unwrap_err();
        assert!(error.code() == 53, "{error}");
    }
}

/// A driver library that lacks functions is an error that names one, and no panic.
#[test]
fn a_driver_without_a_function_is_an_error() {
    const INNER: &str = "MACO_TEST_DRIVER";
    if env::var_os(INNER).is_some() {
        let error = Device::gpu(0).unwrap_err();
        assert_eq!(error.code(), 91, "{error}");
        assert!(error.to_string().contains("the CUDA driver that was found has no function `cuCtx"), "{error}");
        assert_eq!(Device::best().unwrap_err().code(), 91);
        return;
    }
    let directory = env::temp_dir().join(format!("maco-driver-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let source = directory.join("driver.rs");
    let texts = ["cuGetErrorName", "cuGetErrorString"]
        .map(|name| format!("#[unsafe(no_mangle)] pub extern \"C\" fn {name}(_: u32, _: *mut *const u8) -> u32 {{ 1 }}\n"));
    let driver = "#[unsafe(no_mangle)] pub extern \"C\" fn cuInit(_: u32) -> u32 { 0 }\n\
        #[unsafe(no_mangle)] pub unsafe extern \"C\" fn cuDriverGetVersion(to: *mut i32) -> u32 { unsafe { *to = 13000 }; 0 }\n";
    std::fs::write(&source, format!("{driver}{}", texts.concat())).unwrap();
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition=2024", "--crate-type=cdylib", "-o"]).arg(directory.join("libcuda.so")).arg(&source);
    // Where the tests are run without a compiler, there is nothing to try.
    if let Ok(output) = rustc.output() {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::copy(directory.join("libcuda.so"), directory.join("libcuda.so.1")).unwrap();
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "a_driver_without_a_function_is_an_error"]).env(INNER, "1").env("LD_LIBRARY_PATH", &directory);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    std::fs::remove_dir_all(&directory).unwrap();
}
