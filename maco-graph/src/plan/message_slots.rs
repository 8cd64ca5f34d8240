//! How much memory the messages of collectives take, and which calls have fewer slots than tiles where there is less: then tiles have slots in turn, and a sender waits until
//! the message before has been read.
//!
//! Where messages lie is the host's business, and what a credit is, that of `maco-device`'s `TileMessages`.

use maco_abi::{AXES, GROUP_ROWS, Messages, ROUNDS};

use super::region::tensor_of;
use super::tile_order::TileOrder;
use super::tile_selection::Choice;
use super::{Defect, Options, Plan, PlannedCall, own_share, temps};
use crate::ir::{Call, Graph, TensorKind};
use crate::spec::{Access, Channel, Collective, Index};

/// Messages of a call begin at multiples of so many bytes, so that two calls share no line.
pub const MESSAGE_LINE: u64 = 128;
/// Elements that are sent together: rows are filled up to as many.
const BLOCK: u64 = 8;
/// Bytes of a grant: where a rank's result lies.
const GRANT: u64 = 16;

/// What the messages of a call take on each rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageShape {
    /// Bytes of a message, a multiple of 16.
    pub bytes: u64,
    /// Tiles, or slots where these are fewer.
    pub tiles: u32,
    /// As [`Messages::sources`].
    pub sources: u16,
    /// Rows and columns of a tile that is inside the tensor.
    pub extent: [u64; 2],
}

impl MessageShape {
    /// Bytes of all of them, up to where the next call's begin.
    fn total(self, ranks: u32) -> u64 {
        let words = Messages { tiles: self.tiles, sources: self.sources, ..Messages::default() }.total(ranks);
        let data = u128::from(self.bytes) * 2 * u128::from(self.sources) * u128::from(self.tiles);
        u64::try_from(data).unwrap_or(u64::MAX).saturating_add(words).checked_next_multiple_of(MESSAGE_LINE).unwrap_or(u64::MAX)
    }
}

/// Whether the first coordinate of a tile is the rank that sends it.
pub(super) const fn of_plane(collective: Collective) -> bool {
    matches!(collective, Collective::AllGather | Collective::AllToAll)
}

impl Plan {
    /// What the messages of call `call` take among `ranks` ranks, if it has any.
    pub fn messages(&self, call: u32, ranks: u32) -> Option<MessageShape> {
        shape(&self.graph, &self.graph.calls[call as usize], &self.calls[call as usize], ranks)
    }

    /// Bytes of the messages of all calls, and of the temps that other ranks store behind them, on each of `ranks` ranks.
    pub fn message_bytes(&self, ranks: u32) -> u64 {
        if ranks == 1 {
            return 0;
        }
        let of = |call| self.messages(call, ranks).map_or(0, |shape| shape.total(ranks));
        let messages = (0..self.calls.len() as u32).map(of).fold(0, u64::saturating_add);
        with_temps(&self.graph, messages)
    }
}

/// So many bytes, and behind them the temps that other ranks store.
fn with_temps(graph: &Graph, bytes: u64) -> u64 {
    let temps = graph.symmetric.iter().map(|&tensor| &graph.tensors[tensor as usize]).filter(|of| of.kind == TensorKind::Temp);
    temps.fold(bytes, |end, of| end.checked_next_multiple_of(temps::ALIGN).unwrap_or(u64::MAX).saturating_add(of.stored_bytes()))
}

fn shape(graph: &Graph, call: &Call, planned: &PlannedCall, ranks: u32) -> Option<MessageShape> {
    let collective = call.task.collective().filter(|_| !planned.nccl)?;
    let params = call.task.params.iter().filter_map(tensor_of);
    let (view, param) = call.operands.iter().zip(params).find(|(_, param)| param.access == Access::Write)?;
    let element = u64::from(graph.tensors[view.tensor as usize].element.bytes());
    let mut extents = param.region.iter().zip(&view.axes).rev().map(|(index, axis)| match *index {
        Index::Tile(tiled) => axis.extent.min(planned.tile[usize::from(tiled)].into()),
        _ => axis.extent,
    });
    let (cols, rows) = (extents.next().unwrap_or(1), extents.next().unwrap_or(1));
    let data = rows * cols.next_multiple_of(BLOCK) * element;
    let bytes = match collective {
        Collective::Channel(Channel::Memory) => data,
        // Where the result lies.
        Collective::Channel(Channel::Symmetric) => GRANT,
        // Who sends is not who receives: signals.
        _ if planned.exchange_task(0, 0).is_some() => data,
        // The signal behind it, in a line of its own.
        Collective::Channel(Channel::Port) => data.next_multiple_of(16) + 16,
        // A word of flag with each word of data.
        _ => data * 2,
    };
    let tiles = if planned.grid.contains(&0) { 0 } else { planned.grid.iter().product() };
    let all = u16::try_from(ranks).unwrap_or(u16::MAX);
    let sources = match collective {
        _ if planned.slots > 0 => all,
        // Slots that the proxy copies to, and from.
        Collective::Channel(Channel::Port) => 2,
        Collective::AllGather | Collective::AllToAll | Collective::Channel(_) => 1,
        _ => all,
    };
    Some(MessageShape {
        bytes: bytes.next_multiple_of(16),
        tiles: if planned.slots > 0 { planned.slots } else { tiles },
        sources,
        extent: [rows, cols],
    })
}

/// A call that may have fewer slots than tiles.
#[derive(Clone, Copy)]
struct Bounded {
    call: usize,
    /// Bytes of a slot of all ranks.
    bytes: u64,
    /// Tiles of a sender.
    tiles: u32,
    /// Slots are a multiple of so many: of tiles that have owners, all of a slot have the same one.
    step: u32,
    /// Least slots.
    least: u32,
}

impl Bounded {
    fn new(plan: &Plan, call: usize, ranks: u32) -> Option<Bounded> {
        let planned = &plan.calls[call];
        let collective = plan.graph.calls[call].task.collective()?;
        let rows = planned.grid.first().copied().unwrap_or(0);
        if planned.nccl || !can_be_in_turn(collective) || planned.grid.contains(&0) || rows > u16::MAX.into() {
            return None;
        }
        let all: u32 = planned.grid.iter().product();
        let tiles = if of_plane(collective) { all / rows } else { all };
        let sent = u32::from(planned.pushed_by.is_some());
        let parts = planned.parts + if planned.whole == 0 { sent } else { 0 };
        let step = if parts == maco_abi::ExchangeTask::TWO_SHOT { ranks } else { 1 };
        let least = (tiles.div_ceil(ROUNDS)).max(2).next_multiple_of(step);
        let one = MessageShape { tiles: 1, sources: u16::try_from(ranks).ok()?, ..plan.messages(call as u32, ranks)? };
        let bytes =
            one.bytes.saturating_mul(2 * u64::from(ranks)).saturating_add(Messages { tiles: 1, ..Messages::default() }.total(ranks));
        (least < tiles).then_some(Bounded { call, bytes, tiles, step, least })
    }

    /// Slots in `bytes` bytes; 0 for one for each tile.
    fn slots(self, bytes: u64) -> u32 {
        let slots = u32::try_from(bytes / self.bytes).unwrap_or(u32::MAX);
        let slots = (slots / self.step * self.step).max(self.least);
        if slots >= self.tiles { 0 } else { slots }
    }
}

/// Whether all ranks answer each other in each launch, and tasks are sends and receives of whole tiles.
const fn can_be_in_turn(collective: Collective) -> bool {
    matches!(collective, Collective::AllReduce(_) | Collective::ReduceScatter(_) | Collective::AllGather | Collective::AllToAll)
}

/// By call, how many slots it has for less than all its tiles, so that the messages of `plan` take no more than `options` say; 0 for one for each tile. Empty if all fit as
/// they are. Each call that has less than all has as many bytes; where even the least slots do not fit, those.
pub(super) fn choose(plan: &Plan, options: &Options) -> Vec<u32> {
    let Some(room) = options.message_bytes.filter(|&room| options.ranks > 1 && plan.message_bytes(options.ranks) > room) else {
        return Vec::new();
    };
    let bounded: Vec<Bounded> = (0..plan.calls.len()).filter_map(|call| Bounded::new(plan, call, options.ranks)).collect();
    let of = |bytes: u64| {
        let mut slots = vec![0; plan.calls.len()];
        bounded.iter().for_each(|call| slots[call.call] = call.slots(bytes));
        slots
    };
    let fits = |slots: &[u32]| {
        let total = |(call, &slots): (usize, &u32)| {
            let planned = PlannedCall { slots, ..plan.calls[call].clone() };
            shape(&plan.graph, &plan.graph.calls[call], &planned, options.ranks).map_or(0, |shape| shape.total(options.ranks))
        };
        with_temps(&plan.graph, slots.iter().enumerate().map(total).fold(0, u64::saturating_add)) <= room
    };
    let (mut least, mut most) = (0, room);
    while least < most {
        let middle = most - (most - least) / 2;
        if fits(&of(middle)) { least = middle } else { most = middle - 1 }
    }
    let slots = of(least);
    if slots.iter().any(|&slots| slots > 0) { slots } else { Vec::new() }
}

/// Says of a call whose tiles have slots in turn in which order they are dealt: a sender's tiles of all planes one by one.
pub(super) fn order(choice: &mut Choice, call: &Call) {
    choice.order = in_turn(call);
}

/// The order of tiles that have slots in turn: device code knows it.
fn in_turn(call: &Call) -> TileOrder {
    TileOrder { planes_last: call.task.collective().is_some_and(of_plane), ..TileOrder::GROUPS }
}

impl Plan {
    /// If the tiles of call `call` have slots in turn: that on all ranks the tasks of a slot's tile stand before those of its next one, in the one order of all tasks, so that who
    /// waits for a slot waits for tasks that end without it.
    pub(super) fn verify_slots(&self, call: u32) -> Result<(), Defect> {
        let planned = &self.calls[call as usize];
        if planned.slots == 0 {
            return Ok(());
        }
        let spec = &self.graph.calls[call as usize];
        let wrong = |task| Err(Defect::Slots { call, task });
        let answers = spec.task.collective().is_some_and(can_be_in_turn);
        if !answers || planned.order != in_turn(spec) || planned.pushed_by.is_some() || planned.nccl || self.schedule.schedulers() > 0 {
            return wrong(planned.tasks.start);
        }
        let place = |task: u32| self.lists.positions.get(task as usize).copied().unwrap_or(task);
        // By the tile's number among those of its sender, of all planes: the last place of its tasks.
        let mut places: Vec<u32> = Vec::new();
        for task in planned.tasks.clone() {
            let n = index(spec, planned, self.tasks[task as usize].coord) as usize;
            places.resize(places.len().max(n + 1), 0);
            places[n] = places[n].max(place(task));
        }
        for task in planned.tasks.clone() {
            let n = index(spec, planned, self.tasks[task as usize].coord);
            if n >= planned.slots && places[(n - planned.slots) as usize] >= place(task) {
                return wrong(task);
            }
        }
        if places.len() as u64 > u64::from(planned.slots) * u64::from(ROUNDS) { wrong(planned.tasks.start) } else { Ok(()) }
    }
}

/// The number of the tile at `coord` among its sender's, in task order, of a call whose tiles have slots in turn.
pub(super) fn index(call: &Call, planned: &PlannedCall, coord: [u32; AXES]) -> u32 {
    let place = planned.order.place(own_share::grid(planned), coord);
    // Each plane is another sender's.
    if call.task.collective().is_some_and(of_plane) { place / planned.grid[0] } else { place }
}

const _: () = assert!(GROUP_ROWS == super::tile_order::ROWS);
