//! Where each temp lies in the one allocation of a plan's temps.

use maco_graph::ir::{Graph, TensorKind};

use crate::error::Error;
use crate::tensor::{BASE_ALIGN, Layout, Shape};

/// The temps of a plan.
#[derive(Debug)]
pub(crate) struct Arena {
    /// In order of the graph.
    pub(crate) temps: Vec<Temp>,
    /// Bytes of all of them.
    pub(crate) bytes: u64,
}

/// One temp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Temp {
    /// Bytes from the start of the arena, a multiple of [`BASE_ALIGN`].
    pub(crate) offset: u64,
    pub(crate) layout: Layout,
}

impl Arena {
    pub(crate) fn new(graph: &Graph) -> Result<Arena, Error> {
        let mut arena = Arena { temps: Vec::new(), bytes: 0 };
        for tensor in graph.tensors.iter().filter(|tensor| tensor.kind == TensorKind::Temp) {
            let shape = Shape::new(&tensor.shape)?;
            let element = tensor.element.bytes() as u64;
            let layout = Layout::padded(shape, element)?;
            arena.temps.push(Temp { offset: arena.bytes, layout });
            arena.bytes = (layout.allocation() * element)
                .checked_next_multiple_of(BASE_ALIGN)
                .and_then(|bytes| arena.bytes.checked_add(bytes))
                .ok_or(Error::TensorTooLarge { shape })?;
        }
        Ok(arena)
    }
}
