//! Tasks that wait for other ranks come between tasks of what they are to overlap with.
mod plan_graphs;

use maco_abi::ExchangeTask;
use maco_graph::ir::{Graph, Overlap, TensorKind};
use maco_graph::plan::{Options, OverlapMode, Plan, plan};
use maco_graph::spec::Via;
use plan_graphs::collectives::{SUM, sum_beside_gemm};
use plan_graphs::{Build, STAGED_GEMM};

/// #0 a GEMM and #1 its sum over all ranks; #2 a GEMM that needs neither; #3 adds both.
fn graph(via: Via, overlaps: &[Overlap]) -> Graph {
    let mut graph = sum_beside_gemm();
    graph.calls[1].via = via;
    graph.overlaps = overlaps.to_vec();
    graph
}

fn planned(via: Via, overlaps: &[Overlap]) -> Plan {
    plan(graph(via, overlaps), &Options { ranks: 2, nccl: via == Via::Nccl, split_k: false, ..Options::new(7) }).unwrap()
}

/// How many tasks of the second GEMM come before each task of the sum that waits for other ranks, in the order in which these come; and before those that send.
fn before(plan: &Plan) -> [Vec<usize>; 2] {
    let position = |task: u32| plan.lists.positions[task as usize];
    let work: Vec<u32> = plan.calls[2].tasks.clone().map(position).collect();
    let sum = &plan.calls[1];
    let waits = |task: &u32| {
        let does = sum.exchange_task(task - sum.tasks.start, plan.tasks[*task as usize].part);
        matches!(does, Some(ExchangeTask::Receive | ExchangeTask::ReceiveResult | ExchangeTask::Await))
    };
    let (waiting, sending): (Vec<u32>, Vec<u32>) = sum.tasks.clone().partition(waits);
    [waiting, sending].map(|tasks| {
        let mut before: Vec<usize> = tasks.iter().map(|&task| work.iter().filter(|&&work| work < position(task)).count()).collect();
        before.sort_unstable();
        before
    })
}

fn beside(waves: Option<u32>) -> Overlap {
    Overlap { compute: vec![2], comm: vec![1], waves }
}

#[test]
fn who_waits_comes_between_tasks_of_the_other_call() {
    for via in [Via::OneShot, Via::TwoShot, Via::Nccl] {
        let [plain, plain_sends] = before(&planned(via, &[]));
        let overlapped = planned(via, &[beside(None)]);
        let [spread, sends] = before(&overlapped);
        let work = overlapped.calls[2].tasks.len();
        let waves = work / 7;
        assert!(waves > 2 && (spread.len() > 1 || via == Via::Nccl), "{via:?}: {work} tasks, {} that wait", spread.len());
        // A share of them behind each wave.
        for (n, &found) in spread.iter().enumerate() {
            let wave = ((n + 1) * waves).div_ceil(spread.len());
            assert!(found >= wave * work / waves, "{via:?}, {n}: {found} before it, and it is behind wave {wave} of {waves}");
        }
        assert_eq!(spread[spread.len() - 1], work, "{via:?}");
        assert!(plain.iter().sum::<usize>() < spread.iter().sum(), "{via:?}");
        assert_eq!(sends, plain_sends, "{via:?}: others wait for what is sent");
    }
}

#[test]
fn waves_are_those_that_are_said() {
    let overlapped = planned(Via::OneShot, &[beside(Some(1))]);
    let work = overlapped.calls[2].tasks.len();
    assert!(before(&overlapped)[0].iter().all(|&found| found == work));
    let text = overlapped.to_string();
    assert!(text.contains("  #1 beside #2, in 1 waves\n"), "{text}");
}

/// What a call makes cannot be what it waits beside.
#[test]
fn what_cannot_overlap_is_refused() {
    let refused = |overlap: Overlap| {
        let error = plan(graph(Via::OneShot, &[overlap]), &Options { ranks: 2, ..Options::new(7) }).unwrap_err();
        assert_eq!(error.code(), 18);
        error.to_string()
    };
    let error = refused(Overlap { compute: vec![3], ..beside(None) });
    assert!(error.contains("`all_reduce` (call #1) cannot overlap") && error.contains("needs what it makes"), "{error}");
    let error = refused(Overlap { comm: vec![2], ..beside(None) });
    assert!(error.contains("(call #2)") && error.contains("is no collective"), "{error}");
    // One that can is enough.
    planned(Via::OneShot, &[Overlap { compute: vec![3, 2], ..beside(None) }]);
}

/// Four slices of rows, each a GEMM and its sum: what waits in the sum of one comes between tasks of the GEMM of the next, and not before them all.
#[test]
fn stages_of_a_pipeline_hide_the_ones_before() {
    const STAGES: u32 = 4;
    let graph = |overlapped: bool| {
        let mut build = Build::default();
        let (x, w) = (build.input("x", &[1024, 64]), build.input("w", &[2048, 64]));
        let y = build.tensor("y", TensorKind::Out, &[1024, 2048]);
        for stage in 0..u64::from(STAGES) {
            let part = build.temp(&format!("part{stage}"), &[256, 2048]);
            let rows = |tensor: u32| build.slice(tensor, 0, 256 * stage, 256 * (stage + 1));
            let (x, w, y, part) = (rows(x), build.whole(w), rows(y), build.whole(part));
            build.call_on(&STAGED_GEMM, vec![x, w, part.clone()]);
            build.call_on(&SUM, vec![part, y]);
        }
        if overlapped {
            build.0.overlaps =
                (1..STAGES).map(|stage| Overlap { compute: vec![2 * stage], comm: vec![2 * stage - 1], waves: None }).collect();
        }
        build.0
    };
    let planned = |overlapped| plan(graph(overlapped), &Options { ranks: 2, split_k: false, ..Options::new(4) }).unwrap();
    // Of each sum but the last: how many tasks of the next GEMM come before its first task that waits for others, and before its last one.
    let hidden = |plan: &Plan| -> Vec<[usize; 2]> {
        let place = |task: u32| plan.lists.positions[task as usize];
        let of = |stage: usize| {
            let sum = &plan.calls[2 * stage + 1];
            let waits =
                |task: &u32| sum.exchange_task(task - sum.tasks.start, plan.tasks[*task as usize].part) == Some(ExchangeTask::Receive);
            let mut waiting: Vec<u32> = sum.tasks.clone().filter(waits).map(place).collect();
            waiting.sort_unstable();
            let next = plan.calls[2 * stage + 2].tasks.clone().map(place);
            [waiting[0], waiting[waiting.len() - 1]].map(|task| next.clone().filter(|&other| other < task).count())
        };
        (0..STAGES as usize - 1).map(of).collect()
    };
    let (plain, piped) = (planned(false), planned(true));
    let tasks = piped.calls[2].tasks.len();
    assert!(tasks >= 16, "{tasks} tasks of a stage");
    for (before, after) in hidden(&plain).into_iter().zip(hidden(&piped)) {
        assert!(before[1] < tasks / 2, "{before:?} of {tasks}: they were behind before");
        assert!(after[0] >= tasks / 8 && after[0] < tasks && after[1] == tasks, "{after:?} of {tasks}");
    }
}

/// Options of calls say the same as the graph.
#[test]
fn groups_and_the_next_call_overlap() {
    let with = |change: &dyn Fn(&mut Graph), overlap: OverlapMode| {
        let mut graph = graph(Via::OneShot, &[]);
        change(&mut graph);
        let options = Options { ranks: 2, overlap, split_k: false, ..Options::new(7) };
        plan(graph, &options)
    };
    let grouped = |calls: &'static [usize]| {
        move |graph: &mut Graph| calls.iter().for_each(|&call| graph.calls[call].overlap_group = Some("gates".into()))
    };
    let said = |change: &dyn Fn(&mut Graph)| with(change, OverlapMode::AsSaid).unwrap();
    let given = planned(Via::OneShot, &[beside(None)]);
    assert_ne!(given.lists, planned(Via::OneShot, &[]).lists);
    let next: &dyn Fn(&mut Graph) = &|graph| graph.calls[1].overlap_next = true;
    // A call of the group that makes what is summed up, or needs the sum, is none of those that it waits beside.
    let group: &dyn Fn(&mut Graph) = &grouped(&[0, 1, 2, 3]);
    for options in [next, group] {
        let plan = said(options);
        assert_eq!(plan.graph.overlaps, [beside(None)]);
        assert_eq!(plan.lists, given.lists);
    }
    // Both, and what is said of the graph, stay.
    let both = said(&|graph| {
        grouped(&[1, 2])(graph);
        graph.calls[1].overlap_next = true;
        graph.overlaps = vec![beside(Some(1))];
    });
    assert_eq!(both.graph.overlaps, [beside(Some(1)), beside(None), beside(None)]);
    let refused = |change: &dyn Fn(&mut Graph)| {
        let error = with(change, OverlapMode::AsSaid).unwrap_err();
        assert_eq!(error.code(), 18);
        error.to_string()
    };
    let error = refused(&grouped(&[0, 1, 3]));
    assert!(error.contains("`all_reduce` (call #1) cannot overlap") && error.contains("each other call of its group"), "{error}");
    let needs = |graph: &mut Graph| {
        graph.calls.swap(2, 3);
        graph.calls[2].operands[1] = graph.calls[2].operands[0].clone();
        graph.calls[1].overlap_next = true;
    };
    assert!(refused(&needs).contains("each of these calls needs what it makes"));
    // Of all collectives, and of none.
    let always = with(&|_| {}, OverlapMode::Always).unwrap();
    assert_eq!((&always.graph.overlaps[..], &always.lists), (&[beside(None)][..], &given.lists));
    let never = with(group, OverlapMode::Never).unwrap();
    assert!(never.graph.overlaps.is_empty());
    assert_eq!(never.lists, planned(Via::OneShot, &[]).lists);
}
