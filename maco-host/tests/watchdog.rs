//! Every wait of the host for a launch that never ends is an error which names it, and the process goes on to its end. Kernels are in hand-written PTX, as in
//! `gpu.rs`.

mod kernels;

use std::process::{Child, Command, Stdio};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{self, CUresult, CUstreamCaptureMode};
use kernels::{Builder, SPIN};
use maco_graph::ir::ScalarSource;
use maco_graph::ir::TensorKind::InOut;
use maco_graph::spec::Element::F32;
use maco_host::{Arguments, CudaGraph, Device, DeviceModule, Embedded, Error, Event, Plan, PlanOptions, Program, Stream, Tensor};

const MODULES: &[DeviceModule] = &[DeviceModule { target: "sm_90", ptx: include_str!("gpu/kernels.ptx"), cubin: None, hash: 1 }];
const SHAPE: [u64; 2] = [4, 8];
/// Set for a process of its own, to the wait that it tries.
const INNER: &str = "MACO_TEST_WAIT";
/// What every error says: the kernel reports its first task, and goes on for a minute.
const TOLD: &str = "hang in megakernel `hang`: task `spin` tile [0, 0] (call #0) did not end within 50.0ms (worker 0";
/// Every wait, by name.
const WAITS: [&str; 12] =
    ["stream", "event", "pending", "upload", "download", "zeros", "plan", "bound", "tensor", "graph", "replay", "another library's replay"];

fn plan(device: &Device) -> Plan {
    let scalars = [ScalarSource::Parameter(0), ScalarSource::Parameter(1)];
    let graph = Builder::new("hang").tensor("x", InOut, F32, &SHAPE).scalar("ms").scalar("count").call(&SPIN, &["x"], &scalars);
    let embedded = Embedded { modules: MODULES, profiled: &[], error: None };
    let program = Program { entry: "maco_endless", embedded, ..graph.program() };
    Plan::build(device, program, &PlanOptions::new().workers(1).deadline(Duration::from_millis(50))).unwrap()
}

fn arguments(x: &mut Tensor<f32>) -> Arguments<'_> {
    Arguments::new().tensor_mut(x).scalar(0f32).scalar(0u32)
}

#[track_caller]
fn check(code: CUresult) {
    assert_eq!(code, CUresult::CUDA_SUCCESS);
}

#[track_caller]
fn is_told(result: Result<(), Error>) {
    let error = result.unwrap_err();
    assert!(error.code() == 49 && error.to_string().contains(TOLD), "{error}");
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_every_wait_notices_a_launch_that_never_ends() {
    if let Ok(wait) = std::env::var(INNER) {
        wait_for_ever(&wait);
        println!("lost as expected");
        return;
    }
    // The device stays lost for the rest of a process. Two processes at a time: a GPU gives them time slices.
    for waits in WAITS.chunks(2) {
        let children: Vec<(&str, Child, Instant)> = waits.iter().map(|wait| (*wait, process(wait), Instant::now())).collect();
        for (wait, child, begin) in children {
            let output = child.wait_with_output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            let took = begin.elapsed();
            assert!(
                output.status.success() && text.contains("lost as expected"),
                "{wait}: {text}\n{}",
                String::from_utf8_lossy(&output.stderr)
            );
            // The kernel takes a minute.
            assert!(took < Duration::from_secs(30), "{wait}: the process took {took:?}");
        }
    }
}

fn process(wait: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "gpu_every_wait_notices_a_launch_that_never_ends", "--include-ignored", "--nocapture"]).env(INNER, wait);
    // The emulated GPU's time is not the host's.
    command.env("EMU_LIMIT_MS", "1000000000").env_remove("MACO_DEADLINE_SCALE");
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn wait_for_ever(wait: &str) {
    let device = Device::gpu(0).expect("these tests need a GPU");
    let (stream, plan) = (Stream::new(&device).unwrap(), plan(&device));
    let [mut x, mut other] = [(); 2].map(|()| device.zeros::<f32>(SHAPE).unwrap());
    let bound = plan.bind(arguments(&mut x)).unwrap();
    let capture = || CudaGraph::capture::<Error>(&stream, |stream| bound.launch_on(stream)).unwrap();
    let queue = || bound.launch_on(&stream).unwrap();
    match wait {
        "stream" => {
            queue();
            is_told(stream.synchronize());
        }
        "event" => {
            let event = Event::new(&device).unwrap();
            queue();
            event.record(&stream).unwrap();
            is_told(event.synchronize());
        }
        "pending" => {
            // Two threads, of which one waits for an allocation behind the other's copy.
            drop(plan.run_on(&stream, arguments(&mut other)).unwrap());
            let copied = device.clone();
            let copying = std::thread::spawn(move || is_told(copied.upload(&[0f32; 32], SHAPE).map(drop)));
            is_told(plan.run_on(&stream, arguments(&mut other)).unwrap().wait().map(drop));
            copying.join().unwrap();
        }
        "upload" => {
            queue();
            is_told(other.upload_from(&[1.0; 32]));
        }
        "download" => {
            queue();
            is_told(other.download().map(drop));
        }
        "zeros" => {
            queue();
            let copied = device.clone();
            let copying = std::thread::spawn(move || is_told(copied.upload(&[0f32; 32], SHAPE).map(drop)));
            std::thread::sleep(Duration::from_millis(100));
            is_told(device.zeros::<f32>(SHAPE).map(drop));
            copying.join().unwrap();
        }
        // What is dropped returns nothing: the error is the next call's.
        "plan" => {
            drop(plan.run_on(&stream, arguments(&mut other)).unwrap());
            drop((bound, plan));
        }
        "bound" => {
            queue();
            drop(bound);
        }
        "tensor" => {
            queue();
            drop(other);
        }
        "graph" => {
            let graph = capture();
            graph.launch(&stream).unwrap();
            drop(graph);
        }
        "replay" => {
            let graph = capture();
            graph.launch(&stream).unwrap();
            is_told(stream.synchronize());
        }
        "another library's replay" => {
            let theirs = replayed_by_another_library(&stream, queue);
            // Nothing of MACO's is behind it but the memory, and what waits for its stream.
            drop(other);
            is_told(theirs.synchronize());
        }
        other => panic!("no wait is called {other}"),
    }
    is_told(device.zeros::<f32>(SHAPE).map(drop));
    is_told(stream.synchronize());
}

/// What `work` queues on `stream`, captured and replayed on a stream that is not MACO's.
fn replayed_by_another_library(stream: &Stream, work: impl FnOnce()) -> Stream {
    let (mut device, mut context, mut graph, mut executable, mut own) = (0, null_mut(), null_mut(), null_mut(), null_mut());
    // SAFETY: MACO has initialised the driver; all out-pointers are writable; streams and graphs live, and are never destroyed.
    unsafe {
        check(sys::cuDeviceGet(&mut device, 0));
        check(sys::cuDevicePrimaryCtxRetain(&mut context, device));
        check(sys::cuCtxSetCurrent(context));
        check(sys::cuStreamBeginCapture_v2(stream.as_raw().cast(), CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL));
        work();
        check(sys::cuStreamEndCapture(stream.as_raw().cast(), &mut graph));
        check(sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0));
        check(sys::cuStreamCreate(&mut own, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32));
        check(sys::cuGraphLaunch(executable, own));
        // So that it has begun.
        std::thread::sleep(Duration::from_millis(300));
        Stream::from_raw(stream.device(), own.cast()).unwrap()
    }
}
