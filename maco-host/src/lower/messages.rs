//! Where the messages of collectives lie in the symmetric memory of a plan's ranks.

use maco_abi::{Messages, OPERANDS, ViewEntry};
use maco_graph::plan::Plan;
use maco_graph::spec::{Access, Channel, Collective, Index};

use super::{tensor_params, too_many};
use crate::error::Error;

/// Messages begin at multiples of so many bytes, so that two calls share no line.
const LINE: u64 = 128;
/// Elements that are sent together: rows are filled up to as many.
const BLOCK: u64 = 8;

/// The messages of a plan.
#[derive(Debug, Default)]
pub(crate) struct PlanMessages {
    /// For each call that is a collective, where its record is in the table of views, the record from the beginning of the plan's messages, and its tasks.
    calls: Vec<(usize, Messages, std::ops::Range<u32>)>,
    /// Bytes of all, on each rank.
    pub(crate) bytes: u64,
    /// Tiles of all.
    pub(crate) tiles: u32,
    /// Whether a proxy copies some of them.
    pub(crate) proxy: bool,
}

impl PlanMessages {
    /// `views`: by call, where its views begin. There are none of one rank.
    pub(super) fn new(plan: &Plan, views: &[u32], ranks: u32) -> Result<PlanMessages, Error> {
        let mut made = PlanMessages::default();
        if ranks == 1 {
            return Ok(made);
        }
        for ((call, planned), views) in plan.graph.calls.iter().zip(&plan.calls).zip(views) {
            let Some(collective) = call.task.collective() else { continue };
            let result = call.operands.iter().zip(tensor_params(call)).find(|(_, param)| param.access == Access::Write);
            let Some((view, param)) = result else { continue };
            let element = plan.graph.tensors[view.tensor as usize].element;
            let mut extents = param.region.iter().zip(&view.axes).rev().map(|(index, axis)| match *index {
                Index::Tile(tiled) => axis.extent.min(planned.tile[usize::from(tiled)].into()),
                _ => axis.extent,
            });
            let (cols, rows) = (extents.next().unwrap_or(1), extents.next().unwrap_or(1));
            let data = rows * cols.next_multiple_of(BLOCK) * u64::from(element.bytes());
            let bytes = match collective {
                Collective::Channel(Channel::Memory) => data,
                // By tasks that send and tasks that receive: signals.
                _ if planned.parts > 1 => data,
                // The signal behind it, in a line of its own.
                Collective::Channel(Channel::Port) => data.next_multiple_of(16) + 16,
                // A word of flag with each word of data.
                _ => data * 2,
            };
            let too_large = |bytes| too_many(&plan.graph, "bytes of a message", bytes, u32::MAX.into());
            let along = |axis: usize| planned.grid.get(axis).copied().unwrap_or(1);
            let messages = Messages {
                offset: made.bytes,
                bytes: u32::try_from(bytes.next_multiple_of(16)).map_err(|_| too_large(bytes))?,
                tiles: planned.grid.iter().product(),
                grid: [along(1), along(2)],
                first: made.tiles,
                sources: match collective {
                    // Slots that the proxy copies to, and from.
                    Collective::Channel(Channel::Port) => 2,
                    Collective::AllGather | Collective::AllToAll | Collective::Channel(_) => 1,
                    _ => ranks,
                },
            };
            made.proxy |= collective == Collective::Channel(Channel::Port);
            made.calls.push((*views as usize + OPERANDS - 1, messages, planned.tasks.clone()));
            made.bytes = (made.bytes + messages.total(ranks)).next_multiple_of(LINE);
            made.tiles += messages.tiles;
        }
        Ok(made)
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Writes the records of messages that begin at `offset` of the symmetric memory.
    pub(super) fn write(&self, views: &mut [ViewEntry], offset: u64) {
        for (at, messages, _) in &self.calls {
            views[*at] = ViewEntry::messages(Messages { offset: offset + messages.offset, ..*messages });
        }
    }

    /// The number of a task's tile among those of all collectives, if it is one.
    pub(crate) fn tile(&self, task: u32, coord: [u32; 3]) -> Option<u32> {
        let (_, messages, _) = self.calls.iter().find(|(_, _, tasks)| tasks.contains(&task))?;
        Some(messages.first + messages.tile(coord))
    }
}
