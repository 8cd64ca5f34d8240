//! The command as a user runs it, on a trace made by hand.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use maco_host::profile::{Busy, Group, Kind, Operation, Profile, RankClock, RankProfiles, Scheduler, Span, TaskPlace, read_costs};

/// `a` on two workers, then `b <c>` after both; `factor` makes `a` longer.
fn profile(factor: u64) -> Profile {
    let operation = |name: &str, tasks| Operation { name: name.into(), tile: vec![64, 128], tasks, bytes: None, flops: 0 };
    let span = |worker, kind, task, start, end| Span { worker, warp: None, kind, task, start, end };
    let shift = 1000 * factor;
    Profile {
        megakernel: "drawn".into(),
        rank: None,
        device: "paper".into(),
        schedule: "static".into(),
        workers: 2,
        multiprocessors: vec![4, 5],
        elapsed: shift + 2200,
        schedulers: vec![],
        dropped: 0,
        roofline: None,
        operations: vec![operation("a", 2), operation("b <c>", 1)],
        tasks: [(0, 0), (0, 1), (1, 0)].map(|(operation, i)| TaskPlace { operation, tile: vec![i, 0] }).into(),
        spans: vec![
            span(0, Kind::Run, 0, 0, shift),
            span(1, Kind::Run, 1, 0, 500),
            span(1, Kind::Wait, 2, 500, shift + 100),
            span(1, Kind::Run, 2, shift + 100, shift + 2100),
            span(1, Kind::Store, 2, shift + 2100, shift + 2200),
        ],
        dependencies: vec![Group { producers: vec![0, 1], consumers: vec![2] }],
    }
}

/// The same with two schedulers, of which the second one served for `factor` times as long.
fn pushed(factor: u64) -> Profile {
    let scheduler = |sm, busy| Scheduler { multiprocessor: Some(sm), busy };
    let second = vec![Busy { start: 0, end: 160 * factor }, Busy { start: 1000, end: 1000 + 160 * factor }];
    Profile { schedulers: vec![scheduler(6, vec![]), scheduler(7, second)], ..profile(1) }
}

struct Bench(PathBuf);

impl Bench {
    fn new(name: &str) -> Bench {
        let directory = std::env::temp_dir().join(format!("maco-trace-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        profile(1).write_chrome(directory.join("a.json")).unwrap();
        profile(3).write_chrome(directory.join("b.json")).unwrap();
        Bench(directory)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_maco-trace")).args(arguments).current_dir(&self.0).output().unwrap()
    }

    fn prints(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn fails(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(!output.status.success() && output.stdout.is_empty());
        String::from_utf8(output.stderr).unwrap()
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.join(name)).unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn summary_and_critical_path() {
    let bench = Bench::new("summary");
    let text = bench.prints(&["summary", "a.json"]);
    assert!(text.contains("drawn on paper: 2 workers, static; 3.20 µs"), "{text}");
    let row: Vec<&str> = text.lines().find(|line| line.starts_with("| b <c>")).unwrap().split('|').map(str::trim).collect();
    assert_eq!(row[1..10], ["b <c>", "64 × 128", "1", "2.00 µs", "2.00 µs", "", "23.1", "0.0", "1"]);
    let text = bench.prints(&["critical-path", "a.json"]);
    let order: Vec<usize> = ["a [0, 0]", "b <c> [0, 0]"].iter().map(|name| text.find(name).unwrap()).collect();
    assert!(order.is_sorted() && text.contains("3.00 µs of 3.20 µs (94 %)") && !text.contains("a [1, 0]"), "{text}");
}

#[test]
fn compare_tells_what_changed() {
    let bench = Bench::new("compare");
    let text = bench.prints(&["compare", "a.json", "b.json"]);
    assert!(text.contains("elapsed: +62.5 %"), "{text}");
    let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(row("| a ").contains("1.50 → 3.50") && row("| a ").contains("+133.3 %"), "{text}");
    assert!(row("| b <c>").contains("+0.0 %") && row("| b <c>").contains("23.1 → 56.5"), "{text}");
    // Calls of one task are told apart, by the command and in the summary.
    let calls = |factor| {
        let mut twice = profile(factor);
        twice.operations[1].name = "a".into();
        twice
    };
    calls(1).write_chrome(bench.0.join("twice.json")).unwrap();
    calls(3).write_chrome(bench.0.join("again.json")).unwrap();
    let text = bench.prints(&["compare", "twice.json", "again.json"]);
    let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{text}")).to_owned();
    assert!(row("| a (1 of 2) ").contains("1.50 → 3.50") && row("| a (2 of 2) ").contains("+0.0 %"), "{text}");
    let text = bench.prints(&["summary", "twice.json"]);
    assert!(text.contains("| a (1 of 2) ") && text.contains("| a (2 of 2) ") && text.contains("| SMs |"), "{text}");
    let mut of_cpu = profile(1);
    of_cpu.multiprocessors.clear();
    of_cpu.write_chrome(bench.0.join("cpu.json")).unwrap();
    let text = bench.prints(&["summary", "cpu.json"]);
    assert!(text.contains("| workers |") && !text.contains("SMs"), "{text}");
    // What only one of them has.
    let mut other = profile(1);
    other.operations[1].name = "d".into();
    other.write_chrome(bench.0.join("c.json")).unwrap();
    let text = bench.prints(&["compare", "a.json", "c.json"]);
    assert!(text.contains("2.00 → –") && text.contains("– → 2.00"), "{text}");
}

#[test]
fn schedulers_are_distinguished_from_workers() {
    let bench = Bench::new("schedulers");
    pushed(1).write_chrome(bench.0.join("p.json")).unwrap();
    pushed(2).write_chrome(bench.0.join("q.json")).unwrap();
    let (plain, text) = (bench.prints(&["summary", "a.json"]), bench.prints(&["summary", "p.json"]));
    let rest = text.strip_prefix(&plain).expect("the same rows");
    assert_eq!(
        rest,
        "scheduler 0 (SM 6): busy 0.0 % of the time, 0 times, 0 ns in the mean\nscheduler 1 (SM 7): busy 10.0 % of the time, 2 times, 160 ns in the mean\n"
    );
    assert!(bench.prints(&["compare", "p.json", "q.json"]).contains("schedulers busy: 5.0 → 10.0 % of the time\n"));
    assert!(bench.prints(&["compare", "a.json", "q.json"]).contains("schedulers busy: – → 10.0 % of the time\n"));
    assert!(!bench.prints(&["compare", "a.json", "b.json"]).contains("schedulers"));
    assert_eq!(bench.prints(&["critical-path", "a.json"]), bench.prints(&["critical-path", "p.json"]));
    bench.prints(&["draw", "a.json", "-o", "a.svg"]);
    bench.prints(&["draw", "p.json", "-o", "p.svg"]);
    let svg = |name| String::from_utf8(bench.read(name)).unwrap();
    assert_eq!(svg("p.svg").matches("<title>").count(), profile(1).spans.len() + 2);
    assert!(svg("p.svg").contains("serve: 0.160 µs from 1.000 µs on") && svg("p.svg").contains("scheduler 1 (SM 7)"));
    assert!(svg("p.svg").contains("a scheduler serves") && !svg("a.svg").contains("scheduler"));
}

#[test]
fn costs_are_written() {
    let bench = Bench::new("costs");
    bench.prints(&["costs", "a.json", "-o", "costs.json"]);
    assert_eq!(read_costs(bench.0.join("costs.json")).unwrap(), profile(1).costs());
}

#[test]
fn pictures_show_every_span() {
    let bench = Bench::new("draw");
    bench.prints(&["draw", "a.json", "-o", "t.svg"]);
    let svg = String::from_utf8(bench.read("t.svg")).unwrap();
    assert_eq!(svg.matches("<title>").count(), profile(1).spans.len());
    assert!(
        svg.contains("run b &lt;c&gt; [0, 0]: 2.000 µs from 1.100 µs on") && svg.contains("SM 5") && svg.ends_with("</svg>\n"),
        "{svg}"
    );
    assert!(!svg.contains("#dc1414"), "no critical path");
    bench.prints(&["draw", "a.json", "-o", "p.svg", "--critical-path"]);
    let marked = String::from_utf8(bench.read("p.svg")).unwrap();
    assert_eq!(marked.matches("#dc1414").count(), 3, "two tasks, and what joins them");

    bench.prints(&["draw", "a.json", "-o", "t.png", "--width", "900"]);
    let file = std::io::Cursor::new(bench.read("t.png"));
    let mut reader = png::Decoder::new(file).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert_eq!(info.width, 900);
    let count = |colour: [u8; 3]| pixels.chunks(3).filter(|pixel| *pixel == colour).count();
    // `a` ran for 1.5 µs, `b` for 2, and there was 0.6 of waiting: areas are as times, but for the legend.
    let (a, b, wait) = (count([51, 34, 136]) as f64, count([221, 204, 119]) as f64, count([225, 225, 225]) as f64);
    assert!((b / a - 2.0 / 1.5).abs() < 0.1 && (wait / a - 0.6 / 1.5).abs() < 0.1, "{a} {b} {wait}");
    assert!(count([30, 30, 30]) > 1000, "letters");
}

/// `a` by two warps of the first worker at a time.
fn by_warps() -> Profile {
    let mut profile = profile(1);
    profile.spans[0].warp = Some(0);
    profile.spans[1] = Span { worker: 0, warp: Some(1), ..profile.spans[1] };
    profile
}

#[test]
fn warps_have_lanes_of_their_own() {
    let bench = Bench::new("warps");
    by_warps().write_chrome(bench.0.join("w.json")).unwrap();
    bench.prints(&["draw", "a.json", "-o", "a.svg"]);
    bench.prints(&["draw", "w.json", "-o", "w.svg"]);
    let [a, w] = ["a.svg", "w.svg"].map(|name| String::from_utf8(bench.read(name)).unwrap());
    assert!(w.contains("run a [0, 0], warp 0: 1.000 µs from 0.000 µs on") && w.contains("narrow: one of 8 warps"), "{w}");
    assert!(!a.contains(", warp") && !a.contains("narrow"));
    let of = |svg: &str, title: &str, what: &str| -> f64 {
        let line = svg.lines().find(|line| line.contains(title)).unwrap();
        line.split_once(&format!(" {what}=\"")).unwrap().1.split('"').next().unwrap().parse().unwrap()
    };
    let [first, second, all] = ["run a [0, 0]", "run a [1, 0]", "run b"].map(|title| (of(&w, title, "y"), of(&w, title, "height")));
    assert_eq!((first.1, second.1), (all.1 / 8.0, all.1 / 8.0));
    assert_eq!(second.0, first.0 + all.1 / 8.0);
    // The worker's time is there once, and its tasks lasted as long as they did.
    let text = bench.prints(&["compare", "w.json", "w.json"]);
    let row: Vec<&str> = text.lines().find(|line| line.starts_with("| a ")).unwrap().split('|').map(str::trim).collect();
    assert_eq!((row[3], row[5]), ("1.00", "0.75"), "{text}");
}

/// Rank `rank` of two, of which the second one begins 2 µs later.
fn of_rank(rank: u32) -> Profile {
    Profile { rank: Some(RankClock { rank, ranks: 2, job: 5, origin: 9000 + 2000 * u64::from(rank), error: 400 }), ..profile(1) }
}

#[test]
fn traces_of_ranks_merge_into_one_timeline() {
    let bench = Bench::new("ranks");
    (0..2).for_each(|rank| of_rank(rank).write_chrome(bench.0.join(format!("trace.rank{rank}.json"))).unwrap());
    assert_eq!(bench.prints(&["merge", "trace.rank1.json", "trace.rank0.json", "-o", "all.json"]), "");
    let merged = RankProfiles::read_chrome(bench.0.join("all.json")).unwrap();
    assert_eq!(merged.ranks(), [of_rank(0), of_rank(1)]);

    let text = bench.prints(&["summary", "all.json"]);
    assert!(text.starts_with("drawn on 2 ranks: 5.20 µs\nclocks of ranks agree to ±800 ns\n"), "{text}");
    let row: Vec<&str> = text.lines().find(|line| line.starts_with("| total ")).unwrap().split('|').map(str::trim).collect();
    assert_eq!((row[3], row[4], row[7], row[8]), ("6", "7.00 µs", "0.0", "2"), "{text}");
    // That of one rank is what it is without the others.
    assert_eq!(bench.prints(&["summary", "trace.rank0.json"]), bench.prints(&["summary", "a.json"]));
    assert_eq!(bench.prints(&["critical-path", "trace.rank1.json"]), bench.prints(&["critical-path", "a.json"]));

    let svg = |trace: &str| {
        bench.prints(&["draw", trace, "-o", "t.svg", "--critical-path"]);
        String::from_utf8(bench.read("t.svg")).unwrap()
    };
    let (one, both) = (svg("a.json"), svg("all.json"));
    assert_eq!(svg("trace.rank1.json"), one);
    assert_eq!(
        (both.matches("<title>").count(), both.matches("#dc1414").count()),
        (10, 6),
        "all spans, and the longest chain of each rank"
    );
    assert!(both.contains("drawn on 2 ranks: 5.20 µs, clocks agree to ±0.80 µs"), "{both}");
    let label = |text: &str| -> f64 {
        let line = both.lines().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{text} in {both}"));
        line.split_once(" y=\"").unwrap().1.split('"').next().unwrap().parse().unwrap()
    };
    // Rank 1 below rank 0, and to the right: `b` begins 1.1 µs behind the begin of its rank.
    let (first, second) =
        (label("run b &lt;c&gt; [0, 0]: 2.000 µs from 1.100 µs on"), label("run b &lt;c&gt; [0, 0]: 2.000 µs from 3.100 µs on"));
    assert!(label("rank 0: paper") < first && first < label("rank 1: paper") && label("rank 1: paper") < second, "{both}");

    let text = bench.fails(&["merge", "trace.rank0.json", "a.json", "-o", "no.json"]);
    assert!(text.starts_with("MACO0102: these traces make no timeline of all ranks: a.json was recorded by a plan of one rank"), "{text}");
    assert!(bench.fails(&["merge", "trace.rank0.json", "-o", "no.json"]).contains("rank 1 of 2 is missing"));
    assert!(!bench.0.join("no.json").exists());
    for arguments in [&["critical-path", "all.json"][..], &["compare", "a.json", "all.json"], &["costs", "all.json", "-o", "no.json"]] {
        assert!(bench.fails(arguments).contains("expected the trace of one rank, found those of 2"));
    }
}

#[test]
fn errors_say_what_is_wrong() {
    let bench = Bench::new("wrong");
    let text = bench.fails(&["summary", "none.json"]);
    assert!(text.starts_with("MACO0064: none.json cannot be read"), "{text}");
    std::fs::write(bench.0.join("foreign.json"), "{\"traceEvents\": []}").unwrap();
    assert!(bench.fails(&["critical-path", "foreign.json"]).contains("was not written by MACO"));
    let good = String::from_utf8(bench.read("a.json")).unwrap();
    std::fs::write(bench.0.join("bad.json"), good.replacen("\"task\":2", "\"task\":20", 1)).unwrap();
    let text = bench.fails(&["compare", "a.json", "bad.json"]);
    assert!(text.contains("bad.json: event 12: args: field `task`: expected a task below 3, found 20"), "{text}");
    assert!(bench.fails(&["draw", "a.json", "-o", "t.gif"]).contains("`.svg` or `.png`"));
    assert!(!Path::new(&bench.0.join("t.gif")).exists());
    assert!(bench.fails(&["draw", "a.json", "-o", "no/t.svg"]).contains("no/t.svg cannot be written"));
}

#[test]
fn help_has_examples() {
    let bench = Bench::new("help");
    let text = bench.prints(&["--help"]);
    for word in ["plan.profile(true)", "MACO_PROFILE=1", "summary", "critical-path", "compare", "draw", "merge", "costs"] {
        assert!(text.contains(word), "{word} in {text}");
    }
    for command in ["summary", "critical-path", "compare", "draw", "merge", "costs"] {
        assert!(bench.prints(&[command, "--help"]).contains(&format!("Example: maco-trace {command} ")));
    }
}
