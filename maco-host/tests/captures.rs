//! Launches in captures, of MACO's and of other libraries, and MACO beside such captures. Kernels are in hand-written PTX, as in `gpu.rs`.

mod kernels;

use std::ptr::null_mut;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{self, CUresult, CUstreamCaptureMode};
use kernels::{ADD, BY, Builder, SPIN};
use maco_graph::ir::ScalarSource;
use maco_graph::ir::TensorKind::{In, InOut, Out};
use maco_graph::spec::Element::F32;
use maco_host::{Arguments, Bound, CudaGraph, Device, DeviceModule, Embedded, Error, Event, Plan, PlanOptions, Program, Stream, Tensor};

const MODULES: &[DeviceModule] = &[DeviceModule { target: "sm_90", ptx: include_str!("gpu/kernels.ptx"), cubin: None, hash: 1 }];
const SIZE: [u64; 2] = [64, 64];

fn gpu() -> Device {
    Device::gpu(0).expect("these tests need a GPU")
}

/// y = x + by, in the first element of each 4 by 8 tile.
fn build(device: &Device) -> Result<Plan, Error> {
    let [m, n] = SIZE;
    let graph = Builder::new("add").tensor("x", In, F32, &[m, n]).tensor("y", Out, F32, &[m, n]).scalar("by").call(&ADD, &["x", "y"], &BY);
    let embedded = Embedded { modules: MODULES, profiled: &[], error: None };
    let program = Program { entry: "maco_first", embedded, ..graph.program() };
    Plan::build(device, program, &PlanOptions::new().workers(2).cooperative(false))
}

fn plan(device: &Device) -> Plan {
    build(device).unwrap()
}

fn bind(plan: &Plan, x: &Tensor<f32>, by: f32, y: &mut Tensor<f32>) -> Bound {
    plan.bind(Arguments::new().tensor(x).scalar(by).tensor_mut(y)).unwrap()
}

fn filled(device: &Device, value: f32) -> Tensor<f32> {
    device.upload(&vec![value; (SIZE[0] * SIZE[1]) as usize], SIZE).unwrap()
}

#[track_caller]
fn check(code: CUresult) {
    assert_eq!(code, CUresult::CUDA_SUCCESS);
}

/// What is queued on `to` from now on comes behind what is queued on `from`.
fn fork(from: &Stream, to: &Stream) {
    let mut event = null_mut();
    // SAFETY: live streams and a live event; destroying it takes nothing back.
    unsafe {
        check(sys::cuEventCreate(&mut event, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32));
        check(sys::cuEventRecord(event, from.as_raw().cast()));
        check(sys::cuStreamWaitEvent(to.as_raw().cast(), event, 0));
        check(sys::cuEventDestroy_v2(event));
    }
}

/// A graph of another library.
struct Foreign {
    graph: sys::CUgraph,
    executable: sys::CUgraphExec,
}

impl Foreign {
    /// What `work` queues on `stream`.
    fn capture(stream: &Stream, work: impl FnOnce()) -> Foreign {
        let (mut graph, mut executable) = (null_mut(), null_mut());
        // SAFETY: a live stream; all out-pointers are writable.
        unsafe {
            check(sys::cuStreamBeginCapture_v2(stream.as_raw().cast(), CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL));
            work();
            check(sys::cuStreamEndCapture(stream.as_raw().cast(), &mut graph));
            check(sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0));
        }
        Foreign { graph, executable }
    }

    fn launch(&self, stream: &Stream) {
        // SAFETY: a live graph, and a live stream.
        check(unsafe { sys::cuGraphLaunch(self.executable, stream.as_raw().cast()) });
    }

    /// The kernels in it, each with those that it comes behind, of all of them.
    fn kernels(&self) -> Vec<(sys::CUgraphNode, Vec<sys::CUgraphNode>)> {
        let edges = self.edges();
        let is_kernel = |node: sys::CUgraphNode| {
            let mut kind = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
            // SAFETY: a node of a live graph.
            check(unsafe { sys::cuGraphNodeGetType(node, &mut kind) });
            kind == sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL
        };
        let all_behind = |node: sys::CUgraphNode| {
            let (mut open, mut found) = (vec![node], Vec::new());
            while let Some(node) = open.pop() {
                for &behind in edges.iter().filter(|(n, _)| *n == node).flat_map(|(_, behind)| behind) {
                    if !found.contains(&behind) {
                        found.push(behind);
                        open.push(behind);
                    }
                }
            }
            found
        };
        edges.iter().map(|(node, _)| *node).filter(|node| is_kernel(*node)).map(|node| (node, all_behind(node))).collect()
    }

    /// Of each piece of work, what it comes behind.
    fn edges(&self) -> Vec<(sys::CUgraphNode, Vec<sys::CUgraphNode>)> {
        // SAFETY: a live graph and its nodes; the arrays have as many entries as the driver has said.
        unsafe {
            let mut count = 0;
            check(sys::cuGraphGetNodes(self.graph, null_mut(), &mut count));
            let mut nodes = vec![null_mut(); count];
            check(sys::cuGraphGetNodes(self.graph, nodes.as_mut_ptr(), &mut count));
            let behind = |node| {
                let mut count = 0;
                check(sys::cuGraphNodeGetDependencies_v2(node, null_mut(), null_mut(), &mut count));
                let (mut nodes, mut edges) = (vec![null_mut(); count], vec![std::mem::zeroed(); count]);
                if count > 0 {
                    check(sys::cuGraphNodeGetDependencies_v2(node, nodes.as_mut_ptr(), edges.as_mut_ptr(), &mut count));
                }
                (node, nodes)
            };
            nodes.into_iter().map(behind).collect()
        }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // SAFETY: made once and destroyed once.
        unsafe {
            check(sys::cuGraphExecDestroy(self.executable));
            check(sys::cuGraphDestroy(self.graph));
        }
    }
}

/// GPU 0's context is this thread's, as another library has it.
fn as_another_library() {
    let (mut device, mut context) = (0, null_mut());
    // SAFETY: MACO has initialised the driver; the out-pointers are writable; the context is never released.
    unsafe {
        check(sys::cuDeviceGet(&mut device, 0));
        check(sys::cuDevicePrimaryCtxRetain(&mut context, device));
        check(sys::cuCtxSetCurrent(context));
    }
}

/// Of the first tile.
fn first(tensor: &Tensor<f32>) -> f32 {
    tensor.download().unwrap()[0]
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_a_graph_keeps_what_was_launched_on_other_streams() {
    let device = gpu();
    let stream = Stream::new(&device).unwrap();
    let (own, x) = (plan(&device), filled(&device, 1.0));
    let mut y = device.zeros::<f32>(SIZE).unwrap();
    let here = bind(&own, &x, 1.0, &mut y);
    let graph = {
        // All of this is dropped before the graph is replayed.
        let other = Stream::new(&device).unwrap();
        let (plan, x) = (plan(&device), filled(&device, 2.0));
        let mut y = device.zeros::<f32>(SIZE).unwrap();
        let there = bind(&plan, &x, 2.0, &mut y);
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
    for _ in 0..20 {
        graph.launch(&stream).unwrap();
    }
    stream.synchronize().unwrap();
    own.check().unwrap();
    assert_eq!(first(&y), 2.0);
    for (n, other) in others.iter().enumerate() {
        assert!(other.download().unwrap().iter().all(|&value| value == n as f32), "tensor {n}");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_a_graph_of_another_library_keeps_what_was_launched() {
    let device = gpu();
    as_another_library();
    let stream = Stream::new(&device).unwrap();
    let free = || {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the context is current, and both are writable.
        check(unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) });
        free
    };
    // The context keeps what it makes once.
    drop(bind(&plan(&device), &filled(&device, 1.0), 1.0, &mut filled(&device, 1.0)));
    let before = free();
    let mut y = device.zeros::<f32>(SIZE).unwrap();
    let graph = {
        let (plan, x) = (plan(&device), filled(&device, 3.0));
        let mut z = device.zeros::<f32>(SIZE).unwrap();
        let (bound, other) = (bind(&plan, &x, 1.0, &mut y), bind(&plan, &x, 2.0, &mut z));
        // SAFETY: `stream` lives longer.
        let borrowed = unsafe { Stream::from_raw(&device, stream.as_raw()) }.unwrap();
        Foreign::capture(&stream, || {
            bound.launch_on(&borrowed).unwrap();
            other.launch_on(&borrowed).unwrap();
        })
    };
    let others: Vec<_> = (0..16).map(|n| filled(&device, n as f32)).collect();
    for _ in 0..5 {
        graph.launch(&stream);
    }
    stream.synchronize().unwrap();
    assert_eq!(first(&y), 4.0);
    for (n, other) in others.iter().enumerate() {
        assert!(other.download().unwrap().iter().all(|&value| value == n as f32), "tensor {n}");
    }
    drop((graph, others, y));
    // What a graph has kept goes when it has gone, by a thread of MACO's.
    let begin = Instant::now();
    while free() < before {
        assert!(begin.elapsed() < Duration::from_secs(10), "{} bytes are still taken", before - free());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_one_plan_in_two_branches_is_ordered() {
    let device = gpu();
    as_another_library();
    let (stream, other) = (Stream::new(&device).unwrap(), Stream::new(&device).unwrap());
    let plan = plan(&device);
    let xs = [1.0, 2.0, 3.0].map(|value| filled(&device, value));
    let mut ys = [(); 3].map(|()| device.zeros::<f32>(SIZE).unwrap());
    let bound: Vec<Bound> = xs.iter().zip(&mut ys).map(|(x, y)| bind(&plan, x, 1.0, y)).collect();
    let work = || {
        fork(&stream, &other);
        bound[0].launch_on(&stream).unwrap();
        bound[1].launch_on(&other).unwrap();
        bound[2].launch_on(&stream).unwrap();
        fork(&other, &stream);
    };
    let theirs = Foreign::capture(&stream, work);
    let edges = theirs.kernels();
    assert_eq!(edges.len(), 3);
    let behind = |node, before| edges.iter().any(|(n, behind)| *n == node && behind.contains(&before));
    // Some order of the three in which each comes behind the one before.
    let [a, b, c] = [edges[0].0, edges[1].0, edges[2].0];
    let orders = [[a, b, c], [a, c, b], [b, a, c], [b, c, a], [c, a, b], [c, b, a]];
    assert!(orders.iter().any(|[a, b, c]| behind(*b, *a) && behind(*c, *b)), "{edges:?}");
    let own = CudaGraph::capture::<Error>(&stream, |_| {
        work();
        Ok(())
    })
    .unwrap();
    for _ in 0..100 {
        theirs.launch(&stream);
        stream.synchronize().unwrap();
        plan.check().unwrap();
        own.launch(&stream).unwrap();
        stream.synchronize().unwrap();
        plan.check().unwrap();
    }
    for (n, y) in ys.iter().enumerate() {
        assert_eq!(first(y), n as f32 + 2.0);
    }
}

/// New arguments come between replays of another library, on whichever streams, and old ones are there as long as a replay uses them.
#[test]
#[ignore = "needs a GPU"]
fn gpu_new_arguments_are_ordered_against_replays_of_another_library() {
    let device = gpu();
    as_another_library();
    let [stream, their_stream] = [(); 2].map(|()| Stream::new(&device).unwrap());
    // A launch of seconds.
    let scalars = [ScalarSource::Parameter(0), ScalarSource::Parameter(1)];
    let graph = Builder::new("spin").tensor("x", InOut, F32, &SIZE).scalar("ms").scalar("count").call(&SPIN, &["x"], &scalars);
    let embedded = Embedded { modules: MODULES, profiled: &[], error: None };
    let program = Program { entry: "maco_spin", embedded, ..graph.program() };
    let slow = Plan::build(&device, program, &PlanOptions::new().workers(1)).unwrap();
    let [mut a, mut b] = [(); 2].map(|()| device.zeros::<f32>(SIZE).unwrap());
    fn spinning(x: &mut Tensor<f32>, ms: f32) -> Arguments<'_> {
        Arguments::new().tensor_mut(x).scalar(ms).scalar(1u32)
    }
    let bound = slow.bind(spinning(&mut a, 3000.0)).unwrap();
    let theirs = Foreign::capture(&their_stream, || bound.launch_on(&their_stream).unwrap());
    theirs.launch(&their_stream);
    // SAFETY: a live stream.
    let ended = || unsafe { sys::cuStreamQuery(their_stream.as_raw().cast()) };
    assert_eq!(ended(), CUresult::CUDA_ERROR_NOT_READY);
    bound.rebind_on(&stream, spinning(&mut b, 1.0)).unwrap();
    stream.synchronize().unwrap();
    // Nothing of the replay but its end may be left to do.
    std::thread::sleep(Duration::from_millis(20));
    check(ended());

    // The other way round: a replay behind arguments that are on their way.
    let (plan, x) = (plan(&device), filled(&device, 1.0));
    let mut y = device.zeros::<f32>(SIZE).unwrap();
    let added = bind(&plan, &x, 1.0, &mut y);
    let theirs = Foreign::capture(&their_stream, || added.launch_on(&their_stream).unwrap());
    theirs.launch(&their_stream);
    their_stream.synchronize().unwrap();
    assert_eq!(first(&y), 2.0);
    drop(slow.run_on(&stream, spinning(&mut b, 1000.0)).unwrap());
    added.rebind_on(&stream, Arguments::new().tensor(&x).scalar(7f32).tensor_mut(&mut y)).unwrap();
    theirs.launch(&their_stream);
    their_stream.synchronize().unwrap();
    assert_eq!(first(&y), 8.0);
    plan.check().unwrap();
    slow.check().unwrap();
}

/// Another library captures in global mode, on another thread: that forbids nothing of what MACO does, and the capture is whole.
#[test]
#[ignore = "needs a GPU"]
fn gpu_a_global_capture_of_another_library_is_no_hindrance() {
    let device = gpu();
    let (begun, wait) = channel();
    let (end, ended) = channel::<()>();
    let theirs = device.clone();
    let thread = std::thread::spawn(move || {
        as_another_library();
        let stream = Stream::new(&theirs).unwrap();
        let memory = theirs.zeros::<f32>([64]).unwrap();
        let graph = Foreign::capture(&stream, || {
            begun.send(()).unwrap();
            ended.recv().unwrap();
            // SAFETY: memory of the GPU that outlives the graph.
            check(unsafe { sys::cuMemsetD32Async(memory.as_ptr() as u64, 7f32.to_bits(), 64, stream.as_raw().cast()) });
        });
        graph.launch(&stream);
        stream.synchronize().unwrap();
        memory.download().unwrap()
    });
    wait.recv().unwrap();
    let stream = Stream::new(&device).unwrap();
    let x = filled(&device, 1.0);
    let mut y = device.zeros::<f32>(SIZE).unwrap();
    let plan = plan(&device);
    plan.run(Arguments::new().tensor(&x).scalar(1f32).tensor_mut(&mut y)).unwrap();
    assert_eq!(first(&y), 2.0);
    let bound = bind(&plan, &x, 2.0, &mut y);
    let graph = CudaGraph::capture::<Error>(&stream, |stream| bound.launch_on(stream)).unwrap();
    graph.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(first(&y), 3.0);
    let event = Event::new(&device).unwrap();
    event.record(&stream).unwrap();
    event.synchronize().unwrap();
    drop((graph, bound, plan, x, y));
    end.send(()).unwrap();
    assert_eq!(thread.join().unwrap(), [7.0; 64]);
}

#[test]
#[ignore = "needs a GPU"]
fn gpu_what_a_graph_would_not_repeat_is_refused() {
    let device = gpu();
    let (stream, other) = (Stream::new(&device).unwrap(), Stream::new(&device).unwrap());
    let (plan, mut x) = (plan(&device), filled(&device, 1.0));
    let [mut y, mut z] = [(); 2].map(|()| device.zeros::<f32>(SIZE).unwrap());
    let data = vec![5.0; x.len()];
    let bound = bind(&plan, &x, 1.0, &mut y);
    let event = Event::new(&device).unwrap();
    let earlier = CudaGraph::capture::<Error>(&stream, |stream| bound.launch_on(stream)).unwrap();
    let graph = CudaGraph::capture::<Error>(&stream, |stream| {
        let refused = |what: &str, result: Result<(), Error>| {
            let error = result.expect_err(what);
            assert_eq!(error.code(), 90, "{what}: {error}");
            assert!(error.to_string().contains(what), "{error}");
        };
        bound.launch_on(stream)?;
        refused("an upload", x.upload_from(&data));
        refused("a download", y.download().map(drop));
        refused("allocating a f32 tensor of shape [16]", device.zeros::<f32>([16]).map(drop));
        let arguments = Arguments::new().tensor(&x).scalar(1f32).tensor_mut(&mut z);
        refused("a run of megakernel `add`", plan.run(&arguments).map(drop));
        refused("a run of megakernel `add`", plan.run_on(&other, &arguments).map(drop));
        refused("a run of megakernel `add`", bound.launch_on(&other));
        refused("binding arguments of megakernel `add`", plan.bind(&arguments).map(drop));
        assert_eq!(plan.run_on(stream, &arguments).unwrap_err().code(), 60);
        refused("`recover` of megakernel `add`", plan.recover());
        refused("planning megakernel `add`", build(&device).map(drop));
        refused("waiting for a stream", stream.synchronize());
        refused("waiting for an event", event.synchronize());
        refused("replaying a CUDA graph", earlier.launch(stream));
        refused("replaying a CUDA graph", earlier.launch(&other));
        Ok(())
    })
    .unwrap();
    assert_eq!(first(&y), 0.0, "nothing has run");
    x.upload_from(&data).unwrap();
    graph.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(first(&y), 6.0);
    // The same on a stream that another library captures, where MACO can see it.
    as_another_library();
    let mut codes = [0; 2];
    drop(Foreign::capture(&stream, || {
        codes = [
            earlier.launch(&stream).unwrap_err().code(),
            plan.run_on(&stream, Arguments::new().tensor(&x).scalar(1f32).tensor_mut(&mut z)).unwrap_err().code(),
        ];
        bound.launch_on(&stream).unwrap();
    }));
    assert_eq!(codes, [90, 60]);
}
