//! A megakernel with temps in captures that fork and in captures that fail. What captures do beside that is tested in `maco-host`.

use std::ptr::null_mut;

use cudarc::driver::sys::{self, CUresult};
use kernels::captured::step;
use maco::{Arguments, Bound, CudaGraph, Device, Error, PlanOptions, Stream, Tensor};

const M: u64 = 64;
const N: u64 = 128;

fn gpu() -> Device {
    Device::gpu(0).expect("a GPU")
}

/// A third of the GPU, so that two could run at once.
fn plan(device: &Device) -> step::Plan {
    let options = PlanOptions::new().workers((device.workers() / 3).max(1)).cooperative(false);
    step::plan_with(device, step::Dims { M, N }, &options).unwrap()
}

fn filled(device: &Device, value: f32) -> Tensor<f32> {
    device.upload(&vec![value; (M * N) as usize], [M, N]).unwrap()
}

fn bind(plan: &step::Plan, x: &Tensor<f32>, y: &mut Tensor<f32>) -> Bound {
    plan.bind(Arguments::new().tensor(x).tensor_mut(y)).unwrap()
}

#[track_caller]
fn all(tensor: &Tensor<f32>, expected: f32) {
    let values = tensor.download().unwrap();
    let wrong = values.iter().filter(|value| **value != expected).count();
    assert_eq!(wrong, 0, "of {}, the first is {} and not {expected}", values.len(), values[0]);
}

/// What is queued on `to` from now on comes behind what is queued on `from`.
fn fork(from: &Stream, to: &Stream) {
    let check = |code| assert_eq!(code, CUresult::CUDA_SUCCESS);
    let mut event = null_mut();
    // SAFETY: live streams and a live event; destroying it takes nothing back.
    unsafe {
        check(sys::cuEventCreate(&mut event, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32));
        check(sys::cuEventRecord(event, from.as_raw().cast()));
        check(sys::cuStreamWaitEvent(to.as_raw().cast(), event, 0));
        check(sys::cuEventDestroy_v2(event));
    }
}

#[test]
#[ignore = "gpu"]
fn gpu_one_plan_in_two_branches_is_right_in_every_replay() {
    let device = gpu();
    let [stream, other] = [(); 2].map(|()| Stream::new(&device).unwrap());
    let (plan, xs) = (plan(&device), [1.0, 2.0].map(|value| filled(&device, value)));
    let mut ys = [0.0; 2].map(|value| filled(&device, value));
    let [a, b] = [0, 1].map(|n| bind(&plan, &xs[n], &mut ys[n]));
    let graph = CudaGraph::capture::<Error>(&stream, |stream| {
        fork(stream, &other);
        a.launch_on(stream)?;
        b.launch_on(&other)?;
        fork(&other, stream);
        Ok(())
    })
    .unwrap();
    for _ in 0..if std::env::var_os("MACO_TESTS").is_some() { 10 } else { 300 } {
        ys.iter_mut().for_each(|y| y.upload_from(&[0.0; (M * N) as usize]).unwrap());
        graph.launch(&stream).unwrap();
        stream.synchronize().unwrap();
        plan.check().unwrap();
        all(&ys[0], 7.0);
        all(&ys[1], 10.0);
    }
}

#[test]
#[ignore = "gpu"]
fn gpu_a_branch_lives_as_long_as_its_graph() {
    let device = gpu();
    let stream = Stream::new(&device).unwrap();
    let (own, x) = (plan(&device), filled(&device, 1.0));
    let mut y = filled(&device, 0.0);
    let here = bind(&own, &x, &mut y);
    let graph = {
        let other = Stream::new(&device).unwrap();
        let (plan, x) = (plan(&device), filled(&device, 2.0));
        let mut y = filled(&device, 0.0);
        let there = bind(&plan, &x, &mut y);
        CudaGraph::capture::<Error>(&stream, |stream| {
            fork(stream, &other);
            here.launch_on(stream)?;
            there.launch_on(&other)?;
            fork(&other, stream);
            Ok(())
        })
        .unwrap()
    };
    // Whatever was freed would be somebody else's now.
    let others: Vec<_> = (0..64).map(|n| filled(&device, n as f32)).collect();
    for _ in 0..10 {
        graph.launch(&stream).unwrap();
        stream.synchronize().unwrap();
        all(&y, 7.0);
    }
    others.iter().enumerate().for_each(|(n, other)| all(other, n as f32));
}

/// Each of these is refused, and ends its capture; the next capture of the stream, and a run, are as if there had been none.
#[test]
#[ignore = "gpu"]
fn gpu_a_capture_that_fails_is_no_hindrance() {
    let device = gpu();
    let stream = Stream::new(&device).unwrap();
    let (plan, mut x) = (plan(&device), filled(&device, 1.0));
    let [mut y, mut z] = [0.0; 2].map(|value| filled(&device, value));
    let bound = bind(&plan, &x, &mut y);
    let refused = |result: Result<CudaGraph, Error>| assert_eq!(result.unwrap_err().code(), 90);
    refused(CudaGraph::capture(&stream, |stream| {
        x.upload_from(&[2.0; (M * N) as usize])?;
        bound.launch_on(stream)
    }));
    refused(CudaGraph::capture(&stream, |stream| {
        plan.run(&x, &mut z)?;
        bound.launch_on(stream)
    }));
    refused(CudaGraph::capture(&stream, |stream| {
        device.zeros::<f32>([16])?;
        bound.launch_on(stream)
    }));
    refused(CudaGraph::capture(&stream, |stream| {
        bound.launch_on(stream)?;
        y.download().map(drop)
    }));
    all(&y, 0.0);
    let graph = CudaGraph::capture::<Error>(&stream, |stream| bound.launch_on(stream)).unwrap();
    graph.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    all(&y, 7.0);
    plan.run(&x, &mut z).unwrap();
    all(&z, 7.0);
}
