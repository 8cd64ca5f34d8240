//! Tasks that ranks exchange tiles in stand behind the tasks that make the tiles.
mod plan_graphs;

use maco_graph::ir::{Graph, TensorKind};
use maco_graph::plan::{CallShape, Defect, Options, Plan, Schedule, plan};
use maco_graph::spec::{Access, Collective, Index, Reduction, TaskKind, TaskSpec, Via};
use plan_graphs::{ADD, Build, STAGED_GEMM, axis, task, tensor};

/// As `all_reduce` of the library, with one tile.
static LARGE: TaskSpec = TaskSpec {
    kind: TaskKind::Collective(Collective::AllReduce(Reduction::Sum)),
    ..task(
        "all_reduce",
        &[axis("i", &[64]), axis("j", &[256])],
        &[tensor("part", Access::Read, &[Index::Tile(0), Index::Tile(1)]), tensor("y", Access::Write, &[Index::Tile(0), Index::Tile(1)])],
    )
};

/// As `all_gather` of the library, with one tile.
static GATHER: TaskSpec = TaskSpec {
    kind: TaskKind::Collective(Collective::AllGather),
    ..task(
        "all_gather",
        &[axis("r", &[1]), axis("i", &[64]), axis("j", &[256])],
        &[
            tensor("x", Access::Read, &[Index::Tile(1), Index::Tile(2)]),
            tensor("y", Access::Write, &[Index::Tile(0), Index::Tile(1), Index::Tile(2)]),
        ],
    )
};

/// A GEMM of 4 × 8 tiles, or a sum of tiles, its all-reduce, and a sum of what comes.
fn layer(gemm: bool, drain: bool) -> Graph {
    let mut build = Build::default();
    let (x, w) = (build.input("x", &[512, 64]), build.input("w", &[2048, 64]));
    let other = build.input("other", &[512, 2048]);
    let (part, sum) = (build.temp("part", &[512, 2048]), build.temp("sum", &[512, 2048]));
    let y = build.tensor("y", TensorKind::Out, &[512, 2048]);
    if gemm {
        build.call(&STAGED_GEMM, &[x, w, part]);
    } else {
        build.call(&LARGE, &[other, part]);
    }
    build.call(&LARGE, &[part, sum]);
    build.0.calls[1].drain = drain;
    build.call(&ADD, &[sum, other, y]);
    build.0
}

/// The last task that `task` waits for, by its place in the order of all.
fn producer(plan: &Plan, task: u32) -> u32 {
    let place = |task: u32| plan.lists.positions[task as usize];
    let fills = |&other: &u32| plan.waits_of(task).iter().any(|wait| plan.signals_of(other).contains(&wait.counter));
    (0..plan.tasks.len() as u32).filter(fills).max_by_key(|&other| place(other)).unwrap()
}

fn home(plan: &Plan, task: u32) -> (usize, usize) {
    (0..plan.workers as usize).find_map(|worker| Some((worker, plan.lists.of(worker).iter().position(|&own| own == task)?))).unwrap()
}

#[test]
fn tasks_of_a_collective_follow_the_producers_of_their_tiles() {
    for (gemm, between) in [(true, 1), (false, 0)] {
        let planned = plan(layer(gemm, false), &Options::new(7)).unwrap();
        // Tiles of 32 KiB: half of the tasks send, half receive.
        let own = &planned.calls[1].tasks;
        assert_eq!((planned.calls[1].parts, own.len()), (2, 2 * 8 * 8));
        for task in own.clone() {
            let (worker, at) = home(&planned, task);
            let (of, producer) = home(&planned, producer(&planned, task));
            // Of two tiles that wait for one task the second is beside it.
            assert!(worker == of || gemm && worker == (of + 1) % 7, "{task}");
            if worker != of {
                continue;
            }
            // Between the two are other tasks of collectives, and one that is none, or two before a task that receives, unless there are no more.
            let between = if gemm { between + planned.tasks[task as usize].part as usize } else { 0 };
            let behind = &planned.lists.of(worker)[producer + 1..at];
            let others = behind.iter().filter(|task| gemm && planned.calls[0].tasks.contains(task)).count();
            let left = planned.lists.of(worker)[producer + 1..].iter().filter(|task| gemm && planned.calls[0].tasks.contains(task)).count();
            assert_eq!(others, left.min(between), "{task}: {behind:?}");
        }
        // Each worker begins to exchange before the last GEMM.
        if gemm {
            let last = planned.calls[0].tasks.clone().map(|task| planned.lists.positions[task as usize]).max().unwrap();
            assert!(own.clone().filter(|&task| planned.lists.positions[task as usize] < last).count() > own.len() / 2);
        }
    }
}

/// Rows that all wait for one task are exchanged at the same time.
#[test]
fn tasks_that_wait_for_one_are_on_several_workers() {
    static ROWS: TaskSpec = TaskSpec {
        kind: TaskKind::Collective(Collective::AllReduce(Reduction::Sum)),
        ..task(
            "rows",
            &[axis("i", &[1])],
            &[tensor("part", Access::Read, &[Index::Tile(0), Index::All]), tensor("y", Access::Write, &[Index::Tile(0), Index::All])],
        )
    };
    let mut build = Build::default();
    let (x, w) = (build.input("x", &[6, 64]), build.input("w", &[128, 64]));
    let part = build.temp("part", &[6, 128]);
    let y = build.tensor("y", TensorKind::Out, &[6, 128]);
    build.call(&STAGED_GEMM, &[x, w, part]);
    build.call(&ROWS, &[part, y]);
    let planned = plan(build.0, &Options::new(7)).unwrap();
    let mut workers: Vec<usize> = planned.calls[1].tasks.clone().map(|task| home(&planned, task).0).collect();
    workers.sort_unstable();
    workers.dedup();
    assert_eq!(workers.len(), 6);
}

/// What travels long enough goes in large tiles, what is small in many.
#[test]
fn tiles_of_collectives_are_chosen_by_what_they_cost() {
    static ALL_REDUCE: TaskSpec = TaskSpec { axes: &[axis("i", &[8, 64]), axis("j", &[64, 256])], ..LARGE };
    for (shape, tile) in [([8192, 8192], [64, 256]), ([8, 4096], [8, 64]), ([1, 8192], [8, 64])] {
        let mut build = Build::default();
        let x = build.input("x", &shape);
        let y = build.tensor("y", TensorKind::Out, &shape);
        build.call(&ALL_REDUCE, &[x, y]);
        let planned = plan(build.0, &Options::new(132)).unwrap();
        assert_eq!(planned.calls[0].tile, tile, "{shape:?}");
    }
}

#[test]
fn other_lists_stay_in_the_order_of_calls() {
    assert!(plan(layer(true, true), &Options::new(7)).unwrap().lists.positions.is_empty());
    let tickets = plan(layer(true, false), &Options { schedule: Schedule::Tickets, ..Options::new(7) }).unwrap();
    assert!(tickets.lists.positions.is_empty() && tickets.lists.order.is_sorted());
}

fn pushing() -> Options {
    let tile = |call, rows, cols| CallShape { call, tile: Some(vec![rows, cols]), ..CallShape::default() };
    Options { push_tiles: true, split_k: false, shapes: vec![tile(0, 128, 256)], ..Options::new(7) }
}

/// A GEMM whose tiles are whole ones of the all-reduce sends them; then that has one task for each, which receives, behind one more task of the worker.
#[test]
fn gemms_send_the_tiles_of_an_all_reduce() {
    for schedule in [Schedule::Static, Schedule::Tickets] {
        let planned = plan(layer(true, false), &Options { schedule, ..pushing() }).unwrap();
        assert_eq!((planned.calls[1].pushed_by, planned.pushes(0)), (Some(0), Some(1)));
        assert_eq!((planned.calls[1].parts, planned.calls[1].tasks.len()), (1, 8 * 8));
        assert_eq!([0, 1, 2].map(|call| planned.exchange(call)), [None, Some("one-shot, sent by #0 (only way)".to_owned()), None]);
        assert!(
            planned.to_string().contains("one-shot, sent by #0")
                && planned.dot().contains("sent by #0")
                && planned.json().contains("pushed_by")
        );
    }
    let planned = plan(layer(true, false), &pushing()).unwrap();
    for task in planned.calls[1].tasks.clone() {
        let ((worker, at), (of, made)) = (home(&planned, task), home(&planned, producer(&planned, task)));
        let gemms = |tasks: &[u32]| tasks.iter().filter(|task| planned.calls[0].tasks.contains(task)).count();
        let list = planned.lists.of(worker);
        if worker == of {
            assert_eq!(gemms(&list[made + 1..at]), gemms(&list[made + 1..]).min(2), "{task}");
        }
    }
}

/// What does not fit is sent by tasks.
#[test]
fn tiles_are_not_sent_by_gemms_that_do_not_make_them_whole() {
    let sent = |graph: Graph, options: &Options| {
        let planned = plan(graph, options).unwrap();
        let sent = planned.calls.iter().find_map(|call| call.pushed_by);
        assert_eq!(planned.calls.last().map(|call| call.parts == 2), Some(sent.is_none()));
        sent
    };
    let of = |rows: u64, columns: u64, between: fn(&mut Build, [u32; 2])| {
        let mut build = Build::default();
        let (x, w) = (build.input("x", &[rows, 256]), build.input("w", &[columns, 256]));
        let (part, sum) = (build.temp("part", &[rows, columns]), build.tensor("sum", TensorKind::Out, &[rows, columns]));
        build.call(&STAGED_GEMM, &[x, w, part]);
        between(&mut build, [part, sum]);
        build.call(&LARGE, &[part, sum]);
        build.0
    };
    let nothing: fn(&mut Build, [u32; 2]) = |_, _| {};
    // Whole tiles of columns; rows may end in a tile.
    assert_eq!(sent(of(200, 512, nothing), &pushing()), Some(0));
    assert_eq!(sent(of(64, 256, nothing), &pushing()), Some(0));
    assert_eq!(sent(of(200, 520, nothing), &pushing()), None);
    assert_eq!(sent(of(63, 512, nothing), &pushing()), None);
    // Only where they are asked for.
    assert_eq!(sent(of(200, 512, nothing), &Options { push_tiles: false, ..pushing() }), None);
    // Other tiles: of half as many columns, or split.
    let mut narrow = pushing();
    narrow.shapes[0].tile = Some(vec![128, 128]);
    assert_eq!(sent(of(256, 512, nothing), &narrow), None);
    let mut split = pushing();
    split.shapes[0].split = Some(2);
    assert_eq!(sent(of(256, 512, nothing), &split), None);
    // Another writer between.
    assert_eq!(sent(of(256, 512, |build, [part, sum]| _ = build.call(&LARGE, &[sum, part])), &pushing()), None);
    // Two all-reduces of one GEMM: it sends for the first.
    let both = plan(
        of(256, 512, |build, [part, _]| {
            let y = build.temp("y", &[256, 512]);
            build.call(&LARGE, &[part, y]);
        }),
        &pushing(),
    );
    let both = both.unwrap();
    assert_eq!([1, 2].map(|call| (both.calls[call].pushed_by, both.calls[call].parts)), [(Some(0), 1), (None, 2)]);
}

#[test]
fn the_verifier_knows_who_may_send() {
    let planned = plan(layer(true, false), &pushing()).unwrap();
    let defect = |spoil: &dyn Fn(&mut Plan)| {
        let mut plan = planned.clone();
        spoil(&mut plan);
        plan.verify()
    };
    let wrong = |call| Err(Defect::PushedTiles { call });
    assert_eq!(defect(&|_| ()), Ok(()));
    assert_eq!(defect(&|plan| plan.calls[2].pushed_by = Some(0)), wrong(2));
    assert_eq!(defect(&|plan| plan.calls[1].pushed_by = Some(2)), wrong(1));
    assert_eq!(defect(&|plan| plan.graph.calls[0].operands[2].tensor = plan.graph.calls[2].operands[2].tensor), wrong(1));
}

/// An all-reduce in two steps has one task more for each tile, of which GEMMs take the first.
#[test]
fn owners_add_up_in_a_task_of_their_own() {
    use maco_abi::ExchangeTask::{ReceiveResult, Reduce, SendToOwner};
    for (push_tiles, tasks) in [(false, vec![SendToOwner, Reduce, ReceiveResult]), (true, vec![Reduce, ReceiveResult])] {
        let planned = plan(layer(true, false), &Options { ranks: 3, push_tiles, ..pushing() }).unwrap();
        let call = &planned.calls[1];
        assert_eq!((call.pushed_by.is_some(), call.tasks.len()), (push_tiles, tasks.len() * 8 * 8));
        for (n, task) in call.tasks.clone().enumerate() {
            let part = planned.tasks[task as usize].part;
            assert_eq!((part as usize, call.exchange_task(n as u32, part)), (n % tasks.len(), Some(tasks[n % tasks.len()])));
            // Between them the worker has another task.
            let (worker, at) = home(&planned, task);
            assert_eq!(part > 0, planned.lists.of(worker)[..at].contains(&(task - 1)));
        }
        let way = planned.exchange(1).unwrap();
        assert_eq!(way, if push_tiles { "two-shot, sent by #0 (model)" } else { "two-shot, sent by tasks (model)" });
        assert!(planned.to_string().contains(&way));
    }
}

/// What a call says has precedence over what the plan would choose; a way that no tile goes is an error.
#[test]
fn a_call_says_which_way_its_tiles_go() {
    let parts = |via, of_all, ranks| {
        let mut graph = layer(true, false);
        graph.calls[1].via = via;
        plan(graph, &Options { ranks, via: of_all, ..Options::new(7) }).map(|planned| planned.calls[1].parts)
    };
    use Via::{Automatic, OneShot, Packets, TwoShot};
    for (via, of_all, ranks, expected) in [
        (Automatic, Automatic, 2, 2),
        (Automatic, Automatic, 3, 3),
        (Automatic, TwoShot, 2, 3),
        (Automatic, OneShot, 4, 2),
        (OneShot, TwoShot, 4, 2),
        (TwoShot, OneShot, 2, 3),
        // Of one rank there is nobody who could own another's.
        (TwoShot, TwoShot, 1, 2),
    ] {
        assert_eq!(parts(via, of_all, ranks), Ok(expected), "{via:?}, {of_all:?}, {ranks} ranks");
    }
    // Tiles are of 32 KiB.
    for [via, of_all] in [[Packets, Automatic], [Automatic, Packets]] {
        let error = parts(via, of_all, 2).unwrap_err();
        assert_eq!(error.code(), 18);
        assert!(error.to_string().contains("`all_reduce` (call #1) has no tile that goes `.via(Packets)`"), "{error}");
    }
}

/// NCCL gets chunks of rows, in their order; who waits for one comes behind all who say that theirs is there.
#[test]
fn nccl_has_chunks_of_rows() {
    let mut build = Build::default();
    let (x, w) = (build.input("x", &[5000, 64]), build.input("w", &[2048, 64]));
    let (part, sum) = (build.temp("part", &[5000, 2048]), build.temp("sum", &[5000, 2048]));
    let (other, y) = (build.input("other", &[5000, 2048]), build.tensor("y", TensorKind::Out, &[5000, 2048]));
    build.call(&STAGED_GEMM, &[x, w, part]);
    build.call(&LARGE, &[part, sum]);
    build.call(&ADD, &[sum, other, y]);
    build.0.calls[1].via = Via::Nccl;
    let planned = plan(build.0.clone(), &Options { ranks: 2, nccl: true, push_tiles: true, ..Options::new(7) }).unwrap();
    let call = &planned.calls[1];
    // Rows of 4 KiB: 1024 are 4 MiB.
    assert_eq!((&call.tile[..], &call.grid[..], call.parts, call.nccl, call.pushed_by), (&[1024, 2048][..], &[5, 1][..], 2, true, None));
    assert!(planned.to_string().contains("by NCCL beside the kernel"), "{planned}");
    let place = |task: u32| planned.lists.positions[task as usize];
    let (said, waits): (Vec<u32>, Vec<u32>) = call.tasks.clone().partition(|&task| planned.tasks[task as usize].part == 0);
    assert_eq!((said.len(), waits.len()), (5, 5));
    for (n, &wait) in waits.iter().enumerate() {
        assert!(said[..=n].iter().all(|&task| place(task) < place(wait)), "chunk {n}");
        // What a chunk is made of is made before it is told.
        assert!(place(producer(&planned, said[n])) < place(said[n]));
    }
    // Without NCCL the plan chooses.
    let without = plan(build.0, &Options { ranks: 2, ..Options::new(7) }).unwrap();
    assert_eq!((&without.calls[1].tile[..], without.calls[1].nccl), (&[64, 256][..], false));
}

/// A chunk of an all-gather has its rows of all planes; what has no whole rows is refused.
#[test]
fn nccl_has_chunks_of_all_planes() {
    let mut build = Build::default();
    let x = build.input("x", &[3000, 2048]);
    let y = build.tensor("y", TensorKind::Out, &[3, 3000, 2048]);
    build.call(&GATHER, &[x, y]);
    build.0.calls[0].via = Via::Nccl;
    let planned = plan(build.0.clone(), &Options { ranks: 3, nccl: true, ..Options::new(7) }).unwrap();
    let call = &planned.calls[0];
    assert_eq!((&call.tile[..], &call.grid[..], call.tasks.len(), call.nccl), (&[3, 1024, 2048][..], &[1, 3, 1][..], 6, true));
    // Every second row.
    build.0.tensors[x as usize].shape[0] = 6000;
    build.0.calls[0].operands[0].axes[0].step = 2;
    let error = plan(build.0, &Options { ranks: 3, nccl: true, ..Options::new(7) }).unwrap_err();
    assert!(error.code() == 18 && error.to_string().contains("NCCL can exchange in chunks of rows"), "{error}");
}

/// The last tiles of a GEMM come in the rows of a chunk of which they are a part: else all chunks of a group of 16 rows of tiles are left when the last one is made.
#[test]
fn the_last_tiles_are_made_by_chunks() {
    let rows_of = |via| {
        let mut build = Build::default();
        let (x, w) = (build.input("x", &[4096, 64]), build.input("w", &[2048, 64]));
        let (part, sum) = (build.temp("part", &[4096, 2048]), build.tensor("sum", TensorKind::Out, &[4096, 2048]));
        build.call(&STAGED_GEMM, &[x, w, part]);
        build.call(&LARGE, &[part, sum]);
        build.0.calls[1].via = via;
        let planned = plan(build.0, &Options { ranks: 2, nccl: true, split_k: false, ..Options::new(7) }).unwrap();
        let (tile, tasks) = (planned.calls[0].tile[0], planned.calls[0].tasks.clone());
        let mut chunks: Vec<u32> = tasks.map(|task| planned.tasks[task as usize].coord[0] * tile / 1024).collect();
        chunks.dedup();
        chunks
    };
    let by_nccl = rows_of(Via::Nccl);
    assert_eq!(by_nccl[by_nccl.len() - 2..], [2, 3], "{by_nccl:?}");
    assert!(rows_of(Via::OneShot).len() > by_nccl.len());
}

/// Of a GEMM whose last tiles are split the first tiles of the all-reduce are sent, as many as whole tiles of the GEMM make; the others are sent by tasks.
#[test]
fn whole_tiles_of_a_split_gemm_are_sent() {
    for whole in 1..32 {
        let mut build = Build::default();
        let (x, w) = (build.input("x", &[1100, 256]), build.input("w", &[2048, 256]));
        let (part, sum) = (build.temp("part", &[1100, 2048]), build.tensor("sum", TensorKind::Out, &[1100, 2048]));
        build.call(&STAGED_GEMM, &[x, w, part]);
        build.call(&LARGE, &[part, sum]);
        let mut options = pushing();
        (options.shapes[0].split, options.shapes[0].whole) = (Some(2), whole);
        let planned = plan(build.0, &options).unwrap();
        let (gemm, call) = (&planned.calls[0], &planned.calls[1]);
        assert_eq!((gemm.whole, call.pushed_by), (whole, Some(0)));
        let way = format!("one-shot, {} tiles sent by #0, others by tasks (only way)", call.whole);
        assert_eq!([0, 1].map(|call| planned.exchange(call)), [None, Some(way)]);
        // Nine rows of tiles of the GEMM, whose columns follow one another; two tiles of the all-reduce are one of it, but for the last row.
        let sent = |down: u32, right: u32| right * 9 + down < whole;
        let mut tiles = 0;
        for (n, task) in (0..).zip(call.tasks.clone()) {
            let [row, col, _] = planned.tasks[task as usize].coord;
            let pushed = call.is_pushed(n);
            tiles += u32::from(pushed);
            assert_eq!(planned.pushes_tile(0, [row / 2, col, 0]), pushed, "{whole}: {row}, {col}");
            assert!(sent(row / 2, col) || !pushed);
            assert_eq!(
                call.exchange_task(n, planned.tasks[task as usize].part) == Some(maco_abi::ExchangeTask::Receive),
                pushed || n >= call.whole && (n - call.whole) % 2 == 1
            );
        }
        // Sixteen rows of the all-reduce are eight of the GEMM: what is behind them in the first columns is sent by tasks.
        assert_eq!(tiles, call.whole);
        assert!(tiles > 0 && tiles <= 2 * whole, "{whole}: {tiles}");
    }
}
