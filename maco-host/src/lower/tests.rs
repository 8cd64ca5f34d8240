//! Lowering of hand-made graphs.

use maco_abi::{self as abi, Descriptor, Flags, InjectedFault, MapIndex, NO_MAP, NO_SIGNAL, OP_DYNAMIC, OP_END, Route, Wait};
use maco_graph::ir::{Call, Graph, Scalar, ScalarSource, Tensor, TensorKind, View};
use maco_graph::plan::{Options, Plan, Schedule, plan};
use maco_graph::spec::{
    Access, Axis, BoxSpec, DimSpec, Element, ElementSpec, Index, Param, Placement, ScalarType, TaskKind, TaskSpec, TensorParam,
};

use super::plane::BoxShape;
use super::*;
use crate::tensor::{BASE_ALIGN, Layout, Shape};

const fn matrix(name: &'static str, access: Access, region: &'static [Index], staged: bool) -> Param {
    const DIMS: &[DimSpec] = &[DimSpec::Symbol(0), DimSpec::Symbol(1)];
    Param::Tensor(TensorParam { name, access, element: ElementSpec::Fixed(Element::Bf16), dims: DIMS, region, staged })
}

const TILE: &[Index] = &[Index::Tile(0), Index::Tile(1)];
const ROW: &[Index] = &[Index::Tile(0), Index::All];
const AXES: &[Axis] = &[Axis { name: "i", tiles: &[8] }, Axis { name: "j", tiles: &[8] }];

/// y[i, j] = f(x[i, j])
static MAP: TaskSpec = TaskSpec {
    name: "map",
    kind: TaskKind::Tiles,
    axes: AXES,
    dims: &["M", "N"],
    equal: &[],
    gemv: None,
    elements: &[],
    params: &[
        matrix("x", Access::Read, TILE, false),
        matrix("y", Access::Write, TILE, false),
        Param::Scalar { name: "by", ty: ScalarType::F32 },
    ],
};

/// y[i, ..] = f(x[i, ..]), x by TMA
static ROWS: TaskSpec = TaskSpec {
    name: "rows",
    kind: TaskKind::Gemm { splits_k: false },
    axes: &[Axis { name: "i", tiles: &[8] }],
    dims: &["M", "N"],
    equal: &[],
    gemv: None,
    elements: &[],
    params: &[matrix("x", Access::Read, ROW, true), matrix("y", Access::Write, ROW, false)],
};

fn tensor(name: &str, kind: TensorKind, shape: &[u64]) -> Tensor {
    Tensor { name: name.into(), kind, element: Element::Bf16, shape: shape.into(), placement: Placement::Replicated }
}

fn call(graph: &Graph, task: &'static TaskSpec, slot: u32, tensors: &[u32], scalars: &[ScalarSource]) -> Call {
    let operands = tensors.iter().map(|&index| View::whole(index, &graph.tensors[index as usize])).collect();
    Call { slot, scalars: scalars.into(), ..Call::new(task, operands) }
}

/// x → map → h → rows → y, with h a temp.
fn chain(m: u64, n: u64) -> Graph {
    let tensors = vec![tensor("x", TensorKind::In, &[m, n]), tensor("y", TensorKind::Out, &[m, n]), tensor("h", TensorKind::Temp, &[m, n])];
    let mut graph = Graph { name: "chain".into(), tensors, scalars: vec![Scalar { name: "by".into() }], ..Graph::default() };
    graph.calls = vec![call(&graph, &MAP, 3, &[0, 2], &[ScalarSource::Parameter(0)]), call(&graph, &ROWS, 7, &[2, 1], &[])];
    graph
}

fn planned(graph: Graph, workers: u32, schedule: Schedule) -> Plan {
    plan(graph, &Options { schedule, ..Options::new(workers) }).unwrap()
}

fn waits(lowered: &Lowered, descriptor: &Descriptor) -> Vec<(u32, u32)> {
    let extra = &lowered.overflow[descriptor.overflow as usize..][..2 * descriptor.extra_waits as usize];
    let extra = extra.as_chunks().0.iter().map(|&words| Wait::decode(words));
    descriptor.wait.into_iter().chain(extra).filter(|wait| !wait.is_none()).map(|wait| (wait.counter.0, wait.need)).collect()
}

fn signals(lowered: &Lowered, descriptor: &Descriptor) -> Vec<u32> {
    let first = descriptor.overflow as usize + 2 * descriptor.extra_waits as usize;
    let extra = &lowered.overflow[first..][..descriptor.extra_signals as usize];
    descriptor.signal.iter().chain(extra).copied().filter(|&signal| signal != NO_SIGNAL).collect()
}

#[test]
fn lists_hold_every_task_once_and_end() {
    let plan = planned(chain(64, 64), 5, Schedule::Static);
    let lowered = Lowered::new(&plan, 1, true).unwrap();
    assert_eq!(lowered.starts.len(), 6);
    assert_eq!(*lowered.starts.last().unwrap() as usize + abi::AHEAD as usize, lowered.descriptors.len());
    let mut seen = vec![false; plan.tasks.len()];
    for worker in 0..5 {
        let list = &lowered.descriptors[lowered.starts[worker] as usize..lowered.starts[worker + 1] as usize];
        let (end, tasks) = list.split_last().unwrap();
        assert_eq!(*end, Descriptor::END);
        assert_eq!(tasks.iter().map(|d| d.task).collect::<Vec<_>>(), plan.lists.of(worker));
        for descriptor in tasks {
            let node = &plan.tasks[descriptor.task as usize];
            assert!(!std::mem::replace(&mut seen[descriptor.task as usize], true));
            assert_eq!((descriptor.op as u32, descriptor.coord), (plan.calls[node.call as usize].op, node.coord));
            let polled = plan.waits_of(descriptor.task).iter().filter(|wait| !plan.worker_edges.contains(descriptor.task, wait.counter));
            assert_eq!(waits(&lowered, descriptor), polled.map(|wait| (wait.counter, wait.need)).collect::<Vec<_>>());
            let counters = signals(&lowered, descriptor).into_iter().map(|signal| abi::Signal::decode(signal).counter.0);
            assert!(
                counters.eq(plan.signals_of(descriptor.task).iter().copied().filter(|&counter| plan.worker_edges.is_signalled(counter)))
            );
        }
    }
    assert!(seen.into_iter().all(|seen| seen));
    assert!(lowered.descriptors[lowered.descriptors.len() - 2..].iter().all(|d| d.op == OP_END));
}

#[test]
fn every_list_has_every_drain() {
    let mut graph = chain(64, 64);
    let more = call(&graph, &MAP, 3, &[0, 2], &[ScalarSource::Parameter(0)]);
    graph.calls.extend([more.clone(), graph.calls[1].clone()]);
    graph.calls[0].drain = true;
    graph.calls[3].drain = true;
    let plan = planned(graph, 5, Schedule::Static);
    let drains = &plan.lists.drains;
    assert_eq!(drains[..], [plan.calls[0].tasks.clone(), plan.calls[3].tasks.clone()]);
    let lowered = Lowered::new(&plan, 1, true).unwrap();
    let mut seen = vec![0; plan.tasks.len()];
    for list in lowered.starts.windows(2) {
        let (end, entries) = lowered.descriptors[list[0] as usize..list[1] as usize].split_last().unwrap();
        assert_eq!(*end, Descriptor::END);
        let places: Vec<usize> = (0..entries.len()).filter(|&at| entries[at].op == OP_DYNAMIC).collect();
        assert_eq!(places, [0, entries.len() - 1]);
        for (place, drain) in places.into_iter().zip(drains) {
            let [ticket, tasks, first] = entries[place].coord;
            assert!((lowered.unused_counter + 1..lowered.counters).contains(&ticket), "no counter, but zeroed with them");
            assert_eq!(ticket - lowered.unused_counter - 1, u32::from(place > 0));
            let claimed = &lowered.descriptors[first as usize..][..tasks as usize];
            assert!(claimed.iter().map(|d| d.task).eq(drain.clone()));
        }
        entries.iter().filter(|d| d.op != OP_DYNAMIC).for_each(|d| seen[d.task as usize] += 1);
    }
    let claimed = &lowered.descriptors[*lowered.starts.last().unwrap() as usize..lowered.descriptors.len() - abi::AHEAD as usize];
    claimed.iter().for_each(|d| seen[d.task as usize] += 1);
    assert!(seen.into_iter().all(|times| times == 1));
}

/// Views that can be told apart.
fn numbered(lowered: &Lowered) -> Vec<abi::ViewEntry> {
    (0..lowered.table_sizes().0 as u64).map(|base| abi::ViewEntry::view(abi::View { base, ..abi::View::default() })).collect()
}

#[test]
fn initial_tasks_wait_for_nothing() {
    let plan = planned(chain(64, 64), 5, Schedule::Static);
    let lowered = Lowered::new(&plan, 1, true).unwrap();
    let views = numbered(&lowered);
    let first = lowered.initial_tasks(&views, None);
    assert_eq!(first.len(), lowered.grid() as usize);
    let mut found = 0;
    for (first, list) in first.iter().zip(lowered.starts.windows(2)) {
        let list = &lowered.descriptors[list[0] as usize..list[1] as usize];
        let free = list.iter().take_while(|task| task.op < OP_DYNAMIC && waits(&lowered, task).is_empty()).take(first.len());
        let expected: Vec<Descriptor> = free.copied().chain(std::iter::repeat(Descriptor::END)).take(first.len()).collect();
        assert!(first.iter().map(|slot| slot.descriptor).eq(expected));
        for slot in first.iter().filter(|slot| slot.descriptor.op < OP_DYNAMIC) {
            assert_eq!(slot.views, views[slot.descriptor.views as usize..][..abi::OPERANDS]);
            found += 1;
        }
    }
    assert!(found >= 5);
    // What a test breaks is broken here, too.
    let task = first[0][0].descriptor.task;
    let broken = lowered.initial_tasks(&views, Some(Fault::LostSignal(task)));
    assert_ne!(broken[0][0].descriptor.signal, first[0][0].descriptor.signal);
    assert_eq!(broken[1][0].descriptor, first[1][0].descriptor);
}

#[test]
fn a_leading_drain_with_a_task_per_worker_needs_no_first_ticket() {
    for (rows, workers, dealt) in [(64, 5, true), (4, 40, false)] {
        let mut graph = chain(rows, 8);
        graph.calls[0].drain = true;
        let plan = planned(graph, workers, Schedule::Static);
        let lowered = Lowered::new(&plan, 1, true).unwrap();
        let claimed = plan.lists.drains[0].clone();
        assert_eq!(claimed.len() >= workers as usize, dealt, "{claimed:?}");
        for (worker, [task, behind]) in (0..).zip(lowered.initial_tasks(&numbered(&lowered), None)) {
            let entry = lowered.descriptors[lowered.starts[worker as usize] as usize];
            let expected = if dealt { (claimed.start + worker, entry) } else { (u32::MAX, Descriptor::END) };
            assert_eq!((task.descriptor.task, behind.descriptor), expected);
        }
    }
    // Other schedules have none.
    for schedule in [Schedule::Tickets, Schedule::Schedulers(1)] {
        let lowered = Lowered::new(&planned(chain(64, 64), 5, schedule), 1, true).unwrap();
        assert!(lowered.initial_tasks(&numbered(&lowered), None).iter().flatten().all(|slot| slot.descriptor == Descriptor::END));
    }
}

#[test]
fn tickets_index_one_list() {
    let plan = planned(chain(64, 64), 5, Schedule::Tickets);
    let lowered = Lowered::new(&plan, 1, true).unwrap();
    assert_eq!((lowered.mode(), lowered.grid()), (abi::TICKETS, 5));
    assert_eq!(lowered.starts, [0; 6]);
    assert_eq!(lowered.tasks as usize, plan.tasks.len());
    assert_eq!(lowered.descriptors.len(), plan.tasks.len() + 1 + abi::AHEAD as usize);
    assert!(lowered.descriptors[..plan.tasks.len()].iter().map(|d| d.task).eq(plan.lists.order.iter().copied()));
    assert!(lowered.descriptors[plan.tasks.len()..].iter().all(|d| *d == Descriptor::END));
}

#[test]
fn waits_and_signals_overflow() {
    // Four producers of column strips, one consumer of whole rows: more waits than fit inline.
    let m = 8;
    let mut graph = Graph { name: "wide".into(), ..Graph::default() };
    graph.tensors =
        vec![tensor("x", TensorKind::In, &[m, 8]), tensor("y", TensorKind::Out, &[m, 32]), tensor("h", TensorKind::Temp, &[m, 32])];
    for strip in 0..4 {
        let mut made = call(&graph, &MAP, strip, &[0, 2], &[ScalarSource::Literal(strip)]);
        made.operands[1].offset[1] = strip as u64 * 8;
        made.operands[1].axes[1].extent = 8;
        graph.calls.push(made);
    }
    graph.calls.push(call(&graph, &ROWS, 9, &[2, 1], &[]));
    let plan = planned(graph, 2, Schedule::Static);
    let lowered = Lowered::new(&plan, 1, true).unwrap();
    let consumer = lowered.descriptors.iter().find(|d| d.op == 9).unwrap();
    assert_eq!(plan.waits_of(consumer.task).len(), 4, "the planner's counters");
    assert_eq!(consumer.extra_waits, 2);
    assert_eq!(waits(&lowered, consumer).len(), 4);

    // Losing the first producer's signals leaves everything else as it is.
    let (descriptors, overflow) = lowered.with(Some(Fault::LostSignal(plan.calls[0].tasks.start)));
    let changed: Vec<_> = descriptors.iter().zip(&lowered.descriptors).filter(|(now, then)| now != then).collect();
    assert_eq!(changed.len(), 1);
    let (now, then) = changed[0];
    assert_eq!(now.task, plan.calls[0].tasks.start);
    assert_eq!((now.wait, now.coord, overflow.len()), (then.wait, then.coord, lowered.overflow.len()));
    assert!(now.signal.iter().all(|&signal| signal == NO_SIGNAL || signal == plan.counters));
    assert!(plan.counters < lowered.counters && lowered.counters.is_multiple_of(32));
}

#[test]
fn views_and_scalars_are_stored_once() {
    let mut graph = chain(16, 16);
    let again = call(&graph, &MAP, 3, &[0, 2], &[ScalarSource::Parameter(0)]);
    graph.calls[1] = call(&graph, &MAP, 3, &[2, 1], &[ScalarSource::Literal(5)]);
    graph.calls.push(again);
    let plan = planned(graph, 1, Schedule::Static);
    let lowered = Lowered::new(&plan, 1, true).unwrap();
    assert_eq!(lowered.table_sizes(), (2 * abi::OPERANDS, 0, 2));
    let of = |call: u32| lowered.descriptors.iter().find(|d| d.op != OP_END && plan.tasks[d.task as usize].call == call).unwrap();
    assert_eq!([0, 1, 2].map(|call| of(call).scalar), [0, 1, 0]);
    assert_eq!([0, 1, 2].map(|call| of(call).views), [0, abi::OPERANDS as u32, 0], "x and h, h and y, x and h again");
}

#[test]
fn tables_follow_the_arguments() {
    let plan = planned(chain(16, 20), 1, Schedule::Static);
    let lowered = Lowered::new(&plan, 1, true).unwrap();
    let layout = |stride| Layout::strided(Shape::new(&[16, 20]).unwrap(), stride, 2).unwrap();
    let placed = |address, stride| Placed { address, layout: layout(stride), element: Element::Bf16, writable: true };
    let by = ScalarArgument { ty: ScalarType::F32, bits: 0x4000_0000 };
    let arguments = [placed(0x10_000, 24), placed(0x20_000, 40)];
    let tables = lowered.bind(&plan.graph, 0x30_000, MessagePlaces::default(), &arguments, &[by], true).unwrap();
    assert_eq!(tables.scalars, [0x4000_0000]);
    let bases: Vec<_> = tables.views.iter().map(|view| view.as_view()).map(|view| (view.base, view.row_stride, view.map)).collect();
    let [x, y, h] = [(0x10_000, 24, NO_MAP), (0x20_000, 40, NO_MAP), (0x30_000, 24, MapIndex::new(0, true))];
    // Of what is multiplied a box has all rows of the tile; who writes it needs no map.
    let written = (h.0, h.1, NO_MAP);
    assert_eq!((&bases[..2], &bases[abi::OPERANDS..][..2]), (&[x, written][..], &[h, y][..]), "one block of views per call");
    let boxes = BoxShape { rows: plan.calls[1].tile[0], ..BoxShape::PLAIN };
    let map = TensorMapRequest { address: 0x30_000, element: Element::Bf16, extents: [20, 16, 1], strides: [48, 48], boxes };
    assert_eq!(tables.tensor_maps, [map]);
    let on_cpu = lowered.bind(&plan.graph, 0x30_000, MessagePlaces::default(), &arguments, &[by], false).unwrap();
    assert!(on_cpu.tensor_maps.is_empty() && on_cpu.views.iter().all(|view| view.as_view().map == NO_MAP));
}

/// A tensor of `f32` that a GEMM writes, and others read along their columns and along their rows: a map for each, the same for the
/// same. Of two-byte elements one map serves all.
#[test]
fn tensor_maps_of_f32_depend_on_their_use() {
    const fn uses(params: &'static [Param]) -> TaskSpec {
        TaskSpec { params, ..ROWS }
    }
    static USES: [TaskSpec; 3] = [
        uses(&[matrix("x", Access::Write, TILE, true)]),
        uses(&[matrix("x", Access::Read, ROW, true)]),
        uses(&[matrix("x", Access::Read, &[Index::All, Index::Tile(0)], true)]),
    ];
    let maps = |element| {
        let mut graph = Graph { name: "uses".into(), ..Graph::default() };
        graph.tensors = vec![Tensor { element, ..tensor("x", TensorKind::InOut, &[64, 64]) }];
        graph.calls = [0, 1, 2, 1].into_iter().map(|task| call(&graph, &USES[task], 0, &[0], &[])).collect();
        let (views, _) = view::collect(&graph, &[], &[]);
        let bound = Bound { address: 0x1000, layout: Layout::padded(Shape::new(&[64, 64]).unwrap(), element.bytes().into()).unwrap() };
        views.resolve(&graph, &[bound], true, |_| 0).unwrap().tensor_maps.iter().map(|map| map.boxes).collect::<Vec<BoxShape>>()
    };
    let along = |rows| BoxShape { rows, rounds: true, ..BoxShape::PLAIN };
    assert_eq!(maps(Element::F32), [BoxShape::PLAIN, along(64), along(32)]);
    assert_eq!(maps(Element::F16), [BoxShape::PLAIN]);
}

#[test]
fn what_tma_cannot_copy_is_named() {
    let mut graph = chain(16, 16);
    graph.tensors[2].kind = TensorKind::InOut;
    graph.tensors.swap(1, 2);
    graph.calls = vec![call(&graph, &MAP, 0, &[0, 1], &[ScalarSource::Literal(0)]), call(&graph, &ROWS, 7, &[1, 2], &[])];
    let plan = planned(graph, 1, Schedule::Static);
    let lowered = Lowered::new(&plan, 1, true).unwrap();
    let placed = |address, stride| {
        let layout = Layout::strided(Shape::new(&[16, 16]).unwrap(), stride, 2).unwrap();
        Placed { address, layout, element: Element::Bf16, writable: true }
    };
    let bind = |h: Placed| lowered.bind(&plan.graph, 0, MessagePlaces::default(), &[placed(0x1000, 16), h, placed(0x3000, 16)], &[], true);
    assert!(bind(placed(0x2000, 16)).is_ok());
    for bad in [placed(0x2002, 16), placed(0x2000, 17)] {
        let error = bind(bad).unwrap_err();
        assert_eq!(error.code(), 53);
        assert!(error.to_string().contains("`h`, passed to task `rows` as `x`"), "{error}");
        let on_cpu = lowered.bind(&plan.graph, 0, MessagePlaces::default(), &[placed(0x1000, 16), bad, placed(0x3000, 16)], &[], false);
        assert_eq!(on_cpu.unwrap_err().to_string(), error.to_string(), "the CPU has the same rules");
    }
}

#[test]
fn temps_lie_apart_and_aligned() {
    let mut graph = Graph { name: "temps".into(), ..Graph::default() };
    graph.tensors = vec![
        tensor("x", TensorKind::In, &[3, 3]),
        tensor("a", TensorKind::Temp, &[3, 5]),
        tensor("b", TensorKind::Temp, &[1000]),
        tensor("c", TensorKind::Temp, &[2, 3, 7]),
    ];
    let arena = Arena::new(&plan(graph, &Options { share_temps: false, ..Options::new(1) }).unwrap()).unwrap();
    let mut end = 0;
    for temp in &arena.temps {
        assert!(temp.offset >= end && temp.offset.is_multiple_of(BASE_ALIGN), "{temp:?}");
        assert!((temp.layout.row_stride * 2).is_multiple_of(16));
        end = temp.offset + temp.layout.allocation() * 2;
    }
    assert_eq!(arena.temps.len(), 3);
    assert!(arena.bytes >= end);
}

/// x → map → a → map → b → map → c → map → y: `c` may take the place of `a`.
#[test]
fn temps_that_share_memory_have_one_offset_and_its_fences() {
    for reader in [&MAP, &ROWS] {
        let mut graph = Graph { name: "temps".into(), scalars: vec![Scalar { name: "by".into() }], ..Graph::default() };
        graph.tensors =
            vec![tensor("x", TensorKind::In, &[8, 8]), tensor("a", TensorKind::Temp, &[8, 8]), tensor("b", TensorKind::Temp, &[8, 8])];
        graph.tensors.extend([tensor("c", TensorKind::Temp, &[8, 8]), tensor("y", TensorKind::Out, &[8, 8])]);
        let by = [ScalarSource::Parameter(0)];
        graph.calls = (0..3).map(|n| call(&graph, &MAP, 0, &[n, n + 1], &by)).collect();
        graph.calls.push(call(&graph, reader, 1, &[3, 4], if reader.params.len() > 2 { &by } else { &[] }));
        let plan = plan(graph, &Options::new(2)).unwrap();
        let lowered = Lowered::new(&plan, 1, false).unwrap();
        let [a, b, c] = lowered.arena.temps[..] else { panic!("three temps") };
        assert!(a.offset == c.offset && a.offset != b.offset);
        assert_eq!((lowered.arena.bytes, plan.memory().saved), (2 * BASE_ALIGN, BASE_ALIGN));
        let flags = |task: usize| lowered.descriptors[lowered.descriptor_of[task] as usize].flags.has(abi::READ_BY_TMA);
        // What is copied from `c` was written to `a` before.
        let copied = reader.name == "rows";
        assert_eq!([0, 1, 2].map(flags), [copied, false, copied]);
    }
}

#[test]
fn an_empty_graph_still_has_a_view() {
    let plan = planned(Graph { name: "nothing".into(), ..Graph::default() }, 3, Schedule::Static);
    let lowered = Lowered::new(&plan, 1, true).unwrap();
    assert_eq!(lowered.starts, [0, 1, 2, 3]);
    let tables = lowered.bind(&plan.graph, 0, MessagePlaces::default(), &[], &[], true).unwrap();
    assert_eq!((tables.views.len(), lowered.table_sizes().0), (abi::OPERANDS, abi::OPERANDS));
    assert_eq!(tables.views[0].as_view(), abi::View { map: NO_MAP, ..abi::View::default() });
}

/// The tasks of `chain`, lowered without and with a fault; descriptors that differ.
fn broken(schedule: Schedule, fault: impl Fn(u32) -> Fault) -> (Lowered, Vec<(Descriptor, Descriptor)>, u32) {
    let plan = planned(chain(64, 64), 3, schedule);
    let lowered = Lowered::new(&plan, 1, true).unwrap();
    let task = plan.calls[0].tasks.start + 1;
    let (descriptors, overflow) = lowered.with(Some(fault(task)));
    assert_eq!((descriptors.len(), overflow.len()), (lowered.descriptors.len(), lowered.overflow.len()));
    let changed = lowered.descriptors.iter().copied().zip(descriptors).filter(|(then, now)| then != now).collect();
    (lowered, changed, task)
}

#[test]
fn a_fault_changes_only_its_task() {
    for schedule in [Schedule::Static, Schedule::Tickets, Schedule::Schedulers(2), Schedule::SpareWarps(3)] {
        for (fault, kind) in [
            (Fault::LostArrive as fn(u32) -> Fault, abi::LOST_ARRIVE),
            (Fault::ExtraBytes, abi::EXTRA_BYTES),
            (Fault::LostPush, abi::LOST_PUSH),
            (Fault::EarlyFree, abi::EARLY_FREE),
        ] {
            let (lowered, changed, task) = broken(schedule, fault);
            assert!(changed.is_empty(), "{schedule}: {changed:?}");
            let InjectedFault { kind: injected, of } = lowered.injected(Some(fault(task)));
            // Schedulers know tasks by their descriptors.
            assert_eq!((injected, of), (kind, if kind == abi::LOST_PUSH { lowered.descriptor_of[task as usize] } else { task }));
            assert_eq!(lowered.injected(Some(fault(u32::MAX))), InjectedFault::default(), "no task has that number");
        }
        let (lowered, changed, task) = broken(schedule, Fault::LostSignal);
        assert_eq!(lowered.injected(Some(Fault::LostSignal(task))), lowered.injected(None));
        let [(then, now)] = changed[..] else { panic!("{schedule}: {changed:?}") };
        assert_eq!(Descriptor { signal: then.signal, ..now }, then);
        if schedule.schedulers() > 0 {
            // The task's end still gives its place back, or another task would be the one that hangs.
            let Route { credit, counter, .. } = Route::decode(now.signal[0]);
            assert_eq!((credit, counter, now.signal[1]), (true, None, NO_SIGNAL));
        }
        // No task has that number.
        let plan = planned(chain(64, 64), 3, schedule);
        let (descriptors, _) = Lowered::new(&plan, 1, true).unwrap().with(Some(Fault::LostSignal(u32::MAX)));
        assert_eq!(descriptors, lowered.descriptors);
    }
}

#[test]
fn an_edge_inside_a_worker_has_no_counter() {
    let mut graph = chain(64, 64);
    // Both calls by the same task: neither is staged.
    graph.calls[1] = call(&graph, &MAP, 3, &[2, 1], &[ScalarSource::Literal(5)]);
    let plan = planned(graph.clone(), 1, Schedule::Static);
    let lowered = Lowered::new(&plan, 1, true).unwrap();
    for descriptor in lowered.descriptors.iter().filter(|descriptor| descriptor.op != OP_END) {
        assert!(waits(&lowered, descriptor).is_empty() && signals(&lowered, descriptor).is_empty(), "{descriptor:?}");
    }
    // 64 tiles of the first call come before the first tile of the second: further back than a worker has slots, so ended anyway.
    assert!(lowered.descriptors.iter().all(|descriptor| descriptor.after == 0));
    // Four tiles: each one's own producer is four places before.
    graph = chain(16, 16);
    graph.calls[1] = call(&graph, &MAP, 3, &[2, 1], &[ScalarSource::Literal(5)]);
    let plan = planned(graph, 1, Schedule::Static);
    let after: Vec<u16> = Lowered::new(&plan, 1, true).unwrap().descriptors.iter().filter(|d| d.op != OP_END).map(|d| d.after).collect();
    assert!(after[..4].iter().all(|&after| after == 0) && after[4..].iter().all(|&after| (1..=4).contains(&after)), "{after:?}");
    // The reader through the ring must see a counter.
    let plan = planned(chain(16, 16), 1, Schedule::Static);
    let lowered = Lowered::new(&plan, 1, true).unwrap();
    let staged = lowered.descriptors.iter().find(|descriptor| descriptor.flags.has(abi::STAGED)).unwrap();
    assert!(!waits(&lowered, staged).is_empty() && staged.after == 0);
}

/// y = x · w, both by TMA.
static GEMM: TaskSpec = TaskSpec {
    name: "gemm",
    axes: AXES,
    params: &[
        matrix("x", Access::Read, ROW, true),
        matrix("w", Access::Read, &[Index::Tile(1), Index::All], true),
        matrix("y", Access::Write, TILE, true),
    ],
    ..ROWS
};

/// h = x · v, y = h · w, z = y · h: what nobody writes comes before a task may run, and its views say so.
#[test]
fn operands_that_no_task_writes_are_preloaded() {
    let named = |name: &str, kind| tensor(name, kind, &[64, 64]);
    let mut graph = Graph { name: "gemms".into(), ..Graph::default() };
    graph.tensors = [
        ("x", TensorKind::In),
        ("v", TensorKind::In),
        ("w", TensorKind::In),
        ("h", TensorKind::Temp),
        ("y", TensorKind::Out),
        ("z", TensorKind::Out),
    ]
    .map(|(name, kind)| named(name, kind))
    .into();
    graph.calls = [[0, 1, 3], [3, 2, 4], [4, 3, 5]].map(|tensors| call(&graph, &GEMM, 0, &tensors, &[])).into();
    let plan = planned(graph.clone(), 2, Schedule::Static);
    let lowered = Lowered::new(&plan, 1, true).unwrap();
    for descriptor in lowered.descriptors.iter().filter(|descriptor| descriptor.op < OP_DYNAMIC) {
        let kinds = descriptor.flags.among(abi::STAGED | abi::LOAD_BEFORE_WAIT | abi::LOAD_CONSTANT_OPERAND_EARLY);
        let early =
            [abi::LOAD_BEFORE_WAIT, abi::LOAD_CONSTANT_OPERAND_EARLY, Flags::NONE][plan.tasks[descriptor.task as usize].call as usize];
        assert_eq!(kinds, abi::STAGED | early, "{descriptor:?}");
    }
    let (views, blocks) = view::collect(&graph, &plan.calls, &[]);
    let bound: Vec<_> = (0..6u64)
        .map(|n| Bound { address: 0x10000 * (n + 1), layout: Layout::padded(Shape::new(&[64, 64]).unwrap(), 2).unwrap() })
        .collect();
    let tables = views.resolve(&graph, &bound, true, |_| 0).unwrap();
    let unwritten = |call: usize| [0, 1, 2].map(|operand| tables.views[blocks[call] as usize + operand].as_view().map.is_unwritten());
    assert_eq!([unwritten(0), unwritten(1), unwritten(2)], [[true, true, false], [false, true, false], [false, false, false]]);
}

/// x → map → h → a body → y: with scratch, the loader has a part in it, and what it reads may come by copies.
#[test]
fn a_body_with_shared_memory_uses_ring_pages() {
    static BODY: TaskSpec = TaskSpec {
        name: "body",
        kind: TaskKind::Simt { cpu: true, early_start: false, shared: 1, boxes: &[] },
        params: &[matrix("x", Access::Read, ROW, false), matrix("y", Access::Write, ROW, false)],
        ..ROWS
    };
    static BARE: TaskSpec =
        TaskSpec { name: "bare", kind: TaskKind::Simt { cpu: true, early_start: false, shared: 0, boxes: &[] }, ..BODY };
    for (body, copies, pages) in [(&BODY, abi::READ_BY_TMA, abi::BULK_ROWS | abi::LOAD_BEFORE_WAIT), (&BARE, Flags::NONE, Flags::NONE)] {
        let mut graph = chain(64, 64);
        graph.calls[1] = call(&graph, body, 7, &[2, 1], &[]);
        let plan = planned(graph, 2, Schedule::Static);
        let lowered = Lowered::new(&plan, 1, true).unwrap();
        let tasks = lowered.descriptors.iter().filter(|descriptor| descriptor.op < OP_DYNAMIC);
        for descriptor in tasks {
            let map = plan.tasks[descriptor.task as usize].call == 0;
            let kinds = descriptor.flags.among(abi::READ_BY_TMA | abi::BULK_ROWS | abi::LOAD_BEFORE_WAIT);
            assert_eq!(kinds, if map { copies } else { pages }, "{}, call {}", body.name, u32::from(!map));
        }
    }
}

/// x → map → h → a body of one warp → y: in a static list its tasks are runs, none longer than one may be; they wait by counters, also where a task of all warps
/// would not, and nobody else looks. Under other schedules each is an entry as any other.
#[test]
fn warp_tasks_are_in_batches() {
    static BODY: TaskSpec = TaskSpec {
        name: "body",
        kind: TaskKind::Warp { cpu: true, early_start: false },
        params: &[matrix("x", Access::Read, ROW, false), matrix("y", Access::Write, ROW, false)],
        ..ROWS
    };
    for (schedule, workers) in [(Schedule::Static, 1), (Schedule::Static, 3), (Schedule::Tickets, 3), (Schedule::Schedulers(1), 3)] {
        let mut graph = chain(1024, 64);
        graph.calls[1] = call(&graph, &BODY, 7, &[2, 1], &[]);
        let plan = planned(graph, workers, schedule);
        let lowered = Lowered::new(&plan, 1, true).unwrap();
        let narrow = |task: u32| plan.tasks[task as usize].call == 1;
        let of = |flag: Flags| lowered.descriptors.iter().filter(move |d| d.op < OP_DYNAMIC && d.flags.has(flag));
        assert!(of(abi::WARP_TASK).all(|d| narrow(d.task) && !d.flags.has(abi::CONSUMERS_POLL | abi::IDEMPOTENT_SIGNAL)));
        if schedule != Schedule::Static {
            assert_eq!((of(abi::WARP_TASK_BATCH).count(), of(abi::WARP_TASK).count()), (0, plan.calls[1].tasks.len()));
            continue;
        }
        let mut listed = Vec::new();
        for list in 0..workers as usize {
            let entries = &lowered.descriptors[lowered.starts[list] as usize..lowered.starts[list + 1] as usize];
            let mut tasks = Vec::new();
            let (mut last, mut runs) = (usize::MAX, 0);
            for entry in entries.iter().filter(|entry| entry.op < OP_DYNAMIC) {
                if !entry.flags.has(abi::WARP_TASK_BATCH) {
                    assert!(!narrow(entry.task));
                    tasks.push(entry.task);
                    continue;
                }
                let [first, count, _] = entry.coord;
                let run = &lowered.descriptors[first as usize..][..count as usize];
                assert!(
                    count > 0
                        && count <= abi::MAX_WARP_TASK_BATCH
                        && (waits(&lowered, entry), signals(&lowered, entry)) == (vec![], vec![])
                );
                // Only the last run of a call may be short.
                assert!(runs == 0 || last == abi::MAX_WARP_TASK_BATCH as usize);
                (last, runs) = (run.len(), runs + 1);
                for task in run {
                    let head = |d: &Descriptor| (d.op, d.scalar, d.views, d.flags | abi::WARP_TASK_BATCH);
                    assert_eq!(head(task), head(entry));
                    assert!(task.after == 0 && !task.wait[0].is_none(), "{task:?}");
                    assert_eq!(lowered.descriptors[lowered.descriptor_of[task.task as usize] as usize], *task);
                }
                tasks.extend(run.iter().map(|task| task.task));
            }
            assert!(runs > 1, "{runs}");
            assert_eq!(tasks, plan.lists.of(list));
            listed.extend(tasks);
        }
        assert_eq!(listed.len(), plan.tasks.len());
    }
}

/// A task of all warps comes after a run of its own worker that fills one slot, however many tasks that has.
#[test]
fn a_batch_of_warp_tasks_fills_one_slot() {
    static BODY: TaskSpec = TaskSpec {
        name: "body",
        kind: TaskKind::Warp { cpu: true, early_start: false },
        params: &[matrix("x", Access::Read, ROW, false), matrix("y", Access::Write, ROW, false)],
        ..ROWS
    };
    static DIRECT: TaskSpec = TaskSpec { name: "direct", kind: TaskKind::Tiles, ..BODY };
    let mut graph = chain(1024, 64);
    graph.calls[0] = call(&graph, &BODY, 7, &[0, 2], &[]);
    graph.calls[1] = call(&graph, &DIRECT, 3, &[2, 1], &[]);
    let plan = planned(graph, 1, Schedule::Static);
    let lowered = Lowered::new(&plan, 1, true).unwrap();
    let entries: Vec<_> = lowered.descriptors[..lowered.starts[1] as usize].iter().filter(|entry| entry.op < OP_DYNAMIC).collect();
    let runs = entries.iter().take_while(|entry| entry.flags.has(abi::WARP_TASK_BATCH)).count();
    let tasks: u32 = entries[..runs].iter().map(|run| run.coord[1]).sum();
    assert!(runs > 0 && tasks as usize == plan.calls[0].tasks.len() && tasks > runs as u32);
    // The first one needs the first task of the first run.
    assert_eq!(entries[runs].after as usize, runs);
}

/// What a body copies has the boxes that it declares, beside those of outlines; what it does not declare has none.
#[test]
fn a_body_has_tensor_maps_of_its_boxes() {
    const fn boxes(operand: u8, rows: u32, swizzle: u32) -> BoxSpec {
        BoxSpec { operand, rows, swizzle }
    }
    static BODIES: [TaskSpec; 2] = [
        TaskSpec {
            name: "body",
            kind: TaskKind::Simt { cpu: true, early_start: false, shared: 1, boxes: &[boxes(0, 128, 128), boxes(1, 32, 64)] },
            params: &[matrix("x", Access::Read, ROW, false), matrix("y", Access::Write, ROW, false)],
            ..ROWS
        },
        TaskSpec {
            name: "other",
            kind: TaskKind::Simt { cpu: true, early_start: false, shared: 1, boxes: &[boxes(1, 64, 128)] },
            params: &[matrix("x", Access::Read, ROW, false), matrix("y", Access::Write, ROW, false)],
            ..ROWS
        },
    ];
    for element in [Element::Bf16, Element::F32, Element::I8] {
        let mut graph = Graph { name: "bodies".into(), ..Graph::default() };
        graph.tensors = ["x", "y"].map(|name| Tensor { element, ..tensor(name, TensorKind::InOut, &[64, 64]) }).into();
        graph.calls = [0, 1].map(|task| call(&graph, &BODIES[task], 0, &[0, 1], &[])).into();
        let (views, blocks) = view::collect(&graph, &[], &[]);
        let bound =
            |at: u64| Bound { address: at, layout: Layout::padded(Shape::new(&[64, 64]).unwrap(), element.bytes().into()).unwrap() };
        let tables = views.resolve(&graph, &[bound(0x1000), bound(0x9000)], true, |_| 0).unwrap();
        let tensor_maps: Vec<_> =
            tables.tensor_maps.iter().map(|map| (map.address, map.boxes.rows, map.boxes.swizzle, map.boxes.rounds)).collect();
        assert_eq!(tensor_maps, [(0x1000, 128, 128, false), (0x9000, 32, 64, false), (0x9000, 64, 128, false)]);
        let maps = |call: usize| [0, 1].map(|operand| tables.views[blocks[call] as usize + operand].as_view().map);
        // Nobody writes `x`.
        assert_eq!([maps(0), maps(1)], [[MapIndex::new(0, false), MapIndex::new(1, true)], [NO_MAP, MapIndex::new(2, true)]]);
    }
}

/// What is read across its rows has a tensor map if it can have one, whose boxes may be those of another task that cannot do without.
#[test]
fn tensor_maps_are_optional_for_column_reductions() {
    const ROW: &[Index] = &[Index::Tile(0), Index::All];
    static TASKS: [TaskSpec; 2] = [
        TaskSpec {
            name: "across",
            kind: TaskKind::Columns { operand: 0 },
            params: &[matrix("x", Access::Read, ROW, false), matrix("y", Access::Write, ROW, false)],
            ..ROWS
        },
        TaskSpec {
            name: "body",
            kind: TaskKind::Simt {
                cpu: true,
                early_start: false,
                shared: 1,
                boxes: &[BoxSpec { operand: 0, rows: abi::PANEL_ROWS, swizzle: abi::ROW_BYTES }],
            },
            params: &[matrix("x", Access::Read, ROW, false), matrix("y", Access::Write, ROW, false)],
            ..ROWS
        },
    ];
    let maps = |rows: u64, at: u64, tasks: &[usize]| -> Result<Vec<MapIndex>, String> {
        let mut graph = Graph { name: "across".into(), ..Graph::default() };
        graph.tensors = ["x", "y"].map(|name| tensor(name, TensorKind::InOut, &[rows, 64])).into();
        graph.calls = tasks.iter().map(|&task| call(&graph, &TASKS[task], 0, &[0, 1], &[])).collect();
        let (views, blocks) = view::collect(&graph, &[], &[]);
        let layout = Layout::padded(Shape::new(&[rows, 64]).unwrap(), 4).unwrap();
        let bound = [at, 0x9000].map(|address| Bound { address, layout });
        let tables = views.resolve(&graph, &bound, true, |_| 0).map_err(|error| error.to_string())?;
        Ok((0..tasks.len()).map(|call| tables.views[blocks[call] as usize].as_view().map).collect())
    };
    let first = Ok(vec![MapIndex::new(0, false)]);
    assert_eq!((maps(64, 0x1000, &[0]), maps(64, 0x1000, &[1])), (first.clone(), first));
    let both = Ok(vec![MapIndex::new(0, false); 2]);
    assert_eq!((maps(64, 0x1000, &[0, 1]), maps(64, 0x1000, &[1, 0])), (both.clone(), both.clone()));
    // None of what is not there, or begins where no copy does.
    assert_eq!((maps(0, 0x1000, &[0]), maps(64, 0x1004, &[0])), (Ok(vec![NO_MAP]), Ok(vec![NO_MAP])));
    assert_eq!(maps(0, 0x1000, &[0, 1]), both);
    for tasks in [&[1][..], &[0, 1], &[1, 0]] {
        let error = maps(64, 0x1004, tasks).unwrap_err();
        assert!(error.contains("`body`") && error.contains("multiple of 16"), "{error}");
    }
}

/// x = f(x), over and over.
static UPDATE: TaskSpec =
    TaskSpec { name: "update", axes: &[Axis { name: "i", tiles: &[8] }], params: &[matrix("x", Access::Update, ROW, false)], ..ROWS_PLAIN };
static ROWS_PLAIN: TaskSpec = TaskSpec { kind: TaskKind::Tiles, ..ROWS };

/// What a scheduler looks ahead by: of a chain each task but the last one has its one counter, whose one waiter is the next task and
/// lacks nothing else.
#[test]
fn a_scheduler_finds_the_next_task_of_a_chain() {
    const LINKS: usize = 40;
    let tensors = vec![tensor("x", TensorKind::InOut, &[8, 8])];
    let mut graph = Graph { name: "chain".into(), tensors, ..Graph::default() };
    graph.calls = (0..LINKS).map(|_| call(&graph, &UPDATE, 0, &[0], &[])).collect();
    let plan = planned(graph, 5, Schedule::Schedulers(1));
    for look_ahead in [true, false] {
        let lowered = Lowered::new(&plan, 1, look_ahead).unwrap();
        let [image] = &lowered.images[..] else { panic!("one scheduler") };
        let at = maco_device::protocol::Layout::new(&image.header, 5, 1, 0);
        let word = |first: u32, n: u32| image.words[(first + n) as usize];
        for task in 0..LINKS as u32 {
            let counter = word(at.signals, task);
            if !look_ahead || task == LINKS as u32 - 1 {
                assert_eq!(counter, 0);
                continue;
            }
            let waiters = word(at.starts, counter - 1)..word(at.starts, counter);
            assert_eq!(waiters.map(|entry| word(at.waiters, entry)).collect::<Vec<_>>(), [task + 1]);
            assert_eq!((word(at.remaining, counter - 1), word(at.pending, task + 1)), (1, 1));
        }
        // A word per worker in each bank, whatever the counters.
        assert_eq!((lowered.counters, lowered.ring_words()), (BANK_WORDS, 5 * (abi::INBOX_WORDS + abi::MAILBOX) as u64));
    }
}
