//! Every wrong input is an error with its code, in the user's names, and changes nothing; none is a panic.
mod support;

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kernels::{dense, inputs, launches, random, regions, twin};
use maco::{Arguments, BufferFault, Device, Embedded, Error, PlanOptions, TaskGraph, TaskSet, Tensor, bf16, f16, tasks};
use support::{Matrix, poisoned};

on_every_device!(
    wrong_arguments,
    shared_memory,
    wrong_buffers,
    wrong_shapes,
    plans_that_cannot_be,
    sizes_that_do_not_divide,
    absurd_sizes,
    a_second_run_at_once,
);

/// The error has that code, says so first, and names all of `parts`.
#[track_caller]
fn refused<T>(result: Result<T, Error>, code: u16, parts: &[&str]) {
    let Err(error) = result else { panic!("MACO{code:04} is due, and nothing was refused") };
    let text = error.to_string();
    assert_eq!(error.code(), code, "{text}");
    assert!(text.starts_with(&format!("MACO{code:04}: ")), "{text}");
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing: {text}");
    }
}

/// Another device than `device`, of the same kind where it is a CPU.
fn other(device: &Device) -> Device {
    if device.is_gpu() { Device::cpu() } else { Device::cpu_with(1) }
}

/// `halves` on 6 × 8, with its inputs and what it makes of them.
struct Halves {
    plan: regions::halves::Plan,
    x: Tensor<f32>,
    b: Tensor<f32>,
    expected: Matrix,
}

impl Halves {
    fn new(device: &Device) -> Halves {
        let x = Matrix::integers(6, 8, 1, 9);
        let plan = regions::halves::plan(device, regions::halves::Dims { M: 6, H: 4 }).unwrap();
        let b = device.upload(&[1f32, 2.0, 3.0, 4.0], [4]).unwrap();
        let expected = Matrix::new(6, 8, |r, c| x.at(r, (c + 4) % 8) + if c < 4 { c as f64 + 1.0 } else { 0.0 });
        Halves { plan, x: x.upload(device), b, expected }
    }

    fn plan(&self) -> &maco::Plan {
        self.plan.deref()
    }

    fn outputs(&self) -> (Tensor<f32>, Tensor<f32>) {
        (poisoned(self.plan.device(), 6, 8), poisoned(self.plan.device(), 8, 6))
    }

    #[track_caller]
    fn right(&self) {
        let (mut y, mut z) = self.outputs();
        self.plan.run(&self.x, &self.b, &mut y, &mut z).unwrap();
        self.expected.exactly(&y, "halves");
        self.expected.t().exactly(&z, "halves, transposed");
    }
}

fn wrong_arguments(device: &Device) {
    let halves = Halves::new(device);
    let (plan, x, b) = (halves.plan(), &halves.x, &halves.b);
    halves.right();
    let ((mut y, mut z), elsewhere) = (halves.outputs(), other(device));
    let new = Arguments::new;

    // Their number.
    refused(plan.run(new()), 30, &["`halves` takes 4 tensors, found 0"]);
    refused(plan.run(new().tensor(x).tensor(b).tensor_mut(&mut y)), 30, &["`halves` takes 4 tensors, found 3"]);
    refused(plan.run(new().tensor(x).tensor(b).tensor_mut(&mut y).tensor_mut(&mut z).scalar(1f32)), 30, &["takes 0 scalars, found 1"]);

    // Shapes: sizes, ranks, transposed.
    let wide = device.zeros::<f32>([6, 9]).unwrap();
    refused(
        plan.run(new().tensor(&wide).tensor(b).tensor_mut(&mut y).tensor_mut(&mut z)),
        31,
        &["`x` of megakernel `halves`", "[6, 8]", "[6, 9]"],
    );
    let flat = device.zeros::<f32>([1, 4]).unwrap();
    refused(
        plan.run(new().tensor(x).tensor(&flat).tensor_mut(&mut y).tensor_mut(&mut z)),
        31,
        &["`b` of megakernel `halves`", "[4]", "[1, 4]"],
    );
    refused(plan.run(new().tensor(x).tensor(b).tensor_mut(&mut z).tensor_mut(&mut y)), 31, &["`y` of", "[6, 8]", "[8, 6]"]);

    // Element types.
    let half = device.zeros::<f16>([6, 8]).unwrap();
    refused(
        plan.run(new().tensor(&half).tensor(b).tensor_mut(&mut y).tensor_mut(&mut z)),
        32,
        &["`x` of megakernel `halves` is f32", "f16"],
    );
    let mut ids = device.zeros::<u32>([8, 6]).unwrap();
    refused(plan.run(new().tensor(x).tensor(b).tensor_mut(&mut y).tensor_mut(&mut ids)), 32, &["`z` of", "is f32", "u32"]);

    // Devices.
    let foreign = elsewhere.zeros::<f32>([6, 8]).unwrap();
    let names = [device.to_string(), elsewhere.to_string()];
    refused(plan.run(new().tensor(&foreign).tensor(b).tensor_mut(&mut y).tensor_mut(&mut z)), 33, &["`x` is on", &names[0], &names[1]]);
    let mut foreign = elsewhere.zeros::<f32>([8, 6]).unwrap();
    refused(plan.run(new().tensor(x).tensor(b).tensor_mut(&mut y).tensor_mut(&mut foreign)), 33, &["`z` is on", &names[0], &names[1]]);

    // What is written must be passed as such.
    refused(plan.run(new().tensor(x).tensor(b).tensor(&y).tensor_mut(&mut z)), 36, &["`halves` writes `y`", "tensor_mut"]);

    // Scalars have types too.
    let blurred = regions::blurred::plan(device, regions::blurred::Dims { M: 6, N: 8 }).unwrap();
    let mut inout = device.zeros::<f32>([6, 8]).unwrap();
    let wrong = blurred.deref().run(new().tensor_mut(&mut inout).scalar(2u32).tensor_mut(&mut y));
    refused(wrong, 32, &["`by` of megakernel `blurred` is f32, but its argument is u32"]);
    refused(blurred.deref().run(new().tensor_mut(&mut inout).tensor_mut(&mut y)), 30, &["takes 1 scalars, found 0"]);

    // Arrays count tensor by tensor.
    let layers = dense::layers::plan(device, dense::layers::Dims { M: 4, K: 8 }).unwrap();
    let (square, mut out) = (device.zeros::<bf16>([8, 8]).unwrap(), device.zeros::<bf16>([4, 8]).unwrap());
    let input = device.zeros::<bf16>([4, 8]).unwrap();
    let two = new().tensor(&input).tensor(&square).tensor(&square).scalar(1f32).tensor_mut(&mut out);
    refused(layers.deref().run(two), 30, &["`layers` takes 5 tensors, found 4"]);
    let mixed = new().tensor(&input).tensor(&square).tensor(&input).tensor(&square).scalar(1f32).tensor_mut(&mut out);
    refused(layers.deref().run(mixed), 31, &["`w[1]` of megakernel `layers`", "[8, 8]", "[4, 8]"]);

    // Nothing was written, and nothing stays behind.
    Matrix::new(6, 8, |_, _| -12345.0).exactly(&y, "an output of refused runs");
    halves.right();
}

/// Tensors may share memory unless one of them is written.
fn shared_memory(device: &Device) {
    let halves = Halves::new(device);
    let (plan, b) = (halves.plan(), &halves.b);
    let mut memory = poisoned::<f32>(device, 1, 256);
    let base = memory.as_mut_ptr();
    // SAFETY: at most 64 elements from an offset below 192 lie in the 256 of `memory`, which outlives every use. Overlapping ones
    // are refused before anybody accesses them.
    let at = |offset: usize, shape: [u64; 2]| unsafe { Tensor::from_raw(device, base.add(offset), shape, shape[1]).unwrap() };
    for (x, y, z, names) in [
        // In and Out: the same, overlapping by one element at either end.
        (0, 0, 128, ("y", "x")),
        (0, 47, 128, ("y", "x")),
        (47, 0, 128, ("y", "x")),
        (16, 64, 63, ("z", "x")),
        // Two Outs.
        (0, 64, 64, ("z", "y")),
        (0, 64, 80, ("z", "y")),
    ] {
        let (x, mut y, mut z) = (at(x, [6, 8]), at(y, [6, 8]), at(z, [8, 6]));
        let result = plan.run(Arguments::new().tensor(&x).tensor(b).tensor_mut(&mut y).tensor_mut(&mut z));
        let Err(Error::Aliased { written, other, .. }) = &result else { panic!("{result:?}") };
        let mut found = [&**written, &**other];
        let mut expected = [names.0, names.1];
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected);
        refused(result, 34, &["share memory", "`halves`", &format!("`{}`", names.0), &format!("`{}`", names.1)]);
    }
    assert_eq!(memory.download().unwrap(), vec![-12345f32; 256], "refused runs write nothing");

    // Side by side, they are apart.
    let data = halves.x.download().unwrap();
    let (mut x, mut y, mut z) = (at(0, [6, 8]), at(48, [6, 8]), at(96, [8, 6]));
    x.upload_from(&data).unwrap();
    plan.run(Arguments::new().tensor(&x).tensor(b).tensor_mut(&mut y).tensor_mut(&mut z)).unwrap();
    halves.expected.exactly(&y, "side by side");
    halves.expected.t().exactly(&z, "side by side");

    // One tensor for two inputs.
    let square = Matrix::new(8, 8, |r, c| if r == c { 2.0 } else { 0.0 }).upload::<bf16>(device);
    let mut product = poisoned::<bf16>(device, 8, 8);
    dense::gemm::plan(device, dense::gemm::Dims { M: 8, K: 8, N: 8 }).unwrap().run(&square, &square, &mut product).unwrap();
    Matrix::new(8, 8, |r, c| if r == c { 4.0 } else { 0.0 }).exactly(&product, "x · xᵀ");

    // An InOut and an Out at one place.
    let blurred = regions::blurred::plan(device, regions::blurred::Dims { M: 6, N: 8 }).unwrap();
    let (mut x, mut y) = (at(0, [6, 8]), at(0, [6, 8]));
    refused(blurred.run(&mut x, 1.0, &mut y), 34, &["`x`", "`y`", "`blurred`"]);
}

fn wrong_buffers(device: &Device) {
    let fault = |result: Result<Tensor<f32>, Error>, parts: &[&str]| {
        let Err(Error::Buffer { fault, .. }) = &result else { panic!("{result:?}") };
        let fault = fault.clone();
        refused(result, 35, parts);
        fault
    };
    let mut memory = device.zeros::<f32>([8, 8]).unwrap();
    let base = memory.as_mut_ptr();
    // SAFETY: these are refused before anybody uses the pointers.
    unsafe {
        assert_eq!(fault(Tensor::from_raw(device, std::ptr::null_mut(), [2, 4], 4), &["null", "f32", "[2, 4]"]), BufferFault::Null);
        let odd = fault(Tensor::from_raw(device, base.byte_add(2), [2, 4], 4), &["multiple of 4", "[2, 4]"]);
        assert!(matches!(odd, BufferFault::Misaligned { align: 4, .. }));
        assert_eq!(fault(Tensor::from_raw(device, base, [2, 4], 3), &["stride of 3"]), BufferFault::RowStride { found: 3 });
        if device.is_gpu() {
            let mut host = [0f32; 64];
            let error = fault(Tensor::from_raw(device, host.as_mut_ptr(), [8, 8], 8), &["is not memory of the GPU"]);
            assert!(matches!(error, BufferFault::NotOnDevice { .. }));
            let short = fault(Tensor::from_raw(device, base, [1 << 20, 1 << 12], 1 << 12), &["the allocation ends"]);
            assert!(matches!(short, BufferFault::Bytes { needed, .. } if needed == 1 << 34));
        }
    }
    for count in [0, 63, 65] {
        let data = vec![0f32; count];
        let expected = BufferFault::Elements { expected: 64, found: count as u64 };
        assert_eq!(fault(device.upload(&data, [8, 8]), &["64 elements", &format!("{count} elements"), "[8, 8]"]), expected);
        refused(memory.upload_from(&data), 35, &["64 elements"]);
        let mut data = data;
        refused(memory.download_into(&mut data), 35, &["64 elements"]);
    }
}

fn wrong_shapes(device: &Device) {
    let none: [u64; 0] = [];
    refused(device.zeros::<f32>(none), 37, &["1 to 4 axes, found 0"]);
    refused(device.zeros::<f32>([1, 1, 1, 1, 1]), 37, &["1 to 4 axes, found 5"]);
    refused(device.zeros::<f32>([4, -1]), 37, &["axis 1 is negative"]);
    refused(device.zeros::<f32>([u64::MAX, 2]), 37, &["does not fit the address space", &u64::MAX.to_string()]);
    refused(device.zeros::<f32>([1u64 << 62]), 37, &["does not fit the address space"]);
    refused(device.upload::<f32>(&[], [1u64 << 40, 1 << 40]), 37, &["does not fit the address space"]);
    // What fits the address space need not fit the machine.
    refused(device.zeros::<f32>([1u64 << 55]), 45, &["out of memory", "f32 tensor of shape [36028797018963968]"]);
}

fn plans_that_cannot_be(device: &Device) {
    let dims = dense::gemm::Dims { M: 1024, K: 64, N: 1024 };
    let plan = |options: PlanOptions| dense::gemm::plan_with(device, dims, &options);
    let tasks = plan(PlanOptions::new()).unwrap().tasks();
    refused(plan(PlanOptions::new().max_tasks(tasks - 1)), 27, &["`linear` (call #0)", &format!("at most {}", tasks - 1)]);
    assert!(plan(PlanOptions::new().max_tasks(tasks)).is_ok());
    let most = device.workers();
    let parts = [format!("{} workers", most + 1), device.to_string(), format!("at most {most}")];
    refused(plan(PlanOptions::new().workers(most + 1)), 39, &parts.each_ref().map(|part| &**part));
    refused(plan(PlanOptions::new().workers(u32::MAX)), 39, &[&format!("at most {most}")]);
    refused(plan(PlanOptions::new().workers(0)), 21, &["found 0"]);
    assert!(plan(PlanOptions::new().workers(most)).is_ok());
    for deadline in [Duration::ZERO, Duration::MAX] {
        refused(plan(PlanOptions::new().deadline(deadline)), 59, &["out of range"]);
    }
}

fn sizes_that_do_not_divide(device: &Device) {
    let plan = |n: u64| inputs::halved::plan(device, inputs::halved::Dims { M: 4, N: n });
    for n in [1, 7, 129] {
        refused(plan(n), 26, &["`N / 2` is not exact", &format!("{n} is not divisible by 2")]);
    }
    let x = Matrix::integers(4, 130, 3, 9);
    let mut y = poisoned::<f32>(device, 4, 65);
    plan(130).unwrap().run(&x.upload(device), &mut y).unwrap();
    Matrix::new(4, 65, |r, c| x.at(r, c)).exactly(&y, "the first half");
}

/// Sizes nobody can mean: an error or a plan, soon.
fn absurd_sizes(device: &Device) {
    // To load code takes time of its own.
    let small = dense::gemm::Dims { M: 1, K: 1, N: 1 };
    let _loaded =
        (dense::gemm::plan(device, small), Halves::new(device), inputs::halved::plan(device, inputs::halved::Dims { M: 1, N: 2 }));
    let begin = Instant::now();
    let sizes =
        [0, 1, 65, (1 << 16) + 1, (1 << 31) - 1, 1 << 31, (1 << 32) + 1, 1 << 40, 1 << 62, u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX];
    let told = |result: Result<(), Error>| {
        if let Err(error) = result {
            assert!(error.to_string().starts_with("MACO00"), "{error}");
        }
    };
    let options = PlanOptions::new().max_tasks(1 << 16);
    for m in sizes {
        // Dimensions of 2³¹ and more do not fit a coordinate, whatever the others are.
        let fits = m < 1 << 31;
        for n in sizes.iter().copied().filter(|&n| fits || n == 65) {
            let memory = m.saturating_mul(n).saturating_mul(4);
            // Temps are memory.
            if memory < 1 << 24 || !fits {
                told(regions::blurred::plan_with(device, regions::blurred::Dims { M: m, N: n }, &options).map(drop));
                told(regions::halves::plan_with(device, regions::halves::Dims { M: m, H: n }, &options).map(drop));
            }
            told(dense::gemm::plan_with(device, dense::gemm::Dims { M: m, K: n, N: n }, &options).map(drop));
            told(inputs::halved::plan_with(device, inputs::halved::Dims { M: n, N: m }, &options).map(drop));
        }
        if !fits {
            assert!(dense::gemm::plan_with(device, dense::gemm::Dims { M: m, K: 64, N: 64 }, &options).is_err(), "{m}");
        }
    }
    let scale = std::env::var("MACO_DEADLINE_SCALE").ok().and_then(|scale| scale.trim().parse().ok()).unwrap_or(1.0);
    assert!(begin.elapsed() < Duration::from_secs(20).mul_f64(scale), "took {:?}", begin.elapsed());
}

fn a_second_run_at_once(device: &Device) {
    let dims = inputs::stalled::Dims { N: 256 };
    let (plan, other) = (inputs::stalled::plan(device, dims).unwrap(), inputs::stalled::plan(device, dims).unwrap());
    let data: Vec<f32> = (0..256).map(|n| n as f32).collect();
    let x = device.upload(&data, [256]).unwrap();
    // Made before: memory of a GPU may be had only between launches.
    let [mut first, mut second, mut third] = [(); 3].map(|()| device.zeros::<f32>([256]).unwrap());
    plan.run(&x, 0, &mut first).unwrap();
    let starting = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let long = scope.spawn(|| {
            starting.store(true, Ordering::Relaxed);
            plan.run(&x, 600, &mut first)
        });
        while !starting.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(200));
        let begin = Instant::now();
        refused(plan.run(&x, 0, &mut second), 46, &["`stalled` is already running"]);
        assert!(begin.elapsed() < Duration::from_millis(300), "the error must not wait");
        // This plan is busy, not the megakernel.
        other.run(&x, 0, &mut third).unwrap();
        assert!(long.join().unwrap().unwrap().elapsed >= Duration::from_millis(590));
    });
    for (y, expected) in [(&first, &data), (&second, &vec![0.0; 256]), (&third, &data)] {
        assert_eq!(y.download().unwrap(), *expected);
    }
    // Nothing to recover from.
    plan.run(&x, 0, &mut second).unwrap();
    assert_eq!(second.download().unwrap(), data);
}

#[test]
fn there_is_no_such_gpu() {
    match Device::gpu(0) {
        Ok(device) => assert!(device.is_gpu() && device.workers() > 0),
        Err(error @ Error::NoDriver) => refused(Err::<(), _>(error), 40, &["libcuda", "Device::cpu()"]),
        Err(error) => refused(Err::<(), _>(error), 40, &["there is no GPU 0"]),
    }
    let far = Device::gpu(1 << 20);
    assert_eq!(far.as_ref().err().map(Error::code), Some(40), "{far:?}");
    assert!(Device::best().is_ok());
}

/// A task set whose file the build script does not know, and one without a build script.
#[test]
#[ignore = "gpu"]
fn gpu_no_device_code() {
    let device = Device::gpu(0).unwrap();
    let compile = |set: TaskSet| {
        let mut graph = TaskGraph::new("copied", set);
        let x = graph.input::<f32>("x", [4, 4]);
        let y = graph.temp::<f32>("y", [4, 4]);
        graph.custom(&tasks::copy::SPEC, [x.into(), y.into()]);
        graph.output(y, "y");
        graph.compile(&device).map(drop)
    };
    let gpu = device.to_string();
    refused(compile(TaskSet { embedded: Embedded::NONE, ..random::ops() }), 43, &["`copied` has no device code for", &gpu, "build.rs"]);
    let error = Embedded { modules: &[], profiled: &[], error: Some("no toolchain was found") };
    refused(compile(TaskSet { embedded: error, ..random::ops() }), 43, &["`copied`", "no toolchain was found", "MACO_REQUIRE_GPU=1"]);
    refused(compile(TaskSet { entry: "maco_missing", ..random::ops() }), 43, &["`copied`", "maco_missing"]);
    compile(random::ops()).unwrap();
}

/// Of two megakernels of one name and text on the same line of two files, only one has device code: the other never runs it.
#[test]
#[ignore = "gpu"]
fn gpu_no_device_code_of_a_twin() {
    let device = Device::gpu(0).unwrap();
    let (m, n) = (4, 4);
    launches::step::plan(&device, launches::step::Dims { M: m, N: n }).unwrap();
    refused(twin::step::plan(&device, twin::step::Dims { M: m, N: n }).map(drop), 43, &["`step`"]);
    let cpu = Device::cpu_with(1);
    let plan = twin::step::plan(&cpu, twin::step::Dims { M: m, N: n }).unwrap();
    let (x, mut y) = (cpu.upload(&[7u32; 16], [m, n]).unwrap(), cpu.zeros::<u32>([m, n]).unwrap());
    plan.run(&x, &mut y).unwrap();
    assert_eq!(y.download().unwrap(), [7; 16]);
}
