//! Where the messages of collectives lie in the symmetric memory of a plan's ranks.

use maco_abi::{ExchangeTask, MAP_ALIGN, MapIndex, Messages, OPERANDS, PushedTiles, ViewEntry};
use maco_graph::plan::Plan;
use maco_graph::spec::{Access, Channel, Collective, Element, Index};

use super::view::Tables;
use super::{BoxShape, TensorMapRequest, tensor_params, too_many};
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
    /// Tiles of these that GEMMs send.
    pushed: Vec<Pushed>,
    /// How many ranks there are.
    ranks: u32,
    /// Bytes of all, on each rank.
    pub(crate) bytes: u64,
    /// Tiles of all.
    pub(crate) tiles: u32,
    /// Whether a proxy copies some of them.
    pub(crate) proxy: bool,
}

/// The tiles of an all-reduce that a GEMM sends.
#[derive(Debug)]
struct Pushed {
    /// Where the record of the GEMM is in the table of views.
    at: usize,
    messages: Messages,
    element: Element,
    /// Rows and columns of a tile.
    tile: [u16; 2],
    /// Each goes to its owner alone.
    to_owner: bool,
}

impl Pushed {
    /// The tensor map of this rank's messages of launches of parity `parity` to a rank whose memory for the plan's messages begins at `base`: rows of tiles.
    fn map(&self, base: u64, rank: u32, parity: u32) -> TensorMapRequest {
        let [rows, cols] = self.tile.map(u64::from);
        let bytes = u64::from(self.element.bytes());
        let rows = rows * u64::from(self.messages.tiles);
        let address = base + self.messages.message(parity, rank, 0);
        let plane = (rows * cols * bytes).next_multiple_of(MAP_ALIGN.into());
        TensorMapRequest { address, element: self.element, extents: [cols, rows, 1], strides: [cols * bytes, plane], boxes: BoxShape::PLAIN }
    }
}

/// Where a rank's process has the symmetric memory of all ranks, and the messages of a plan in it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MessagePlaces<'a> {
    /// This rank.
    pub(crate) rank: u32,
    /// The memory of each; none if there is none yet.
    pub(crate) bases: &'a [u64],
    /// Bytes before the plan's messages.
    pub(crate) offset: u64,
}

impl PlanMessages {
    /// `views`: by call, where its views begin. There are none of one rank.
    pub(super) fn new(plan: &Plan, views: &[u32], ranks: u32) -> Result<PlanMessages, Error> {
        let mut made = PlanMessages { ranks, ..PlanMessages::default() };
        if ranks == 1 {
            return Ok(made);
        }
        for ((call, planned), own) in plan.graph.calls.iter().zip(&plan.calls).zip(views) {
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
                // Who sends is not who receives: signals.
                _ if planned.exchange_task(0).is_some() => data,
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
            if let Some(by) = planned.pushed_by {
                // The planner pushes tiles of so many.
                let tile = [rows as u16, cols as u16];
                let to_owner = planned.exchange_task(0) == Some(ExchangeTask::Reduce);
                made.pushed.push(Pushed { at: views[by as usize] as usize + OPERANDS - 1, messages, element, tile, to_owner });
            }
            made.calls.push((*own as usize + OPERANDS - 1, messages, planned.tasks.clone()));
            made.bytes = (made.bytes + messages.total(ranks)).next_multiple_of(LINE);
            made.tiles += messages.tiles;
        }
        Ok(made)
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// How many tensor maps [`PlanMessages::write`] adds.
    pub(super) fn maps(&self) -> usize {
        self.pushed.len() * 2 * self.ranks as usize
    }

    /// Writes the records of messages, and adds the tensor maps of those that GEMMs send.
    pub(super) fn write(&self, tables: &mut Tables, places: MessagePlaces<'_>) {
        for (at, messages, _) in &self.calls {
            tables.views[*at] = ViewEntry::messages(Messages { offset: places.offset + messages.offset, ..*messages });
        }
        for pushed in &self.pushed {
            let messages = Messages { offset: places.offset + pushed.messages.offset, ..pushed.messages };
            let first = MapIndex::new(tables.maps.len() as u32, true);
            tables.views[pushed.at] = ViewEntry::pushed(PushedTiles::new(messages, first.index(), pushed.tile, pushed.to_owner));
            for parity in 0..2 {
                let of = |rank: u32| match places.bases.get(rank as usize) {
                    Some(base) => pushed.map(base + places.offset, places.rank, parity),
                    None => TensorMapRequest::nothing(pushed.element),
                };
                tables.maps.extend((0..self.ranks).map(of));
            }
        }
    }

    /// The number of a task's tile among those of all collectives, if it is one.
    pub(crate) fn tile(&self, task: u32, coord: [u32; 3]) -> Option<u32> {
        let (_, messages, _) = self.calls.iter().find(|(_, _, tasks)| tasks.contains(&task))?;
        Some(messages.first + messages.tile(coord))
    }
}
