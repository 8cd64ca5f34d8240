//! Streams, CUDA graphs, tasks on their own, raw pointers.
mod support;

use kernels::{dense, regions};
use maco::{Arguments, CudaGraph, Device, Error, Stream, Tensor, bf16};
use support::{Matrix, poisoned};

const DIMS: dense::mlp::Dims = dense::mlp::Dims { M: 130, K: 136, H: 264 };

struct Case {
    x: Tensor<bf16>,
    up: Tensor<bf16>,
    down: Tensor<bf16>,
    expected: Matrix,
}

fn case(device: &Device, seed: u64) -> Case {
    let (m, k, h) = (DIMS.M as usize, DIMS.K as usize, DIMS.H as usize);
    let (x, up, down) = (Matrix::integers(m, k, seed, 1), Matrix::sparse(h, k, seed + 1), Matrix::sparse(k, h, seed + 2));
    let expected = x.times(&up.t()).map(support::gelu).bf16().times(&down.t());
    Case { x: x.upload(device), up: up.upload(device), down: down.upload(device), expected }
}

/// Two captured graphs of one plan over different arguments, replayed in turn with plain runs between them.
#[test]
#[ignore = "gpu"]
fn gpu_graphs_of_one_plan() {
    let device = Device::gpu(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let plan = dense::mlp::plan(&device, DIMS).unwrap();
    let (a, b) = (case(&device, 1), case(&device, 9));
    let mut outputs = [(); 2].map(|()| poisoned::<bf16>(&device, DIMS.M as usize, DIMS.K as usize));
    let graphs: Vec<CudaGraph> = [&a, &b]
        .into_iter()
        .zip(&mut outputs)
        .map(|(case, y)| {
            let bound = plan.bind(Arguments::new().tensor(&case.x).tensor(&case.up).tensor(&case.down).tensor_mut(y)).unwrap();
            CudaGraph::capture(&stream, |stream| bound.launch_on(stream)).unwrap()
        })
        .collect();
    let mut y = poisoned::<bf16>(&device, DIMS.M as usize, DIMS.K as usize);
    for round in 0..200 {
        graphs[round % 2].launch(&stream).unwrap();
        if round % 5 == 0 {
            plan.run(&a.x, &a.up, &a.down, &mut y).unwrap();
        }
    }
    stream.synchronize().unwrap();
    plan.check().unwrap();
    a.expected.within(&outputs[0], 0.02, "first graph");
    b.expected.within(&outputs[1], 0.02, "second graph");
    a.expected.within(&y, 0.02, "plain run");
}

#[test]
#[ignore = "gpu"]
fn gpu_runs_on_a_stream() {
    let device = Device::gpu(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let plan = dense::mlp::plan(&device, DIMS).unwrap();
    let case = case(&device, 3);
    let mut y = poisoned::<bf16>(&device, DIMS.M as usize, DIMS.K as usize);
    plan.run_on(&stream, &case.x, &case.up, &case.down, &mut y).unwrap().wait().unwrap();
    case.expected.within(&y, 0.02, "run_on");
}

/// The same plan again and again: every launch uses the other counter bank and leaves the first one clean.
#[test]
#[ignore = "gpu"]
fn gpu_a_thousand_launches() {
    let device = Device::gpu(0).unwrap();
    let plan = dense::mlp::plan(&device, DIMS).unwrap();
    let case = case(&device, 5);
    let mut first = None;
    for _ in 0..1000 {
        let mut y = poisoned::<bf16>(&device, DIMS.M as usize, DIMS.K as usize);
        plan.run(&case.x, &case.up, &case.down, &mut y).unwrap();
        let bits: Vec<u16> = y.download().unwrap().iter().map(|v| v.to_bits()).collect();
        assert_eq!(*first.get_or_insert(bits.clone()), bits, "bit-identical from launch to launch");
    }
}

#[test]
fn a_task_runs_on_its_own() {
    let device = Device::cpu();
    let (x, w) = (Matrix::integers(70, 40, 1, 2), Matrix::sparse(9, 40, 2));
    let mut y = poisoned::<bf16>(&device, 70, 9);
    maco::tasks::linear::on_cpu(&x.upload(&device), &w.upload(&device), &mut y).unwrap();
    x.times(&w.t()).bf16().exactly(&y, "linear::on_cpu");

    let mut z = Matrix::integers(3, 5, 4, 9).upload::<f32>(&device);
    maco::tasks::scale::on_cpu(&mut z, 2.0).unwrap();
    Matrix::integers(3, 5, 4, 9).map(|v| v * 2.0).exactly(&z, "scale::on_cpu");

    let mut wrong = device.zeros::<bf16>([70, 8]).unwrap();
    let error = maco::tasks::linear::on_cpu(&x.upload(&device), &w.upload(&device), &mut wrong).unwrap_err();
    assert_eq!(error.code(), 5, "{error}");
    assert!(error.to_string().contains("`N`"), "{error}");
}

/// Memory of somebody else, with a row stride of its own.
#[test]
fn a_plan_runs_on_borrowed_memory() {
    let device = Device::cpu_with(2);
    let (m, n, stride) = (5usize, 3usize, 8usize);
    let mut memory: Vec<f32> = (0..m * stride).map(|v| v as f32).collect();
    // SAFETY: the memory lives longer than the tensor, and nothing else uses it meanwhile.
    let mut borrowed = unsafe { Tensor::from_raw(&device, memory.as_mut_ptr(), [m as u64, n as u64], stride as u64) }.unwrap();
    let plan = regions::blurred::plan(&device, regions::blurred::Dims { M: m as u64, N: n as u64 }).unwrap();
    let mut y = poisoned::<f32>(&device, m, n);
    plan.run(&mut borrowed, 2.0, &mut y).unwrap();
    drop(borrowed);
    for (at, value) in memory.iter().enumerate() {
        let scaled = if at % stride < n { 2.0 } else { 1.0 };
        assert_eq!(*value, at as f32 * scaled, "element {at}");
    }
}

#[test]
fn a_gpu_that_is_not_there_is_an_error() {
    if let Err(error) = Device::gpu(0) {
        assert!(matches!(error, Error::NoDriver | Error::NoGpu { .. }), "{error}");
        assert!(error.to_string().contains("help:"), "{error}");
    }
    assert!(Device::gpu(4096).is_err());
}
