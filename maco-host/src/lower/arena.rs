//! The temps in the one allocation that a plan has for them, and the words of temps with in-band flags behind. Where each temp lies the plan says.

use std::ops::Range;

use maco_graph::ir::TensorKind;
use maco_graph::plan::{Plan, TEMP_ALIGN};

use super::too_many;
use crate::error::Error;
use crate::tensor::{BASE_ALIGN, Layout, Shape};

/// The temps of a plan.
#[derive(Debug)]
pub(crate) struct Arena {
    /// In order of the graph.
    pub(crate) temps: Vec<Temp>,
    /// Bytes of all of them, and of words.
    pub(crate) bytes: u64,
    /// Bytes of temps with in-band flags ([`maco_abi::Launch::in_band`]); they come first.
    pub(crate) in_band_bytes: u32,
    /// The bytes of their words, one word (element and flag) per element, after all temps.
    pub(crate) words: Range<u64>,
}

/// One temp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Temp {
    /// Bytes from the start of the arena, a multiple of [`BASE_ALIGN`]; temps that share memory have the same.
    pub(crate) offset: u64,
    pub(crate) layout: Layout,
}

impl Arena {
    pub(crate) fn new(plan: &Plan) -> Result<Arena, Error> {
        let (graph, of) = (&plan.graph, &plan.temps);
        let mut temps = Vec::new();
        for (tensor, range) in graph.tensors.iter().zip(&of.ranges).filter(|(tensor, _)| tensor.kind == TensorKind::Temp) {
            let shape = Shape::new(&tensor.shape)?;
            let layout = Layout::padded(shape, tensor.element.bytes() as u64)?;
            if of.bytes > isize::MAX as u64 {
                return Err(Error::TensorTooLarge { shape });
            }
            temps.push(Temp { offset: range.offset, layout });
        }
        let behind = of.in_band_bytes;
        let in_band_bytes =
            u32::try_from(behind).map_err(|_| too_many(graph, "bytes of temps with in-band flags", behind, u32::MAX.into()))?;
        let words = of.bytes..of.bytes.saturating_add(2 * behind);
        Ok(Arena { temps, bytes: words.end, in_band_bytes, words })
    }

    /// The words after `launches` launches have ended.
    pub(crate) fn words_behind(&self, launches: u32) -> Vec<u32> {
        vec![maco_abi::epoch(launches.wrapping_sub(1)); (self.words.end - self.words.start) as usize / 4]
    }
}

const _: () = assert!(TEMP_ALIGN == BASE_ALIGN);
