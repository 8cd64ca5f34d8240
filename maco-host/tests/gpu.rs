//! The GPU device, with kernels in hand-written PTX that test the host alone. On a machine with a GPU:
//! `cargo test -p maco-host --test gpu -- --ignored --test-threads=1`

mod kernels;

use std::time::{Duration, Instant};

use half::bf16;
use kernels::{ADD, BY, Builder, CENTRE, SPIN};
use maco_graph::ir::ScalarSource;
use maco_graph::ir::TensorKind::{In, InOut, Out, Temp};
use maco_graph::spec::Element::F32;
use maco_host::{Arguments, CudaGraph, Device, DeviceModule, Embedded, Error, Event, Plan, PlanOptions, Program, Stream, Tensor};

const MODULES: &[DeviceModule] = &[DeviceModule { target: "sm_90", ptx: include_str!("gpu/kernels.ptx"), cubin: None, hash: 1 }];

fn gpu() -> Device {
    Device::gpu(0).expect("these tests need a GPU")
}

fn program(builder: Builder, entry: &'static str) -> Program {
    Program { entry, embedded: Embedded { modules: MODULES, profiled: &[], error: None }, ..builder.program() }
}

fn add(m: u64, n: u64) -> Builder {
    Builder::new("add").tensor("x", In, F32, &[m, n]).tensor("y", Out, F32, &[m, n]).scalar("by").call(&ADD, &["x", "y"], &BY)
}

/// What `maco_first` leaves of zeros.
fn first(x: &[f32], n: usize, by: f32) -> Vec<f32> {
    x.iter().enumerate().map(|(at, x)| if (at / n).is_multiple_of(4) && (at % n).is_multiple_of(8) { x + by } else { 0.0 }).collect()
}

fn integers(count: usize) -> Vec<f32> {
    (0..count).map(|n| (n % 1000) as f32).collect()
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_tensors_go_there_and_back() {
    let device = gpu();
    assert!(device.to_string().starts_with("GPU 0 (") && device.is_gpu() && device == gpu());
    // Padded and unpadded rows, more than one staging buffer, a row longer than a buffer, nothing at all.
    for shape in [&[3u64, 5][..], &[64, 64], &[7], &[2, 3, 9], &[3000, 1001], &[2, 3_000_001], &[3_000_001], &[0, 5], &[5, 0]] {
        let count = shape.iter().product::<u64>() as usize;
        let data: Vec<bf16> = (0..count).map(|n| bf16::from_bits((n * 7) as u16)).collect();
        let mut tensor = device.upload(&data, shape).unwrap();
        let same = |found: Vec<bf16>, expected: &[bf16]| found.iter().zip(expected).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same(tensor.download().unwrap(), &data), "{shape:?}");
        assert_eq!((tensor.as_ptr() as u64 % 256, tensor.row_stride() % 8), (0, 0));
        let reversed: Vec<bf16> = data.iter().rev().copied().collect();
        tensor.upload_from(&reversed).unwrap();
        assert!(same(tensor.download().unwrap(), &reversed), "{shape:?}");
    }
    assert_eq!(device.zeros::<u32>([100, 3]).unwrap().download().unwrap(), [0; 300]);
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_bad_memory_is_refused() {
    let device = gpu();
    let error = device.zeros::<f32>([1u64 << 43]).unwrap_err();
    let Error::OutOfMemory { needed, free: Some((free, total)), .. } = &error else { panic!("{error}") };
    assert!(*needed == 1 << 45 && 0 < *free && free <= total, "{error}");
    let mut tensor = device.zeros::<f32>([64, 64]).unwrap();
    let mut host = [0f32; 16];
    // SAFETY: bad ones are refused before anybody uses them; the good one is not used after `tensor`.
    unsafe {
        let base = tensor.as_mut_ptr();
        assert_eq!(Tensor::from_raw(&device, host.as_mut_ptr(), [4, 4], 4).unwrap_err().code(), 35);
        let error = Tensor::from_raw(&device, base, [1 << 24, 64], 64).unwrap_err();
        assert!(error.code() == 35 && error.to_string().contains("bytes after the address, expected 4294967296"), "{error}");
        assert!(Tensor::from_raw(&device, base, [64, 64], 64).is_ok());
        assert!(Tensor::from_raw(&device, base.add(64), [63, 64], 64).is_ok());
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_kernel_reads_its_tables() {
    let device = gpu();
    for workers in [1, 3, device.workers()] {
        let (m, n) = (70, 45);
        let plan = Plan::build(&device, program(add(m, n), "maco_first"), &PlanOptions::new().workers(workers)).unwrap();
        let data = integers((m * n) as usize);
        for by in [1.0, 2.0] {
            // Other addresses and scalars each time.
            let x = device.upload(&data, [m, n]).unwrap();
            let mut y = device.zeros::<f32>([m, n]).unwrap();
            let report = plan.run(Arguments::new().tensor(&x).scalar(by).tensor_mut(&mut y)).unwrap();
            assert!(report.elapsed > Duration::ZERO && report.elapsed < Duration::from_secs(1), "{report:?}");
            assert_eq!(y.download().unwrap(), first(&data, n as usize, by));
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_queued_runs_keep_their_order_and_their_arguments() {
    let device = gpu();
    let (m, n) = (40, 40);
    let data = integers((m * n) as usize);
    let plan = Plan::build(&device, program(add(m, n), "maco_first"), &PlanOptions::new()).unwrap();
    let spin = spin(&device, Duration::from_secs(2));
    let (one, two) = (Stream::new(&device).unwrap(), Stream::new(&device).unwrap());
    let mut named = device.zeros::<f32>([4, 8]).unwrap();
    let inputs: Vec<_> = (0..10).map(|_| device.upload(&data, [m, n]).unwrap()).collect();
    let mut outputs: Vec<_> = (0..10).map(|_| device.zeros::<f32>([m, n]).unwrap()).collect();
    let begin = Instant::now();
    let long = spin.run_on(&one, Arguments::new().tensor_mut(&mut named).scalar(200f32).scalar(0u32)).unwrap();
    let mut pending = Vec::new();
    // More uploads than staging slots, all behind the long launch, from two streams; each input is dropped once its run is queued.
    for (run, (x, y)) in inputs.into_iter().zip(&mut outputs).enumerate() {
        let stream = if run % 2 == 0 { &one } else { &two };
        pending.push(plan.run_on(stream, Arguments::new().tensor(&x).scalar(run as f32).tensor_mut(y)).unwrap());
        if run == 2 {
            assert!(begin.elapsed() < Duration::from_millis(150), "queueing does not wait");
            assert!(!long.is_done().unwrap() && !pending[0].is_done().unwrap());
        }
    }
    assert!(long.wait().unwrap().elapsed >= Duration::from_millis(199));
    for pending in pending {
        pending.wait().unwrap();
    }
    for (run, y) in outputs.iter().enumerate() {
        assert_eq!(y.download().unwrap(), first(&data, n as usize, run as f32), "run {run}");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_captured_launches_replay_and_can_be_rebound() {
    let device = gpu();
    let (m, n) = (16, 16);
    let data = integers((m * n) as usize);
    let plan = Plan::build(&device, program(add(m, n), "maco_first"), &PlanOptions::new()).unwrap();
    let stream = Stream::new(&device).unwrap();
    let x = device.upload(&data, [m, n]).unwrap();
    let (mut y, mut z) = (device.zeros::<f32>([m, n]).unwrap(), device.zeros::<f32>([m, n]).unwrap());
    let to_y = plan.bind(Arguments::new().tensor(&x).scalar(1f32).tensor_mut(&mut y)).unwrap();
    let to_z = plan.bind(Arguments::new().tensor(&x).scalar(2f32).tensor_mut(&mut z)).unwrap();
    let graph = CudaGraph::capture(&stream, |stream| {
        to_y.launch_on(stream)?;
        to_z.launch_on(stream)
    })
    .unwrap();
    assert_eq!(y.download().unwrap(), vec![0.0; 256], "a capture runs nothing");
    for _ in 0..3 {
        graph.launch(&stream).unwrap();
    }
    stream.synchronize().unwrap();
    plan.check().unwrap();
    assert_eq!(y.download().unwrap(), first(&data, 16, 1.0));
    assert_eq!(z.download().unwrap(), first(&data, 16, 2.0));

    to_y.rebind_on(&stream, Arguments::new().tensor(&x).scalar(5f32).tensor_mut(&mut y)).unwrap();
    graph.launch(&stream).unwrap();
    assert_eq!(y.download().unwrap(), first(&data, 16, 5.0));
    assert!(graph.time(&stream, 20).unwrap() > Duration::ZERO);

    // Outside of a capture, beside `run` of the same plan.
    let (begin, end) = (Event::new(&device).unwrap(), Event::new(&device).unwrap());
    begin.record(&stream).unwrap();
    to_z.launch_on(&stream).unwrap();
    end.record(&stream).unwrap();
    assert!(end.since(&begin).unwrap() > Duration::ZERO);
    plan.run(Arguments::new().tensor(&x).scalar(9f32).tensor_mut(&mut z)).unwrap();
    assert_eq!(z.download().unwrap(), first(&data, 16, 9.0));

    let refused =
        CudaGraph::capture(&stream, |stream| plan.run_on(stream, Arguments::new().tensor(&x).scalar(1f32).tensor_mut(&mut y)).map(|_| ()));
    assert_eq!(refused.unwrap_err().code(), 60);
    stream.synchronize().unwrap();
    // The graph keeps plan and arguments.
    drop((to_y, to_z, plan));
    graph.launch(&stream).unwrap();
    assert_eq!(z.download().unwrap(), first(&data, 16, 2.0));
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_code_without_profiling_is_reported() {
    let device = Device::gpu(0).expect("a GPU");
    let plan = Plan::build(&device, program(add(8, 8), "maco_first"), &PlanOptions::new().workers(1)).unwrap();
    let error = plan.profile(true).unwrap_err();
    assert!(error.code() == 62 && error.to_string().contains("MACO_PROFILE=1"), "{error}");
    assert_eq!(plan.profile_report().unwrap_err().code(), 63);
    plan.profile(false).unwrap();
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_a_report_becomes_a_hang_in_the_users_names() {
    let device = gpu();
    let builder = Builder::new("two")
        .tensor("x", In, F32, &[8, 8])
        .tensor("y", Out, F32, &[8, 8])
        .tensor("h", Temp, F32, &[8, 8])
        .scalar("by")
        .call(&ADD, &["x", "h"], &BY)
        .call(&CENTRE, &["h", "y"], &[]);
    let plan = Plan::build(&device, program(builder, "maco_report"), &PlanOptions::new().workers(2)).unwrap();
    let x = device.zeros::<f32>([8, 8]).unwrap();
    let mut y = device.zeros::<f32>([8, 8]).unwrap();
    let mut run = |by: f32| plan.run(Arguments::new().tensor(&x).scalar(by).tensor_mut(&mut y));
    run(0.0).unwrap();
    for _ in 0..2 {
        let Err(Error::Hang(hang)) = run(1.0) else { panic!("the kernel reports a hang") };
        assert_eq!((&*hang.megakernel, &*hang.task, hang.waited), ("two", "centre", Duration::from_millis(123)));
        let dependency = hang.dependency.as_ref().unwrap();
        assert_eq!((&*dependency.tensor, &*dependency.producer), ("h", "add"));
        assert!(hang.multiprocessor.is_some());
        assert_eq!(run(0.0).unwrap_err().code(), 48);
        assert_eq!(plan.check().unwrap_err().code(), 48);
        plan.recover().unwrap();
        run(0.0).unwrap();
    }

    // The same from a replayed graph.
    let stream = Stream::new(&device).unwrap();
    let bound = plan.bind(Arguments::new().tensor(&x).scalar(1f32).tensor_mut(&mut y)).unwrap();
    let graph = CudaGraph::capture(&stream, |stream| bound.launch_on(stream)).unwrap();
    graph.launch(&stream).unwrap();
    graph.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(plan.check().unwrap_err().code(), 47);
    assert_eq!(bound.launch_on(&stream).unwrap_err().code(), 48);
    plan.recover().unwrap();
    plan.check().unwrap();
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_device_code_that_does_not_fit_is_explained() {
    let device = gpu();
    let code = |embedded: Embedded, entry: &'static str, workers: u32| {
        let program = Program { embedded, entry, ..add(8, 8).program() };
        Plan::build(&device, program, &PlanOptions::new().workers(workers)).map(|_| ()).map_err(|error| (error.code(), error.to_string()))
    };
    let modules = |modules| Embedded { modules, profiled: &[], error: None };
    assert!(code(modules(MODULES), "maco_first", 1).is_ok());
    assert_eq!(code(modules(MODULES), "maco_first", device.workers() + 1).unwrap_err().0, 39);
    let (number, text) = code(modules(MODULES), "maco_missing", 1).unwrap_err();
    assert!(number == 43 && text.contains("no entry `maco_missing`"), "{text}");
    let (number, text) = code(Embedded::NONE, "maco_first", 1).unwrap_err();
    assert!(number == 43 && text.contains("build.rs"), "{text}");
    let (number, text) = code(Embedded { modules: &[], profiled: &[], error: Some("no toolchain") }, "maco_first", 1).unwrap_err();
    assert!(number == 43 && text.contains("no toolchain"), "{text}");
    const OTHER: &[DeviceModule] = &[DeviceModule { target: "sm_75a", ptx: "", cubin: None, hash: 2 }];
    let (number, text) = code(modules(OTHER), "maco_first", 1).unwrap_err();
    assert!(number == 43 && text.contains("built for sm_75a"), "{text}");
    const BROKEN: &[DeviceModule] =
        &[DeviceModule { target: "sm_90", ptx: ".version 8.0\n.target sm_90\n.address_size 64\nnonsense here;\n", cubin: None, hash: 3 }];
    let (number, text) = code(modules(BROKEN), "maco_first", 1).unwrap_err();
    assert!(number == 44 && text.contains("line 4"), "the assembler's log is missing: {text}");
    const FUTURE: &[DeviceModule] =
        &[DeviceModule { target: "sm_90", ptx: ".version 99.0\n.target sm_90\n.address_size 64\n", cubin: None, hash: 4 }];
    let (number, text) = code(modules(FUTURE), "maco_first", 1).unwrap_err();
    assert!(number == 44, "{text}");
    assert!(Device::gpu(1000).unwrap_err().to_string().contains("there is no GPU 1000"));
}

/// All of a multiprocessor's shared memory is the plan's: a kernel may have none of its own.
const LARGE: &str = "
.version 8.0
.target sm_90
.address_size 64
.visible .entry maco_large(.param .u64 launch)
{
    .shared .align 16 .b8 own[1024];
    .reg .b32 %r<3>;
    mov.u32 %r1, own;
    mov.u32 %r2, %tid.x;
    st.volatile.shared.u32 [%r1], %r2;
    ret;
}
";

/// Each of 384 threads has 200 numbers that are needed until all are there: more than the 65,536 registers of a multiprocessor.
fn hungry() -> String {
    let each = |line: &dyn Fn(u32) -> String| (0..200).map(line).collect::<String>();
    let load = each(&|n| format!("ld.volatile.global.u32 %v{n}, [%at+{}];\n", 4 * n));
    let sum = each(&|n| format!("add.u32 %sum, %sum, %v{n};\n"));
    let store = each(&|n| format!("xor.b32 %v{n}, %v{n}, %sum;\nst.volatile.global.u32 [%at+{}], %v{n};\n", 4 * n));
    format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry maco_hungry(.param .u64 launch)\n{{\n\
         .reg .b32 %v<200>;\n.reg .b32 %sum;\n.reg .b64 %at;\nld.param.u64 %at, [launch];\nmov.u32 %sum, 0;\n{load}{sum}{store}ret;\n}}\n"
    )
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_device_code_without_room_is_explained() {
    let device = gpu();
    let hungry: &str = hungry().leak();
    for (entry, ptx, hash, reason) in [
        ("maco_large", LARGE, 5, "a CTA needs 232448 bytes of shared memory"),
        ("maco_hungry", hungry, 6, "no CTA of 384 threads and 232448 bytes of shared memory fits a multiprocessor"),
    ] {
        let modules = vec![DeviceModule { target: "sm_90", ptx, cubin: None, hash }].leak();
        let program = Program { embedded: Embedded { modules, profiled: &[], error: None }, entry, ..add(8, 8).program() };
        let error = Plan::build(&device, program, &PlanOptions::new().workers(3)).unwrap_err();
        assert_eq!(error.code(), 54, "{error}");
        for part in ["MACO0054: the 3 CTAs of megakernel `by_hand`", &device.to_string(), reason, "help: "] {
            assert!(error.to_string().contains(part), "`{part}` is missing: {error}");
        }
    }
    // Nothing is left of them.
    assert!(Plan::build(&device, program(add(8, 8), "maco_first"), &PlanOptions::new().workers(3)).is_ok());
}

fn spin(device: &Device, deadline: Duration) -> Plan {
    let builder = Builder::new("spin").tensor("x", InOut, F32, &[4, 8]).scalar("ms").scalar("count").call(
        &SPIN,
        &["x"],
        &[ScalarSource::Parameter(0), ScalarSource::Parameter(1)],
    );
    Plan::build(device, program(builder, "maco_spin"), &PlanOptions::new().workers(1).deadline(deadline)).unwrap()
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_dropping_what_a_launch_uses_waits_for_it() {
    let device = gpu();
    let stream = Stream::new(&device).unwrap();
    let mut x = device.zeros::<f32>([4, 8]).unwrap();
    let waits = |what: &str, dropping: &mut dyn FnMut()| {
        let begin = Instant::now();
        dropping();
        assert!(begin.elapsed() >= Duration::from_millis(60), "{what} was dropped after {:?}", begin.elapsed());
        stream.synchronize().unwrap();
    };
    fn arguments(x: &mut Tensor<f32>) -> Arguments<'_> {
        Arguments::new().tensor_mut(x).scalar(100f32).scalar(1u32)
    }
    let mut plan = Some(spin(&device, Duration::from_secs(2)));
    drop(plan.as_ref().unwrap().run_on(&stream, arguments(&mut x)).unwrap());
    waits("the plan", &mut || drop(plan.take()));

    let plan = spin(&device, Duration::from_secs(2));
    let mut bound = Some(plan.bind(arguments(&mut x)).unwrap());
    bound.as_ref().unwrap().launch_on(&stream).unwrap();
    waits("the bound arguments", &mut || drop(bound.take()));

    let bound = plan.bind(arguments(&mut x)).unwrap();
    let mut graph = Some(CudaGraph::capture(&stream, |stream| bound.launch_on(stream)).unwrap());
    graph.as_ref().unwrap().launch(&stream).unwrap();
    waits("the graph", &mut || drop(graph.take()));
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_watchdog_accepts_a_launch_with_progress() {
    let device = gpu();
    let plan = spin(&device, Duration::from_millis(50));
    let mut x = device.zeros::<f32>([4, 8]).unwrap();
    let report = plan.run(Arguments::new().tensor_mut(&mut x).scalar(2500f32).scalar(1u32)).unwrap();
    assert!(report.elapsed >= Duration::from_millis(2490), "{report:?}");
}

/// Runs a test of this program again in a process of its own, since the device stays lost for the rest of it. How long it took, to its very end.
fn in_a_process(test: &str, variable: &str) -> Duration {
    let begin = Instant::now();
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    // The emulated GPU's time is not the host's.
    command.args(["--exact", test, "--include-ignored", "--nocapture"]).env(variable, "1").env("EMU_LIMIT_MS", "1000000000");
    let output = command.env_remove("MACO_DEADLINE_SCALE").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("lost as expected"), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    begin.elapsed()
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_a_launch_without_progress_loses_the_device() {
    const INNER: &str = "MACO_TEST_LOSE_DEVICE";
    if std::env::var_os(INNER).is_none() {
        in_a_process("gpu_a_launch_without_progress_loses_the_device", INNER);
        return;
    }
    let device = gpu();
    let plan = spin(&device, Duration::from_millis(50));
    let mut x = device.zeros::<f32>([4, 8]).unwrap();
    let begin = Instant::now();
    let error = plan.run(Arguments::new().tensor_mut(&mut x).scalar(60_000f32).scalar(0u32)).unwrap_err();
    assert!(error.code() == 49 && error.to_string().contains("a launch of megakernel `spin` made no progress"), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(3), "the watchdog took {:?}", begin.elapsed());
    assert_eq!(x.download().unwrap_err().code(), 49);
    assert_eq!(plan.recover().unwrap_err().code(), 49);
    assert_eq!(device.zeros::<f32>([1]).unwrap_err().code(), 49);
    println!("lost as expected");
}

/// The task that does not end is named, from then on, and nothing waits for it, nor does the process.
#[test]
#[ignore = "needs a GPU"]
fn gpu_a_task_that_does_not_end_is_named_and_left_alone() {
    const INNER: &str = "MACO_TEST_ENDLESS";
    if std::env::var_os(INNER).is_none() {
        // The kernel takes a minute.
        let took = in_a_process("gpu_a_task_that_does_not_end_is_named_and_left_alone", INNER);
        assert!(took < Duration::from_secs(30), "the process took {took:?}");
        return;
    }
    let device = gpu();
    let scalars = [ScalarSource::Parameter(0), ScalarSource::Parameter(1)];
    let endless = Builder::new("hang").tensor("x", InOut, F32, &[4, 8]).scalar("ms").scalar("count").call(&SPIN, &["x"], &scalars);
    let options = PlanOptions::new().workers(1).deadline(Duration::from_millis(50));
    let plan = Plan::build(&device, program(endless, "maco_endless"), &options).unwrap();
    let mut x = device.zeros::<f32>([4, 8]).unwrap();
    let other = device.zeros::<f32>([4, 8]).unwrap();
    // Behind the launch from another thread, which stops waiting too.
    let (copied, late) = (device.zeros::<f32>([4, 8]).unwrap(), Duration::from_millis(200));
    let waiting = std::thread::spawn(move || {
        std::thread::sleep(late);
        copied.download().unwrap_err()
    });
    let error = plan.run(Arguments::new().tensor_mut(&mut x).scalar(0f32).scalar(0u32)).unwrap_err();
    let told = "hang in megakernel `hang`: task `spin` tile [0, 0] (call #0) did not end within 50.0ms (worker 0";
    for error in [error, waiting.join().unwrap(), x.download().unwrap_err(), other.download().unwrap_err(), plan.check().unwrap_err()] {
        assert!(error.code() == 49 && error.to_string().contains(told), "{error}");
    }
    drop((x, other, plan, device));
    println!("lost as expected");
}

/// Tensors are copied through as much page-locked memory as is said, also if it changes: pages, rows and parts of rows, and at last what it is at first.
#[test]
#[ignore = "needs a GPU"]
fn gpu_pinned_memory_has_any_size() {
    let device = gpu();
    for bytes in [1, 20_000, 64 << 10, 8 << 20] {
        device.set_pinned_memory(bytes);
        let data: Vec<f32> = (0..300 * 3000).map(|at| (at + bytes) as f32).collect();
        let x = device.upload(&data, [300, 3000]).unwrap();
        assert!(x.download().unwrap() == data, "{bytes} bytes");
    }
}

/// A GPU for which the program has no code is not taken, and it is said why.
#[test]
#[ignore = "needs a GPU"]
fn gpu_the_best_device_has_code() {
    let code = gpu().to_string().contains("sm_90,") && !matches!(option_env!("MACO_DEVICE"), Some("skip" | "check"));
    assert_eq!(Device::best().unwrap().is_gpu(), code);
    if std::env::var_os("MACO_TEST_BEST").is_none() {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "gpu_the_best_device_has_code", "--include-ignored", "--nocapture"]).env("MACO_TEST_BEST", "1");
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        assert_eq!(said.matches("note: the CPU is used, since this program has no code for GPU 0").count(), usize::from(!code), "{said}");
    }
}
