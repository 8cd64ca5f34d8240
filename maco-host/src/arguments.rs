//! The arguments of a run. Checking them against a plan is in [`crate::signature`].

use std::marker::PhantomData;
use std::sync::Arc;

use maco_device::task::Scalar;
use maco_graph::spec::{Element, ScalarType};

use crate::device::Device;
use crate::tensor::{Buffer, Layout, Tensor, TensorElement};

/// Arguments in signature order: tensors (arrays flattened) and scalars each count on their own.
#[derive(Default)]
pub struct Arguments<'a> {
    pub(crate) tensors: Vec<TensorArgument>,
    pub(crate) scalars: Vec<ScalarArgument>,
    tensor_borrows: PhantomData<&'a mut ()>,
}

/// One tensor, with what a launch needs of it.
pub(crate) struct TensorArgument {
    pub(crate) placed: Placed,
    pub(crate) buffer: Arc<Buffer>,
}

/// Where and what an argument is: equal values need no new check and no new upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) address: u64,
    pub(crate) layout: Layout,
    pub(crate) element: Element,
    pub(crate) writable: bool,
}

impl Placed {
    /// Address past the last element.
    pub(crate) fn end(&self) -> u64 {
        self.address + self.layout.span() * self.element.bytes() as u64
    }
}

impl TensorArgument {
    fn new<E: TensorElement>(tensor: &Tensor<E>, writable: bool) -> TensorArgument {
        let buffer = tensor.buffer().clone();
        let placed = Placed { address: buffer.address(), layout: *tensor.layout(), element: E::ELEMENT, writable };
        TensorArgument { placed, buffer }
    }

    pub(crate) fn device(&self) -> &Device {
        self.buffer.device()
    }
}

/// One scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScalarArgument {
    pub(crate) ty: ScalarType,
    pub(crate) bits: u32,
}

/// A Rust type that a scalar parameter may have: `f32`, `u32` or `i32`.
pub trait ScalarValue: Scalar {
    /// The type in a task's signature.
    const TYPE: ScalarType;
}

impl ScalarValue for f32 {
    const TYPE: ScalarType = ScalarType::F32;
}
impl ScalarValue for u32 {
    const TYPE: ScalarType = ScalarType::U32;
}
impl ScalarValue for i32 {
    const TYPE: ScalarType = ScalarType::I32;
}

impl<'a> Arguments<'a> {
    /// No argument yet.
    pub fn new() -> Arguments<'a> {
        Arguments::default()
    }

    /// The next parameter, an `In`.
    #[must_use]
    pub fn tensor<E: TensorElement>(mut self, tensor: &'a Tensor<E>) -> Arguments<'a> {
        self.tensors.push(TensorArgument::new(tensor, false));
        self
    }

    /// The next parameter, an array of `In`.
    #[must_use]
    pub fn tensors<E: TensorElement>(mut self, tensors: &'a [Tensor<E>]) -> Arguments<'a> {
        self.tensors.extend(tensors.iter().map(|tensor| TensorArgument::new(tensor, false)));
        self
    }

    /// The next parameter, an `Out`, `InOut` or `State`.
    #[must_use]
    pub fn tensor_mut<E: TensorElement>(mut self, tensor: &'a mut Tensor<E>) -> Arguments<'a> {
        self.tensors.push(TensorArgument::new(tensor, true));
        self
    }

    /// The next parameter, an array of `Out`, `InOut` or `State`.
    #[must_use]
    pub fn tensors_mut<E: TensorElement>(mut self, tensors: &'a mut [Tensor<E>]) -> Arguments<'a> {
        self.tensors.extend(tensors.iter().map(|tensor| TensorArgument::new(tensor, true)));
        self
    }

    /// How many tensors there are so far, those of arrays each.
    pub fn tensor_count(&self) -> usize {
        self.tensors.len()
    }

    /// The next parameter, a scalar.
    #[must_use]
    pub fn scalar<S: ScalarValue>(mut self, value: S) -> Arguments<'a> {
        self.scalars.push(ScalarArgument { ty: S::TYPE, bits: value.to_bits() });
        self
    }
}
