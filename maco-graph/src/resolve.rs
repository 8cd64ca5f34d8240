//! From a recording with symbolic dimensions to the concrete call graph, once sizes are known.
//!
//! What const evaluation has proved is not checked again; what depends on sizes is: exact quotients, views, `where`.

mod coverage;
mod grouped_indices;

use std::collections::HashMap;

use crate::ir::{Call, Graph, Scalar, ScalarSource, Tensor, TensorKind, View, ViewAxis};
use crate::spec::{self, Code, Dim, Kind, Origin, Param, Recording, Text, Value};

/// Sizes that a megakernel cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The recording holds a mistake that const evaluation or the builder has told already.
    #[error("{text}")]
    Faulty {
        /// Its code.
        code: Code,
        /// Code, sentence and help line.
        text: String,
    },
    /// Another number of sizes than dimensions.
    #[error("MACO0005: {expected} sizes are needed ({names}), found {found}")]
    Count {
        /// Number of dimensions.
        expected: usize,
        /// Their names.
        names: String,
        /// Number of sizes.
        found: usize,
    },
    /// `where M == N`, with different sizes.
    #[error(
        "MACO0005: `where {left} == {right}`, but {left} is {left_size} and {right} is {right_size}\n  = help: give both the same size"
    )]
    Where {
        /// One name.
        left: &'static str,
        /// Its size.
        left_size: u64,
        /// The other name.
        right: &'static str,
        /// Its size.
        right_size: u64,
    },
    /// A quotient that is not a whole number.
    #[error("MACO0026: `{expression}` is not exact: {numerator} is not divisible by {divisor}\n  = help: choose sizes that divide")]
    Inexact {
        /// In the user's names.
        expression: String,
        /// Value above the line.
        numerator: i128,
        /// Value below the line.
        divisor: i128,
    },
    /// A dimension below 0 or beyond 2⁶³.
    #[error("MACO0026: `{expression}` is {value}, which no dimension can be\n  = help: choose sizes that keep it between 0 and 2^63 - 1")]
    OutOfRange {
        /// In the user's names.
        expression: String,
        /// Its value.
        value: i128,
    },
    /// `h / G` reaches beyond the tensor.
    #[error(
        "MACO0005: `{param}` of task `{task}` reaches plane {last} by `{axis} / {group}`, but `{tensor}` has {found}\n  = help: choose sizes where {axis} has at most {group} times as many"
    )]
    Group {
        /// The task called.
        task: &'static str,
        /// The parameter.
        param: &'static str,
        /// The grid axis.
        axis: &'static str,
        /// Tiles that share a plane.
        group: u32,
        /// The last plane a tile names.
        last: u64,
        /// The tensor.
        tensor: String,
        /// Its planes.
        found: u64,
    },
    /// A read of elements that no call before has written.
    #[error(
        "MACO0002: task `{task}` reads elements {missing} of `{tensor}`, which nothing has written yet\n  = help: write them first, or read a slice of what is written"
    )]
    Unwritten {
        /// The task called.
        task: &'static str,
        /// The tensor.
        tensor: String,
        /// Some of the elements, as a range for each axis.
        missing: String,
    },
    /// An `Out` that is not wholly written.
    #[error("MACO0010: elements {missing} of the `Out` `{tensor}` are never written\n  = help: write all of it, or make it `InOut`")]
    OutUnwritten {
        /// The tensor.
        tensor: String,
        /// Some of the elements, as a range for each axis.
        missing: String,
    },
    /// A view beyond its tensor.
    #[error(
        "MACO0025: a view of `{tensor}` in the call of task `{task}` reaches element {end} of axis {axis}, which has {extent}\n  = help: choose sizes that keep the slice inside"
    )]
    View {
        /// The task called.
        task: &'static str,
        /// The tensor.
        tensor: String,
        /// Axis of the tensor.
        axis: usize,
        /// One past the last element of the view.
        end: u64,
        /// Elements of the axis.
        extent: u64,
    },
}

impl ResolveError {
    /// Its code.
    pub fn code(&self) -> Code {
        match self {
            ResolveError::Faulty { code, .. } => *code,
            ResolveError::Count { .. } | ResolveError::Where { .. } | ResolveError::Group { .. } => Code::Dimension,
            ResolveError::Inexact { .. } | ResolveError::OutOfRange { .. } => Code::Inexact,
            ResolveError::View { .. } => Code::View,
            ResolveError::Unwritten { .. } => Code::Unwritten,
            ResolveError::OutUnwritten { .. } => Code::OutUnwritten,
        }
    }
}

impl Recording<'_> {
    /// The call graph for these sizes, in the order of the dimensions' names.
    ///
    /// # Errors
    /// The sizes break a `where`, make a quotient inexact, a dimension negative, a view reach beyond its tensor, or a call read elements
    /// that nothing has written.
    pub fn resolve(&self, name: &str, sizes: &[u64]) -> Result<Graph, ResolveError> {
        if let Some(fault) = self.first_fault() {
            return Err(ResolveError::Faulty { code: fault.kind.code(), text: self.message(fault).as_str().to_owned() });
        }
        if !self.clean() {
            // A graph's own mistake, told where the graph stands.
            return Err(ResolveError::Faulty {
                code: Code::Statement,
                text: format!("{}: `{name}` calls a graph that has mistakes", Code::Statement),
            });
        }
        if sizes.len() != self.symbols.len() {
            return Err(ResolveError::Count { expected: self.symbols.len(), names: self.symbols.join(", "), found: sizes.len() });
        }
        for &(a, b) in self.equal {
            let (a, b) = (usize::from(a), usize::from(b));
            if sizes[a] != sizes[b] {
                let (left, right) = (self.symbols[a], self.symbols[b]);
                return Err(ResolveError::Where { left, left_size: sizes[a], right, right_size: sizes[b] });
            }
        }
        let values = Values { recording: self, rows: self.values_of(sizes) };
        // A division is exact wherever it is written, also where it cancels: `4 * (M / 4)` is M, and no multiple of 4 below it.
        for (row, value) in self.dims.iter().zip(&values.rows) {
            if let (Origin::Quotient(..), Err(inexact @ ResolveError::Inexact { .. })) = (row.origin, value) {
                return Err(inexact.clone());
            }
        }
        let mut graph = Graph { name: name.to_owned(), ..Graph::default() };
        let mut seen = HashMap::new();
        for (index, row) in (0..).zip(self.tensors) {
            if row.symmetric {
                graph.symmetric.push(index);
            }
            let shape = row.dims[..usize::from(row.rank)].iter().map(|&dim| values.size(dim)).collect::<Result<_, _>>()?;
            graph.tensors.push(Tensor {
                name: unique(&mut seen, row.name),
                kind: kind(row.kind),
                element: row.element,
                shape,
                placement: row.placement,
            });
        }
        graph.scalars = self.scalars.iter().map(|row| Scalar { name: row.name.to_owned() }).collect();
        for row in self.calls {
            let (mut operands, mut scalars) = (Vec::new(), Vec::new());
            let tensors = row.task.params.iter().filter(|param| matches!(param, Param::Tensor(_))).count();
            let beside = self.operands[row.first_operand as usize..].iter().skip(tensors);
            let task = spec::call_spec(row.task, row.result, row.fused, beside.map(|view| usize::from(view.rank)));
            for param in task.params {
                match param {
                    Param::Tensor(_) => {
                        let view = &self.operands[row.first_operand as usize + operands.len()];
                        operands.push(values.view(view, row.task.name, &graph)?);
                    }
                    Param::Scalar { .. } => {
                        let value = self.values[row.first_value as usize + scalars.len()];
                        scalars.push(values.scalar(value)?);
                    }
                }
            }
            let axes = row.task.axes.len().min(row.tile.len());
            let tile = (axes > 0 && row.tile[0] > 0).then(|| row.tile[..axes].to_vec());
            graph.calls.push(Call {
                task,
                slot: row.slot,
                element: row.element,
                operands,
                scalars,
                tile,
                split: (row.split > 0).then_some(row.split),
                fused: row
                    .fused
                    .iter()
                    .map(|op| if op.on_operand_a { format!("first({})", op.name) } else { op.name.to_owned() })
                    .collect(),
                priority: row.priority,
                drain: row.drain,
                via: row.via,
            });
        }
        coverage::check(&graph)?;
        grouped_indices::check(&graph)?;
        Ok(graph)
    }

    /// Every row's value. A row that nothing uses may be negative without harm, so each keeps its own error.
    fn values_of(&self, sizes: &[u64]) -> Vec<Result<i128, ResolveError>> {
        let mut values: Vec<Result<i128, ResolveError>> = Vec::with_capacity(self.dims.len());
        for (index, row) in self.dims.iter().enumerate() {
            let value = match row.origin {
                Origin::Symbol(symbol) => Ok(i128::from(sizes[usize::from(symbol)])),
                Origin::Quotient(numerator, divisor) => self.quotient(&values, index, numerator, divisor),
                Origin::Sum => self.sum(&values, index),
            };
            values.push(value);
        }
        values
    }

    fn quotient(&self, values: &[Result<i128, ResolveError>], index: usize, numerator: Dim, divisor: Dim) -> Result<i128, ResolveError> {
        let (numerator, divisor) = (values[numerator.index()].clone()?, values[divisor.index()].clone()?);
        if divisor == 0 || numerator % divisor != 0 {
            return Err(ResolveError::Inexact { expression: self.text(index), numerator, divisor });
        }
        Ok(numerator / divisor)
    }

    fn sum(&self, values: &[Result<i128, ResolveError>], index: usize) -> Result<i128, ResolveError> {
        let too_large = || ResolveError::OutOfRange { expression: self.text(index), value: i128::MAX };
        let mut sum = 0i128;
        for term in self.dims[index].polynomial.terms() {
            let mut product = i128::from(term.factor);
            for &atom in term.atoms.iter().filter(|&&atom| atom != u16::MAX) {
                product = product.checked_mul(values[usize::from(atom)].clone()?).ok_or_else(too_large)?;
            }
            sum = sum.checked_add(product).ok_or_else(too_large)?;
        }
        Ok(sum)
    }

    /// A row in the user's names.
    fn text(&self, index: usize) -> String {
        let mut text = Text::new();
        self.write_dim(&mut text, index);
        text.as_str().to_owned()
    }
}

struct Values<'a> {
    recording: &'a Recording<'a>,
    rows: Vec<Result<i128, ResolveError>>,
}

impl Values<'_> {
    fn size(&self, dim: Dim) -> Result<u64, ResolveError> {
        let value = self.rows[dim.index()].clone()?;
        u64::try_from(value)
            .ok()
            .filter(|&size| i64::try_from(size).is_ok())
            .ok_or_else(|| ResolveError::OutOfRange { expression: self.recording.text(dim.index()), value })
    }

    fn view(&self, view: &spec::View, task: &'static str, graph: &Graph) -> Result<View, ResolveError> {
        let tensor = &graph.tensors[view.tensor as usize];
        let offset = (0..tensor.shape.len()).map(|axis| self.size(view.offset[axis])).collect::<Result<Vec<_>, _>>()?;
        let mut axes = Vec::new();
        for axis in &view.axes[..usize::from(view.rank)] {
            axes.push(ViewAxis { axis: axis.axis, step: self.size(axis.step)?, extent: self.size(axis.extent)? });
        }
        for (axis, (&extent, &start)) in tensor.shape.iter().zip(&offset).enumerate() {
            let parts = || axes.iter().filter(|part| usize::from(part.axis) == axis);
            let empty = axes.iter().any(|part| part.extent == 0);
            let reach = parts().map(|part| u128::from(part.extent.saturating_sub(1)) * u128::from(part.step)).sum::<u128>();
            let end = u128::from(start) + reach + u128::from(!empty);
            if end > u128::from(extent) {
                let end = u64::try_from(end).unwrap_or(u64::MAX);
                return Err(ResolveError::View { task, tensor: tensor.name.clone(), axis, end, extent });
            }
        }
        Ok(View { tensor: view.tensor, offset, axes })
    }

    fn scalar(&self, value: Value) -> Result<ScalarSource, ResolveError> {
        Ok(match value {
            Value::Parameter(index, _) => ScalarSource::Parameter(index),
            Value::F32(number) => ScalarSource::Literal(number.to_bits()),
            // Two's complement: the range was checked against the parameter's type.
            Value::Integer(number) => ScalarSource::Literal(number as u32),
            Value::Dimension(dim) => {
                let size = self.size(dim)?;
                let size = u32::try_from(size)
                    .map_err(|_| ResolveError::OutOfRange { expression: self.recording.text(dim.index()), value: i128::from(size) })?;
                ScalarSource::Literal(size)
            }
        })
    }
}

fn kind(kind: Kind) -> TensorKind {
    match kind {
        Kind::In => TensorKind::In,
        Kind::Out => TensorKind::Out,
        Kind::InOut => TensorKind::InOut,
        Kind::State => TensorKind::State,
        Kind::Temp => TensorKind::Temp,
    }
}

/// A temp made in a loop has one name in the source and many lives: `next`, `next#2`, `next#3`.
fn unique(seen: &mut HashMap<&'static str, u32>, name: spec::TensorName) -> String {
    if name.index != u32::MAX {
        return format!("{}[{}]", name.name, name.index);
    }
    let count = seen.entry(name.name).or_insert(0);
    *count += 1;
    if *count == 1 { name.name.to_owned() } else { format!("{}#{count}", name.name) }
}
