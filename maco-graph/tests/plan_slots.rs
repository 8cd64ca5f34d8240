//! Messages that have less memory than there are tiles: tiles have slots in turn, and who sends stands behind those that empty the slot.
mod plan_graphs;

use maco_abi::ExchangeTask;
use maco_graph::ir::{Graph, TensorKind};
use maco_graph::plan::{CallShape, Costs, Defect, Options, Plan, Schedule, plan};
use maco_graph::spec::{Access, Collective, Index, TaskKind, TaskSpec, Via};
use plan_graphs::collectives::{GATHER, SCATTER, SUM};
use plan_graphs::{Build, STAGED_GEMM, axis, task, tensor};

const PLANE: &[Index] = &[Index::Tile(0), Index::Tile(1), Index::Tile(2)];

/// Small tiles, that go as packets.
static SMALL: TaskSpec = TaskSpec { axes: &[axis("i", &[8]), axis("j", &[64])], ..SUM };
static SWAP: TaskSpec = TaskSpec {
    kind: TaskKind::Collective(Collective::AllToAll),
    ..task(
        "all_to_all",
        &[axis("r", &[1]), axis("i", &[8]), axis("j", &[256])],
        &[tensor("x", Access::Read, PLANE), tensor("y", Access::Write, PLANE)],
    )
};

/// A GEMM of five by two tiles, whose result goes through every collective. More than 16 rows of tiles, so that task order is not that of rows.
fn graph(ranks: u64) -> Graph {
    let mut build = Build::default();
    let [m, n] = [1280, 512];
    let (x, w) = (build.input("x", &[m, 64]), build.input("w", &[n, 64]));
    let planes = build.input("planes", &[ranks, m, n]);
    let part = build.temp("part", &[m, n]);
    let out = |build: &mut Build, name, shape: &[u64]| build.tensor(name, TensorKind::Out, shape);
    build.call(&STAGED_GEMM, &[x, w, part]);
    for (task, name) in [(&SUM, "sum"), (&SMALL, "small")] {
        let y = out(&mut build, name, &[m, n]);
        build.call(task, &[part, y]);
    }
    // Whatever the options say of the others.
    build.0.calls[2].via = Via::Packets;
    let (y, shape) = (out(&mut build, "gathered", &[ranks, m, n]), [ranks, m, n]);
    build.call(&GATHER, &[part, y]);
    let y = out(&mut build, "scattered", &[m, n]);
    build.call(&SCATTER, &[planes, y]);
    let y = out(&mut build, "swapped", &shape);
    build.call(&SWAP, &[planes, y]);
    build.0
}

fn options(ranks: u32, room: u64) -> Options {
    Options { ranks, message_bytes: Some(room), push_tiles: true, ..Options::new(5) }
}

/// Runs the lists of all ranks, each task as long as it has what it waits for; how many tasks have ended.
fn run(plan: &Plan, ranks: u32) -> usize {
    let tasks = plan.tasks.len();
    let index = |task: u32| {
        let (node, call) = (&plan.tasks[task as usize], &plan.calls[plan.tasks[task as usize].call as usize]);
        let planes = call.grid.len() == 3;
        let [row, column] = if planes { [node.coord[1], node.coord[2]] } else { [node.coord[0], node.coord[1]] };
        let [rows, columns] = if planes { [call.grid[1], call.grid[2]] } else { [call.grid[0], call.grid[1]] };
        // Groups of sixteen rows, column by column.
        let before = (0..rows * columns).filter(|&at| {
            let (other, along) = (at / columns, at % columns);
            (other / 16, along, other % 16) < (row / 16, column, row % 16)
        });
        before.count() as u32
    };
    let indices: Vec<u32> =
        (0..tasks as u32).map(|task| if plan.calls[plan.tasks[task as usize].call as usize].slots > 0 { index(task) } else { 0 }).collect();
    let mut done = vec![vec![false; tasks]; ranks as usize];
    let mut sent = done.clone();
    let lists = if plan.schedule == Schedule::Static { plan.workers as usize } else { 1 };
    let mut next = vec![vec![0; lists]; ranks as usize];
    let mut ended = 0;
    loop {
        let before = (ended, sent.iter().flatten().filter(|sent| **sent).count());
        for rank in 0..ranks as usize {
            for (list, next) in next[rank].iter_mut().enumerate() {
                let Some(&task) = plan.lists.of(list).get(*next) else { continue };
                let (node, at) = (plan.tasks[task as usize], task as usize);
                let call = &plan.calls[node.call as usize];
                let fills = |other: u32, counter| plan.signals_of(other).contains(&counter);
                let ready = plan.waits_of(task).iter().all(|wait| {
                    plan.calls
                        .iter()
                        .flat_map(|call| call.tasks.clone())
                        .filter(|&other| fills(other, wait.counter))
                        .all(|other| done[rank][other as usize])
                });
                if !ready {
                    continue;
                }
                let spec = &plan.graph.calls[node.call as usize];
                if let Some(collective) = spec.task.collective() {
                    let peers = || (0..ranks as usize).filter(|&peer| peer != rank);
                    // Whoever sends waits until all have ended what is in the slot.
                    let slot = |other: &u32| call.slots > 0 && indices[*other as usize] + call.slots == indices[at];
                    let sends = call.exchange_task(task - call.tasks.start, node.part) != Some(ExchangeTask::Receive);
                    if sends && !peers().all(|peer| call.tasks.clone().filter(slot).all(|other| done[peer][other as usize])) {
                        continue;
                    }
                    sent[rank][at] = true;
                    // Whoever receives waits for what the others send of the tile.
                    let of = |peer: usize| {
                        let plane = match collective {
                            Collective::AllToAll => Some(rank as u32),
                            Collective::AllGather => Some(node.coord[0]),
                            _ => None,
                        };
                        let sender = call.tasks.clone().find(|other| {
                            let coord = plan.tasks[*other as usize].coord;
                            let part = plan.tasks[*other as usize].part;
                            let from = plane.map_or(coord == node.coord, |plane| coord[0] == plane && coord[1..] == node.coord[1..]);
                            from && part == node.part.saturating_sub(1)
                        });
                        sender.is_none_or(|sender| sent[peer][sender as usize])
                    };
                    let from: Vec<usize> = match collective {
                        Collective::AllToAll => vec![node.coord[0] as usize],
                        Collective::AllGather => vec![node.coord[0] as usize],
                        _ => peers().collect(),
                    };
                    let receives = call.exchange_part(task - call.tasks.start, node.part).is_none_or(|part| part.part > 0);
                    if receives && !from.into_iter().filter(|&peer| peer != rank).all(of) {
                        continue;
                    }
                }
                done[rank][at] = true;
                *next += 1;
                ended += 1;
            }
        }
        if (ended, sent.iter().flatten().filter(|sent| **sent).count()) == before {
            return ended;
        }
    }
}

#[test]
fn all_ranks_end_with_slots_in_turn() {
    for ranks in [2, 3] {
        for (via, schedule) in [(Via::OneShot, Schedule::Static), (Via::TwoShot, Schedule::Static), (Via::OneShot, Schedule::Tickets)] {
            for share in [6, 14] {
                let full = plan(graph(ranks.into()), &Options { via, schedule, ..options(ranks, u64::MAX) }).unwrap().message_bytes(ranks);
                let planned = plan(graph(ranks.into()), &Options { via, schedule, ..options(ranks, full / share) }).unwrap();
                assert!(planned.message_bytes(ranks) <= full / share, "{planned}");
                for call in &planned.calls[1..] {
                    assert!(call.slots >= 2 && call.slots < call.grid.iter().rev().take(2).product(), "{planned}");
                    assert!(call.parts != ExchangeTask::TWO_SHOT || call.slots.is_multiple_of(ranks), "{planned}");
                    assert_eq!(call.pushed_by, None);
                }
                assert_eq!(run(&planned, ranks), ranks as usize * planned.tasks.len(), "{ranks} ranks, {via:?}, {schedule}: {planned}");
            }
        }
    }
}

/// GEMMs begin at a share that depends on the rank, and what is exchanged, with what waits for a slot, stands in one order on all ranks.
#[test]
fn ranks_have_one_order_of_exchanges() {
    for ranks in [2, 3] {
        // Tiles with the columns of those that are summed, so that each has one owner.
        let shapes = vec![CallShape { call: 0, tile: Some(vec![128, 256]), split: Some(1), ..CallShape::default() }];
        let of = |rank| Options { rank, via: Via::TwoShot, shapes: shapes.clone(), split_k: false, ..options(ranks, 1000) };
        let all: Vec<Plan> = (0..ranks).map(|rank| plan(graph(ranks.into()), &of(rank)).unwrap()).collect();
        for plan in &all {
            assert!(plan.calls[0].order.has_shares() && plan.calls[1..].iter().all(|call| call.slots > 0), "{plan}");
            assert!(plan.exchanges().eq(all[0].exchanges()), "{plan}");
        }
        assert_ne!(all[0].tasks, all[1].tasks);
    }
}

/// With room enough a plan is as without a bound; a little less, and only what has to has fewer slots.
#[test]
fn slots_are_as_many_as_fit() {
    let free = plan(graph(2), &Options { message_bytes: None, ..options(2, 0) }).unwrap();
    let full = free.message_bytes(2);
    let same = plan(graph(2), &options(2, full)).unwrap();
    assert_eq!((&same.calls, &same.lists, same.calls[1].pushed_by), (&free.calls, &free.lists, Some(0)));
    let less = plan(graph(2), &options(2, full - 1)).unwrap();
    assert!(less.message_bytes(2) < full && less.message_bytes(2) > full / 2 && less.calls.iter().any(|call| call.slots > 0));
    assert!(less.to_string().contains("slots in turn") && less.json().contains("\"slots\""));
    // What does not fit has the least that there is, for who allocates it to say.
    let least = plan(graph(2), &options(2, 1000)).unwrap();
    assert!(least.message_bytes(2) > 1000 && least.calls[1..].iter().all(|call| call.slots == 2));
}

/// Lists by costs have another order: slots are had in that of tiles.
#[test]
fn costs_are_left_aside() {
    let costs = Some(Costs { hop: Some(1), entries: Vec::new() });
    let [by_costs, without] = [costs, None].map(|costs| plan(graph(2), &Options { costs, ..options(2, 1000) }).unwrap());
    assert_eq!(by_costs.lists, without.lists);
}

#[test]
fn the_verifier_knows_who_empties_a_slot() {
    let planned = plan(graph(2), &options(2, 1000)).unwrap();
    assert_eq!(planned.verify(), Ok(()));
    let defect = |spoil: &dyn Fn(&mut Plan)| {
        let mut plan = planned.clone();
        spoil(&mut plan);
        plan.verify().unwrap_err()
    };
    let slots = |defect, of| matches!(defect, Defect::Slots { call, .. } if call == of);
    assert!(slots(defect(&|plan| plan.calls[1].slots = 1), 1));
    assert!(slots(defect(&|plan| plan.calls[0].slots = 2), 0));
    // The tasks of a call in the opposite order, which nothing else minds: they wait for no task.
    let spoil = |plan: &mut Plan| {
        let own = plan.calls[5].tasks.clone();
        let places = &mut plan.lists.positions[own.start as usize..own.end as usize];
        places.reverse();
        let place = plan.lists.positions.clone();
        for list in 0..plan.workers as usize {
            let range = plan.lists.starts[list] as usize..plan.lists.starts[list + 1] as usize;
            plan.lists.order[range].sort_by_key(|&task| place[task as usize]);
        }
    };
    assert!(slots(defect(&spoil), 5));
}
