//! A program with each of the mistakes that are found when a plan is made or run, for docs/guide/codes.md: documentation and body of a function become a section there.
//! Kernels here are for the CPU only.
use std::time::Duration;

use maco::prelude::*;
use maco::profile::{Profile, RankProfiles, read_costs};
use maco::{Arguments, Communicator, Device, Error, Event, Fault, PlanOptions, TaskGraph, Tensor, Tuning, ranks, tasks};
use maco_graph::plan::PlanError;

/// A GPU, as errors name it.
const GPU: &str = "GPU 0 (NVIDIA H200, sm_90, 132 multiprocessors)";

/// y = 4 x, in two calls.
#[maco::megakernel]
pub fn quadruple(x: In<f32, M, N>, y: Out<f32, M, N>) {
    let h = temp::<f32, M, N>();
    double(x, h);
    double(h, y);
}

/// y = 2 x; of a negative number it panics.
#[maco::task(tile(i = 8, j = 8))]
pub fn double(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.zip(x, y, |v| {
        assert!(v >= 0.0, "a negative number");
        2.0 * v
    })
}

/// y = x, by one task that needs all of x.
#[maco::task]
pub fn whole(cta: &mut Cta, #[read(.., ..)] x: Tensor<f32, M, N>, #[write(.., ..)] y: Tensor<f32, M, N>) {
    cta.zip(x, y, |v| v)
}

#[maco::megakernel]
pub fn gathered(x: In<f32, M, N>, y: Out<f32, M, N>) {
    let h = temp::<f32, M, N>();
    double(x, h);
    whole(h, y);
}

/// For the GPU alone.
///
/// # Safety
/// None is needed: it does nothing.
#[maco::task(simt, tile(i = 8, j = 8))]
pub unsafe fn nothing(cta: &mut Cta, #[update(i, j)] x: Tensor<f32, M, N>) {
    let _ = (cta, x);
}

#[maco::megakernel]
pub fn idle(x: InOut<f32, M, N>) {
    nothing(x);
}

/// Row 8 of a tile with rows 0 to 7.
#[maco::task(tile(i = 8, j = 8))]
pub fn next_row(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.generate(x, y, |x, r, c| x.at(r + 1, c))
}

#[maco::megakernel]
pub fn shifted(x: In<f32, M, N>, y: Out<f32, M, N>) {
    next_row(x, y);
}

#[maco::megakernel]
pub fn sharded(#[shard(0)] x: In<f32, M, N>, #[shard(0)] y: Out<f32, M, N>) {
    double(x, y);
}

#[maco::megakernel]
pub fn gathered_planes(#[shard(0)] x: In<f32, M, N>, y: Out<f32, R, M, N>) {
    all_gather(x, y);
}

#[maco::megakernel]
pub fn odd_slice(x: In<bf16, M, 72>, w: In<bf16, N, 64>, y: Out<bf16, M, N>) {
    linear(x.slice(1, 1..65), w, y);
}

maco::task_set! { ops: tasks::copy<f32> }

/// What each mistake has: a plan of [`quadruple`] for 16 × 8 elements.
pub struct Desk {
    pub device: Device,
    pub plan: quadruple::Plan,
    pub x: Tensor<f32>,
    pub y: Tensor<f32>,
}

impl Desk {
    /// On a CPU with this many workers.
    pub fn new(workers: u32) -> Desk {
        let device = Device::cpu_with(workers);
        let plan = quadruple::plan(&device, quadruple::Dims { M: 16, N: 8 }).unwrap();
        let [x, y] = [device.zeros([16, 8]).unwrap(), device.zeros([16, 8]).unwrap()];
        Desk { device, plan, x, y }
    }
}

/// A mistake.
pub type Mistake = fn(Desk) -> Error;

macro_rules! all {
    ($($name:ident)*) => {
        /// Every mistake and its name, in the order of their codes.
        pub const ALL: &[(&str, Mistake)] = &[$((stringify!($name), $name)),*];
    };
}

all! {
    maco0027 maco0029 maco0030 maco0031 maco0032 maco0033 maco0034 maco0035 maco0036 maco0037 maco0038 maco0039 maco0040 maco0041 maco0043 maco0044 maco0045
    maco0046 maco0047 maco0048 maco0049 maco0050 maco0051 maco0052 maco0053 maco0054 maco0055 maco0056 maco0057 maco0058 maco0059 maco0060 maco0061 maco0062
    maco0063 maco0064 maco0065 maco0066 maco0067 maco0069 maco0070 maco0071 maco0072 maco0090 maco0091 maco0092
    maco0093 maco0094 maco0095 maco0096 maco0097 maco0098 maco0099 maco0100 maco0102
}

/// More tiles than a plan takes.
fn maco0027(Desk { device, .. }: Desk) -> Error {
    let options = PlanOptions::new().max_tasks(3);
    quadruple::plan_with(&device, quadruple::Dims { M: 16, N: 8 }, &options).err().unwrap()
}

/// A graph that contradicts itself, or a plan that the verifier refuses: a defect in MACO, or in what made the graph without MACO's macros.
fn maco0029(_: Desk) -> Error {
    PlanError::Malformed { what: "call #0 names tensor 7 of 2".into() }.into()
}

/// Too many or too few arguments.
fn maco0030(Desk { plan, x, .. }: Desk) -> Error {
    (*plan).run(Arguments::new().tensor(&x)).unwrap_err()
}

/// The shape of an argument is not that of the plan.
fn maco0031(Desk { device, plan, x, .. }: Desk) -> Error {
    plan.run(&x, &mut device.zeros([16, 9]).unwrap()).unwrap_err()
}

/// The element of an argument is not that of the parameter.
fn maco0032(Desk { device, plan, x, .. }: Desk) -> Error {
    let mut half = device.zeros::<bf16>([16, 8]).unwrap();
    (*plan).run(Arguments::new().tensor(&x).tensor_mut(&mut half)).unwrap_err()
}

/// An argument, a stream or an event of another device.
fn maco0033(Desk { plan, x, .. }: Desk) -> Error {
    let other = Device::cpu_with(1);
    plan.run(&x, &mut other.zeros([16, 8]).unwrap()).unwrap_err()
}

/// Two arguments share memory, and one of them is written.
fn maco0034(Desk { device, plan, x, .. }: Desk) -> Error {
    // SAFETY: `x` outlives the tensor, which nothing writes: the plan refuses it.
    let mut same = unsafe { Tensor::from_raw(&device, x.as_ptr().cast_mut(), [16, 8], 8) }.unwrap();
    plan.run(&x, &mut same).unwrap_err()
}

/// A buffer that does not fit its tensor.
fn maco0035(Desk { device, .. }: Desk) -> Error {
    device.upload(&[1.0, 2.0, 3.0], [2, 2]).unwrap_err()
}

/// A parameter that is written gets an argument that is read.
fn maco0036(Desk { plan, x, y, .. }: Desk) -> Error {
    (*plan).run(Arguments::new().tensor(&x).tensor(&y)).unwrap_err()
}

/// A shape that no tensor has: no axis, more than four, negative or beyond all memory.
fn maco0037(Desk { device, .. }: Desk) -> Error {
    device.zeros::<f32>([2, 2, 2, 2, 2]).unwrap_err()
}

/// More views, scalars or instances than the device's tables can number.
fn maco0038(_: Desk) -> Error {
    Error::TooMany { megakernel: "quadruple".into(), what: "views".into(), found: 70_000, max: 65_536, help: "split the megakernel in two" }
}

/// More workers than the device has, or threads than the system gives.
fn maco0039(Desk { device, .. }: Desk) -> Error {
    let options = PlanOptions::new().workers(64);
    quadruple::plan_with(&device, quadruple::Dims { M: 16, N: 8 }, &options).err().unwrap()
}

/// No driver, or no such GPU. `Device::best()` takes the CPU then.
fn maco0040(_: Desk) -> Error {
    Error::NoDriver
}

/// The driver is older than the program.
fn maco0041(_: Desk) -> Error {
    Error::DriverTooOld { found: 12020, needed: 12080, what: "the device code of megakernel `quadruple`".into() }
}

/// The program has no code for this GPU: it is no sm_90a, or the build had no device toolchain, or `MACO_DEVICE=skip`.
fn maco0043(_: Desk) -> Error {
    Error::NoDeviceCode {
        megakernel: "quadruple".into(),
        device: GPU.into(),
        reason: "this program was built with MACO_DEVICE=skip; build it again without".into(),
        help: "build the program again, or use `Device::cpu()`",
    }
}

/// The driver refuses the PTX.
fn maco0044(_: Desk) -> Error {
    Error::PtxLoad { megakernel: "quadruple".into(), code: "CUDA_ERROR_INVALID_PTX".into(), log: "ptxas error: ..".into() }
}

/// No memory is left.
fn maco0045(Desk { device, .. }: Desk) -> Error {
    device.zeros::<f32>([1u64 << 45]).unwrap_err()
}

/// Two runs of one plan at once, from two threads.
fn maco0046(_: Desk) -> Error {
    Error::InFlight { megakernel: "quadruple".into() }
}

/// A wait that did not end within the deadline. Here a test loses the signal of a task; `gathered` calls `double(x, h)` and `whole(h, y)`.
fn maco0047(Desk { device, x, mut y, .. }: Desk) -> Error {
    let plan = gathered::plan(&device, gathered::Dims { M: 16, N: 8 }).unwrap();
    plan.set_deadline(Duration::from_millis(200)).unwrap();
    plan.inject(Some(Fault::LostSignal(0))).unwrap();
    plan.run(&x, &mut y).unwrap_err()
}

/// The plan was aborted before, and is not recovered.
fn maco0048(Desk { device, plan, mut y, .. }: Desk) -> Error {
    let negative = device.upload(&[-1.0; 16 * 8], [16, 8]).unwrap();
    plan.run(&negative, &mut y).unwrap_err(); // MACO0051
    plan.run(&negative, &mut y).unwrap_err()
}

/// The GPU does not answer any more. No plan and no tensor on it can be used; the process can end.
fn maco0049(_: Desk) -> Error {
    Error::DeviceLost {
        device: GPU.into(),
        reason: "a launch of megakernel `quadruple` made no progress: task `double` tile [0, 0] (call #0) did not end".into(),
    }
}

/// A call of the driver fails.
fn maco0050(_: Desk) -> Error {
    Error::Driver {
        call: "cuMemcpyDtoHAsync",
        device: GPU.into(),
        code: "CUDA_ERROR_ECC_UNCORRECTABLE".into(),
        text: "uncorrectable ECC error encountered".into(),
    }
}

/// A body panics on the CPU.
fn maco0051(Desk { device, plan, mut y, .. }: Desk) -> Error {
    let negative = device.upload(&[-1.0; 16 * 8], [16, 8]).unwrap();
    plan.run(&negative, &mut y).unwrap_err()
}

/// A `simt` task without `cpu = reference` is planned for the CPU.
fn maco0052(Desk { device, .. }: Desk) -> Error {
    idle::plan(&device, idle::Dims { M: 8, N: 8 }).err().unwrap()
}

/// An operand that TMA cannot copy. `odd_slice` multiplies `x.slice(1, 1..65)`, which begins at 2 bytes.
fn maco0053(Desk { device, .. }: Desk) -> Error {
    odd_slice::plan(&device, odd_slice::Dims { M: 64, N: 128 }).err().unwrap()
}

/// The CTAs do not all fit the GPU at once.
fn maco0054(_: Desk) -> Error {
    Error::NotResident { megakernel: "quadruple".into(), ctas: 132, device: GPU.into(), reason: "the driver finds room for 131".into() }
}

/// A view that the device cannot address.
fn maco0055(_: Desk) -> Error {
    Error::ViewLayout {
        tensor: "x".into(),
        task: "double".into(),
        parameter: "x".into(),
        reason: "has plane stride of 8589934592, at most 4294967295 can be addressed".into(),
        help: "split the tensor along its outer axis",
    }
}

/// Something that only GPUs have.
fn maco0056(Desk { device, .. }: Desk) -> Error {
    Event::new(&device).err().unwrap()
}

/// `MACO_GRAPH` names a folder that cannot be written.
fn maco0057(_: Desk) -> Error {
    Error::GraphFile { path: "/graphs/quadruple.dot".into(), source: std::io::ErrorKind::PermissionDenied.into() }
}

/// A variable of the environment that cannot be read.
fn maco0058(_: Desk) -> Error {
    Error::Environment { variable: "MACO_DEADLINE_SCALE", value: "fast".into(), expected: "a positive number" }
}

/// A deadline of nothing.
fn maco0059(Desk { plan, .. }: Desk) -> Error {
    plan.set_deadline(Duration::ZERO).unwrap_err()
}

/// A run with new arguments while its stream is being captured.
fn maco0060(_: Desk) -> Error {
    Error::Capturing { megakernel: "quadruple".into() }
}

/// A graph built at run time calls a task that its set lacks, or has not for this element. The set is `maco::task_set! { ops: tasks::copy<f32> }`.
fn maco0061(Desk { device, .. }: Desk) -> Error {
    let mut graph = TaskGraph::new("small", ops());
    let x = graph.input::<f32>("x", [8, 8]);
    let y = graph.elementwise(&tasks::relu::SPEC, x);
    graph.output(y, "y");
    graph.compile(&device).err().unwrap()
}

/// Device code that does not record is asked for a profile.
fn maco0062(_: Desk) -> Error {
    Error::NoProfiler { megakernel: "quadruple".into(), device: GPU.into() }
}

/// A profile is asked for, and no run has recorded.
fn maco0063(Desk { plan, .. }: Desk) -> Error {
    plan.profile_report().unwrap_err()
}

/// A trace that cannot be written or read.
fn maco0064(_: Desk) -> Error {
    Profile::read_chrome("trace.json").unwrap_err().into()
}

/// A file of costs that cannot be written or read.
fn maco0065(_: Desk) -> Error {
    read_costs("costs.json").unwrap_err().into()
}

/// A launch that is not cooperative got no room for all its CTAs.
fn maco0066(_: Desk) -> Error {
    Error::NotBegun { megakernel: "quadruple".into(), begun: 66, ctas: 132, waited: Duration::from_secs(2) }
}

/// A tuning file that cannot be written or read, or says something impossible.
fn maco0067(_: Desk) -> Error {
    Tuning::read("tiles.json").unwrap_err().into()
}

/// A body reads by position what its region does not hold. On a GPU it reads zero.
fn maco0069(Desk { device, x, mut y, .. }: Desk) -> Error {
    let plan = shifted::plan(&device, shifted::Dims { M: 16, N: 8 }).unwrap(); // cta.generate(x, y, |x, r, c| x.at(r + 1, c))
    plan.run(&x, &mut y).unwrap_err()
}

/// A graph built at run time is given a tensor of another one.
fn maco0070(Desk { device, .. }: Desk) -> Error {
    let x = TaskGraph::new("first", ops()).input::<f32>("x", [8, 8]);
    let mut second = TaskGraph::new("second", ops());
    let y = second.elementwise(&tasks::copy::SPEC, x);
    second.output(y, "y");
    second.compile(&device).err().unwrap()
}

/// A tensor that cannot be the output it is asked to be.
fn maco0071(Desk { device, .. }: Desk) -> Error {
    let mut graph = TaskGraph::new("short", ops());
    let x = graph.input::<f32>("x", [8, 8]);
    graph.output(x, "y");
    graph.compile(&device).err().unwrap()
}

/// A tensor is spread over ranks, and the plan knows of none. `sharded` takes `#[shard(0)] x: In<f32, M, N>`.
fn maco0072(Desk { device, .. }: Desk) -> Error {
    sharded::plan(&device, sharded::Dims { M: 16, N: 8 }).err().unwrap()
}

/// What cannot be a part of a CUDA graph is asked for in a capture.
fn maco0090(_: Desk) -> Error {
    Error::NotRecorded { what: "an upload".into() }
}

/// A driver library that lacks a function.
fn maco0091(_: Desk) -> Error {
    Error::DriverFunction { function: "cuCtxGetCurrent" }
}

/// The body of a task does not end on the CPU. Its plan and its tensors are lost.
fn maco0092(_: Desk) -> Error {
    Error::LostTensor { user: "task `double` tile [0, 0] (call #0) of megakernel `quadruple` does not end".into() }
}

/// A variable that says which rank a process is, or where the ranks meet, is missing or wrong. This program was not started by a launcher.
fn maco0093(_: Desk) -> Error {
    Communicator::from_env().unwrap_err()
}

/// A rank cannot get to the others: rank 0 does not answer in time or cannot listen, a token is wrong, or versions differ.
fn maco0094(_: Desk) -> Error {
    let help = "see whether rank 0 was started and what it says; MASTER_ADDR and port must be the same on all ranks";
    let what = "rank 2 could not join rank 0 at node7:29501".into();
    Error::from(ranks::Error::Meeting { what, why: "no answer within 60s: Connection refused (os error 111)".into(), help })
}

/// A rank does not come in time, has ended, was killed, or is at another call. Later calls return the same.
fn maco0095(_: Desk) -> Error {
    let results = Communicator::threads(3, |ranks| match ranks.rank() {
        1 => None, // it ends
        _ => ranks.barrier().err(),
    });
    results.unwrap().swap_remove(0).unwrap()
}

/// A rank has an error where all must go on together. That of all ranks, if it is the same, has its own code.
fn maco0096(_: Desk) -> Error {
    let results = Communicator::threads(3, |ranks| {
        let options = PlanOptions::new().communicator(ranks.clone()).workers(if ranks.rank() == 1 { 64 } else { 2 });
        quadruple::plan_with(&Device::cpu_with(2), quadruple::Dims { M: 16, N: 8 }, &options).err()
    });
    results.unwrap().swap_remove(0).unwrap()
}

/// Graphs of ranks differ: in megakernel, sizes, placements, or calls and their order. The first difference is shown.
fn maco0097(_: Desk) -> Error {
    let results = Communicator::threads(3, |ranks| {
        let rows = if ranks.rank() == 2 { 24 } else { 16 };
        let options = PlanOptions::new().communicator(ranks);
        quadruple::plan_with(&Device::cpu_with(2), quadruple::Dims { M: rows, N: 8 }, &options).err()
    });
    results.unwrap().swap_remove(0).unwrap()
}

/// These ranks cannot run a collective together: planes are not as many as ranks, or schedulers would push its tasks. `gathered_planes` is `all_gather(x, y)` into
/// `y: Out<f32, R, M, N>`.
fn maco0098(_: Desk) -> Error {
    let results = Communicator::threads(2, |ranks| {
        let options = PlanOptions::new().communicator(ranks);
        gathered_planes::plan_with(&Device::cpu_with(2), gathered_planes::Dims { M: 16, N: 8, R: 3 }, &options).err()
    });
    results.unwrap().swap_remove(0).unwrap()
}

/// A rank waited in a channel for what did not come by the deadline, or cannot come: a rank is gone. The channels of all ranks stop, and later calls return the same.
fn maco0099(_: Desk) -> Error {
    let stall = ranks::Stall {
        rank: 0,
        operation: "wait",
        peer: 1,
        word: Some(768),
        expected: 5,
        seen: 4,
        waited: Duration::from_secs(60),
        cause: ranks::Cause::Deadline,
    };
    Error::from(ranks::Error::Stalled(Box::new(stall)))
}

/// Symmetric memory that is not there: an allocation that has no room, a place outside of its buffer, a message that is too large, GPUs that cannot access each other.
fn maco0100(_: Desk) -> Error {
    let results = Communicator::threads(2, |ranks| {
        let memory = ranks.symmetric(&Device::cpu(), 1 << 20).ok()?;
        memory.allocate("gradients", 4 << 20).err()
    });
    results.unwrap().swap_remove(0).unwrap()
}

/// Profiles of other jobs, of other megakernels, or not of all ranks of a job, are put on one timeline.
fn maco0102(Desk { plan, x, mut y, .. }: Desk) -> Error {
    plan.profile(true).unwrap();
    plan.run(&x, &mut y).unwrap();
    let profile = plan.profile_report().unwrap();
    RankProfiles::of(vec![profile.clone(), profile]).unwrap_err().into()
}
