//! The device code that the build script embedded: the instructions that make waits, signals and copies right, on every path, and a
//! summary of each entry in `golden/`. `MACO_BLESS=1` rewrites the summaries.
mod ptx;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use maco_build::ptx::module::Statement;
use maco_build::ptx::{Rules, lint, ptxas};
use ptx::{Entry, Flow, Way, entries};

/// Entries with a summary. Some use tensor cores, some do not; all kinds of tasks.
const GOLDEN: [&str; 8] = ["product", "product_f16", "plain_product", "layers", "blurred", "normed", "reversed", "ops"];

/// `wgmma` instructions: four for each tile of each contraction that the entry may run.
const WGMMA: [(&str, usize); 17] = [
    ("product", 16),
    ("product_f16", 16),
    ("plain_product", 16),
    ("tiles", 16),
    ("layers", 16),
    ("blocks", 32),
    ("diamond", 16),
    ("reduced", 16),
    // Two tasks, two element types.
    ("ops", 64),
    ("blurred", 0),
    ("normed", 0),
    ("reversed", 0),
    ("stalled", 0),
    ("kinds", 4),
    ("gated", 0),
    ("starved", 0),
    ("alone", 0),
];

/// Says so on the terminal, past the capture of the test harness.
fn left_out(what: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "left out: {what}: {why}");
}

/// Entries, or a word on the terminal that there are none.
fn device_code(what: &str) -> Vec<Entry> {
    let entries: Vec<Entry> = entries(Path::new(kernels::OUT_DIR)).into_values().collect();
    if entries.is_empty() {
        left_out(what, "this package was built without device code");
    }
    entries
}

type Is = fn(&Statement<'_>) -> bool;

fn op(statement: &Statement<'_>, start: &str) -> bool {
    statement.opcode().starts_with(start)
}

const FENCE_RELEASE: Is = |s| s.opcode() == "fence.release.gpu";
const FENCE_ACQUIRE: Is = |s| s.opcode() == "fence.acquire.gpu";
const FENCE_GLOBAL: Is = |s| s.opcode() == "fence.proxy.async.global";
const FENCE_SHARED: Is = |s| s.opcode() == "fence.proxy.async.shared::cta";
const POLL: Is = |s| op(s, "ld.relaxed.gpu.global");
const SIGNAL: Is = |s| op(s, "red.relaxed.gpu.global.add");
const ARRIVE: Is = |s| op(s, "mbarrier.arrive");
const WAIT: Is = |s| op(s, "mbarrier.try_wait") || op(s, "mbarrier.test_wait");
const TMA_LOAD: Is = |s| op(s, "cp.async.bulk.tensor") && s.opcode().contains("mbarrier::complete_tx");
const TMA_STORE: Is = |s| op(s, "cp.async.bulk.tensor") && s.opcode().ends_with("bulk_group");
const STORED: Is = |s| s.opcode() == "cp.async.bulk.wait_group" && s.text.ends_with(" 0");
const STAGED: Is = |s| op(s, "stmatrix");
const MULTIPLY: Is = |s| op(s, "wgmma.mma_async");
/// A store of a task's result by its own threads.
const WRITE: Is = |s| op(s, "st.") && !["st.shared", "st.relaxed", "st.release", "st.param", "st.local"].iter().any(|other| op(s, other));
const VOTE: Is = |s| op(s, "vote.sync");
const NEVER: Is = |_| false;

/// Every rule that an entry breaks.
fn broken(entry: &Entry) -> Vec<String> {
    let module = entry.module();
    let mut broken = Vec::new();
    let mut must = |holds: bool, rule: &str| {
        if !holds {
            broken.push(rule.to_owned());
        }
    };
    must(module.functions.len() == 1 && module.missing.is_empty(), "one entry, nothing called");
    must(entry.text.contains("\n.target sm_90a\n"), "for sm_90a");
    must(entry.bounds() == [".maxntid 384, 1, 1", ".minnctapersm 1"], "launch bounds");
    must(lint::check(&entry.text, &Rules::default()).is_empty(), "the lint of the build script");
    let Some(function) = module.functions.first() else { return broken };
    let flow = Flow::new(function);
    let count = |is: Is| flow.all(is).len();
    let every = |is: Is, way: Way, hit: Is, stop: Is| flow.all(is).into_iter().all(|n| flow.meets(n, way, hit, stop));
    // Where flags of the descriptor say whether a fence is needed, there is a path with it.
    let may = |n: usize, way: Way, hit: Is, stop: Is| flow.reach(n, way, stop).into_iter().any(|n| hit(&flow.statements[n]));
    let some = |is: Is, way: Way, hit: Is, stop: Is| count(is) == 0 || flow.all(is).into_iter().any(|n| may(n, way, hit, stop));

    // Registers move from the service warpgroup to the consumers, once.
    let moved: Vec<&str> = flow.all(|s| op(s, "setmaxnreg")).into_iter().map(|n| flow.statements[n].text).collect();
    let mut sorted = moved.clone();
    sorted.sort_unstable();
    must(sorted == ["setmaxnreg.dec.sync.aligned.u32 72", "setmaxnreg.inc.sync.aligned.u32 216"], "setmaxnreg 72 and 216");

    // Wait: relaxed polls that the warp votes on, one acquire fence, then the warp goes on together.
    let polls: Vec<usize> = flow.all(POLL).into_iter().filter(|&n| in_a_vote(&flow, n)).collect();
    must(!polls.is_empty(), "polls are ld.relaxed.gpu.global");
    // Those of the abort word need none.
    must(polls.iter().any(|&n| may(n, Way::Forward, FENCE_ACQUIRE, ARRIVE)), "polls are followed by fence.acquire.gpu");
    must(count(FENCE_ACQUIRE) > 0, "fence.acquire.gpu");
    must(
        every(FENCE_ACQUIRE, Way::Forward, |s| op(s, "bar.warp.sync"), ARRIVE),
        "the warp meets between fence.acquire.gpu and what it lets run",
    );
    must(count(|s| op(s, "ld.acquire")) == 0, "no ld.acquire");

    // Signal: one release fence after everything, then relaxed additions.
    must(count(SIGNAL) > 0, "signals are red.relaxed.gpu.global.add");
    let ordered: Is = |s| FENCE_RELEASE(s) || op(s, "atom.acq_rel.gpu");
    must(every(SIGNAL, Way::Backward, ordered, |s| WAIT(s) || TMA_STORE(s)), "signals are preceded by fence.release.gpu");
    must(some(FENCE_RELEASE, Way::Backward, FENCE_GLOBAL, WAIT), "signals are preceded by fence.proxy.async.global");
    must(some(WRITE, Way::Forward, FENCE_GLOBAL, |s| ARRIVE(s) || SIGNAL(s)), "results are fenced for TMA before anybody hears of them");

    // Loads: behind a proxy fence of the same task.
    must(every(TMA_LOAD, Way::Backward, FENCE_GLOBAL, NEVER), "TMA loads are preceded by fence.proxy.async.global");
    let again = |n: usize| may(n, Way::Forward, FENCE_GLOBAL, NEVER);
    must(flow.all(TMA_LOAD).into_iter().all(again), "fence.proxy.async.global comes with every task");

    // Stores: staged, fenced, committed, and complete before the signal.
    must(every(STAGED, Way::Forward, FENCE_SHARED, ARRIVE), "stmatrix is followed by fence.proxy.async.shared::cta");
    must(
        every(TMA_STORE, Way::Forward, |s| op(s, "cp.async.bulk.commit_group"), |s| op(s, "cp.async.bulk.wait_group")),
        "TMA stores are committed",
    );
    must(
        every(TMA_STORE, Way::Forward, STORED, |s| FENCE_RELEASE(s) || SIGNAL(s)),
        "TMA stores are followed by cp.async.bulk.wait_group 0",
    );
    let staged = count(MULTIPLY) > 0;
    must([TMA_LOAD, TMA_STORE, STAGED].map(|is| count(is) > 0) == [staged; 3], "tensor cores come with TMA and stmatrix");

    // The black box is read by the host: its words are .sys, the first one released after the others.
    let reports = flow.all(|s| op(s, "st.release.sys"));
    must(!reports.is_empty(), "the black box is released to the system");
    let words =
        |&n: &usize| flow.statements[..n].iter().rev().take_while(|s| !op(s, "st.release.sys")).filter(|s| op(s, "st.relaxed.sys")).count();
    must(reports.iter().all(|n| words(n) >= 9), "nine words of the black box are .sys");

    for (rule, is) in [
        ("no multimem", (|s| op(s, "multimem")) as Is),
        ("no loads through the read-only cache", |s| s.opcode().split('.').any(|part| part == "nc")),
        ("no local memory", |s| op(s, ".local") || s.opcode().split('.').any(|part| part == "local")),
        ("no fence of all proxies", |s| s.opcode() == "fence.proxy.async"),
        ("no fence of all scopes", |s| op(s, "fence.sc") || op(s, "membar")),
        ("no atomics without an order", |s| {
            (op(s, "red.") || op(s, "atom.")) && ![".gpu", ".cta"].iter().any(|scope| s.opcode().contains(scope))
        }),
    ] {
        must(count(is) == 0, rule);
    }
    broken
}

/// Whether `n` is in a loop with a vote: the controller's, not a single look at a flag.
fn in_a_vote(flow: &Flow<'_>, n: usize) -> bool {
    let after = flow.reach(n, Way::Forward, ARRIVE);
    after.contains(&n) && after.iter().any(|&m| VOTE(&flow.statements[m]))
}

#[test]
fn every_entry_keeps_the_protocol() {
    for entry in device_code("the protocol in PTX") {
        assert_eq!(broken(&entry), Vec::<String>::new(), "`{}`", entry.name);
    }
}

#[test]
fn tensor_cores_are_used_where_they_should_be() {
    let entries = device_code("tensor cores in PTX");
    for (name, expected) in WGMMA {
        for entry in entries.iter().filter(|entry| entry.name == name) {
            let found = Flow::new(&entry.module().functions[0]).all(MULTIPLY).len();
            assert_eq!(found, expected, "`{name}`");
        }
    }
    let known = |name: &&str| entries.iter().any(|entry| entry.name == *name);
    assert!(entries.is_empty() || WGMMA.iter().map(|(name, _)| name).all(known), "an entry is missing");
}

/// Bounds, and the instructions of every family that LLVM does not choose by itself; how many only where the source says so.
fn summary(entry: &Entry) -> String {
    const FAMILIES: &str = "atom. bar. barrier. cp. fence. griddepcontrol ld.acquire ld.relaxed ld.volatile mbarrier. membar multimem red. \
                            setmaxnreg st.re stmatrix wgmma.";
    let known = |statement: &Statement<'_>| FAMILIES.split_whitespace().any(|family| op(statement, family));
    let module = entry.module();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for statement in module.functions[0].body.iter().filter(|statement| known(statement)) {
        let waits = op(statement, "cp.async.bulk.wait_group") || op(statement, "wgmma.wait_group") || op(statement, "setmaxnreg");
        let what = if waits { statement.text.split_whitespace().collect::<Vec<_>>().join(" ") } else { statement.opcode().to_owned() };
        *counts.entry(what).or_default() += 1;
    }
    let bounds = entry.bounds().iter().map(|line| format!("{line}\n")).collect::<String>();
    let counted = |what: &str| ["wgmma.mma_async", "setmaxnreg"].iter().any(|start| what.starts_with(start));
    let lines = counts.iter().map(|(what, count)| if counted(what) { format!("{what} × {count}\n") } else { format!("{what}\n") });
    format!("{bounds}{}", lines.collect::<String>())
}

#[test]
fn summaries_are_as_blessed() {
    let bless = std::env::var_os("MACO_BLESS").is_some_and(|value| value == "1");
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut wrong = Vec::new();
    for entry in device_code("summaries of PTX").iter().filter(|entry| GOLDEN.contains(&&*entry.name)) {
        let (file, found) = (directory.join(format!("{}.txt", entry.name)), summary(entry));
        if bless {
            fs::create_dir_all(&directory).and_then(|()| fs::write(&file, &found)).expect("a summary is written");
        }
        let expected = fs::read_to_string(&file).unwrap_or_default();
        for line in expected.lines().filter(|line| !found.lines().any(|other| other == *line)) {
            wrong.push(format!("{}: - {line}", entry.name));
        }
        for line in found.lines().filter(|line| !expected.lines().any(|other| other == *line)) {
            wrong.push(format!("{}: + {line}", entry.name));
        }
    }
    assert!(wrong.is_empty(), "{}\nMACO_BLESS=1 rewrites tests/golden, if this is meant", wrong.join("\n"));
}

/// Each rule above sees the mistake that it is for.
#[test]
fn broken_code_is_seen() {
    let entries = device_code("mistakes in PTX");
    let Some(entry) = entries.iter().find(|entry| entry.name == "layers") else { return };
    assert_eq!(broken(entry), Vec::<String>::new());
    for (from, to, rule) in [
        ("fence.acquire.gpu;", "", "polls are followed by fence.acquire.gpu"),
        ("ld.relaxed.gpu.global", "ld.acquire.gpu.global", "no ld.acquire"),
        ("ld.relaxed.gpu.global", "ld.volatile.global", "polls are ld.relaxed.gpu.global"),
        ("fence.release.gpu;", "", "signals are preceded by fence.release.gpu"),
        ("red.relaxed.gpu.global.add", "red.release.gpu.global.add", "signals are red.relaxed.gpu.global.add"),
        ("red.relaxed.gpu.global.add", "red.global.add", "no atomics without an order"),
        ("fence.proxy.async.global;", "", "TMA loads are preceded by fence.proxy.async.global"),
        ("fence.proxy.async.global;", "", "signals are preceded by fence.proxy.async.global"),
        ("fence.proxy.async.global;", "", "results are fenced for TMA before anybody hears of them"),
        ("fence.proxy.async.shared::cta;", "", "stmatrix is followed by fence.proxy.async.shared::cta"),
        ("fence.proxy.async.shared::cta;", "fence.proxy.async;", "no fence of all proxies"),
        ("cp.async.bulk.wait_group 0;", "cp.async.bulk.wait_group.read 0;", "TMA stores are followed by cp.async.bulk.wait_group 0"),
        ("cp.async.bulk.commit_group;", "", "TMA stores are committed"),
        ("st.release.sys", "st.release.gpu", "the black box is released to the system"),
        ("st.relaxed.sys", "st.relaxed.gpu", "nine words of the black box are .sys"),
        ("setmaxnreg.inc.sync.aligned.u32 216;", "setmaxnreg.inc.sync.aligned.u32 232;", "setmaxnreg 72 and 216"),
        (".maxntid 384, 1, 1", ".maxntid 512, 1, 1", "launch bounds"),
        (".minnctapersm 1", "", "launch bounds"),
        (".target sm_90a", ".target sm_90", "for sm_90a"),
        ("ret;", "multimem.red.relaxed.sys.global.add.u32 [%rd1], %r1;\nret;", "no multimem"),
        ("ret;", "ld.global.nc.b32 %r1, [%rd1];\nret;", "no loads through the read-only cache"),
        ("ret;", "st.local.b32 [%rd1], %r1;\nret;", "no local memory"),
        ("ret;", "fence.sc.sys;\nret;", "no fence of all scopes"),
        (")\n.maxntid", ")\n;\n.extern .func missing\n(\n)\n.maxntid", "one entry, nothing called"),
    ] {
        let text = entry.text.replace(from, to);
        assert_ne!(text, entry.text, "there is no `{from}`");
        let found = broken(&Entry { text, ..entry.clone() });
        assert!(found.iter().any(|broken| broken == rule), "`{from}` → `{to}`: {rule:?} is not among {found:?}");
    }
    // A single one of several is enough.
    for (one, rule) in [
        ("fence.proxy.async.shared::cta;", "stmatrix is followed by fence.proxy.async.shared::cta"),
        ("cp.async.bulk.wait_group 0;", "TMA stores are followed by cp.async.bulk.wait_group 0"),
    ] {
        let found = broken(&Entry { text: entry.text.replacen(one, "", 1), ..entry.clone() });
        assert_eq!(found, [rule], "without one `{one}`");
    }
}

/// What only the assembler knows: registers, spills, tensor-core instructions that it serialises.
#[test]
fn nothing_spills() {
    let entries = device_code("registers and spills");
    // target/release/build/kernels-0123/out
    let target = Path::new(kernels::OUT_DIR).ancestors().nth(4).unwrap_or(Path::new("."));
    let Some(program) = ptxas::find(&target.join("maco")) else {
        return left_out("registers and spills", "no ptxas; set MACO_PTXAS, or run `cargo xtask lint`");
    };
    let directory = Directory::new();
    for entry in entries {
        let file = directory.0.join(format!("{}.ptx", entry.name));
        fs::write(&file, &entry.text).expect("PTX is written");
        let Some(verdict) = ptxas::check(&program, &file, &Rules::default()).unwrap_or_else(|error| panic!("`{}`: {error}", entry.name))
        else {
            return left_out("registers and spills", "this ptxas is too old for the PTX");
        };
        assert_eq!(verdict.findings, [], "`{}`", entry.name);
        for usage in &verdict.usage {
            assert_eq!((usage.stack, usage.spills), (0, 0), "`{}`", entry.name);
            // 384 threads and 65,536 registers, handed out by eights.
            assert!(usage.registers <= 168, "`{}` uses {} registers", entry.name, usage.registers);
        }
    }
}

/// A directory that goes away.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Directory {
        let path = std::env::temp_dir().join(format!("maco-golden-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary directory");
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
