//! Profiles of several ranks on one timeline: merged, written and read, as a table, and gathered by the ranks.

mod kernels;

use std::path::PathBuf;

use kernels::{ADD, SLOW, chain};
use maco_host::profile::{Busy, Group, Kind, Operation, Profile, RankClock, RankProfiles, Scheduler, Span, TaskPlace};
use maco_host::{Arguments, Communicator, Device, Plan, PlanOptions};

/// Rank 0: `work` on both workers, then `exchange` on worker 1, beside the end of the other one's. Rank 1, from 500 ns later on: `work` on worker 0, then `exchange` on
/// worker 1.
fn by_hand(rank: u32) -> Profile {
    let operation = |name: &str, tasks| Operation { name: name.into(), tile: vec![4], tasks, bytes: None, flops: 0 };
    let span = |worker, kind, task, start, end| Span { worker, warp: None, kind, task, start, end };
    let (second, exchange) = if rank == 0 { (span(1, Kind::Run, 1, 0, 50), 60) } else { (span(0, Kind::Run, 1, 100, 200), 240) };
    Profile {
        megakernel: "hand".into(),
        rank: Some(RankClock { rank, ranks: 2, job: 0xfeed, origin: 7_000 + 500 * u64::from(rank), error: 300 + 200 * u64::from(rank) }),
        device: "paper".into(),
        schedule: "static".into(),
        workers: 2,
        multiprocessors: vec![7 + rank, 9 + rank],
        elapsed: 400,
        schedulers: vec![Scheduler { multiprocessor: Some(3), busy: vec![Busy { start: 5, end: 50 }] }],
        dropped: u64::from(rank),
        roofline: None,
        operations: vec![operation("work", 2), operation("exchange", 1)],
        tasks: [(0, 0), (0, 1), (1, 0)].map(|(operation, i)| TaskPlace { operation, tile: vec![i] }).into(),
        spans: vec![
            span(0, Kind::Run, 0, 0, 100),
            second,
            span(1, Kind::Wait, 2, second.end, exchange),
            span(1, Kind::Run, 2, exchange, 300),
        ],
        dependencies: vec![Group { producers: vec![1], consumers: vec![2] }],
    }
}

fn both() -> RankProfiles {
    RankProfiles::of(vec![by_hand(1), by_hand(0)]).unwrap()
}

fn directory(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("maco-profile-ranks-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

#[test]
fn ranks_are_in_order_and_on_one_clock() {
    let all = both();
    assert_eq!(all.ranks(), [by_hand(0), by_hand(1)]);
    assert_eq!((all.shifts(), all.elapsed(), all.clock_error()), (vec![0, 500], 900, 800));
    // The first to begin need not be rank 0.
    let early = Profile { rank: by_hand(1).rank.map(|clock| RankClock { origin: 6_900, ..clock }), ..by_hand(1) };
    assert_eq!(RankProfiles::of(vec![by_hand(0), early]).unwrap().shifts(), [100, 0]);
    // One without others is by itself.
    let one = Profile { rank: None, ..by_hand(0) };
    let alone = RankProfiles::of(vec![one.clone()]).unwrap();
    assert_eq!((alone.ranks(), alone.shifts(), alone.elapsed(), alone.clock_error()), (&[one][..], vec![0], 400, 0));
}

#[test]
fn files_of_ranks_merge_and_are_read_again() {
    let folder = directory("merge");
    let files = [0, 1].map(|rank| folder.join(format!("trace.rank{rank}.json")));
    for (rank, file) in (0..).zip(&files) {
        by_hand(rank).write_chrome(file).unwrap();
        assert_eq!(Profile::read_chrome(file).unwrap(), by_hand(rank));
        assert_eq!(RankProfiles::read_chrome(file).unwrap().ranks(), [by_hand(rank)]);
    }
    let [first, second] = &files;
    let merged = RankProfiles::merge_chrome(&[second, first]).unwrap();
    assert_eq!(merged, both());
    let file = folder.join("all.json");
    merged.write_chrome(&file).unwrap();
    assert_eq!(RankProfiles::read_chrome(&file).unwrap(), both());
    assert_eq!(RankProfiles::merge_chrome(&[&file]).unwrap(), both());
    let error = Profile::read_chrome(&file).unwrap_err();
    assert!(error.code() == 64 && error.to_string().contains("expected the trace of one rank, found those of 2"), "{error}");

    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let names: Vec<(u64, &str)> = events
        .iter()
        .filter(|event| event["name"] == "process_name")
        .map(|event| (event["pid"].as_u64().unwrap(), event["args"]["name"].as_str().unwrap()))
        .collect();
    assert_eq!(
        names,
        [
            (0, "rank 0 worker 0 (SM 7)"),
            (1, "rank 0 worker 1 (SM 9)"),
            (2, "rank 0 scheduler 0 (SM 3)"),
            (3, "rank 1 worker 0 (SM 8)"),
            (4, "rank 1 worker 1 (SM 10)"),
            (5, "rank 1 scheduler 0 (SM 3)"),
        ]
    );
    // `exchange` of rank 1 began 500 ns and 240 behind the begin of rank 0; its scheduler 500 and 5.
    let begins = |pid: u32, name: &str| {
        events.iter().find(|event| event["ph"] == "X" && event["pid"] == pid && event["name"] == name && event["cat"] != "wait").unwrap()["ts"]
            .clone()
    };
    assert_eq!((begins(1, "exchange"), begins(4, "exchange"), begins(5, "serve")), (0.06.into(), 0.74.into(), 0.505.into()));
    // An arrow of each rank, from one of its own processes to another.
    let ends = |ph: &str| -> Vec<(u64, u64)> {
        let ends = events.iter().filter(|event| event["ph"] == ph);
        ends.map(|event| (event["id"].as_u64().unwrap(), event["pid"].as_u64().unwrap())).collect()
    };
    assert_eq!((ends("s"), ends("f")), (vec![(0, 1), (1, 3)], vec![(0, 1), (1, 4)]));
}

#[test]
fn a_trace_of_one_rank_is_what_it_was() {
    let file = directory("one").join("trace.json");
    Profile { rank: None, ..by_hand(0) }.write_chrome(&file).unwrap();
    let text = std::fs::read_to_string(file).unwrap();
    assert!(!text.contains("\"rank\"") && text.contains(r#""name":"worker 0 (SM 7)""#) && text.contains(r#""name":"scheduler 0 (SM 3)""#));
}

#[test]
fn a_broken_trace_of_ranks_says_where() {
    let file = directory("broken").join("all.json");
    both().write_chrome(&file).unwrap();
    let good = std::fs::read_to_string(&file).unwrap();
    for (from, to, what) in [
        (
            r#""pid":4,"tid":0,"ts":0.74"#,
            r#""pid":4,"tid":0,"ts":0.4"#,
            "field `ts`: expected 0.5 or more, the begin of the rank, found 0.4",
        ),
        (r#""pid":4,"tid":0,"ts":0.74"#, r#""pid":6,"tid":0,"ts":0.74"#, "field `pid`: expected a worker below 5, found 6"),
        (r#""pid":5,"tid":0,"ts":0.505"#, r#""pid":4,"tid":0,"ts":0.505"#, "field `pid`: expected a scheduler: 5 to 5, found 4"),
        (r#""job":"000000000000feed""#, r#""job":"none""#, "otherData.maco.ranks[0].rank: field `job`"),
        (r#""origin_ns":7500"#, r#""origin_ns":-1"#, "otherData.maco.ranks[1].rank: field `origin_ns`: expected nanoseconds, found -1"),
        (r#""rank":1,"ranks":2"#, r#""rank":2,"ranks":2"#, "otherData.maco.ranks[1].rank: field `rank`: expected a rank below 2, found 2"),
    ] {
        assert!(good.contains(from), "{from} in\n{good}");
        std::fs::write(&file, good.replacen(from, to, 1)).unwrap();
        let error = RankProfiles::read_chrome(&file).unwrap_err();
        assert!(error.code() == 64 && error.to_string().contains(what), "`{what}` in {error}");
    }
    // Ranks that do not belong together are none in one file either.
    std::fs::write(&file, good.replacen("feed", "beef", 1)).unwrap();
    assert_eq!(RankProfiles::read_chrome(&file).unwrap_err().code(), 102);
}

#[test]
fn traces_that_do_not_belong_together_are_refused() {
    let folder = directory("refused");
    let refused = |profiles: &[Profile], what: &str| {
        let files: Vec<PathBuf> = (0..profiles.len()).map(|number| folder.join(format!("{number}.json"))).collect();
        profiles.iter().zip(&files).for_each(|(profile, file)| profile.write_chrome(file).unwrap());
        let error = RankProfiles::merge_chrome(&files).unwrap_err();
        let text = error.to_string().replace(&format!("{}/", folder.display()), "");
        assert_eq!(error.code(), 102, "{text}");
        assert!(text.starts_with(&format!("MACO0102: these traces make no timeline of all ranks: {what}\nhelp: ")), "`{what}` in {text}");
    };
    let clock = |rank: u32, change: fn(RankClock) -> RankClock| Profile { rank: by_hand(rank).rank.map(change), ..by_hand(rank) };
    refused(&[by_hand(0), clock(1, |clock| RankClock { job: 1, ..clock })], "1.json is of another job than 0.json");
    refused(&[by_hand(0), clock(1, |clock| RankClock { ranks: 3, ..clock })], "1.json is of another job than 0.json");
    let other = Profile { megakernel: "foot".into(), ..by_hand(1) };
    refused(&[by_hand(0), other], "1.json is of megakernel `foot`, 0.json of `hand`");
    let mut fewer = by_hand(1);
    fewer.operations[1].name = "talk".into();
    refused(&[by_hand(0), fewer], "1.json has other calls than 0.json");
    refused(&[by_hand(1), by_hand(0), by_hand(1)], "0.json and 2.json are both of rank 1");
    refused(&[by_hand(1)], "rank 0 of 2 is missing");
    refused(&[by_hand(0)], "rank 1 of 2 is missing");
    let alone = Profile { rank: None, ..by_hand(1) };
    refused(&[by_hand(0), alone], "1.json was recorded by a plan of one rank, or by ranks of several hosts");
    refused(&[], "there is none");
}

#[test]
fn a_summary_of_ranks_has_rows_and_a_total() {
    let summary = both().summary();
    let [work, exchange] = &summary.operations[..] else { panic!("{summary}") };
    // Rank 0: `work` until 100, `exchange` from 60 to 300. Rank 1: one behind the other, for 200 and 60.
    assert_eq!((work.tasks, work.time, work.mean, work.overlap, work.workers), (4, 350, 87.5, 100.0 * 40.0 / 300.0, [1, 2]));
    assert_eq!((exchange.tasks, exchange.time, exchange.overlap, exchange.workers), (2, 300, 100.0 * 40.0 / 300.0, [1, 1]));
    assert_eq!((work.wait, exchange.wait), (0.0, 100.0 * 50.0 / 350.0));
    let total = &summary.total;
    assert_eq!((total.tasks, total.time, total.overlap, total.workers), (6, 650, 100.0 * 40.0 / 560.0, [2, 2]));
    assert_eq!((summary.elapsed, summary.clock_error, summary.dropped), (900, 800, 1));
    let text = summary.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["hand on 2 ranks: 900 ns", "clocks of ranks agree to ±800 ns"], "{text}");
    assert!(lines[2].starts_with("1 records found no room"), "{text}");
    let row = |name: &str| -> Vec<&str> {
        let line = lines.iter().find(|line| line.starts_with(&format!("| {name} "))).unwrap_or_else(|| panic!("{text}"));
        line.split('|').map(str::trim).collect()
    };
    assert_eq!(row("operation")[1..9], ["operation", "tile", "tasks", "time", "mean", "wait %", "overlap %", "SMs of a rank"]);
    assert_eq!((row("work")[2], row("work")[7], row("work")[8]), ("4", "13.3", "1 to 2"));
    assert_eq!((row("total")[2], row("total")[7], row("total")[8]), ("", "7.1", "2"));
    assert!(lines[lines.len() - 1].starts_with("rank 1 on paper: 2 workers, static, from 500 ns on for 400 ns, tasks ran in "), "{text}");
}

fn run(plan: &Plan, m: u64, n: u64) {
    let device = plan.device().clone();
    let (x, mut y) = (device.zeros::<f32>([m, n]).unwrap(), device.zeros::<f32>([m, n]).unwrap());
    plan.run(Arguments::new().tensor(&x).scalar(0.5f32).tensor_mut(&mut y)).unwrap();
}

#[test]
fn ranks_gather_profiles_that_are_longer_than_a_message() {
    let (m, n) = (192, 256);
    let results = Communicator::threads(3, |communicator| {
        let device = Device::cpu_with(2);
        let options = PlanOptions::new().communicator(communicator.clone());
        let plan = Plan::build(&device, chain(&ADD, m, n).program(), &options).unwrap();
        // One rank has much less to say.
        if communicator.rank() == 1 {
            plan.profile_keeping(3).unwrap()
        } else {
            plan.profile(true).unwrap()
        }
        run(&plan, m, n);
        let own = plan.profile_report().unwrap();
        (own, plan.profile_of_ranks(&communicator).unwrap())
    });
    let results = results.unwrap();
    for (rank, (own, all)) in results.iter().enumerate() {
        assert_eq!(*all, results[0].1, "all get the same");
        let found = &all.ranks()[rank];
        assert_eq!((&found.spans, &found.tasks, found.elapsed), (&own.spans, &own.tasks, own.elapsed));
        let clock = found.rank.unwrap();
        assert_eq!((clock.rank, clock.ranks), (rank as u32, 3));
        assert!(clock.origin.abs_diff(own.rank.unwrap().origin) <= clock.error + own.rank.unwrap().error);
    }
    let file = directory("gather").join("all.json");
    results[0].1.write_chrome(&file).unwrap();
    assert!(std::fs::metadata(&file).unwrap().len() > 2 << 20, "two of three are longer than a message");
    assert_eq!(RankProfiles::read_chrome(&file).unwrap(), results[0].1);
}

#[test]
fn a_rank_without_a_profile_is_everybodys_error() {
    let gathered = |recorded: fn(u32) -> bool| {
        let results = Communicator::threads(2, |communicator| {
            let options = PlanOptions::new().communicator(communicator.clone());
            let plan = Plan::build(&Device::cpu_with(1), chain(&ADD, 8, 8).program(), &options).unwrap();
            plan.profile(recorded(communicator.rank())).unwrap();
            run(&plan, 8, 8);
            let error = plan.profile_of_ranks(&communicator).unwrap_err();
            communicator.barrier().unwrap();
            (error.code(), error.to_string())
        });
        results.unwrap()
    };
    for (code, text) in gathered(|rank| rank == 0) {
        assert!(code == 96 && text.contains("rank 1 failed at `profile of megakernel") && text.contains("MACO0063"), "{text}");
    }
    assert!(gathered(|_| false).iter().all(|(code, _)| *code == 63));
}

#[test]
fn one_rank_is_all_there_are() {
    let communicator = Communicator::single();
    let options = PlanOptions::new().communicator(communicator.clone());
    let plan = Plan::build(&Device::cpu_with(1), chain(&SLOW, 8, 8).program(), &options).unwrap();
    plan.profile(true).unwrap();
    run(&plan, 8, 8);
    assert_eq!(plan.profile_of_ranks(&communicator).unwrap().ranks(), [plan.profile_report().unwrap()]);
    assert_eq!(plan.profile_report().unwrap().rank, None);
}
