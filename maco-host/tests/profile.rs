//! Profiles of plans on the CPU device: spans, arrows, tables, traces, costs.

mod kernels;

use std::collections::HashMap;
use std::path::PathBuf;

use kernels::{ADD, BY, Builder, CENTRE, DOUBLE, LINEAR, SCHEDULES, SLOW, chain};
use maco_graph::ir::TensorKind::{In, Out, Temp};
use maco_graph::spec::Element::{Bf16, F32};
use maco_host::profile::{Busy, FileError, Group, Kind, Operation, Profile, Roofline, Scheduler, Span, TaskPlace, read_costs, write_costs};
use maco_host::{Arguments, Cost, Costs, Device, Plan, PlanOptions, Schedule};

fn run(plan: &Plan, m: u64, n: u64) {
    let device = plan.device().clone();
    let (x, mut y) = (device.zeros::<f32>([m, n]).unwrap(), device.zeros::<f32>([m, n]).unwrap());
    plan.run(Arguments::new().tensor(&x).scalar(0.5f32).tensor_mut(&mut y)).unwrap();
}

fn profile(options: PlanOptions, workers: u32) -> (Plan, Profile) {
    let device = Device::cpu_with(workers);
    let (m, n) = (16, 24);
    let plan = Plan::build(&device, chain(&SLOW, m, n).program(), &options).unwrap();
    plan.profile(true).unwrap();
    // The profile is of the last launch.
    run(&plan, m, n);
    run(&plan, m, n);
    let profile = plan.profile_report().unwrap();
    (plan, profile)
}

/// What every profile keeps.
fn sound(plan: &Plan, profile: &Profile) {
    assert_eq!((profile.dropped, profile.workers), (0, plan.workers()));
    let mut runs = HashMap::new();
    for span in profile.runs() {
        assert!(runs.insert(span.task, *span).is_none(), "task {} ran once", span.task);
    }
    assert_eq!(runs.len(), plan.tasks());
    let edges: Vec<_> = profile.edges().collect();
    assert_eq!(edges.len() as u64, plan.edges());
    for (from, to) in edges {
        assert!(runs[&from].end <= runs[&to].start, "{from} before {to}: {:?} {:?}", runs[&from], runs[&to]);
    }
    for worker in 0..profile.workers {
        for kind in [Kind::Run, Kind::Load, Kind::Store] {
            let own: Vec<&Span> = profile.spans.iter().filter(|span| span.worker == worker && span.kind.role() == kind.role()).collect();
            assert!(own.windows(2).all(|pair| pair[0].end <= pair[1].start), "spans of one role follow one another");
            assert!(own.iter().map(|span| span.duration()).sum::<u64>() <= profile.elapsed, "they fit the launch");
        }
    }
    assert!(profile.spans.iter().all(|span| span.end <= profile.elapsed));
}

#[test]
fn every_task_has_one_span_behind_those_it_needs() {
    for schedule in SCHEDULES {
        for workers in [1, 3] {
            let (plan, profile) = profile(PlanOptions::new().schedule(schedule), workers);
            sound(&plan, &profile);
            let stores = profile.spans.iter().filter(|span| span.kind == Kind::Store).count();
            assert_eq!(stores, plan.tasks(), "{schedule:?}");
            let mut slow = profile.runs().filter(|span| profile.tasks[span.task as usize].operation == 0);
            assert!(slow.all(|span| span.duration() > 400_000), "half a millisecond each");
        }
    }
}

#[test]
fn plain_tasks_of_a_pipeline_are_recorded_one_by_one() {
    for schedule in SCHEDULES {
        // Five threads per worker; tasks of one call follow one another at once.
        let device = Device::cpu_with(11);
        let (m, n) = (16, 24);
        let options = PlanOptions::new().workers(2).pipelined(true).schedule(schedule);
        let plan = Plan::build(&device, chain(&SLOW, m, n).program(), &options).unwrap();
        plan.profile(true).unwrap();
        run(&plan, m, n);
        let profile = plan.profile_report().unwrap();
        sound(&plan, &profile);
        assert_eq!(profile.spans.iter().filter(|span| span.kind == Kind::Store).count(), plan.tasks(), "{schedule:?}");
        assert!(profile.spans.iter().any(|span| span.kind == Kind::Wait), "{schedule:?}");
    }
}

#[test]
fn a_pipeline_records_its_roles() {
    let device = Device::cpu_with(16);
    let (m, k, n) = (130u64, 100u64, 200u64);
    let builder = Builder::new("two")
        .tensor("x", In, Bf16, &[m, k])
        .tensor("w", In, Bf16, &[n, k])
        .tensor("v", In, Bf16, &[n, n])
        .tensor("y", Out, Bf16, &[m, n])
        .tensor("h", Temp, Bf16, &[m, n])
        .call(&LINEAR, &["x", "w", "h"], &[])
        .call(&LINEAR, &["h", "v", "y"], &[]);
    let plan = Plan::build(&device, builder.program(), &PlanOptions::new().workers(2).pipelined(true)).unwrap();
    plan.profile(true).unwrap();
    let zeros = |shape: [u64; 2]| device.zeros::<half::bf16>(shape).unwrap();
    let (x, w, v, mut y) = (zeros([m, k]), zeros([n, k]), zeros([n, n]), zeros([m, n]));
    plan.run(Arguments::new().tensor(&x).tensor(&w).tensor(&v).tensor_mut(&mut y)).unwrap();
    let profile = plan.profile_report().unwrap();
    // Results are stored behind the next tile's multiplications, so that an edge is from store to load.
    assert_eq!(profile.runs().count(), plan.tasks());
    let span = |kind, task| profile.spans.iter().find(|span| span.kind == kind && span.task == task).copied().unwrap();
    for (from, to) in profile.edges() {
        assert!(span(Kind::Store, from).end <= span(Kind::Load, to).end, "{from} before {to}");
        assert!(span(Kind::Run, from).end <= span(Kind::Run, to).start);
    }
    for task in 0..plan.tasks() as u32 {
        assert!(span(Kind::Load, task).start <= span(Kind::Run, task).end);
        assert!(span(Kind::Run, task).start <= span(Kind::Store, task).end);
    }
    assert!(profile.operations.iter().all(|operation| operation.bytes.is_some()));
}

/// When each scheduler served, and that somebody did before a task ran that another one had to come before.
fn attended(profile: &Profile, schedulers: usize) {
    assert_eq!(profile.schedulers.len(), schedulers);
    for scheduler in &profile.schedulers {
        let busy = &scheduler.busy;
        assert!(!busy.is_empty() && scheduler.multiprocessor.is_none(), "{scheduler:?}");
        assert!(busy.iter().all(|busy| busy.start <= busy.end && busy.end <= profile.elapsed), "{scheduler:?}");
        assert!(busy.windows(2).all(|pair| pair[0].end <= pair[1].start), "{scheduler:?}");
        // To take messages and to push takes time: a clock may tick seldom, but not so seldom.
        assert!(2 * busy.iter().filter(|busy| busy.duration() > 0).count() > busy.len(), "{scheduler:?}");
    }
    let runs: HashMap<u32, &Span> = profile.runs().map(|run| (run.task, run)).collect();
    for (from, to) in profile.edges().filter(|_| schedulers > 0) {
        let (end, start) = (runs[&from].end, runs[&to].start);
        let mut busy = profile.schedulers.iter().flat_map(|scheduler| &scheduler.busy);
        assert!(busy.any(|busy| busy.start <= start && busy.end >= end), "nobody served between {end} and {start}");
    }
}

#[test]
fn schedulers_record_when_they_served() {
    for (schedule, schedulers) in [
        (Schedule::Static, 0),
        (Schedule::Tickets, 0),
        (Schedule::Schedulers(1), 1),
        (Schedule::Schedulers(2), 2),
        (Schedule::SpareWarps(2), 2),
    ] {
        let (plan, profile) = profile(PlanOptions::new().schedule(schedule), 3);
        sound(&plan, &profile);
        attended(&profile, schedulers);
        // Half a millisecond of each task is nobody's but the workers'.
        let rows = profile.summary().schedulers;
        assert_eq!(rows.len(), schedulers);
        assert!(rows.iter().all(|row| row.busy > 0.0 && row.busy < 100.0), "{rows:?}");
    }
    let device = Device::cpu_with(12);
    let options = PlanOptions::new().workers(2).pipelined(true).schedule(Schedule::Schedulers(2));
    let plan = Plan::build(&device, chain(&SLOW, 16, 24).program(), &options).unwrap();
    plan.profile(true).unwrap();
    run(&plan, 16, 24);
    attended(&plan.profile_report().unwrap(), 2);
}

#[test]
fn dropped_scheduler_records_are_counted() {
    let device = Device::cpu_with(1);
    let plan = Plan::build(&device, chain(&SLOW, 8, 8).program(), &PlanOptions::new().schedule(Schedule::Schedulers(1))).unwrap();
    plan.profile(true).unwrap();
    run(&plan, 8, 8);
    let all = plan.profile_report().unwrap();
    assert_eq!(all.dropped, 0);
    plan.profile_keeping(1).unwrap();
    run(&plan, 8, 8);
    let profile = plan.profile_report().unwrap();
    // One of each: consumers, store, scheduler. Which times are one differs from launch to launch.
    assert_eq!((profile.spans.len(), profile.schedulers[0].busy.len()), (2, 1));
    assert!(profile.dropped >= 3 * plan.tasks() as u64 - 2, "{}", profile.dropped);
    assert!(all.schedulers[0].busy.len() > 1, "{:?}", all.schedulers);
}

#[test]
fn a_plan_without_profiling_records_nothing() {
    let device = Device::cpu_with(2);
    let plan = Plan::build(&device, chain(&SLOW, 8, 8).program(), &PlanOptions::new()).unwrap();
    run(&plan, 8, 8);
    assert_eq!(plan.profile_report().unwrap_err().code(), 63);
    plan.profile(true).unwrap();
    assert_eq!(plan.profile_report().unwrap_err().code(), 63, "nothing has run since");
    run(&plan, 8, 8);
    let first = plan.profile_report().unwrap();
    plan.profile(false).unwrap();
    run(&plan, 8, 8);
    assert_eq!(plan.profile_report().unwrap(), first, "it still tells of the last launch that recorded");
}

#[test]
fn dropped_records_are_counted() {
    let device = Device::cpu_with(1);
    let plan = Plan::build(&device, chain(&SLOW, 8, 8).program(), &PlanOptions::new()).unwrap();
    plan.profile_keeping(3).unwrap();
    run(&plan, 8, 8);
    let profile = plan.profile_report().unwrap();
    let tasks = plan.tasks() as u64;
    assert_eq!(profile.dropped, 2 * tasks - 3 + tasks - 3, "two records per task of one role, one of another");
    assert_eq!(profile.spans.len(), 6);
    assert!(profile.summary().to_string().contains("found no room"));
}

#[test]
fn a_summary_has_a_row_per_operation() {
    let (plan, profile) = profile(PlanOptions::new(), 2);
    let summary = profile.summary();
    let names: Vec<&str> = summary.operations.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["slow", "double", "centre"]);
    assert_eq!(summary.operations.iter().map(|row| row.tasks as usize).sum::<usize>(), plan.tasks());
    let slow = &summary.operations[0];
    assert!(slow.workers == 2 && slow.roofline.is_none() && slow.mean > 4e5, "{slow:?}");
    assert!(summary.operations.iter().all(|row| (0.0..=100.0).contains(&row.wait)));
    let text = summary.to_string();
    assert!(text.contains("% of roofline") && text.contains("| slow") && text.contains("4 × 8"), "{text}");
}

#[test]
fn a_row_of_a_known_device_has_its_part_of_the_roofline() {
    let mut profile = by_hand();
    profile.roofline = Some(Roofline { bytes_per_second: 1e9, flops_per_second: 4e9, multiprocessors: 2 });
    profile.operations[0].bytes = Some(50);
    profile.operations[1] = Operation { flops: 100, bytes: Some(1), ..profile.operations[1].clone() };
    let rows = profile.summary().operations;
    // 50 bytes are 50 ns of the device or 100 of one half of it, which took 200.
    assert_eq!(rows[0].roofline, Some(50.0));
    // 100 operations are 25 ns or 50; it took 100.
    assert_eq!(rows[1].roofline, Some(50.0));
    assert_eq!(rows[2].roofline, None, "nobody knows its bytes");
    assert_eq!((rows[1].wait, rows[2].wait), (50.0, 0.0));
}

#[test]
fn overlap_is_the_time_in_which_others_run_too() {
    let overlaps = |profile: &Profile| profile.summary().operations.iter().map(|row| row.overlap).collect::<Vec<_>>();
    assert_eq!(overlaps(&by_hand()), [0.0, 0.0, 0.0], "one after the other, though `a` runs on both workers");
    let mut profile = by_hand();
    let run = |task| move |span: &&mut Span| span.kind == Kind::Run && span.task == task;
    // `b` from 100 to 200: half of it beside `a`, which takes 150.
    *profile.spans.iter_mut().find(run(2)).unwrap() = Span { worker: 1, warp: None, kind: Kind::Run, task: 2, start: 100, end: 200 };
    assert_eq!(overlaps(&profile), [100.0 / 3.0, 50.0, 0.0]);
    // `c` in all of `b`: nothing of that is `b`'s alone.
    *profile.spans.iter_mut().find(run(3)).unwrap() = Span { worker: 0, warp: None, kind: Kind::Run, task: 3, start: 100, end: 300 };
    assert_eq!(overlaps(&profile), [100.0 / 3.0, 100.0, 50.0]);
    // A task that takes no time, and an operation without any.
    profile.spans.retain(|span| span.kind == Kind::Run && span.task == 0);
    profile.spans[0].end = profile.spans[0].start;
    assert_eq!(overlaps(&profile), [0.0, 0.0, 0.0]);
}

/// Two workers: `a` on both, then `b` on worker 1 after both, then `c` after `b` on worker 0.
fn by_hand() -> Profile {
    let operation = |name: &str, tasks| Operation { name: name.into(), tile: vec![4], tasks, bytes: None, flops: 0 };
    let span = |worker, kind, task, start, end| Span { worker, warp: None, kind, task, start, end };
    Profile {
        megakernel: "hand".into(),
        rank: None,
        device: "paper".into(),
        schedule: "static".into(),
        workers: 2,
        multiprocessors: vec![7, 9],
        elapsed: 400,
        schedulers: vec![],
        dropped: 0,
        roofline: None,
        operations: vec![operation("a", 2), operation("b", 1), operation("c", 1)],
        tasks: [(0, 0), (0, 1), (1, 0), (2, 0)].map(|(operation, i)| TaskPlace { operation, tile: vec![i] }).into(),
        spans: vec![
            span(0, Kind::Run, 0, 10, 150),
            span(0, Kind::Run, 3, 270, 390),
            span(1, Kind::Run, 1, 0, 60),
            span(1, Kind::Wait, 2, 60, 160),
            span(1, Kind::Run, 2, 160, 260),
            span(1, Kind::Store, 2, 261, 265),
        ],
        dependencies: vec![Group { producers: vec![0, 1], consumers: vec![2] }, Group { producers: vec![2], consumers: vec![3] }],
    }
}

/// The same, pushed by two schedulers, of which the second one has nothing to do.
fn pushed_by_hand() -> Profile {
    let busy = |start, end| Busy { start, end };
    let schedulers = vec![
        Scheduler { multiprocessor: Some(3), busy: vec![busy(0, 8), busy(152, 160), busy(262, 266)] },
        Scheduler { multiprocessor: None, busy: vec![] },
    ];
    Profile { schedule: "schedulers".into(), schedulers, ..by_hand() }
}

/// `a` by three warps at a time, of which the second one waits at first, and behind them `b` by all.
fn by_warps() -> Profile {
    let span = |warp, kind, task, start, end| Span { worker: 0, warp, kind, task, start, end };
    Profile {
        workers: 1,
        multiprocessors: vec![],
        elapsed: 200,
        operations: vec![Operation { tasks: 3, ..by_hand().operations[0].clone() }, by_hand().operations[1].clone()],
        tasks: [(0, 0), (0, 1), (0, 2), (1, 0)].map(|(operation, i)| TaskPlace { operation, tile: vec![i] }).into(),
        spans: vec![
            span(None, Kind::Wait, 3, 150, 160),
            span(None, Kind::Run, 3, 160, 200),
            span(Some(0), Kind::Run, 0, 0, 100),
            span(Some(1), Kind::Wait, 1, 0, 50),
            span(Some(1), Kind::Run, 1, 50, 150),
            span(Some(7), Kind::Run, 2, 110, 140),
        ],
        dependencies: vec![Group { producers: vec![0, 1, 2], consumers: vec![3] }],
        ..by_hand()
    }
}

#[test]
fn concurrent_warps_divide_the_time_of_their_worker() {
    let mut profile = by_warps();
    profile.roofline = Some(Roofline { bytes_per_second: 1e9, flops_per_second: 1e9, multiprocessors: 1 });
    profile.operations[0].bytes = Some(75);
    let summary = profile.summary();
    let [a, b] = &summary.operations[..] else { panic!("{summary}") };
    // Alone 75 + 60 + 15 of the worker's nanoseconds; that one waits while another runs costs the worker nothing.
    assert_eq!((a.time, a.mean, a.wait, a.roofline, a.workers), (150, 230.0 / 3.0, 0.0, Some(50.0), 1));
    assert_eq!((b.time, b.mean, b.wait), (40, 40.0, 20.0));
    assert_eq!(summary.busy, 95.0);
    let costs = profile.costs();
    assert_eq!(costs.entries.iter().map(|cost| cost.nanoseconds).collect::<Vec<_>>(), [50, 40]);
}

#[test]
fn a_warps_predecessor_is_its_own_last_task() {
    let steps =
        |profile: &Profile| profile.critical_path().steps.iter().map(|step| (step.span.task, step.gap, step.dependent)).collect::<Vec<_>>();
    let mut profile = by_warps();
    assert_eq!(steps(&profile), [(1, 50, false), (3, 10, true)]);
    // All come from whatever any warp ended last.
    profile.dependencies.clear();
    assert_eq!(steps(&profile), [(1, 50, false), (3, 10, false)]);
    profile.spans[4].end = 130;
    assert_eq!(steps(&profile), [(2, 110, false), (3, 20, false)], "not from what another warp ran before");
    profile.spans[2].warp = None;
    assert_eq!(steps(&profile), [(0, 0, false), (2, 10, false), (3, 20, false)], "but from what all did");
    profile.spans[2].warp = Some(7);
    assert_eq!(steps(&profile), [(0, 0, false), (2, 10, false), (3, 20, false)]);
}

#[test]
fn a_trace_has_a_track_per_warp() {
    let path = directory("warps").join("trace.json");
    by_warps().write_chrome(&path).unwrap();
    assert_eq!(Profile::read_chrome(&path).unwrap(), by_warps());
    let good = std::fs::read_to_string(&path).unwrap();
    let json: serde_json::Value = serde_json::from_str(&good).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let names: Vec<(u64, &str)> = events
        .iter()
        .filter(|event| event["name"] == "thread_name")
        .map(|event| (event["tid"].as_u64().unwrap(), event["args"]["name"].as_str().unwrap()))
        .collect();
    let warps = [(3, "consume, warp 0"), (4, "consume, warp 1"), (10, "consume, warp 7")];
    assert_eq!(names, [&[(0, "consume"), (1, "load"), (2, "store")][..], &warps].concat());
    let tracks = |ph: &str| events.iter().filter(|event| event["ph"] == ph).map(|event| event["tid"].clone()).collect::<Vec<_>>();
    assert_eq!(
        (tracks("X"), tracks("s"), tracks("f")),
        ([0, 0, 3, 4, 4, 10].map(Into::into).into(), [3, 4, 10].map(Into::into).into(), [0; 3].map(Into::into).into())
    );
    let last = events.iter().rposition(|event| event["ph"] == "X").unwrap();
    for (from, to, what) in [
        (r#""tid":10,"ts":0.11"#, r#""tid":11,"ts":0.11"#, "field `tid`: expected 0, or of a warp 3 to 10, the tracks of `run`, found 11"),
        (r#""tid":10,"ts":0.11"#, r#""tid":2,"ts":0.11"#, "field `tid`: expected 0, or of a warp 3 to 10, the tracks of `run`, found 2"),
    ] {
        assert!(good.contains(from), "{from} in\n{good}");
        std::fs::write(&path, good.replacen(from, to, 1)).unwrap();
        let error = Profile::read_chrome(&path).unwrap_err();
        assert!(error.code() == 64 && error.to_string().contains(&format!("event {last}: {what}")), "`{what}` in {error}");
    }
    // Nobody but consumers.
    let load = good.replacen(r#""cat":"run""#, r#""cat":"load""#, 1);
    std::fs::write(&path, load.replacen(r#""tid":0,"ts":0.16"#, r#""tid":4,"ts":0.16"#, 1)).unwrap();
    let error = Profile::read_chrome(&path).unwrap_err();
    assert!(error.to_string().contains("field `tid`: expected 1, the track of `load`, found 4"), "{error}");
}

#[test]
fn a_summary_has_a_line_per_scheduler() {
    let (bare, pushed) = (by_hand().summary(), pushed_by_hand().summary());
    assert_eq!((&bare.operations, bare.busy), (&pushed.operations, pushed.busy), "a scheduler runs no tasks");
    assert!(bare.schedulers.is_empty() && !bare.to_string().contains("busy"));
    let [first, second] = &pushed.schedulers[..] else { panic!("{pushed:?}") };
    assert_eq!((first.busy, first.times, second.busy, second.times), (5.0, 3, 0.0, 0));
    let text = pushed.to_string();
    assert!(text.contains("\nscheduler 0 (SM 3): busy 5.0 % of the time, 3 times, 7 ns in the mean\n"), "{text}");
    assert!(text.ends_with("\nscheduler 1: busy 0.0 % of the time, 0 times, 0 ns in the mean\n"), "{text}");
    // Nor is it in what is made of tasks.
    assert_eq!(pushed_by_hand().critical_path(), by_hand().critical_path());
    assert_eq!(pushed_by_hand().costs(), by_hand().costs());
}

#[test]
fn a_trace_has_a_track_per_scheduler() {
    let path = directory("schedulers").join("trace.json");
    let (_, measured) = profile(PlanOptions::new().schedule(Schedule::Schedulers(2)), 3);
    for profile in [measured, pushed_by_hand()] {
        profile.write_chrome(&path).unwrap();
        assert_eq!(Profile::read_chrome(&path).unwrap(), profile);
    }
    let good = std::fs::read_to_string(&path).unwrap();
    let json: serde_json::Value = serde_json::from_str(&good).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let of = |pid: u32, ph: &str| events.iter().filter(|event| event["pid"] == pid && event["ph"] == ph).collect::<Vec<_>>();
    let named = |pid| of(pid, "M").iter().find(|event| event["name"] == "process_name").unwrap()["args"]["name"].clone();
    assert_eq!((named(2), named(3)), ("scheduler 0 (SM 3)".into(), "scheduler 1".into()));
    assert_eq!((of(2, "X").len(), of(3, "X").len()), (3, 0));
    assert!(of(2, "X").iter().all(|event| event["name"] == "serve" && event["tid"] == 0));
    let first = events.iter().position(|event| event["cat"] == "serve").unwrap();
    let serve = r#""cat":"serve","dur":0.008,"name":"serve","ph":"X","pid":2,"tid":0"#;
    for (from, to, what) in [
        (serve, serve.replace(r#""pid":2"#, r#""pid":4"#), format!("event {first}: field `pid`: expected a scheduler: 2 to 3, found 4")),
        (serve, serve.replace(r#""pid":2"#, r#""pid":1"#), format!("event {first}: field `pid`: expected a scheduler: 2 to 3, found 1")),
        (
            serve,
            serve.replace(r#""tid":0"#, r#""tid":1"#),
            format!("event {first}: field `tid`: expected 0, the track of `serve`, found 1"),
        ),
        (r#""multiprocessor":3"#, r#""multiprocessor":"x""#.into(), "otherData.maco.schedulers[0]: field `multiprocessor`".into()),
        (
            r#""schedulers":[{"multiprocessor":3},{"multiprocessor":null}],"#,
            String::new(),
            format!("event {first}: field `cat`: expected no `serve`"),
        ),
    ] {
        assert!(good.contains(from), "{from} in\n{good}");
        std::fs::write(&path, good.replacen(from, &to, 1)).unwrap();
        let error = Profile::read_chrome(&path).unwrap_err();
        assert!(error.code() == 64 && error.to_string().contains(&what), "`{what}` in {error}");
    }
    // As it was before there were such tracks.
    by_hand().write_chrome(&path).unwrap();
    let old = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, old.replacen(r#""schedulers":[],"#, "", 1)).unwrap();
    assert!(old.contains(r#""schedulers":[],"#));
    assert_eq!(Profile::read_chrome(&path).unwrap(), by_hand());
}

#[test]
fn the_critical_path_goes_back_from_the_last_task() {
    let profile = by_hand();
    let path = profile.critical_path();
    let steps: Vec<_> = path.steps.iter().map(|step| (step.span.task, step.gap, step.dependent)).collect();
    assert_eq!(steps, [(0, 10, false), (2, 10, true), (3, 10, true)]);
    assert_eq!((path.running(), path.elapsed), (360, 400));
    assert!(path.to_string().contains("b [0]"), "{path}");
    // What its worker did before may be what a task came after.
    let mut busy = by_hand();
    busy.spans[0].end = 40;
    busy.dependencies[0].producers = vec![0];
    busy.spans[2] = Span { end: 155, ..busy.spans[2] };
    let steps: Vec<_> = busy.critical_path().steps.iter().map(|step| (step.span.task, step.dependent)).collect();
    assert_eq!(steps, [(1, false), (2, false), (3, true)]);
}

#[test]
fn costs_are_means_and_the_hop_is_the_median() {
    let costs = by_hand().costs();
    let of = |name: &str| costs.entries.iter().find(|cost| cost.task == name).unwrap().nanoseconds;
    assert_eq!((of("a"), of("b"), of("c")), (100, 100, 120));
    // Worker 1 waited for task 0, which ended 10 ns before. Nobody is known to have waited for task 2.
    assert_eq!(costs.hop, Some(10));
}

fn directory(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("maco-profile-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

#[test]
fn a_trace_round_trips() {
    let path = directory("round").join("trace.json");
    let (plan, measured) = profile(PlanOptions::new(), 3);
    for profile in [by_hand(), measured] {
        profile.write_chrome(&path).unwrap();
        assert_eq!(Profile::read_chrome(&path).unwrap(), profile);
    }
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let count = |ph: &str| events.iter().filter(|event| event["ph"] == ph).count() as u64;
    assert_eq!((count("s"), count("f")), (plan.edges(), plan.edges()), "an arrow per dependency");
    // Every arrow begins inside the span of a task that ran, and ends at the begin of one.
    let span_at = |event: &serde_json::Value| {
        let (pid, ts) = (&event["pid"], event["ts"].as_f64().unwrap());
        let inside = |span: &&serde_json::Value| {
            span["ph"] == "X" && span["cat"] == "run" && span["pid"] == *pid && {
                let (start, length) = (span["ts"].as_f64().unwrap(), span["dur"].as_f64().unwrap());
                (start..=start + length).contains(&ts)
            }
        };
        events.iter().any(|span| inside(&span))
    };
    assert!(events.iter().filter(|event| event["ph"] == "s" || event["ph"] == "f").all(span_at));
}

#[test]
fn many_dependencies_get_one_arrow_per_counter() {
    let mut profile = by_hand();
    profile.dependencies = vec![Group { producers: vec![0, 1], consumers: vec![2] }; maco_host::profile::MOST_ARROWS];
    let path = directory("arrows").join("trace.json");
    profile.write_chrome(&path).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.matches(r#""ph":"s""#).count(), maco_host::profile::MOST_ARROWS);
    assert_eq!(Profile::read_chrome(&path).unwrap(), profile);
}

#[test]
fn a_broken_trace_says_where() {
    let path = directory("broken").join("trace.json");
    by_hand().write_chrome(&path).unwrap();
    let good = std::fs::read_to_string(&path).unwrap();
    let first_span = good.lines().skip(3).position(|line| line.contains(r#""ph":"X""#)).unwrap();
    let broken = |from: &str, to: &str| {
        let position = good.find(from).unwrap_or_else(|| panic!("{from} in\n{good}"));
        let mut text = good.clone();
        text.replace_range(position..position + from.len(), to);
        std::fs::write(&path, text).unwrap();
        let error = Profile::read_chrome(&path).unwrap_err();
        assert_eq!(error.code(), 64);
        let text = error.to_string();
        assert!(text.starts_with("MACO0064: ") && text.contains("trace.json") && text.contains("\nhelp: "), "{text}");
        (error, text)
    };
    let says = |from: &str, to: &str, what: &[&str]| {
        let (error, text) = broken(from, to);
        assert!(matches!(error, FileError::Field { .. }), "{error:?}");
        for what in what {
            assert!(text.contains(what), "`{what}` in {text}");
        }
    };
    let span = format!("event {first_span}: ");
    says(r#""dur":0.14"#, r#""dur":"long""#, &[&span, "`dur`", "microseconds", "\"long\""]);
    says(r#""dur":0.14"#, r#""dur":-1"#, &[&span, "`dur`", "-1"]);
    says(r#""ts":0.01"#, r#""ts":null"#, &[&span, "`ts`", "null"]);
    says(r#""cat":"run""#, r#""cat":"walk""#, &[&span, "`cat`", "walk"]);
    says(r#""cat":"run""#, r#""cat":"store""#, &[&span, "`tid`", "2"]);
    says(r#""task":0,"#, r#""task":4,"#, &[&span, "args", "`task`", "below 4", "found 4"]);
    says(r#""task":0,"#, "", &[&span, "`task`", "found nothing"]);
    says(r#""ph":"X","pid":0"#, r#""ph":"X","pid":2"#, &[&span, "`pid`", "below 2", "found 2"]);
    says(r#""ph":"X""#, r#""ph":1"#, &[&span, "`ph`", "a text", "found 1"]);
    says(r#""operation":2"#, r#""operation":3"#, &["otherData.maco.tasks[3]", "`operation`", "below 3"]);
    says(r#""producers":[0,1]"#, r#""producers":[0,9]"#, &["otherData.maco.dependencies[0]", "`producers[1]`", "below 4", "found 9"]);
    says(r#""multiprocessors":[7,9]"#, r#""multiprocessors":[7]"#, &["otherData.maco", "`multiprocessors`", "2 workers"]);
    says(r#""workers":2"#, r#""workers":-2"#, &["otherData.maco", "`workers`"]);
    says(r#""roofline":null"#, r#""roofline":{"bytes_per_second":0}"#, &["otherData.maco.roofline", "`bytes_per_second`", "above 0"]);
    says(r#""flops":0"#, r#""flops":0.5"#, &["otherData.maco.operations[0]", "`flops`"]);
    says(r#""traceEvents""#, r#""events""#, &["`traceEvents`", "an array of events", "found nothing"]);
    assert!(matches!(broken(r#""version":1"#, r#""version":2"#).0, FileError::Version { found: 2, expected: 1, .. }));
    assert!(matches!(broken("{\"maco\"", "{\"other\"").0, FileError::Foreign { .. }));
    // Cut off.
    std::fs::write(&path, &good[..good.len() / 2]).unwrap();
    let error = Profile::read_chrome(&path).unwrap_err();
    assert!(matches!(error, FileError::Json { .. }) && error.to_string().contains("line"), "{error}");
    std::fs::write(&path, "[]").unwrap();
    assert!(matches!(Profile::read_chrome(&path).unwrap_err(), FileError::Foreign { .. }));
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(Profile::read_chrome(&path).unwrap_err(), FileError::Io { action: "read", .. }));
    assert!(matches!(by_hand().write_chrome(path.with_file_name("no/such")).unwrap_err(), FileError::Io { action: "written", .. }));
}

#[test]
fn costs_round_trip_and_errors_say_where() {
    let path = directory("costs").join("costs.json");
    let costs = by_hand().costs();
    for costs in [Costs { hop: None, ..costs.clone() }, costs] {
        write_costs(&costs, &path).unwrap();
        assert_eq!(read_costs(&path).unwrap(), costs);
    }
    let good = std::fs::read_to_string(&path).unwrap();
    for (from, to, what) in [
        (
            "\"nanoseconds\": 120",
            "\"nanoseconds\": 0",
            "maco_costs.costs[2]: field `nanoseconds`: expected a whole number above 0, found 0",
        ),
        ("\"operation\": \"b\"", "\"operation\": 3", "maco_costs.costs[1]: field `operation`: expected a text, found 3"),
        ("\"hop_nanoseconds\": 10", "\"hop\": 10", "maco_costs: field `hop_nanoseconds`: expected a whole number, found nothing"),
        ("\"version\": 1", "\"version\": 7", "has version 7 of its format, but this program reads version 1"),
        ("maco_costs", "costs", "has no `maco_costs`"),
        ("}", "", "is not JSON"),
    ] {
        assert!(good.contains(from), "{from} in {good}");
        std::fs::write(&path, good.replacen(from, to, 1)).unwrap();
        let error = read_costs(&path).unwrap_err();
        assert!(error.code() == 65 && error.to_string().contains(what), "{error}");
    }
}

#[test]
fn measured_costs_place_lists_that_still_compute() {
    let (plan, measured) = profile(PlanOptions::new(), 3);
    let costs = measured.costs();
    let (listed, profile) = profile(PlanOptions::new().costs(costs.clone()), 3);
    sound(&listed, &profile);
    listed.graph().verify().unwrap();
    assert_eq!(listed.graph().lists.positions.len(), listed.tasks());
    assert!(listed.graph().makespan(&costs) <= plan.graph().makespan(&costs));
    // Numbers, too, in the form that runs the roles.
    let device = Device::cpu_with(20);
    let builder = Builder::new("numbers")
        .tensor("x", In, F32, &[16, 24])
        .tensor("y", Out, F32, &[16, 24])
        .tensor("h", Temp, F32, &[16, 24])
        .scalar("by")
        .call(&ADD, &["x", "h"], &BY)
        .call(&DOUBLE, &["h"], &[])
        .call(&CENTRE, &["h", "y"], &[]);
    let cost = |task: &str, nanoseconds| Cost { task: task.into(), tile: vec![4, 8], nanoseconds };
    let costs = Costs { hop: Some(100), entries: vec![cost("add", 1000), cost("double", 10), cost("centre", 3000)] };
    for pipelined in [false, true] {
        let options = PlanOptions::new().workers(3).costs(costs.clone()).pipelined(pipelined);
        let plan = Plan::build(&device, builder.clone().program(), &options).unwrap();
        let data: Vec<f32> = (0..16 * 24).map(|n| (n % 17) as f32).collect();
        let x = device.upload(&data, [16, 24]).unwrap();
        let mut y = device.zeros::<f32>([16, 24]).unwrap();
        plan.run(Arguments::new().tensor(&x).scalar(1f32).tensor_mut(&mut y)).unwrap();
        let expected: Vec<f32> = data
            .chunks(24)
            .flat_map(|row| {
                let row: Vec<f32> = row.iter().map(|x| 2.0 * (x + 1.0)).collect();
                let sum: f32 = row.iter().sum();
                row.into_iter().map(move |x| x - sum)
            })
            .collect();
        assert_eq!(y.download().unwrap(), expected);
    }
}
