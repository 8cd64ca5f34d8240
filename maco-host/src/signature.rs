//! What a plan's parameters ask of the arguments. Memory and launches do not belong here.

use maco_graph::ir::{Graph, ScalarSource, TensorKind};
use maco_graph::spec::{Element, Param, ScalarType};

use crate::arguments::{Arguments, Placed};
use crate::device::Device;
use crate::error::Error;
use crate::tensor::Shape;

/// Parameters of a megakernel with their sizes.
#[derive(Debug)]
pub(crate) struct Signature {
    megakernel: Box<str>,
    tensors: Vec<TensorParameter>,
    scalars: Vec<ScalarParameter>,
}

#[derive(Debug)]
struct TensorParameter {
    name: Box<str>,
    written: bool,
    element: Element,
    shape: Shape,
}

#[derive(Debug)]
struct ScalarParameter {
    name: Box<str>,
    /// `None` when no task takes it.
    ty: Option<ScalarType>,
}

impl Signature {
    pub(crate) fn new(graph: &Graph) -> Result<Signature, Error> {
        let tensors = graph
            .tensors
            .iter()
            .filter(|tensor| tensor.kind != TensorKind::Temp)
            .map(|tensor| {
                Ok(TensorParameter {
                    name: tensor.name.as_str().into(),
                    written: tensor.kind != TensorKind::In,
                    element: tensor.element,
                    shape: Shape::new(&tensor.shape)?,
                })
            })
            .collect::<Result<_, Error>>()?;
        let mut scalars: Vec<_> =
            graph.scalars.iter().map(|scalar| ScalarParameter { name: scalar.name.as_str().into(), ty: None }).collect();
        for call in &graph.calls {
            let types = call.task.params.iter().filter_map(|param| match param {
                Param::Scalar { ty, .. } => Some(*ty),
                Param::Tensor(_) => None,
            });
            for (source, ty) in call.scalars.iter().zip(types) {
                if let ScalarSource::Parameter(index) = source
                    && let Some(scalar) = scalars.get_mut(*index as usize)
                {
                    scalar.ty.get_or_insert(ty);
                }
            }
        }
        Ok(Signature { megakernel: graph.name.as_str().into(), tensors, scalars })
    }

    /// Number, kind, element, shape, device and aliasing of the arguments.
    pub(crate) fn check(&self, device: &Device, arguments: &Arguments<'_>) -> Result<(), Error> {
        self.count("tensors", self.tensors.len(), arguments.tensors.len())?;
        self.count("scalars", self.scalars.len(), arguments.scalars.len())?;
        for (parameter, argument) in self.scalars.iter().zip(&arguments.scalars) {
            if let Some(expected) = parameter.ty.filter(|&ty| ty != argument.ty) {
                return Err(self.wrong_element(&parameter.name, scalar_name(expected), scalar_name(argument.ty)));
            }
        }
        for (parameter, argument) in self.tensors.iter().zip(&arguments.tensors) {
            let placed = &argument.placed;
            if argument.device() != device {
                return Err(device.wrong(&parameter.name, argument.device()));
            }
            if placed.element != parameter.element {
                return Err(self.wrong_element(&parameter.name, parameter.element.name(), placed.element.name()));
            }
            if placed.layout.shape != parameter.shape {
                return Err(Error::WrongShape {
                    megakernel: self.megakernel.clone(),
                    tensor: parameter.name.clone(),
                    expected: parameter.shape,
                    found: placed.layout.shape,
                });
            }
            if parameter.written && !placed.writable {
                return Err(Error::ReadOnly { megakernel: self.megakernel.clone(), tensor: parameter.name.clone() });
            }
        }
        self.aliases(arguments.tensors.iter().map(|argument| argument.placed))
    }

    fn count(&self, what: &'static str, expected: usize, found: usize) -> Result<(), Error> {
        if expected == found { Ok(()) } else { Err(Error::ArgumentCount { megakernel: self.megakernel.clone(), what, expected, found }) }
    }

    fn wrong_element(&self, parameter: &str, expected: &'static str, found: &'static str) -> Error {
        Error::WrongElement { megakernel: self.megakernel.clone(), parameter: parameter.into(), expected, found }
    }

    /// Refuses overlapping address ranges of which one is written. Padding between rows counts as part of a tensor.
    fn aliases(&self, placed: impl Iterator<Item = Placed>) -> Result<(), Error> {
        let mut ranges: Vec<(u64, u64, usize)> =
            placed.enumerate().map(|(index, placed)| (placed.address, placed.end(), index)).filter(|(start, end, _)| start < end).collect();
        ranges.sort_unstable();
        // Furthest end of what is read and of what is written so far, with whose it is.
        let mut reached: [Option<(u64, usize)>; 2] = [None; 2];
        for &(start, end, index) in &ranges {
            let written = self.tensors[index].written;
            for (kind, earlier) in reached.iter().enumerate() {
                if let Some((_, other)) = earlier.filter(|&(furthest, _)| start < furthest && (written || kind == 1)) {
                    let (first, second) = if written { (index, other) } else { (other, index) };
                    return Err(Error::Aliased {
                        megakernel: self.megakernel.clone(),
                        written: self.tensors[first].name.clone(),
                        other: self.tensors[second].name.clone(),
                    });
                }
            }
            let kind = &mut reached[written as usize];
            if kind.is_none_or(|(furthest, _)| furthest < end) {
                *kind = Some((end, index));
            }
        }
        Ok(())
    }
}

fn scalar_name(ty: ScalarType) -> &'static str {
    match ty {
        ScalarType::F32 => "f32",
        ScalarType::U32 => "u32",
        ScalarType::I32 => "i32",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Tensor;
    use half::bf16;
    use maco_graph::ir;

    fn tensor(name: &str, kind: TensorKind, shape: &[u64]) -> ir::Tensor {
        ir::Tensor {
            name: name.into(),
            kind,
            element: Element::F32,
            shape: shape.into(),
            placement: maco_graph::spec::Placement::Replicated,
        }
    }

    fn signature() -> Signature {
        let tensors = vec![
            tensor("x", TensorKind::In, &[4, 4]),
            tensor("w", TensorKind::In, &[4, 4]),
            tensor("y", TensorKind::Out, &[4, 4]),
            tensor("h", TensorKind::Temp, &[9]),
        ];
        let graph = Graph { name: "mlp".into(), tensors, scalars: vec![ir::Scalar { name: "by".into() }], ..Graph::default() };
        Signature::new(&graph).unwrap()
    }

    #[test]
    fn each_mistake_has_its_code() {
        let (device, other) = (Device::cpu_with(1), Device::cpu_with(1));
        let x = device.zeros::<f32>([4, 4]).unwrap();
        let mut y = device.zeros::<f32>([4, 4]).unwrap();
        let wide = device.zeros::<f32>([4, 5]).unwrap();
        let wrong = device.zeros::<bf16>([4, 4]).unwrap();
        let foreign = other.zeros::<f32>([4, 4]).unwrap();
        let signature = signature();
        let check = |arguments: Arguments<'_>| signature.check(&device, &arguments).map_err(|error| error.code());

        assert_eq!(check(Arguments::new().tensor(&x).tensor(&x).scalar(1.0f32).tensor_mut(&mut y)), Ok(()));
        assert_eq!(check(Arguments::new().tensor(&x).scalar(1.0f32).tensor_mut(&mut y)), Err(30));
        assert_eq!(check(Arguments::new().tensor(&x).tensor(&x).tensor_mut(&mut y)), Err(30));
        assert_eq!(check(Arguments::new().tensor(&wide).tensor(&x).scalar(1.0f32).tensor_mut(&mut y)), Err(31));
        assert_eq!(check(Arguments::new().tensor(&x).tensor(&wrong).scalar(1.0f32).tensor_mut(&mut y)), Err(32));
        assert_eq!(check(Arguments::new().tensor(&foreign).tensor(&x).scalar(1.0f32).tensor_mut(&mut y)), Err(33));
        assert_eq!(check(Arguments::new().tensor(&x).tensor(&x).scalar(1.0f32).tensor(&y)), Err(36));
    }

    #[test]
    fn overlap_is_an_error_only_where_something_is_written() {
        let device = Device::cpu_with(1);
        let mut memory = vec![0f32; 64];
        let base = memory.as_mut_ptr();
        let signature = signature();
        // SAFETY: offsets below 64 - 16; the tensors are only checked, never accessed.
        let at = |offset: usize| unsafe { Tensor::from_raw(&device, base.add(offset), [4, 4], 4).unwrap() };
        for (x, w, y, expected) in [
            (0, 16, 32, None),
            (0, 8, 32, None),
            (0, 0, 16, None),
            (0, 16, 16, Some(("y", "w"))),
            (15, 40, 0, Some(("y", "x"))),
            (0, 40, 15, Some(("y", "x"))),
            (0, 8, 20, Some(("y", "w"))),
        ] {
            let (x, w, mut y) = (at(x), at(w), at(y));
            let found = signature.check(&device, &Arguments::new().tensor(&x).tensor(&w).scalar(1.0f32).tensor_mut(&mut y));
            match (found, expected) {
                (Ok(()), None) => {}
                (Err(Error::Aliased { written, other, .. }), Some(names)) => assert_eq!((&*written, &*other), names),
                (found, expected) => panic!("{found:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn scalars_keep_their_type() {
        use maco_graph::spec::{TaskKind, TaskSpec};
        const PARAMS: &[Param] = &[Param::Scalar { name: "by", ty: ScalarType::F32 }];
        static TASK: TaskSpec =
            TaskSpec { name: "t", kind: TaskKind::Tiles, axes: &[], dims: &[], equal: &[], elements: &[], params: PARAMS, gemv: None };
        let call = ir::Call { scalars: vec![ScalarSource::Parameter(0)], ..ir::Call::new(&TASK, vec![]) };
        let graph = Graph { name: "g".into(), scalars: vec![ir::Scalar { name: "by".into() }], calls: vec![call], ..Graph::default() };
        let signature = Signature::new(&graph).unwrap();
        let device = Device::cpu_with(1);
        assert!(signature.check(&device, &Arguments::new().scalar(1.0f32)).is_ok());
        let error = signature.check(&device, &Arguments::new().scalar(1u32)).unwrap_err();
        assert_eq!(error.code(), 32);
        assert!(error.to_string().contains("`by` of megakernel `g` is f32, but its argument is u32"), "{error}");
    }
}
