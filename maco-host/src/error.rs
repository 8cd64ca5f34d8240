//! Everything that can go wrong at run time, in the user's names: MACO0030 and up. Graph and plan errors come from `maco-graph`.

use std::path::PathBuf;
use std::time::Duration;

use maco_graph::plan::PlanError;
use maco_graph::resolve::ResolveError;
use maco_graph::spec::BuildError;

use crate::files::FileError;
use crate::hang::Hang;
use crate::tensor::{BufferFault, Shape};

/// What went wrong: `MACO0047: what, in the user's names`, then a help line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The graph has no plan: MACO0001 to MACO0029.
    #[error(transparent)]
    Plan(Box<PlanError>),
    /// Sizes that the megakernel cannot have: MACO0005, MACO0025, MACO0026.
    #[error(transparent)]
    Sizes(Box<ResolveError>),
    /// A mistake in a graph built at run time: what const evaluation says of a megakernel, with the same code.
    #[error(transparent)]
    Build(BuildError),

    /// A wrong number of arguments.
    #[error(
        "MACO0030: megakernel `{megakernel}` takes {expected} {what}, found {found}\nhelp: pass one argument per parameter, in signature order"
    )]
    ArgumentCount {
        /// The megakernel.
        megakernel: Box<str>,
        /// `tensors` or `scalars`.
        what: &'static str,
        /// Parameters.
        expected: usize,
        /// Arguments.
        found: usize,
    },
    /// The shape of an argument is not that of the plan.
    #[error(
        "MACO0031: `{tensor}` of megakernel `{megakernel}` has shape {expected} in this plan, but its argument has {found}\nhelp: pass a tensor of that shape, or plan again with other `Dims`"
    )]
    WrongShape {
        /// The megakernel.
        megakernel: Box<str>,
        /// The parameter.
        tensor: Box<str>,
        /// Shape in the plan.
        expected: Shape,
        /// Shape of the argument.
        found: Shape,
    },
    /// The element or scalar type of an argument is not that of the parameter.
    #[error(
        "MACO0032: `{parameter}` of megakernel `{megakernel}` is {expected}, but its argument is {found}\nhelp: convert the argument, or change the parameter's type"
    )]
    WrongElement {
        /// The megakernel.
        megakernel: Box<str>,
        /// The parameter.
        parameter: Box<str>,
        /// Type of the parameter.
        expected: &'static str,
        /// Type of the argument.
        found: &'static str,
    },
    /// An argument lives on another device than the plan.
    #[error(
        "MACO0033: `{what}` is on {found}, but the plan runs on {expected}\nhelp: upload it to the plan's `Device` (clone the device, do not make a second one)"
    )]
    WrongDevice {
        /// The tensor or stream.
        what: Box<str>,
        /// Device of the plan.
        expected: Box<str>,
        /// Device of the argument.
        found: Box<str>,
    },
    /// Two arguments share memory, and one of them is written.
    #[error(
        "MACO0034: the arguments of `{written}` and `{other}` of megakernel `{megakernel}` share memory, and `{written}` is written\nhelp: pass tensors that do not overlap, or take one as `InOut`"
    )]
    Aliased {
        /// The megakernel.
        megakernel: Box<str>,
        /// Parameter that is written.
        written: Box<str>,
        /// The other one.
        other: Box<str>,
    },
    /// A buffer that cannot hold what it should.
    #[error("MACO0035: {fault} for a {element} tensor of shape {shape}")]
    Buffer {
        /// Element type.
        element: &'static str,
        /// Shape of the tensor.
        shape: Shape,
        /// What is wrong with it.
        fault: BufferFault,
    },
    /// A read-only argument for a parameter that is written.
    #[error(
        "MACO0036: megakernel `{megakernel}` writes `{tensor}`, but its argument was passed read-only\nhelp: pass it with `tensor_mut` or `tensors_mut`"
    )]
    ReadOnly {
        /// The megakernel.
        megakernel: Box<str>,
        /// The parameter.
        tensor: Box<str>,
    },
    /// A shape of rank 0 or above 4.
    #[error("MACO0037: a tensor has 1 to 4 axes, found {found}\nhelp: merge axes, or write `[1]` for a single value")]
    Rank {
        /// Rank asked for.
        found: usize,
    },
    /// A negative extent.
    #[error("MACO0037: the extent of axis {axis} is negative\nhelp: pass the number of elements along each axis")]
    NegativeExtent {
        /// The axis.
        axis: usize,
    },
    /// A tensor that no address space holds.
    #[error("MACO0037: a tensor of shape {shape} does not fit the address space\nhelp: check the extents")]
    TensorTooLarge {
        /// Its shape.
        shape: Shape,
    },
    /// A plan that the device's tables cannot number.
    #[error("MACO0038: megakernel `{megakernel}` needs {found} {what}, at most {max} fit the device's tables\nhelp: {help}")]
    TooMany {
        /// The megakernel.
        megakernel: Box<str>,
        /// `views`, `scalars` …
        what: Box<str>,
        /// How many.
        found: u64,
        /// How many fit.
        max: u64,
        /// What to do.
        help: &'static str,
    },
    /// More workers than the device has.
    #[error(
        "MACO0039: {found} workers{schedulers} were asked for, but {device} runs at most {max} at once\nhelp: ask for at most {max}; a plan whose workers are not all resident would wait for ever"
    , schedulers = and_schedulers(*schedulers))]
    Workers {
        /// Workers asked for.
        found: u32,
        /// Scheduler CTAs asked for.
        schedulers: u32,
        /// Most there can be.
        max: u32,
        /// The device.
        device: Box<str>,
    },
    /// A thread of the CPU device could not be started.
    #[error(
        "MACO0039: thread {worker} of {workers} of the CPU device could not be started: {source}\nhelp: ask for fewer workers with `Device::cpu_with`"
    )]
    Threads {
        /// Which worker.
        worker: u32,
        /// How many there should be.
        workers: u32,
        /// Why.
        source: std::io::Error,
    },
    /// No CUDA driver on this machine.
    #[error(
        "MACO0040: no CUDA driver: libcuda was not found\nhelp: install the NVIDIA driver, or use `Device::cpu()`; `Device::best()` chooses by itself"
    )]
    NoDriver,
    /// No such GPU.
    #[error(
        "MACO0040: there is no GPU {index}: the driver sees {count}\nhelp: choose one below {count} (see CUDA_VISIBLE_DEVICES), or use `Device::cpu()`"
    )]
    NoGpu {
        /// Index asked for.
        index: u32,
        /// GPUs there are.
        count: u32,
    },
    /// The driver cannot load this code.
    #[error("MACO0041: the CUDA driver supports CUDA {}.{}, but {what} needs {}.{}\nhelp: update the NVIDIA driver", found / 1000, found % 1000 / 10, needed / 1000, needed % 1000 / 10)]
    DriverTooOld {
        /// Version of the driver: 1000 × major + 10 × minor.
        found: u32,
        /// Version needed.
        needed: u32,
        /// What needs it.
        what: Box<str>,
    },
    /// The driver library lacks a function.
    #[error(
        "MACO0091: the CUDA driver that was found has no function `{function}`\nhelp: libcuda is not NVIDIA's, or is incomplete: see LD_LIBRARY_PATH, and install the driver again; or use `Device::cpu()`"
    )]
    DriverFunction {
        /// The function.
        function: &'static str,
    },
    /// No device code that this GPU runs.
    #[error("MACO0043: megakernel `{megakernel}` has no device code for {device}: {reason}\nhelp: {help}")]
    NoDeviceCode {
        /// The megakernel.
        megakernel: Box<str>,
        /// The GPU.
        device: Box<str>,
        /// Why.
        reason: Box<str>,
        /// What to do.
        help: &'static str,
    },
    /// The driver refused the PTX.
    #[error(
        "MACO0044: the driver refused the device code of megakernel `{megakernel}` ({code}):\n{log}\nhelp: build again (`cargo clean -p` of the package with the kernels); if it stays, this is a defect in MACO"
    )]
    PtxLoad {
        /// The megakernel.
        megakernel: Box<str>,
        /// The driver's error.
        code: Box<str>,
        /// The log of the driver's assembler.
        log: Box<str>,
    },
    /// Memory ran out.
    #[error("MACO0045: out of memory on {device}: {what} needs {needed} bytes{}\nhelp: drop tensors or plans, or use smaller dimensions", free_text(*free))]
    OutOfMemory {
        /// What was to be allocated.
        what: Box<str>,
        /// Where.
        device: Box<str>,
        /// Bytes asked for.
        needed: u64,
        /// Bytes free and in all, where known.
        free: Option<(u64, u64)>,
    },
    /// Two launches of one plan at once.
    #[error("MACO0046: megakernel `{megakernel}` is already running with this plan\nhelp: wait for it, or make a plan per thread")]
    InFlight {
        /// The megakernel.
        megakernel: Box<str>,
    },
    /// A wait passed its deadline.
    #[error("{0}")]
    Hang(Box<Hang>),
    /// The plan is aborted.
    #[error(
        "MACO0048: megakernel `{megakernel}` was aborted and not recovered\nhelp: call `recover()` on the plan, then run again\nbecause: {cause}"
    )]
    Aborted {
        /// The megakernel.
        megakernel: Box<str>,
        /// The first error.
        cause: Box<Error>,
    },
    /// The GPU does not answer, or its context is destroyed.
    #[error(
        "MACO0049: {device} is lost: {reason}\nhelp: restart the process. A loop in the body of a task that does not end does this, and an `unsafe` body that writes out of bounds"
    )]
    DeviceLost {
        /// The GPU.
        device: Box<str>,
        /// What happened.
        reason: Box<str>,
    },
    /// A call of the driver failed.
    #[error(
        "MACO0050: {call} failed on {device}: {code} ({text})\nhelp: look the code up in NVIDIA's driver API reference; if your program did not cause it, this is a defect in MACO"
    )]
    Driver {
        /// The driver function.
        call: &'static str,
        /// The GPU.
        device: Box<str>,
        /// Name of the code.
        code: Box<str>,
        /// The driver's text.
        text: Box<str>,
    },
    /// The body of a task panicked on the CPU.
    #[error(
        "MACO0051: task `{task}` tile {tile:?} (call #{call}) of megakernel `{megakernel}` panicked: {message}\nhelp: fix the body; then call `recover()` on the plan"
    )]
    Panicked {
        /// The megakernel.
        megakernel: Box<str>,
        /// The task.
        task: Box<str>,
        /// Position of the call in program order.
        call: u32,
        /// Tile coordinates.
        tile: Vec<u32>,
        /// The panic's message.
        message: Box<str>,
    },
    /// The body of a task read by position outside its region, inside the tensor: on a GPU it would read zero there.
    #[error(
        "MACO0069: task `{task}` tile {tile:?} (call #{call}) of megakernel `{megakernel}` reads `{parameter}` at {position:?}, outside its region: {}\nnote: positions are row and column from the tile's origin, before a halo; another task may write what lies outside\nhelp: declare what is read, such as `#[read(i + -1..=1, j)]` or `#[read(.., j)]`; then call `recover()` on the plan",
        extents(*.region)
    )]
    OutsideRegion {
        /// The megakernel.
        megakernel: Box<str>,
        /// The task.
        task: Box<str>,
        /// Position of the call in program order.
        call: u32,
        /// Tile coordinates.
        tile: Vec<u32>,
        /// The parameter.
        parameter: Box<str>,
        /// Row and column, from the tile's origin.
        position: (i32, i32),
        /// Rows and columns of the region; 0: the whole axis.
        region: [u32; 2],
    },
    /// A SIMT task without a reference on the CPU device.
    #[error(
        "MACO0052: task `{task}` of megakernel `{megakernel}` is `simt` and has no CPU reference\nhelp: write `#[task(simt, cpu = reference_fn, ..)]`, or plan on a GPU"
    )]
    NoCpuReference {
        /// The megakernel.
        megakernel: Box<str>,
        /// The task.
        task: Box<str>,
    },
    /// An operand that the copy engine of a GPU cannot address.
    #[error("MACO0053: `{tensor}`, passed to task `{task}` as `{parameter}`, cannot be copied by TMA: {reason}\nhelp: {help}")]
    NotStageable {
        /// The tensor.
        tensor: Box<str>,
        /// The task.
        task: Box<str>,
        /// Its parameter.
        parameter: Box<str>,
        /// Which rule it breaks.
        reason: Box<str>,
        /// What to do.
        help: &'static str,
    },
    /// The CTAs do not fit the GPU.
    #[error(
        "MACO0054: the {ctas} CTAs of megakernel `{megakernel}` cannot all be resident on {device}: {reason}\nhelp: ask for fewer workers, or free the GPU of other persistent work"
    )]
    NotResident {
        /// The megakernel.
        megakernel: Box<str>,
        /// CTAs of a launch: workers and schedulers.
        ctas: u32,
        /// The GPU.
        device: Box<str>,
        /// Why.
        reason: Box<str>,
    },
    /// A view that has no rows and columns.
    #[error("MACO0055: the view of `{tensor}` passed to task `{task}` as `{parameter}` {reason}\nhelp: {help}")]
    ViewLayout {
        /// The tensor.
        tensor: Box<str>,
        /// The task.
        task: Box<str>,
        /// Its parameter.
        parameter: Box<str>,
        /// What is wrong.
        reason: Box<str>,
        /// What to do.
        help: &'static str,
    },
    /// Something only GPUs have.
    #[error("MACO0056: {what} needs a GPU, but this is {device}\nhelp: use `Device::gpu(0)`; on the CPU call `run`")]
    NeedsGpu {
        /// What was asked for.
        what: &'static str,
        /// The device.
        device: Box<str>,
    },
    /// A file of the graph could not be written.
    #[error("MACO0057: the graph could not be written to {}: {source}\nhelp: MACO_GRAPH must name a directory that can be made and written", path.display())]
    GraphFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// An environment variable that cannot be read.
    #[error("MACO0058: {variable} is `{value}`, expected {expected}\nhelp: correct or unset it")]
    Environment {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: Box<str>,
        /// What it should be.
        expected: &'static str,
    },
    /// A deadline of zero, or longer than 64 bits of nanoseconds.
    #[error("MACO0059: a deadline of {found:?} is out of range\nhelp: pass more than 0 and less than 500 years")]
    Deadline {
        /// What was asked for.
        found: Duration,
    },
    /// A launch with new arguments in a capture.
    #[error(
        "MACO0060: the stream is being captured, and megakernel `{megakernel}` would upload its arguments\nhelp: call `plan.bind(..)` before the capture and `launch_on` in it"
    )]
    Capturing {
        /// The megakernel.
        megakernel: Box<str>,
    },
    /// The body of a task does not end on the CPU. Its thread is left alone with the plan and the tensors of the run.
    #[error(
        "MACO0092: {}\nhelp: look for a loop in the body that may not end; if it only takes long, raise the deadline (`PlanOptions::deadline`, MACO_DEADLINE_SCALE). The plan and the tensors of the run cannot be used any more, since the body goes on", .0.what()
    )]
    Endless(Box<Hang>),
    /// A tensor that the body of a task uses which did not end.
    #[error("MACO0092: the tensor is lost: {user}\nhelp: the body goes on, and may write it; make another tensor")]
    LostTensor {
        /// Megakernel, task and tile.
        user: Box<str>,
    },
    /// In a capture, something that is done at once and not by the graph.
    #[error(
        "MACO0090: {what} cannot be a part of a CUDA graph\nhelp: do it before the capture or after it; a capture takes `launch_on` of bound arguments"
    )]
    NotRecorded {
        /// What was asked for.
        what: Box<str>,
    },
    /// A run-time graph calls a task on an element that its set leaves out.
    #[error(
        "MACO0061: graph `{graph}` calls task `{task}` on `{element}`, which its task set leaves out\nhelp: write `{task}<{element}>`, or `{task}` for all elements, in `maco::task_set! {{ .. }}`"
    )]
    UnknownElement {
        /// The task.
        task: &'static str,
        /// The element.
        element: &'static str,
        /// The graph.
        graph: Box<str>,
    },
    /// A run-time graph calls a task that its set lacks.
    #[error("MACO0061: graph `{graph}` calls task `{task}`, which is not in its task set\nhelp: name it in `maco::task_set! {{ .. }}`")]
    UnknownTask {
        /// The task.
        task: &'static str,
        /// The graph.
        graph: Box<str>,
    },
    /// A run-time graph calls a task that its set has twice.
    #[error(
        "MACO0061: graph `{graph}` calls task `{task}`, but its task set has two of that name and signature\nhelp: rename one, or use two sets"
    )]
    AmbiguousTask {
        /// The task.
        task: &'static str,
        /// The graph.
        graph: Box<str>,
    },
    /// A megakernel spreads a tensor over ranks, and its plan was told of none.
    #[error(
        "MACO0072: `{tensor}` of megakernel `{megakernel}` is {placement}, but the plan has no communicator\nhelp: on one GPU plan with `PlanOptions::new().communicator(Communicator::single())`, where a shard is all of its tensor and a partial sum the sum"
    )]
    NoCommunicator {
        /// The megakernel.
        megakernel: Box<str>,
        /// The tensor.
        tensor: Box<str>,
        /// How it is spread, in words.
        placement: &'static str,
    },
    /// A run-time graph is given a tensor that belongs to another one.
    #[error(
        "MACO0070: {by} of graph `{graph}` is given tensor {tensor} of graph `{owner}`\nhelp: declare it in `{graph}`, with `input` or `temp`"
    )]
    ForeignNode {
        /// The graph.
        graph: Box<str>,
        /// The method, or the task that is called.
        by: Box<str>,
        /// The tensor's number in its own graph, in the order of declaration.
        tensor: usize,
        /// Its own graph.
        owner: &'static str,
    },
    /// A tensor of a run-time graph that cannot be the output it is asked to be.
    #[error("MACO0071: `output(.., \"{output}\")` of graph `{graph}`: {fault}")]
    Output {
        /// The graph.
        graph: Box<str>,
        /// The name asked for.
        output: Box<str>,
        /// What is wrong.
        fault: OutputFault,
    },
    /// Device code that does not record.
    #[error(
        "MACO0062: the device code of megakernel `{megakernel}` does not record, so that it cannot be profiled on {device}\nhelp: build the program with MACO_PROFILE=1, which adds device code that does; on `Device::cpu()` every plan can be profiled"
    )]
    NoProfiler {
        /// The megakernel.
        megakernel: Box<str>,
        /// The device.
        device: Box<str>,
    },
    /// No launch of the plan has recorded.
    #[error(
        "MACO0063: no launch of megakernel `{megakernel}` was recorded\nhelp: call `plan.profile(true)`, then run the plan; what a stream or graph runs must have ended"
    )]
    NoProfile {
        /// The megakernel.
        megakernel: Box<str>,
    },
    /// A launch that is not cooperative and did not get room for all its CTAs.
    #[error(
        "MACO0066: only {begun} of the {ctas} CTAs of megakernel `{megakernel}` have begun, after {waited:.1?}\nhelp: something else holds the other multiprocessors: free the GPU of it, ask for fewer workers, or plan with `PlanOptions::cooperative(true)`"
    )]
    NotBegun {
        /// The megakernel.
        megakernel: Box<str>,
        /// CTAs that had begun.
        begun: u32,
        /// CTAs of the launch: workers and schedulers.
        ctas: u32,
        /// How long the first ones had waited.
        waited: Duration,
    },
    /// A collective that these ranks cannot run.
    #[error("MACO0098: megakernel `{megakernel}` cannot be planned for {}: {what}\nhelp: {help}", if *.ranks == 1 { "1 rank".to_owned() } else { format!("{ranks} ranks") })]
    Collectives {
        /// The megakernel.
        megakernel: Box<str>,
        /// Which call, and what is wrong.
        what: Box<str>,
        /// How many ranks.
        ranks: u32,
        /// What to do.
        help: &'static str,
    },
    /// A CUDA graph with calls of NCCL whose communicator is gone.
    #[error(
        "MACO0098: NCCL was to exchange chunks for this CUDA graph, and its communicator was ended since, because a launch was aborted\nhelp: capture the launches again"
    )]
    StaleGraph,
    /// What went wrong between ranks: MACO0093 to MACO0097, MACO0099 and MACO0100.
    #[error(transparent)]
    Ranks(Box<maco_ranks::Error>),
    /// A trace, a file of costs, or a tuning file: MACO0064, MACO0065, MACO0067; MACO0102.
    #[error(transparent)]
    File(Box<FileError>),
}

/// What is wrong with an output of a run-time graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutputFault {
    /// Another tensor has the name.
    #[error("another output has this name\nhelp: outputs are told apart by their names: choose another one")]
    Name,
    /// The tensor has a name already.
    #[error("the tensor is an output already, as `{name}`\nhelp: keep one of the names, or copy the tensor to a second one")]
    Twice {
        /// Its name.
        name: Box<str>,
    },
    /// The tensor is named anew.
    #[error("`name(.., \"{name}\")` after it would take this name away\nhelp: an output has one name: give it to `output`")]
    Renamed {
        /// The other name.
        name: Box<str>,
    },
    /// The tensor is an input.
    #[error(
        "the tensor is input `{name}`, which the caller has\nhelp: use the caller's tensor, or copy it to a `temp` that becomes the output"
    )]
    Input {
        /// Its name.
        name: Box<str>,
    },
    /// The tensor is a part of another one.
    #[error("it is a part of `{of}`\nhelp: make the whole tensor the output, or copy the part to a `temp` that becomes it")]
    Part {
        /// Name of the whole tensor.
        of: Box<str>,
    },
}

/// `rows 0..64, all columns`
fn extents([rows, cols]: [u32; 2]) -> String {
    let axis = |size: u32, name: &str| if size == 0 { format!("all {name}") } else { format!("{name} 0..{size}") };
    format!("{}, {}", axis(rows, "rows"), axis(cols, "columns"))
}

impl Error {
    /// The stable code, such as 47 for `MACO0047`.
    pub fn code(&self) -> u16 {
        match self {
            Error::Plan(error) => error.code(),
            Error::Sizes(error) => error.code().number(),
            Error::Build(error) => error.code.number(),
            Error::ArgumentCount { .. } => 30,
            Error::WrongShape { .. } => 31,
            Error::WrongElement { .. } => 32,
            Error::WrongDevice { .. } => 33,
            Error::Aliased { .. } => 34,
            Error::Buffer { .. } => 35,
            Error::ReadOnly { .. } => 36,
            Error::Rank { .. } | Error::NegativeExtent { .. } | Error::TensorTooLarge { .. } => 37,
            Error::TooMany { .. } => 38,
            Error::Workers { .. } | Error::Threads { .. } => 39,
            Error::NoDriver | Error::NoGpu { .. } => 40,
            Error::DriverTooOld { .. } => 41,
            Error::NoDeviceCode { .. } => 43,
            Error::PtxLoad { .. } => 44,
            Error::OutOfMemory { .. } => 45,
            Error::InFlight { .. } => 46,
            Error::Hang(_) => 47,
            Error::Aborted { .. } => 48,
            Error::DeviceLost { .. } => 49,
            Error::Driver { .. } => 50,
            Error::Panicked { .. } => 51,
            Error::NoCpuReference { .. } => 52,
            Error::NotStageable { .. } => 53,
            Error::NotResident { .. } => 54,
            Error::ViewLayout { .. } => 55,
            Error::NeedsGpu { .. } => 56,
            Error::GraphFile { .. } => 57,
            Error::Environment { .. } => 58,
            Error::Deadline { .. } => 59,
            Error::Capturing { .. } => 60,
            Error::UnknownTask { .. } | Error::UnknownElement { .. } | Error::AmbiguousTask { .. } => 61,
            Error::NoProfiler { .. } => 62,
            Error::NoProfile { .. } => 63,
            Error::NotBegun { .. } => 66,
            Error::OutsideRegion { .. } => 69,
            Error::NoCommunicator { .. } => 72,
            Error::ForeignNode { .. } => 70,
            Error::Output { .. } => 71,
            Error::NotRecorded { .. } => 90,
            Error::DriverFunction { .. } => 91,
            Error::Endless(_) | Error::LostTensor { .. } => 92,
            Error::Collectives { .. } | Error::StaleGraph => 98,
            Error::Ranks(error) => error.code(),
            Error::File(error) => error.code(),
        }
    }
}

impl From<ResolveError> for Error {
    fn from(error: ResolveError) -> Error {
        Error::Sizes(Box::new(error))
    }
}

impl From<BuildError> for Error {
    fn from(error: BuildError) -> Error {
        Error::Build(error)
    }
}

impl From<maco_ranks::Error> for Error {
    fn from(error: maco_ranks::Error) -> Error {
        Error::Ranks(Box::new(error))
    }
}

impl From<FileError> for Error {
    fn from(error: FileError) -> Error {
        Error::File(Box::new(error))
    }
}

impl From<PlanError> for Error {
    fn from(error: PlanError) -> Error {
        Error::Plan(Box::new(error))
    }
}

fn free_text(free: Option<(u64, u64)>) -> String {
    match free {
        Some((free, total)) => format!(", {free} of {total} are free"),
        None => String::new(),
    }
}

const _: () = assert!(size_of::<Error>() <= 128);

fn and_schedulers(schedulers: u32) -> String {
    if schedulers == 0 { String::new() } else { format!(" and {schedulers} schedulers") }
}
