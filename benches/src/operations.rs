//! The memory-bound operations that are measured: which megakernel, how large, and random operands for it.
//!
//! The megakernels are in `memory.rs`; what PyTorch does in their place in `peers/memory.py`.

use anyhow::{bail, ensure};
use maco::{Arguments, Device, Error, Plan, Tensor, bf16};
use maco_graph::ir::TensorKind;
use maco_graph::spec::Element;

use crate::matrix::numbers;
use crate::memory::{self, HEADS};
use crate::timing::Random;

/// Columns of what is measured: as wide as a token of Llama-3-8B.
pub const COLUMNS: u64 = 4096;
/// What numbers of rows are multiples of: groups of rows fit.
const STEP: u64 = 64;

/// One operation.
pub struct Operation {
    /// The task's name; of several, of the one that counts.
    pub name: &'static str,
    plan: fn(&Device, u64, u64) -> Result<Plan, Error>,
}

macro_rules! operations {
    ($($name:ident: $kernel:ident),*) => {
        [$(Operation {
            name: stringify!($name),
            plan: |device, rows, columns| {
                let plan = memory::$kernel::plan_with(device, memory::$kernel::Dims { M: rows, N: columns }, &crate::options())?;
                Ok((*plan).clone())
            },
        }),*]
    };
}

/// All but [`ROPE`], whose columns are heads of pairs.
const OF_ROWS: [Operation; 22] = operations!(
    copy: copied,
    add: added,
    gelu: activated,
    silu_mul: gated,
    softmax: probabilities,
    rmsnorm: root_mean_square,
    add_rmsnorm: residual_norm,
    layernorm: normalised,
    sum_rows: row_sums,
    sum_cols: column_sums,
    transpose: transposed,
    to_f32: widened,
    to_bf16: narrowed,
    embedding: embedded,
    gather: gathered,
    gather_sum: combined,
    scatter: scattered,
    index_copy: replaced,
    quantise: quantised,
    dequantise: dequantised,
    argmax: largest,
    top_k: chosen
);

const ROPE: Operation = Operation {
    name: "rope",
    plan: |device, rows, columns| {
        let dims = memory::rotated::Dims { M: rows, F: columns / (2 * HEADS as u64) };
        let plan = memory::rotated::plan_with(device, dims, &crate::options())?;
        Ok((*plan).clone())
    },
};

/// All of them.
pub fn operations() -> impl Iterator<Item = Operation> {
    OF_ROWS.into_iter().chain([ROPE])
}

impl Operation {
    /// Its plan.
    pub fn plan(&self, device: &Device, rows: u64, columns: u64) -> Result<Plan, Error> {
        (self.plan)(device, rows, columns)
    }

    /// Rows of [`COLUMNS`] with which it moves about `bytes` bytes.
    pub fn rows(&self, bytes: u64) -> Result<u64, Error> {
        let small = Device::cpu_with(1);
        let of = |rows: u64| Ok::<u64, Error>(moved(&self.plan(&small, rows, COLUMNS)?));
        let row = (of(2 * STEP)? - of(STEP)?) / STEP;
        Ok((bytes / row / STEP).max(1) * STEP)
    }

    /// Fails unless a small instance gives on `device` what it gives on the CPU.
    pub fn check(&self, device: &Device) -> anyhow::Result<()> {
        let run = |device: &Device| -> anyhow::Result<Operands> {
            let plan = self.plan(device, STEP, COLUMNS)?;
            let mut operands = Operands::random(device, &plan, 1)?;
            plan.run(operands.arguments())?;
            Ok(operands)
        };
        let (found, expected) = (run(device)?, run(&Device::cpu())?);
        for (ours, oracle) in found.0.iter().zip(&expected.0).filter(|(operand, _)| operand.written) {
            let (ours, oracle) = (ours.buffer.values()?, oracle.buffer.values()?);
            let largest = oracle.iter().fold(0.0, |largest: f64, v| largest.max(v.abs()));
            let off = ours.iter().zip(&oracle).any(|(a, b)| (a - b).abs() > largest / 64.0);
            ensure!(!off, "`{}` gives something else on {device} than on the CPU", self.name);
        }
        Ok(())
    }
}

/// Bytes that a plan reads and writes: each of its arguments once.
pub fn moved(plan: &Plan) -> u64 {
    let arguments = plan.graph().graph.tensors.iter().filter(|tensor| tensor.kind != TensorKind::Temp);
    arguments.map(|tensor| tensor.shape.iter().product::<u64>() * u64::from(tensor.element.bytes())).sum()
}

/// Arguments of one launch.
pub struct Operands(Vec<Operand>);

struct Operand {
    name: String,
    written: bool,
    buffer: Buffer,
}

impl Operands {
    /// Random numbers for what the plan reads. Indices are permutations, so that everything is read once: of all rows, or, of the tensor
    /// `columns`, of each row's columns.
    pub fn random(device: &Device, plan: &Plan, seed: u64) -> anyhow::Result<Operands> {
        let tensors = plan.graph().graph.tensors.iter().filter(|tensor| tensor.kind != TensorKind::Temp);
        let made = tensors.zip(seed * 16..).map(|(tensor, seed)| {
            let written = tensor.kind != TensorKind::In;
            let count = tensor.shape.iter().product::<u64>() as usize;
            let period = if tensor.name == "columns" { tensor.shape[1] } else { count as u64 };
            let buffer = Buffer::new(device, tensor.element, &tensor.shape, if written { None } else { Some((seed, period)) })?;
            Ok(Operand { name: tensor.name.clone(), written, buffer })
        });
        Ok(Operands(made.collect::<anyhow::Result<_>>()?))
    }

    /// In the order of the plan's parameters.
    pub fn arguments(&mut self) -> Arguments<'_> {
        self.0.iter_mut().fold(Arguments::new(), |arguments, operand| operand.buffer.pass(arguments, operand.written))
    }

    /// The numbers of an operand.
    pub fn values(&self, name: &str) -> anyhow::Result<Vec<f64>> {
        match self.0.iter().find(|operand| operand.name == name) {
            Some(operand) => operand.buffer.values(),
            None => bail!("no operand is called `{name}`"),
        }
    }
}

/// A tensor of one of the element types that operations have.
enum Buffer {
    Bf16(Tensor<bf16>),
    F32(Tensor<f32>),
    U32(Tensor<u32>),
    I8(Tensor<i8>),
}

impl Buffer {
    /// Zeros, or random numbers from a seed; unsigned ones are permutations of 0..period.
    fn new(device: &Device, element: Element, shape: &[u64], random: Option<(u64, u64)>) -> anyhow::Result<Buffer> {
        let count = shape.iter().product::<u64>() as usize;
        let (seed, period) = random.unwrap_or((0, 1));
        let scale = if random.is_some() { 1.0 } else { 0.0 };
        Ok(match element {
            Element::Bf16 => {
                let data: Vec<bf16> = numbers(seed, scale).take(count).map(bf16::from_f32).collect();
                Buffer::Bf16(device.upload(&data, shape)?)
            }
            Element::F32 => Buffer::F32(device.upload(&numbers(seed, scale).take(count).collect::<Vec<f32>>(), shape)?),
            Element::I8 => {
                let data: Vec<i8> = numbers(seed, 127.0 * scale).take(count).map(|v| v as i8).collect();
                Buffer::I8(device.upload(&data, shape)?)
            }
            Element::U32 => {
                let mut random = Random::new(seed);
                let permutations = std::iter::repeat_with(|| random.permutation(period as u32)).flatten();
                Buffer::U32(device.upload(&permutations.take(count).collect::<Vec<u32>>(), shape)?)
            }
            element => bail!("no operation has elements of {}", element.name()),
        })
    }

    fn pass<'a>(&'a mut self, arguments: Arguments<'a>, written: bool) -> Arguments<'a> {
        macro_rules! pass {
            ($($variant:ident),*) => {
                match self {
                    $(Buffer::$variant(tensor) => if written { arguments.tensor_mut(tensor) } else { arguments.tensor(tensor) }),*
                }
            };
        }
        pass!(Bf16, F32, U32, I8)
    }

    fn values(&self) -> anyhow::Result<Vec<f64>> {
        Ok(match self {
            Buffer::Bf16(tensor) => tensor.download()?.into_iter().map(bf16::to_f64).collect(),
            Buffer::F32(tensor) => tensor.download()?.into_iter().map(f64::from).collect(),
            Buffer::U32(tensor) => tensor.download()?.into_iter().map(f64::from).collect(),
            Buffer::I8(tensor) => tensor.download()?.into_iter().map(f64::from).collect(),
        })
    }
}
