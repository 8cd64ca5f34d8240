//! Which way a collective goes: by its call, by the options, by a table, or by what its tiles cost; and who chose it.
mod plan_graphs;

use maco_graph::ir::{Graph, TensorKind};
use maco_graph::plan::{Options, Plan, PlanError, Way, WayLine, Why, plan, uses_nccl};
use maco_graph::spec::{Access, Axis, Channel, Collective, Index, Param, Reduction, TaskKind, TaskSpec, Via};
use plan_graphs::{Build, axis, task, tensor};

/// As `all_reduce` of the library: tiles of 1 KiB and of 32 KiB.
static SUM: TaskSpec = TaskSpec {
    kind: TaskKind::Collective(Collective::AllReduce(Reduction::Sum)),
    ..task(
        "all_reduce",
        &[axis("i", &[8, 64]), axis("j", &[64, 256])],
        &[tensor("part", Access::Read, &[Index::Tile(0), Index::Tile(1)]), tensor("y", Access::Write, &[Index::Tile(0), Index::Tile(1)])],
    )
};

/// The same by rows, which go as packets.
static ROWS: TaskSpec = TaskSpec {
    kind: TaskKind::Collective(Collective::AllReduce(Reduction::Sum)),
    ..task(
        "rows",
        &[axis("i", &[1])],
        &[tensor("part", Access::Read, &[Index::Tile(0), Index::All]), tensor("y", Access::Write, &[Index::Tile(0), Index::All])],
    )
};

const PLANE_AXES: &[Axis] = &[axis("r", &[1]), axis("i", &[8, 64]), axis("j", &[64, 256])];
const PLANES: &[Param] = &[
    tensor("x", Access::Read, &[Index::Tile(1), Index::Tile(2)]),
    tensor("y", Access::Write, &[Index::Tile(0), Index::Tile(1), Index::Tile(2)]),
];

/// An exchange of planes.
const fn planes(name: &'static str, collective: Collective) -> TaskSpec {
    TaskSpec { kind: TaskKind::Collective(collective), ..task(name, PLANE_AXES, PLANES) }
}
static GATHER: TaskSpec = planes("all_gather", Collective::AllGather);
static OWN: TaskSpec = planes("own", Collective::Channel(Channel::Memory));

fn of(spec: &'static TaskSpec, shape: [u64; 2]) -> Graph {
    let mut build = Build::default();
    let x = build.input("x", &shape);
    let gathers = spec.axes.len() == 3;
    let whole = [2, shape[0], shape[1]];
    let y = build.tensor("y", TensorKind::Out, if gathers { &whole } else { &shape });
    build.call(spec, &[x, y]);
    build.0
}

/// 2 MiB of bf16, 512 rows and 2048 columns.
const MIDDLE: [u64; 2] = [512, 2048];

fn line(collective: &'static str, bytes: [u64; 2], via: Via) -> WayLine {
    WayLine { collective: collective.into(), ranks: 2, from_bytes: bytes[0], below_bytes: (bytes[1] > 0).then_some(bytes[1]), via }
}

fn two() -> Options {
    Options { ranks: 2, split_k: false, ..Options::new(7) }
}

fn on_gpus() -> Options {
    Options { nccl: true, ..two() }
}

fn planned(graph: Graph, options: &Options) -> Plan {
    let plan = plan(graph.clone(), options).unwrap();
    // What is known before the workers are counted is what is planned.
    assert_eq!(uses_nccl(&graph, &Options { workers: 1, ..options.clone() }), plan.calls.iter().any(|call| call.nccl));
    plan
}

fn way(graph: Graph, options: &Options) -> (Via, Why) {
    let plan = planned(graph, options);
    let Way { via, why } = plan.calls[0].way.unwrap();
    assert_eq!(plan.calls[0].nccl, via == Via::Nccl);
    (via, why)
}

fn said(mut graph: Graph, via: Via) -> Graph {
    graph.calls[0].via = via;
    graph
}

/// Bytes of the largest tensor, of both ends of each range; of other ranks and other collectives nothing is said.
#[test]
fn a_line_of_the_table_is_for_its_bytes() {
    let bytes = MIDDLE[0] * MIDDLE[1] * 2;
    // Of an all-gather of two ranks the result is twice as large as what a rank has.
    for (graph, name, bytes) in [(of(&SUM, MIDDLE), "all_reduce", bytes), (of(&GATHER, MIDDLE), "all_gather", 2 * bytes)] {
        for (from, below, found) in
            [(0, 0, true), (bytes, 0, true), (bytes + 1, 0, false), (0, bytes, false), (0, bytes + 1, true), (bytes, bytes + 1, true)]
        {
            let options = Options { ways: vec![line(name, [from, below], Via::Packets)], ..two() };
            let expected = if found { (Via::Packets, Why::Table) } else { (Via::OneShot, Why::Model) };
            assert_eq!(way(graph.clone(), &options), expected, "{name} {from} {below}");
        }
    }
    let ways = vec![line("all_gather", [0, 0], Via::Packets), WayLine { ranks: 3, ..line("all_reduce", [0, 0], Via::TwoShot) }];
    assert_eq!(way(of(&SUM, MIDDLE), &Options { ways, ..two() }).1, Why::Model);
}

/// The first line that is for a call counts, if it can be gone; NCCL's only where there is an NCCL.
#[test]
fn the_first_line_that_can_be_gone_counts() {
    let ways = vec![line("all_reduce", [0, 0], Via::Nccl), line("all_reduce", [0, 0], Via::TwoShot)];
    let with = |options: Options| Options { ways: ways.clone(), ..options };
    assert_eq!(way(of(&SUM, MIDDLE), &with(on_gpus())), (Via::Nccl, Why::Table));
    assert_eq!(way(of(&SUM, MIDDLE), &with(two())), (Via::TwoShot, Why::Table));
    // Rows are no chunks, and their tiles are packets whatever the table says.
    assert_eq!(way(of(&ROWS, MIDDLE), &with(on_gpus())), (Via::Packets, Why::OnlyWay));
    // The only tile that is allowed is a large one.
    let mut forced = of(&SUM, MIDDLE);
    forced.calls[0].tile = Some(vec![64, 256]);
    let packets = Options { ways: vec![line("all_reduce", [0, 0], Via::Packets)], ..two() };
    assert_eq!(way(forced, &packets), (Via::OneShot, Why::OnlyWay));
    assert_eq!(way(of(&SUM, MIDDLE), &packets), (Via::Packets, Why::Table));
}

/// The call before the options, those before the table, all of them before what tiles cost.
#[test]
fn who_says_more_counts_more() {
    let ways = vec![line("all_reduce", [0, 0], Via::Packets)];
    for via in Via::ALL {
        let (option, table) = (Options { via, ..on_gpus() }, Options { ways: ways.clone(), ..on_gpus() });
        assert_eq!(way(of(&SUM, MIDDLE), &option), (via, Why::Option));
        assert_eq!(way(of(&SUM, MIDDLE), &Options { via, ..table.clone() }), (via, Why::Option));
        assert_eq!(way(said(of(&SUM, MIDDLE), via), &table), (via, Why::Call));
        let other = if via == Via::OneShot { Via::TwoShot } else { Via::OneShot };
        assert_eq!(way(said(of(&SUM, MIDDLE), via), &Options { via: other, ..table }), (via, Why::Call));
    }
    assert_eq!(way(of(&SUM, MIDDLE), &on_gpus()), (Via::OneShot, Why::Model));
}

/// Who demands what cannot be is refused, in the options as at the call. A way that a collective does not have is not meant for it.
#[test]
fn what_is_demanded_and_cannot_be_is_an_error() {
    for (graph, via, expected) in [
        (of(&ROWS, MIDDLE), Via::OneShot, "no tile that goes `.via(OneShot)`"),
        (of(&ROWS, MIDDLE), Via::Nccl, "nothing that NCCL can exchange in chunks of rows"),
        (of(&GATHER, [64, 63]), Via::Nccl, ""),
    ] {
        let by_option = plan(graph.clone(), &Options { via, ..on_gpus() });
        let by_call = plan(said(graph, via), &on_gpus());
        if expected.is_empty() {
            assert!(by_option.unwrap().calls[0].nccl && by_call.unwrap().calls[0].nccl);
            continue;
        }
        let [by_option, by_call]: [PlanError; 2] = [by_option.unwrap_err(), by_call.unwrap_err()];
        assert_eq!(by_option, by_call);
        assert!(by_option.code() == 18 && by_option.to_string().contains(expected), "{by_option}");
        assert!(by_option.to_string().contains("or that of `PlanOptions`"), "{by_option}");
    }
    for via in [Via::Packets, Via::OneShot, Via::TwoShot] {
        assert_eq!(way(of(&GATHER, MIDDLE), &Options { via, ..two() }).1, Why::Model);
    }
    assert_eq!(planned(of(&OWN, MIDDLE), &Options { via: Via::Nccl, ..on_gpus() }).calls[0].way, None);
}

/// On CPU ranks, and on one rank, nobody has NCCL: the plan chooses. One rank has no other to share with.
#[test]
fn what_these_ranks_do_not_have_is_not_gone() {
    for by_call in [false, true] {
        let graph = if by_call { said(of(&SUM, MIDDLE), Via::Nccl) } else { of(&SUM, MIDDLE) };
        let via = if by_call { Via::Automatic } else { Via::Nccl };
        assert_eq!(way(graph.clone(), &Options { via, ..two() }), (Via::OneShot, Why::Model));
        let ways = vec![line("all_reduce", [0, 0], Via::TwoShot)];
        assert_eq!(way(graph.clone(), &Options { via, ways, ..two() }), (Via::TwoShot, Why::Table));
        assert_eq!(way(graph, &Options { via, ranks: 1, ..two() }).1, Why::OnlyWay);
    }
    assert_eq!(way(of(&SUM, MIDDLE), &Options { via: Via::TwoShot, ranks: 1, ..two() }), (Via::OneShot, Why::OnlyWay));
}

/// GPUs that have no access to each other: NCCL does what it can, also against the table; what it cannot do, and what says another way, is left to the kernel.
#[test]
fn without_peers_nccl_does_what_it_can() {
    let ways = vec![line("all_reduce", [0, 0], Via::TwoShot)];
    let options = Options { peers: false, ways, ..on_gpus() };
    assert_eq!(way(of(&SUM, MIDDLE), &options), (Via::Nccl, Why::OnlyWay));
    assert_eq!(way(of(&GATHER, MIDDLE), &options), (Via::Nccl, Why::OnlyWay));
    assert_eq!(way(of(&ROWS, MIDDLE), &options).0, Via::Packets);
    assert_eq!(way(said(of(&SUM, MIDDLE), Via::OneShot), &options), (Via::OneShot, Why::Call));
    assert_eq!(way(of(&SUM, MIDDLE), &Options { nccl: false, ..options }), (Via::TwoShot, Why::Table));
}

/// Text, JSON and `exchange` say the way and who chose it.
#[test]
fn a_plan_says_the_way_and_why() {
    let options = Options { ways: vec![line("all_reduce", [0, 0], Via::TwoShot)], ..two() };
    let plan = planned(of(&SUM, MIDDLE), &options);
    assert_eq!(plan.exchange(0).as_deref(), Some("two-shot, sent by tasks (table)"));
    assert!(plan.to_string().contains("  two-shot, sent by tasks (table)  "), "{plan}");
    assert!(plan.json().contains("\"way\": \"TwoShot\",\n      \"why\": \"table\""), "{}", plan.json());
    assert!(plan.dot().contains("two-shot, sent by tasks (table)"));
    let names = [Why::Call, Why::Option, Why::Table, Why::Model, Why::OnlyWay].map(Why::name);
    assert_eq!(names, ["call", "option", "table", "model", "only way"]);
    let nccl = planned(of(&SUM, MIDDLE), &Options { via: Via::Nccl, ..on_gpus() });
    assert_eq!(nccl.exchange(0).as_deref(), Some("by NCCL beside the kernel (option)"));
    assert_eq!(planned(of(&OWN, MIDDLE), &two()).exchange(0), None);
}

#[test]
fn lines_that_say_nothing_are_faults() {
    let fault = |collective, bytes, via| line(collective, bytes, via).fault();
    assert_eq!(fault("all_reduce", [0, 0], Via::TwoShot), None);
    assert_eq!(fault("all_gather", [7, 8], Via::OneShot), None);
    assert_eq!(fault("all_reduce", [8, 8], Via::OneShot).unwrap(), "there is no number from 8 and below 8");
    assert_eq!(fault("all_gather", [0, 0], Via::TwoShot).unwrap(), "no `all_gather` goes by `TwoShot`");
    assert_eq!(fault("ring", [0, 0], Via::OneShot).unwrap(), "no `ring` goes by `OneShot`");
    assert_eq!(fault("send", [0, 0], Via::Automatic).unwrap(), "no `send` goes by `Automatic`");
    let meets = |one: [u64; 2], other: [u64; 2]| line("ring", one, Via::Nccl).meets(&line("ring", other, Via::Packets));
    for (one, other, expected) in [([0, 8], [8, 0], false), ([0, 9], [8, 0], true), ([0, 0], [8, 9], true), ([3, 5], [0, 3], false)] {
        assert_eq!((meets(one, other), meets(other, one)), (expected, expected), "{one:?} {other:?}");
    }
    assert!(!line("ring", [0, 0], Via::Nccl).meets(&line("send", [0, 0], Via::Nccl)));
    assert!(!line("ring", [0, 0], Via::Nccl).meets(&WayLine { ranks: 3, ..line("ring", [0, 0], Via::Nccl) }));
}
