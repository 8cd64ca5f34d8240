//! Where the messages of collectives lie in the symmetric memory of a plan's ranks.

use std::ops::Range;

use maco_abi::{ExchangeTask, Gates, MAP_ALIGN, MapIndex, Messages, OPERANDS, PushedTiles, ViewEntry};
use maco_graph::ir::{Call, TensorKind};
use maco_graph::plan::{MESSAGE_LINE, Plan, PlannedCall};
use maco_graph::spec::{Access, Channel, Collective, Element, Index};

use super::view::Tables;
use super::{BoxShape, TensorMapRequest, tensor_params, too_many};
use crate::error::Error;
use crate::tensor::BASE_ALIGN;

/// The messages of a plan.
#[derive(Debug, Default)]
pub(crate) struct PlanMessages {
    /// For each call that is a collective, where its record is in the table of views, the record from the beginning of the plan's messages, and its tasks.
    calls: Vec<(usize, Messages, Range<u32>)>,
    /// Tiles of these that GEMMs send.
    pushed: Vec<Pushed>,
    /// Calls that NCCL does beside the kernel, in program order; they have no messages.
    pub(crate) nccl: Vec<NcclCall>,
    /// Temps that other ranks store, by their positions, and where each lies from the beginning of the plan's messages.
    temps: Vec<(usize, u64)>,
    /// How many ranks there are.
    ranks: u32,
    /// Bytes of all, on each rank.
    pub(crate) bytes: u64,
    /// Tiles of all.
    pub(crate) tiles: u32,
    /// Whether a proxy copies some of them.
    pub(crate) proxy: bool,
}

/// A collective that NCCL does beside the kernel, in chunks of rows.
#[derive(Clone, Debug)]
pub(crate) struct NcclCall {
    /// Where its record is in the table of views.
    at: usize,
    /// Where its input and its result are there.
    pub(crate) views: [usize; 2],
    /// Where its scalars are in their table.
    pub(crate) scalars: Range<usize>,
    pub(crate) element: Element,
    pub(crate) collective: Collective,
    /// Bytes from one row to the next.
    pub(crate) row_bytes: u64,
    /// Rows of a chunk.
    pub(crate) rows: u32,
    /// Rows of the last one.
    pub(crate) last_rows: u32,
    pub(crate) chunks: u32,
    /// Gates of the calls before it.
    first: u32,
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
        TensorMapRequest {
            address,
            element: self.element,
            extents: [cols, rows, 1],
            strides: [cols * bytes, plane],
            boxes: BoxShape::PLAIN,
        }
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
    /// Address of the plan's gates; 0 if NCCL does none of its calls.
    pub(crate) gates: u64,
}

impl PlanMessages {
    /// `views` and `scalars`: by call, where its views and scalars begin. There are none of one rank.
    pub(super) fn new(plan: &Plan, views: &[u32], scalars: &[u16], ranks: u32) -> Result<PlanMessages, Error> {
        let mut made = PlanMessages { ranks, ..PlanMessages::default() };
        if ranks == 1 {
            return Ok(made);
        }
        for (n, ((call, planned), own)) in plan.graph.calls.iter().zip(&plan.calls).zip(views).enumerate() {
            let Some(collective) = call.task.collective() else { continue };
            let result = call.operands.iter().zip(tensor_params(call)).find(|(_, param)| param.access == Access::Write);
            let Some((view, _)) = result else { continue };
            let element = plan.graph.tensors[view.tensor as usize].element;
            if planned.nccl {
                made.add_nccl(call, planned, [*own as usize, scalars[n].into()], element);
                continue;
            }
            let Some(shape) = plan.messages(n as u32, ranks) else { continue };
            let too_large = |_| too_many(&plan.graph, "bytes of a message", shape.bytes, u32::MAX.into());
            let along = |axis: usize| planned.grid.get(axis).copied().unwrap_or(1);
            let messages = Messages {
                offset: made.bytes,
                bytes: u32::try_from(shape.bytes).map_err(too_large)?,
                tiles: shape.tiles,
                grid: [along(1), along(2)],
                first: made.tiles,
                sources: shape.sources,
                rows: if planned.slots > 0 { along(0) as u16 } else { 0 },
            };
            made.proxy |= collective == Collective::Channel(Channel::Port);
            if let Some(by) = planned.pushed_by {
                // The planner pushes tiles of so many.
                let tile = shape.extent.map(|extent| extent as u16);
                let to_owner = planned.exchange_task(0, 0) == Some(ExchangeTask::Reduce);
                made.pushed.push(Pushed { at: views[by as usize] as usize + OPERANDS - 1, messages, element, tile, to_owner });
            }
            made.calls.push((*own as usize + OPERANDS - 1, messages, planned.tasks.clone()));
            made.bytes = (made.bytes + messages.total(ranks)).next_multiple_of(MESSAGE_LINE);
            made.tiles += planned.grid.iter().product::<u32>();
        }
        for &tensor in &plan.graph.symmetric {
            let of = &plan.graph.tensors[tensor as usize];
            if of.kind == TensorKind::Temp {
                let offset = made.bytes.next_multiple_of(BASE_ALIGN);
                made.temps.push((tensor as usize, offset));
                made.bytes = offset.saturating_add(of.stored_bytes());
            }
        }
        Ok(made)
    }

    /// The address of temp `tensor` if other ranks store it.
    pub(super) fn temp(&self, tensor: usize, places: &MessagePlaces<'_>) -> Option<u64> {
        let base = places.bases.get(places.rank as usize)?;
        let (_, offset) = self.temps.iter().find(|(of, _)| *of == tensor)?;
        Some(base + places.offset + offset)
    }

    /// Adds a call that NCCL does, whose views and scalars begin there.
    fn add_nccl(&mut self, call: &Call, planned: &PlannedCall, [views, scalars]: [usize; 2], element: Element) {
        let place = |access| views + tensor_params(call).position(|param| param.access == access).unwrap_or(0);
        let written = call.operands.iter().zip(tensor_params(call)).find(|(_, param)| param.access == Access::Write);
        let (Some(collective), Some((y, param))) = (call.task.collective(), written) else { return };
        let [.., Index::Tile(along), Index::Tile(_)] = *param.region else { return };
        let first = self.nccl.last().map_or(0, |last| last.first + last.chunks);
        let columns = y.axes.last().map_or(0, |axis| axis.extent);
        let (rows, all) = (planned.tile[usize::from(along)], y.axes.iter().rev().nth(1).map_or(0, |axis| axis.extent));
        self.nccl.push(NcclCall {
            at: views + OPERANDS - 1,
            views: [place(Access::Read), place(Access::Write)],
            scalars: scalars..scalars + call.scalars.len(),
            element,
            collective,
            row_bytes: columns * u64::from(element.bytes()),
            rows,
            last_rows: (all.saturating_sub(1) % u64::from(rows)) as u32 + 1,
            chunks: planned.grid.iter().product(),
            first,
        });
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// How many tensor maps [`PlanMessages::write`] adds.
    pub(super) fn tensor_maps(&self) -> usize {
        self.pushed.len() * 2 * self.ranks as usize
    }

    /// Writes the records of messages, and adds the tensor maps of those that GEMMs send.
    pub(super) fn write(&self, tables: &mut Tables, places: MessagePlaces<'_>) {
        for (at, messages, _) in &self.calls {
            tables.views[*at] = ViewEntry::messages(Messages { offset: places.offset + messages.offset, ..*messages });
        }
        for call in self.nccl.iter().filter(|_| places.gates != 0) {
            let address = places.gates + u64::from(call.first) * Gates::BYTES;
            tables.views[call.at] = ViewEntry::gates(Gates::new(address, call.chunks));
        }
        for pushed in &self.pushed {
            let messages = Messages { offset: places.offset + pushed.messages.offset, ..pushed.messages };
            let first = MapIndex::new(tables.tensor_maps.len() as u32, true);
            tables.views[pushed.at] = ViewEntry::pushed(PushedTiles::new(messages, first.index(), pushed.tile, pushed.to_owner));
            for parity in 0..2 {
                let of = |rank: u32| match places.bases.get(rank as usize) {
                    Some(base) => pushed.map(base + places.offset, places.rank, parity),
                    None => TensorMapRequest::nothing(pushed.element),
                };
                tables.tensor_maps.extend((0..self.ranks).map(of));
            }
        }
    }

    /// The number of a task's tile among those of all collectives, if it is one.
    pub(crate) fn tile(&self, task: u32, coord: [u32; 3]) -> Option<u32> {
        let (_, messages, _) = self.calls.iter().find(|(_, _, tasks)| tasks.contains(&task))?;
        Some(messages.first + messages.tile(coord))
    }
}

#[cfg(test)]
mod tests {
    use maco_abi::{OP_END, PUSHED_TILES, Part, STAGED};
    use maco_graph::ir::{Graph, Tensor, View};
    use maco_graph::plan::{CallShape, Options, plan};
    use maco_graph::spec::{Axis, DimSpec, ElementSpec, Param, Placement, Reduction, TaskKind, TaskSpec, TensorParam, Via};

    use super::super::Lowered;
    use super::*;
    use crate::arguments::Placed;
    use crate::tensor::{Layout, Shape};

    const fn matrix(name: &'static str, access: Access, region: &'static [Index], staged: bool) -> Param {
        const DIMS: &[DimSpec] = &[DimSpec::Symbol(0), DimSpec::Symbol(1)];
        Param::Tensor(TensorParam { name, access, element: ElementSpec::Fixed(Element::Bf16), dims: DIMS, region, staged })
    }

    const TILE: &[Index] = &[Index::Tile(0), Index::Tile(1)];
    const NONE: TaskSpec =
        TaskSpec { name: "", kind: TaskKind::Tiles, axes: &[], dims: &["M", "N"], equal: &[], gemv: None, elements: &[], params: &[] };

    static GEMM: TaskSpec = TaskSpec {
        name: "gemm",
        kind: TaskKind::Gemm { splits_k: true },
        axes: &[Axis { name: "i", tiles: &[128] }, Axis { name: "j", tiles: &[256] }],
        params: &[
            matrix("x", Access::Read, &[Index::Tile(0), Index::All], true),
            matrix("w", Access::Read, &[Index::Tile(1), Index::All], true),
            matrix("y", Access::Write, TILE, true),
        ],
        ..NONE
    };
    static SUM: TaskSpec = TaskSpec {
        name: "sum",
        kind: TaskKind::Collective(Collective::AllReduce(Reduction::Sum)),
        axes: &[Axis { name: "i", tiles: &[64] }, Axis { name: "j", tiles: &[256] }],
        params: &[matrix("part", Access::Read, TILE, false), matrix("y", Access::Write, TILE, false)],
        ..NONE
    };

    /// Two GEMMs, each with its all-reduce, of the same operands.
    fn graph() -> Graph {
        let tensor = |name: &str, kind, shape: [u64; 2]| Tensor {
            name: name.into(),
            kind,
            element: Element::Bf16,
            shape: shape.into(),
            placement: Placement::Replicated,
        };
        let tensors = vec![
            tensor("x", TensorKind::In, [200, 64]),
            tensor("w", TensorKind::In, [512, 64]),
            tensor("y", TensorKind::Out, [200, 512]),
            tensor("part", TensorKind::Temp, [200, 512]),
        ];
        let mut graph = Graph { name: "sums".into(), tensors, ..Graph::default() };
        let call = |graph: &Graph, task, tensors: &[u32]| {
            Call::new(task, tensors.iter().map(|&index| View::whole(index, &graph.tensors[index as usize])).collect())
        };
        graph.calls = vec![call(&graph, &GEMM, &[0, 1, 3]), call(&graph, &SUM, &[3, 2])];
        graph
    }

    fn lowered(two_shot: bool) -> (Plan, Lowered) {
        let via = if two_shot { Via::TwoShot } else { Via::OneShot };
        let shapes = vec![CallShape { call: 0, tile: Some(vec![128, 256]), ..CallShape::default() }];
        let plan = plan(graph(), &Options { push_tiles: true, ranks: 3, via, split_k: false, shapes, ..Options::new(3) }).unwrap();
        let lowered = Lowered::new(&plan, 3, false).unwrap();
        (plan, lowered)
    }

    /// A call that NCCL does has gates and no messages; its tasks say by their parts what they are.
    #[test]
    fn a_call_of_nccl_has_gates() {
        let mut graph = graph();
        // Rows of 1 KiB: of 9000 rows 4096 are 4 MiB.
        graph.tensors.iter_mut().filter(|tensor| tensor.shape[0] == 200).for_each(|tensor| tensor.shape[0] = 9000);
        for call in &mut graph.calls {
            call.operands = call.operands.iter().map(|view| View::whole(view.tensor, &graph.tensors[view.tensor as usize])).collect();
        }
        graph.calls[1].via = Via::Nccl;
        let plan = plan(graph, &Options { push_tiles: true, ranks: 2, nccl: true, ..Options::new(3) }).unwrap();
        let lowered = Lowered::new(&plan, 2, false).unwrap();
        assert!(lowered.messages.is_empty() && lowered.messages.bytes == 0);
        let [call] = &lowered.messages.nccl[..] else { panic!("one call") };
        let collective = Collective::AllReduce(Reduction::Sum);
        assert_eq!((call.rows, call.chunks, call.row_bytes, call.collective), (4096, 3, 1024, collective));
        let layout = |rows, cols| Layout::padded(Shape::new(&[rows, cols]).unwrap(), 2).unwrap();
        let placed = |address, layout| Placed { address, layout, element: Element::Bf16, writable: true };
        let arguments = [placed(0x10_000, layout(9000, 64)), placed(0x200_000, layout(512, 64)), placed(0x400_000, layout(9000, 512))];
        let places = MessagePlaces { gates: 0x900_000, ..MessagePlaces::default() };
        let tables = lowered.bind(&plan.graph, 0x1_000_000, places, &arguments, &[], true).unwrap();
        assert_eq!(tables.views[call.at].as_gates(), Gates::new(0x900_000, 3));
        let [part, y] = call.views.map(|view| tables.views[view].as_view());
        assert_eq!((part.base, y.base, y.row_stride), (0x1_000_000, 0x400_000, 512));
        let parts: Vec<Part> = lowered
            .descriptors
            .iter()
            .filter(|d| d.op != OP_END && plan.tasks[d.task as usize].call == 1)
            .map(|d| Part::decode(d.split.into()))
            .collect();
        let of = |task| parts.iter().filter(|part| ExchangeTask::of(part.part, part.parts) == task).count();
        assert_eq!((parts.len(), of(ExchangeTask::Offer), of(ExchangeTask::Await)), (6, 3, 3));
    }

    #[test]
    fn a_gemm_has_the_record_and_maps_of_what_it_sends() {
        for two_shot in [false, true] {
            let (plan, lowered) = lowered(two_shot);
            let layout = |rows, cols| Layout::padded(Shape::new(&[rows, cols]).unwrap(), 2).unwrap();
            let placed = |address, layout| Placed { address, layout, element: Element::Bf16, writable: true };
            let arguments = [placed(0x10_000, layout(200, 64)), placed(0x20_000, layout(512, 64)), placed(0x40_000, layout(200, 512))];
            let bases = [1 << 40, 2 << 40, 3 << 40];
            let places = MessagePlaces { rank: 1, bases: &bases, offset: 0x800, gates: 0 };
            let tables = lowered.bind(&plan.graph, 0x100_000, places, &arguments, &[], true).unwrap();
            let of = |call: u32| lowered.descriptors.iter().find(|d| d.op != OP_END && plan.tasks[d.task as usize].call == call).unwrap();
            let gemm = of(0);
            assert!(gemm.flags.has(PUSHED_TILES) && gemm.flags.has(STAGED) && !of(1).flags.has(PUSHED_TILES));
            let messages = tables.views[of(1).views as usize + OPERANDS - 1].as_messages();
            // Four by two tiles of 32 KiB, of three ranks.
            assert_eq!((messages.tiles, messages.bytes, messages.sources, messages.offset), (8, 32 * 1024, 3, 0x800));
            let pushed = tables.views[gemm.views as usize + OPERANDS - 1].as_pushed();
            assert_eq!((pushed.messages(), pushed.to_owner), (Messages { first: 0, ..messages }, u16::from(two_shot)));
            assert_eq!(([pushed.rows, pushed.cols], pushed.along), ([64, 256], 2));
            // Behind the maps of tensors, as many as were counted.
            assert_eq!((pushed.map as usize + 6, tables.tensor_maps.len()), (tables.tensor_maps.len(), lowered.table_sizes().1));
            for parity in 0..2 {
                for (rank, base) in bases.iter().enumerate() {
                    let map = &tables.tensor_maps[pushed.map as usize + 3 * parity + rank];
                    assert_eq!(map.address, base + messages.message(parity as u32, 1, 0));
                    assert_eq!((map.extents, map.strides[0]), ([256, 8 * 64, 1], 512));
                }
            }
            // The all-reduce begins with its second task.
            let parts = if two_shot { 3 } else { 2 };
            assert_eq!(Part::decode(of(1).split.into()), Part { part: 1, parts });
            // Without ranks yet the tables have the same sizes.
            let none = lowered.bind(&plan.graph, 0x100_000, MessagePlaces::default(), &arguments, &[], true).unwrap();
            assert_eq!((none.tensor_maps.len(), none.views.len()), (tables.tensor_maps.len(), tables.views.len()));
        }
    }
}
