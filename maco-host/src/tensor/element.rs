//! Which Rust types a tensor may hold.

use half::{bf16, f16};
use maco_graph::spec::Element;

mod sealed {
    pub trait Sealed {}
}

/// A type a tensor may hold: `bf16`, `f16`, `f32`, `i8`, `i32` or `u32`.
pub trait TensorElement: maco_device::Element + sealed::Sealed {
    /// The element type in a graph.
    const ELEMENT: Element;
}

macro_rules! elements {
    ($($ty:ty => $element:ident),+) => {$(
        impl sealed::Sealed for $ty {}
        impl TensorElement for $ty {
            const ELEMENT: Element = Element::$element;
        }
        const _: () = assert!(size_of::<$ty>() as u32 == Element::$element.bytes());
    )+};
}
elements!(bf16 => Bf16, f16 => F16, f32 => F32, i32 => I32, u32 => U32, i8 => I8);
