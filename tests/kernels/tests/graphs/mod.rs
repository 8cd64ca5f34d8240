//! Random graphs of exact tasks: made from numbers, run on a device, compared with an oracle.
#![allow(dead_code)]

pub mod op;
pub mod oracle;
pub mod recipe;

use kernels::random;
use maco::{Arguments, CompiledGraph, Device, Error, Node as Handle, Operand, PlanOptions, Schedule, TaskGraph, Tensor, bf16};

use op::Op;
use oracle::Fault;
use recipe::{Element, How, Program, Recipe};

use crate::support::From64;

/// A tensor of any type.
pub enum AnyTensor {
    F32(Tensor<f32>),
    Bf16(Tensor<bf16>),
    Ids(Tensor<u32>),
}

fn upload<E: maco::TensorElement + From64>(device: &Device, data: &[f64], shape: &[usize]) -> Result<Tensor<E>, Error> {
    let data: Vec<E> = data.iter().map(|&v| E::from64(v)).collect();
    device.upload(&data, shape)
}

fn download<E: maco::TensorElement + From64>(tensor: &Tensor<E>) -> Result<Vec<f64>, Error> {
    Ok(tensor.download()?.into_iter().map(E::to64).collect())
}

impl AnyTensor {
    fn new(device: &Device, element: Element, data: &[f64], shape: &[usize]) -> Result<AnyTensor, Error> {
        Ok(match element {
            Element::F32 => AnyTensor::F32(upload(device, data, shape)?),
            Element::Bf16 => AnyTensor::Bf16(upload(device, data, shape)?),
            Element::Ids => AnyTensor::Ids(upload(device, data, shape)?),
        })
    }

    fn read<'a>(&'a self, arguments: Arguments<'a>) -> Arguments<'a> {
        match self {
            AnyTensor::F32(tensor) => arguments.tensor(tensor),
            AnyTensor::Bf16(tensor) => arguments.tensor(tensor),
            AnyTensor::Ids(tensor) => arguments.tensor(tensor),
        }
    }

    fn write<'a>(&'a mut self, arguments: Arguments<'a>) -> Arguments<'a> {
        match self {
            AnyTensor::F32(tensor) => arguments.tensor_mut(tensor),
            AnyTensor::Bf16(tensor) => arguments.tensor_mut(tensor),
            AnyTensor::Ids(tensor) => arguments.tensor_mut(tensor),
        }
    }

    fn values(&self) -> Result<Vec<f64>, Error> {
        match self {
            AnyTensor::F32(tensor) => download(tensor),
            AnyTensor::Bf16(tensor) => download(tensor),
            AnyTensor::Ids(tensor) => download(tensor),
        }
    }
}

/// One worker, all of the device, or any number between; and who gives them tasks.
pub fn dealt(device: &Device, recipe: &Recipe) -> (Schedule, u32) {
    let most = device.workers();
    let workers = match recipe.workers % 4 {
        0 => 1,
        1 => most,
        _ => 1 + u32::from(recipe.workers / 4) % most,
    };
    match recipe.schedule {
        How::Static => (Schedule::Static, workers),
        How::Tickets => (Schedule::Tickets, workers),
        How::SpareWarps(several) => (Schedule::SpareWarps(u32::from(several).min(workers)), workers),
        How::Schedulers(several) => {
            let several = u32::from(several).min(workers);
            // A scheduler CTA needs a multiprocessor, too.
            let workers = if device.is_gpu() { workers.min(most - several) } else { workers };
            (Schedule::Schedulers(several.min(workers)), workers)
        }
    }
}

/// Whether a recipe's workers are pipelines: those of a GPU always are, and need not be told.
pub fn pipelined(device: &Device, recipe: &Recipe) -> bool {
    recipe.pipelined && recipe.schedule == How::Static && !device.is_gpu()
}

/// What [`dealt`] says, and all else of a recipe.
pub fn options(device: &Device, recipe: &Recipe) -> PlanOptions {
    let (schedule, workers) = dealt(device, recipe);
    let options = PlanOptions::new().schedule(schedule).workers(workers);
    options.pipelined(pipelined(device, recipe)).look_ahead(recipe.look_ahead)
}

/// A program, planned.
pub struct Case {
    pub program: Program,
    pub compiled: CompiledGraph,
    /// Inputs, in the order of the arguments.
    inputs: Vec<usize>,
    /// Outputs, in the order of the arguments.
    outputs: Vec<usize>,
}

impl Case {
    pub fn new(device: &Device, recipe: &Recipe) -> Result<Case, Error> {
        Case::with(device, recipe.program(), &options(device, recipe))
    }

    pub fn with(device: &Device, program: Program, options: &PlanOptions) -> Result<Case, Error> {
        let (graph, order) = build(&program);
        let of = |input: bool| {
            let chosen = |&n: &usize| if input { program.nodes[n].input } else { program.nodes[n].output };
            order.iter().copied().filter(chosen).collect::<Vec<_>>()
        };
        let (inputs, outputs) = (of(true), of(false));
        Ok(Case { compiled: graph.compile_with(device, options)?, inputs, outputs, program })
    }

    pub fn device(&self) -> &Device {
        self.compiled.plan().device()
    }

    fn upload_inputs(&self, launch: u64) -> Result<Vec<AnyTensor>, Error> {
        let upload = |&n: &usize| {
            let node = &self.program.nodes[n];
            AnyTensor::new(self.device(), node.element, &oracle::input(&self.program, n, launch), &node.shape)
        };
        self.inputs.iter().map(upload).collect()
    }

    /// Runs with fresh inputs into outputs of NaN.
    pub fn launch(&self, launch: u64) -> Result<Vec<Vec<f64>>, Error> {
        let inputs = self.upload_inputs(launch)?;
        let mut outputs = Vec::new();
        for &n in &self.outputs {
            let node = &self.program.nodes[n];
            outputs.push(AnyTensor::new(self.device(), node.element, &vec![f64::NAN; node.shape.iter().product()], &node.shape)?);
        }
        let mut arguments = Arguments::new();
        for input in &inputs {
            arguments = input.read(arguments);
        }
        for output in &mut outputs {
            arguments = output.write(arguments);
        }
        self.compiled.plan().run(arguments)?;
        outputs.iter().map(AnyTensor::values).collect()
    }

    /// Runs with fresh inputs into outputs that the graph makes.
    pub fn execute(&self, launch: u64) -> Result<Vec<Vec<f64>>, Error> {
        let inputs = self.upload_inputs(launch)?;
        let mut arguments = Arguments::new();
        for input in &inputs {
            arguments = input.read(arguments);
        }
        let outputs = self.compiled.execute(arguments)?;
        let values = self.outputs.iter().map(|&n| match self.program.nodes[n].element {
            Element::F32 => download(outputs.get::<f32>(&name(n)).expect("an output of that name and type")),
            Element::Bf16 => download(outputs.get::<bf16>(&name(n)).expect("an output of that name and type")),
            Element::Ids => unreachable!("no operation makes ids"),
        });
        values.collect()
    }

    /// The first element of the outputs that is not the oracle's.
    pub fn compare(&self, outputs: &[Vec<f64>], launch: u64, fault: Option<Fault>) -> Result<(), String> {
        let expected = oracle::run(&self.program, launch, fault);
        for (found, &n) in outputs.iter().zip(&self.outputs) {
            // NaN, an element that nobody wrote, is equal to nothing.
            if let Some(at) = found.iter().zip(&expected[n]).position(|(found, expected)| found != expected) {
                let (found, expected, shape) = (found[at], expected[n][at], &self.program.nodes[n].shape);
                return Err(format!("launch {launch}: element {at} of `{}` {shape:?} is {found}, expected {expected}", name(n)));
            }
        }
        Ok(())
    }
}

/// Plans, runs three times with other inputs each time, and compares: both banks of counters, the first one again, temps of ones and stale ones.
pub fn check(device: &Device, recipe: &Recipe, fault: Option<Fault>) -> Result<Case, String> {
    let case = Case::with(device, recipe.program(), &options(device, recipe)).map_err(|error| error.to_string())?;
    check_case(case, fault)
}

/// See [`check`].
pub fn check_case(case: Case, fault: Option<Fault>) -> Result<Case, String> {
    let told = |error: Error| error.to_string();
    case.compiled.plan().fill_temporaries(0xff).map_err(told)?;
    case.compare(&case.launch(1).map_err(told)?, 1, fault)?;
    case.compare(&case.launch(2).map_err(told)?, 2, fault)?;
    case.compare(&case.execute(3).map_err(told)?, 3, fault)?;
    Ok(case)
}

/// A name in messages.
fn name(n: usize) -> String {
    format!("t{n}")
}

/// The program as a graph, and its tensors in the order of their declaration.
fn build(program: &Program) -> (TaskGraph, Vec<usize>) {
    let set = if program.second { random::more_ops() } else { random::ops() };
    let mut graph = TaskGraph::new("random", set);
    let mut handles: Vec<Option<Handle>> = vec![None; program.nodes.len()];
    let mut order = Vec::new();
    for (n, node) in program.nodes.iter().enumerate().filter(|(_, node)| node.input) {
        let shape: Vec<u64> = node.shape.iter().map(|&extent| extent as u64).collect();
        handles[n] = Some(match node.element {
            Element::F32 => graph.input::<f32>(&name(n), shape),
            Element::Bf16 => graph.input::<bf16>(&name(n), shape),
            Element::Ids => graph.input::<u32>(&name(n), shape),
        });
        order.push(n);
    }
    for step in &program.steps {
        let read = |n: usize| handles[step.reads[n]].expect("written before it is read");
        let reads: Vec<Handle> = (0..step.reads.len()).map(read).collect();
        match handles[step.write] {
            // The methods of the graph make their own result.
            None if matches!(step.op, Op::Linear | Op::Matmul | Op::Wrap) => {
                let y = match step.op {
                    Op::Linear => graph.linear(reads[0], reads[1]),
                    Op::Matmul => graph.matmul(reads[0], reads[1]),
                    op => graph.elementwise(op.spec(), reads[0]),
                };
                graph.name(y, &name(step.write));
                handles[step.write] = Some(y);
                order.push(step.write);
            }
            known => {
                let write = known.unwrap_or_else(|| {
                    let node = &program.nodes[step.write];
                    let shape: Vec<u64> = node.shape.iter().map(|&extent| extent as u64).collect();
                    order.push(step.write);
                    match node.element {
                        Element::Bf16 => graph.temp::<bf16>(&name(step.write), shape),
                        _ => graph.temp::<f32>(&name(step.write), shape),
                    }
                });
                handles[step.write] = Some(write);
                graph.custom(step.op.spec(), arguments(step, &reads, write));
            }
        }
        if let Some(tile) = &step.tile {
            graph.tile(tile);
        }
        if step.drain {
            graph.drain();
        }
    }
    for (n, _) in program.nodes.iter().enumerate().filter(|(_, node)| node.output) {
        graph.output(handles[n].expect("outputs are written"), &name(n));
    }
    (graph, order)
}

/// In the order of the task's signature.
fn arguments(step: &recipe::Step, reads: &[Handle], write: Handle) -> Vec<Operand> {
    let mut arguments: Vec<Operand> = reads.iter().map(|&read| read.into()).collect();
    match step.op {
        Op::Pick => arguments.swap(0, 1),
        Op::Nudge | Op::Lift => arguments.push((step.number as i32).into()),
        _ => {}
    }
    if !step.op.in_place() {
        arguments.push(write.into());
    }
    arguments
}
