//! Offsets of the temps in the one allocation of a plan's temps, and of the words of temps with in-band flags.

use std::ops::Range;

use maco_graph::ir::{Graph, TensorKind};
use maco_graph::plan::Relation;

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
    /// Bytes of temps with in-band flags ([`maco_device::abi::Launch::carried`]); they come first.
    pub(crate) in_band_bytes: u32,
    /// The bytes of their words, one word (element and flag) per element, after all temps.
    pub(crate) words: Range<u64>,
}

/// One temp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Temp {
    /// Bytes from the start of the arena, a multiple of [`BASE_ALIGN`].
    pub(crate) offset: u64,
    pub(crate) layout: Layout,
}

impl Arena {
    pub(crate) fn new(graph: &Graph, relations: &[Relation]) -> Result<Arena, Error> {
        let mut in_band = vec![false; graph.tensors.len()];
        for relation in relations.iter().filter(|relation| relation.in_band) {
            in_band[relation.tensor as usize] = true;
        }
        let temps = graph.tensors.iter().zip(in_band).filter(|(tensor, _)| tensor.kind == TensorKind::Temp);
        let mut arena = Arena { temps: Vec::new(), bytes: 0, in_band_bytes: 0, words: 0..0 };
        let mut ordinary = 0;
        for (tensor, in_band) in temps.clone() {
            let shape = Shape::new(&tensor.shape)?;
            let element = tensor.element.bytes() as u64;
            let layout = Layout::padded(shape, element)?;
            let end = if in_band { &mut arena.bytes } else { &mut ordinary };
            arena.temps.push(Temp { offset: *end, layout });
            *end = (layout.allocation() * element)
                .checked_next_multiple_of(BASE_ALIGN)
                .and_then(|bytes| end.checked_add(bytes))
                .ok_or(Error::TensorTooLarge { shape })?;
        }
        let behind = arena.bytes;
        arena.in_band_bytes = u32::try_from(behind).map_err(|_| too_many(graph, "bytes of carried temps", behind, u32::MAX.into()))?;
        for (temp, _) in arena.temps.iter_mut().zip(temps).filter(|(_, (_, in_band))| !in_band) {
            temp.offset += behind;
        }
        let end = behind.saturating_add(ordinary);
        arena.words = end..end.saturating_add(2 * behind);
        arena.bytes = arena.words.end;
        Ok(arena)
    }

    /// The words after `launches` launches have ended.
    pub(crate) fn words_behind(&self, launches: u32) -> Vec<u32> {
        vec![maco_device::abi::epoch(launches.wrapping_sub(1)); (self.words.end - self.words.start) as usize / 4]
    }
}
