//! A graph of the run-time builder once it is planned, and what it computes.

use std::any::Any;

use maco_device::{bf16, f16};
use maco_graph::plan;
use maco_graph::spec::Element;
use maco_host::{Arguments, Device, Error, Plan, Report, Tensor, TensorElement};

use super::Declared;

/// A [`TaskGraph`](super::TaskGraph) planned for a device.
pub struct CompiledGraph {
    pub(super) plan: Plan,
    pub(super) inputs: usize,
    pub(super) outputs: Vec<Declared>,
}

impl CompiledGraph {
    /// Runs the graph on `inputs`, in the order in which they were declared, into new outputs.
    ///
    /// # Errors
    /// MACO0030 for another number of inputs; those of [`Plan::run`].
    pub fn execute(&self, inputs: Arguments<'_>) -> Result<Outputs, Error> {
        if inputs.tensor_count() != self.inputs {
            return Err(Error::ArgumentCount {
                megakernel: self.graph().graph.name.as_str().into(),
                what: "inputs",
                expected: self.inputs,
                found: inputs.tensor_count(),
            });
        }
        let mut tensors = Vec::with_capacity(self.outputs.len());
        for output in &self.outputs {
            let tensor = AnyTensor::zeros(self.plan.device(), output.element, &output.shape)?;
            tensors.push((output.name.clone(), tensor));
        }
        let mut arguments = inputs;
        for (_, tensor) in &mut tensors {
            arguments = tensor.pass(arguments);
        }
        let report = self.plan.run(arguments)?;
        Ok(Outputs { tensors, report })
    }

    /// The plan: tasks, waves, `graph()` and the rest.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The planned graph: text, `.dot()`, `.json()`.
    pub fn graph(&self) -> &plan::Plan {
        self.plan.graph()
    }

    /// Length of the longest chain of dependent tasks.
    pub fn waves(&self) -> u32 {
        self.plan.waves()
    }
}

/// What a [`CompiledGraph`] computed.
pub struct Outputs {
    tensors: Vec<(String, AnyTensor)>,
    report: Report,
}

impl Outputs {
    /// The output `name`, if there is one of that element type.
    pub fn get<E: TensorElement>(&self, name: &str) -> Option<&Tensor<E>> {
        self.tensors.iter().find(|(known, _)| known == name).and_then(|(_, tensor)| tensor.as_any().downcast_ref())
    }

    /// How the run went.
    pub fn report(&self) -> Report {
        self.report
    }
}

macro_rules! any_tensor {
    ($($variant:ident $element:ty),*) => {
        /// A tensor whose element type is known at run time.
        enum AnyTensor {
            $($variant(Tensor<$element>)),*
        }

        impl AnyTensor {
            fn zeros(device: &Device, element: Element, shape: &[u64]) -> Result<AnyTensor, Error> {
                Ok(match element {
                    $(Element::$variant => AnyTensor::$variant(device.zeros::<$element>(shape)?)),*
                })
            }

            fn pass<'a>(&'a mut self, arguments: Arguments<'a>) -> Arguments<'a> {
                match self {
                    $(AnyTensor::$variant(tensor) => arguments.tensor_mut(tensor)),*
                }
            }

            fn as_any(&self) -> &dyn Any {
                match self {
                    $(AnyTensor::$variant(tensor) => tensor),*
                }
            }
        }
    };
}
any_tensor!(Bf16 bf16, F16 f16, F32 f32, I32 i32, U32 u32, I8 i8);
