//! GEMMs of what ranks exchange begin at a share that depends on the rank, and ranks that do so do not wait for each other for ever.
mod plan_graphs;

use maco_abi::{ExchangeTask, owner};
use maco_graph::ir::{Graph, TensorKind, View, ViewAxis};
use maco_graph::plan::{CallShape, Defect, Options, Plan, Schedule, Shares, TileOrder, plan};
use maco_graph::spec::{Collective, TaskKind, TaskSpec, Via};
use plan_graphs::collectives::{GATHER, SCATTER, SUM};
use plan_graphs::{ADD, Build, STAGED_GEMM, axis};

/// Tiles so small that they go as packets: one task sends and receives.
static PACKETS: TaskSpec = TaskSpec { axes: &[axis("i", &[16]), axis("j", &[64])], ..SUM };

/// Rows of a matrix as so many planes.
fn planes(build: &Build, tensor: u32, count: u64) -> View {
    let mut view = build.whole(tensor);
    let rows = view.axes[0].extent / count;
    view.axes[0] = ViewAxis { axis: 0, step: rows, extent: count };
    view.axes.insert(1, ViewAxis { axis: 0, step: 1, extent: rows });
    view
}

fn gemm(build: &mut Build, rows: u64, columns: u64, part: u32) {
    let (x, w) = (build.input("x", &[rows, 64]), build.input("w", &[columns, 64]));
    build.call(&STAGED_GEMM, &[x, w, part]);
}

/// A GEMM, its all-reduce, and a sum of what comes.
fn summed([rows, columns]: [u64; 2], _: u64) -> Graph {
    let mut build = Build::default();
    let [part, sum, other, y] = ["part", "sum", "other", "y"].map(|name| match name {
        "y" => build.tensor(name, TensorKind::Out, &[rows, columns]),
        "other" => build.input(name, &[rows, columns]),
        _ => build.temp(name, &[rows, columns]),
    });
    gemm(&mut build, rows, columns, part);
    build.call(&SUM, &[part, sum]);
    build.call(&ADD, &[sum, other, y]);
    build.0
}

/// A GEMM whose rows are a plane for each rank, and what is scattered of it.
fn scattered([rows, columns]: [u64; 2], ranks: u64) -> Graph {
    let mut build = Build::default();
    let part = build.temp("part", &[rows * ranks, columns]);
    let y = build.tensor("y", TensorKind::Out, &[rows, columns]);
    gemm(&mut build, rows * ranks, columns, part);
    let (from, to) = (planes(&build, part, ranks), build.whole(y));
    build.call_on(&SCATTER, vec![from, to]);
    build.0
}

/// What all ranks have, gathered, and a GEMM of it; `then`: its all-reduces in two ways behind it.
fn gathered([rows, columns]: [u64; 2], ranks: u64, then: bool) -> Graph {
    let mut build = Build::default();
    let (own, w) = (build.input("own", &[rows, 256]), build.input("w", &[columns, 256]));
    let (x, part) = (build.temp("x", &[rows * ranks, 256]), build.temp("part", &[rows * ranks, columns]));
    let y = build.tensor("y", TensorKind::Out, &[rows * ranks, columns]);
    let (from, to) = (build.whole(own), planes(&build, x, ranks));
    build.call_on(&GATHER, vec![from, to]);
    build.call(&STAGED_GEMM, &[x, w, if then { part } else { y }]);
    if then {
        let other = build.temp("other", &[rows * ranks, columns]);
        build.call(&ADD, &[part, part, other]);
        build.call(&PACKETS, &[other, y]);
        // Whatever the options say of the others.
        build.0.calls[3].via = Via::Packets;
    }
    build.0
}

/// How a plan is asked for, besides its ranks.
#[derive(Clone, Copy)]
struct Ask {
    push: bool,
    via: Via,
    schedule: Schedule,
    workers: u32,
}

const ASK: Ask = Ask { push: true, via: Via::TwoShot, schedule: Schedule::Static, workers: 5 };

fn plans(graph: &Graph, ranks: u32, ask: Ask) -> Vec<Plan> {
    let gemms = (0..graph.calls.len() as u32).filter(|&call| matches!(graph.calls[call as usize].task.kind, TaskKind::Gemm { .. }));
    let shapes: Vec<CallShape> =
        gemms.map(|call| CallShape { call, tile: Some(vec![128, 256]), split: Some(1), ..CallShape::default() }).collect();
    let Ask { push, via, schedule, workers } = ask;
    let options =
        |rank| Options { ranks, rank, push_tiles: push, schedule, shapes: shapes.clone(), split_k: false, ..Options::new(workers) };
    let mut graph = graph.clone();
    // What is small goes as packets.
    graph.calls.iter_mut().filter(|call| std::ptr::eq(call.task, &SUM)).for_each(|call| call.via = via);
    (0..ranks).map(|rank| plan(graph.clone(), &options(rank)).unwrap()).collect()
}

fn first_tile(plan: &Plan, call: usize) -> [u32; 2] {
    let [row, column, _] = plan.tasks[plan.calls[call].tasks.start as usize].coord;
    [row, column]
}

#[test]
fn tiles_of_the_next_rank_come_first_and_the_own_ones_last() {
    for ranks in [2, 3, 4] {
        for push in [true, false] {
            let plans = plans(&summed([512, 256 * 3 * u64::from(ranks)], 0), ranks, Ask { push, ..ASK });
            for (rank, plan) in (0..).zip(&plans) {
                assert_eq!(plan.calls[1].pushed_by.is_some(), push);
                assert_eq!(first_tile(plan, 0), [0, (rank + 1) % ranks]);
                assert_eq!(plan.calls[0].order.columns, Shares::Neighbours { count: ranks, first: (rank + 1) % ranks });
                assert!(plan.to_string().contains(&format!("from share {} of {ranks}", (rank + 1) % ranks)), "{plan}");
                // Four rows of tiles: of each block of columns the owners come one after the other.
                let columns = plan.calls[1].grid[1];
                for (n, task) in plan.calls[0].tasks.clone().enumerate() {
                    let [row, column, _] = plan.tasks[task as usize].coord;
                    let of = owner(2 * row * columns + column, ranks);
                    assert_eq!(of, (rank + 1 + n as u32 / 4) % ranks, "rank {rank} of {ranks}, task {task}");
                }
            }
        }
    }
}

#[test]
fn scattered_and_gathered_rows_begin_at_a_share() {
    for ranks in [2, 3, 4] {
        let all = plans(&scattered([256, 512], ranks.into()), ranks, ASK);
        for (rank, plan) in (0..).zip(&all) {
            // Two rows of tiles of each rank, in turn.
            let rows: Vec<u32> = plan.calls[0].tasks.clone().map(|task| plan.tasks[task as usize].coord[0]).collect();
            let expected = |n: u32| (rank + 1 + n) % ranks * 2 + n / ranks;
            assert_eq!(rows[..2 * ranks as usize], (0..2 * ranks).map(expected).collect::<Vec<u32>>());
        }
        let all = plans(&gathered([256, 512], ranks.into(), false), ranks, ASK);
        for (rank, plan) in (0..).zip(&all) {
            assert_eq!((first_tile(plan, 1), plan.calls[1].order.rows), ([2 * rank, 0], Shares::Behind { count: ranks, first: rank }));
        }
    }
}

/// One rank, one-shot, a GEMM that is split, and whoever does not want it.
#[test]
fn other_calls_begin_at_their_first_tile() {
    let graph = summed([512, 1536], 0);
    let of = |options: Options| plan(graph.clone(), &options).unwrap().calls[0].order;
    let shape = CallShape { call: 0, tile: Some(vec![128, 256]), split: Some(1), ..CallShape::default() };
    let options = Options { ranks: 3, rank: 1, shapes: vec![shape.clone()], split_k: false, ..Options::new(5) };
    assert!(of(options.clone()).has_shares());
    assert_eq!(of(Options { ranks: 1, rank: 0, ..options.clone() }), TileOrder::GROUPS);
    assert_eq!(of(Options { own_share: false, ..options.clone() }), TileOrder::GROUPS);
    assert_eq!(of(Options { via: Via::OneShot, ..options.clone() }), TileOrder::GROUPS);
    // Its tiles have columns of two owners, or of half of one.
    let narrow = CallShape { tile: Some(vec![128, 128]), ..shape.clone() };
    assert_eq!(of(Options { shapes: vec![narrow], ..options.clone() }), TileOrder::GROUPS);
    let split = CallShape { split: Some(2), ..shape };
    let mut deep = graph.clone();
    deep.tensors.iter_mut().filter(|tensor| tensor.shape[1] == 64).for_each(|tensor| tensor.shape[1] = 512);
    for call in &mut deep.calls {
        call.operands = call.operands.iter().map(|view| View::whole(view.tensor, &deep.tensors[view.tensor as usize])).collect();
    }
    let split = plan(deep, &Options { shapes: vec![split], ..options }).unwrap();
    assert_eq!((split.calls[0].parts, split.calls[0].order), (2, TileOrder::GROUPS));
}

#[test]
fn the_verifier_knows_the_order() {
    let mut plan = plans(&summed([512, 1536], 0), 2, ASK).swap_remove(1);
    assert_eq!(plan.verify(), Ok(()));
    plan.calls[0].order = plan.calls[0].order.beginning_at(1);
    let Err(Defect::TileOrder { task }) = plan.verify() else { panic!("{:?}", plan.verify()) };
    assert_eq!(task, plan.calls[0].tasks.start);
}

/// Ranks that run their lists, and send and wait as the device code does.
struct World<'a> {
    plans: &'a [Plan],
    /// By rank and task.
    begun: Vec<Vec<bool>>,
    ended: Vec<Vec<bool>>,
    counters: Vec<Vec<u32>>,
}

impl World<'_> {
    /// Whether all messages for the task of `rank` have come; it has begun.
    fn has_come(&self, rank: usize, task: u32) -> bool {
        let plan = &self.plans[rank];
        let node = plan.tasks[task as usize];
        let planned = &plan.calls[node.call as usize];
        let Some(collective) = plan.graph.calls[node.call as usize].task.collective() else { return true };
        // The task of another rank that does `part` of this tile.
        let there = |other: usize, part: u32, all: &Vec<Vec<bool>>| {
            let theirs = &self.plans[other];
            let found = theirs.calls[node.call as usize].tasks.clone().find(|&task| {
                let other = theirs.tasks[task as usize];
                (other.coord, other.part) == (node.coord, part)
            });
            all[other][found.unwrap() as usize]
        };
        // Whether `other` has sent its part of the tile: by a task of its own, or by a GEMM.
        let sent = |other: usize| match planned.pushed_by {
            Some(by) => {
                let theirs = &self.plans[other];
                let of = [0, 1].map(|axis| node.coord[axis] * planned.tile[axis] / theirs.calls[by as usize].tile[axis]);
                let mut makes = theirs.calls[by as usize].tasks.clone().filter(|&task| theirs.tasks[task as usize].coord[..2] == of);
                makes.all(|task| self.ended[other][task as usize])
            }
            None => there(other, 0, &self.ended),
        };
        let mut others = (0..self.plans.len()).filter(|&other| other != rank);
        let number = node.coord[..planned.grid.len()].iter().zip(&planned.grid).fold(0, |number, (&at, &tiles)| number * tiles + at);
        let owner = owner(number, self.plans.len() as u32) as usize;
        match planned.exchange_task(task - planned.tasks.start, node.part) {
            None => others.all(|other| there(other, 0, &self.begun)),
            Some(ExchangeTask::Receive) if collective == Collective::AllGather => {
                node.coord[0] as usize == rank || there(node.coord[0] as usize, 0, &self.ended)
            }
            Some(ExchangeTask::Receive) => others.all(sent),
            Some(ExchangeTask::Reduce) => owner != rank || others.all(sent),
            Some(ExchangeTask::ReceiveResult) => owner == rank || there(owner, node.part - 1, &self.ended),
            Some(_) => true,
        }
    }

    /// Runs all, workers in an order that `draw` says: how many tasks are left when nobody can go on.
    fn run(plans: &[Plan], mut draw: impl FnMut(usize) -> usize) -> usize {
        let none = || plans.iter().map(|plan| vec![false; plan.tasks.len()]).collect::<Vec<_>>();
        let mut world =
            World { plans, begun: none(), ended: none(), counters: plans.iter().map(|plan| vec![0; plan.counters as usize]).collect() };
        let mut left: usize = plans.iter().map(|plan| plan.tasks.len()).sum();
        // Who has which task, and how many have been taken of each list.
        let mut workers: Vec<(usize, usize, Option<u32>)> =
            plans.iter().enumerate().flat_map(|(rank, plan)| (0..plan.workers as usize).map(move |worker| (rank, worker, None))).collect();
        let mut taken: Vec<Vec<usize>> = plans.iter().map(|plan| vec![0; plan.lists.starts.len() - 1]).collect();
        let mut idle = 0;
        while left > 0 && idle < workers.len() {
            let at = draw(workers.len());
            let mut moved = false;
            for n in 0..workers.len() {
                let at = (at + n) % workers.len();
                let (rank, worker, task) = workers[at];
                let plan = &plans[rank];
                let list = worker % (plan.lists.starts.len() - 1);
                let Some(task) = task else {
                    if let Some(&task) = plan.lists.of(list).get(taken[rank][list]) {
                        taken[rank][list] += 1;
                        workers[at].2 = Some(task);
                        moved = true;
                        break;
                    }
                    continue;
                };
                let ready = plan.waits_of(task).iter().all(|wait| world.counters[rank][wait.counter as usize] >= wait.need);
                if !ready {
                    continue;
                }
                if !world.begun[rank][task as usize] {
                    world.begun[rank][task as usize] = true;
                    moved = true;
                    break;
                }
                if world.has_come(rank, task) {
                    world.ended[rank][task as usize] = true;
                    plan.signals_of(task).iter().for_each(|&counter| world.counters[rank][counter as usize] += 1);
                    workers[at].2 = None;
                    left -= 1;
                    moved = true;
                    break;
                }
            }
            idle = if moved { 0 } else { workers.len() };
        }
        left
    }
}

/// All ranks together: the same exchanges in the same order, and every run comes to its end.
#[test]
fn ranks_do_not_wait_for_each_other_for_ever() {
    let mut state = 1u64;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut turned = 0;
    for ranks in [2, 3, 4] {
        for sizes in [[128, 256], [384, 1280], [640, 768]] {
            let graphs = [
                summed(sizes, 0),
                scattered(sizes, ranks.into()),
                gathered(sizes, ranks.into(), false),
                gathered(sizes, ranks.into(), true),
            ];
            for graph in &graphs {
                for (push, via, schedule, workers) in [
                    (true, Via::TwoShot, Schedule::Static, 1),
                    (true, Via::TwoShot, Schedule::Static, 5),
                    (false, Via::TwoShot, Schedule::Static, 3),
                    (false, Via::Automatic, Schedule::Static, 7),
                    (true, Via::TwoShot, Schedule::Tickets, 3),
                ] {
                    let all = plans(graph, ranks, Ask { push, via, schedule, workers });
                    turned += usize::from(all[0].calls.iter().any(|call| call.order.has_shares()));
                    let exchanges: Vec<_> = all[0].exchanges().collect();
                    assert!(!exchanges.is_empty());
                    for (rank, plan) in all.iter().enumerate() {
                        assert!(plan.exchanges().eq(exchanges.iter().copied()), "rank {rank} of {ranks}, {sizes:?}");
                    }
                    assert_eq!(World::run(&all, &mut draw), 0, "{ranks} ranks, {sizes:?}, {}", all[0]);
                }
            }
        }
    }
    assert!(turned > 100, "{turned}");
}
