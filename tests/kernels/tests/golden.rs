//! The device code that the build script embedded: that the lint sees whatever would make its waits, signals and copies wrong, what else
//! must hold, and a summary of each entry in `golden/`. `MACO_BLESS=1` rewrites the summaries.
//!
//! Takes a minute: the lint reads a whole entry for every fence that is taken out.
mod ptx;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use maco_build::ptx::{Rules, Statement, lint};
use ptx::{Entry, FENCES, device_code, unseen, unseen_fences};

/// Entries with a summary. Some use tensor cores, some do not; all kinds of tasks.
const GOLDEN: [&str; 8] = ["gemm", "gemm_f16", "plain_gemm", "layers", "blurred", "normed", "reversed", "ops"];

/// `wgmma` instructions: four for each width of a sum in registers (64, 128 or 256 columns of a warpgroup), whatever calls the entry may run: GEMMs share
/// their loops (docs/decisions/0054-gemms-of-all-tiles-share-code.md).
const WGMMA: [(&str, usize); 20] = [
    ("gemm", 12),
    ("gemm_f16", 12),
    ("gemm_f32", 12),
    ("turned_f32", 12),
    ("plain_gemm", 12),
    ("tiles", 12),
    ("layers", 12),
    ("blocks", 12),
    ("diamond", 12),
    ("reduced", 12),
    ("ops", 12),
    ("more_ops", 12),
    ("blurred", 0),
    ("normed", 0),
    ("reversed", 0),
    ("stalled", 0),
    ("kinds", 4),
    ("gated", 0),
    ("starved", 0),
    ("alone", 0),
];

type Is = fn(&Statement<'_>) -> bool;

fn op(statement: &Statement<'_>, start: &str) -> bool {
    statement.opcode().starts_with(start)
}

const TMA_LOAD: Is = |s| op(s, "cp.async.bulk.tensor") && s.opcode().contains("mbarrier::complete_tx");
const TMA_STORE: Is = |s| op(s, "cp.async.bulk.tensor") && s.opcode().ends_with("bulk_group");
const STAGED: Is = |s| op(s, "stmatrix");
const MULTIPLY: Is = |s| op(s, "wgmma.mma_async");

/// How many statements of an entry `is` accepts.
fn count(entry: &Entry, is: Is) -> usize {
    entry.module().functions.iter().flat_map(|function| &function.body).filter(|statement| is(statement)).count()
}

/// Every rule that an entry breaks.
fn broken(entry: &Entry) -> Vec<String> {
    let module = entry.module();
    let mut broken = Vec::new();
    let mut must = |holds: bool, rule: &str| {
        if !holds {
            broken.push(rule.to_owned());
        }
    };
    let entries = module.functions.iter().filter(|function| function.name.starts_with("maco_")).count();
    must(entries == 1 && module.missing().next().is_none(), "one entry, nothing missing");
    must(entry.text.contains("\n.target sm_90a\n"), "for sm_90a");
    must(entry.bounds() == [".maxntid 384, 1, 1", ".minnctapersm 1"], "launch bounds");
    // Registers move from the service warpgroup to the consumers, once.
    let functions = module.functions.iter().flat_map(|function| &function.body);
    let mut moved: Vec<&str> = functions.filter(|s| op(s, "setmaxnreg")).map(|statement| statement.text).collect();
    moved.sort_unstable();
    must(moved == ["setmaxnreg.dec.sync.aligned.u32 72", "setmaxnreg.inc.sync.aligned.u32 216"], "setmaxnreg 72 and 216");
    let count = |is: Is| count(entry, is);
    let multiplies = count(MULTIPLY) > 0;
    must([TMA_STORE, STAGED].map(|is| count(is) > 0) == [multiplies; 2], "tensor cores come with TMA stores and stmatrix");
    // Column reductions and transpositions load boxes too.
    must(!multiplies || count(TMA_LOAD) > 0, "tensor cores come with TMA loads");
    // The lint knows only that all reports have equally many. Collectives have stores of that scope too.
    let words = count(|s| s.tag == Some("report.word") && op(s, "st.relaxed.sys"));
    must(words == 9 * count(|s| s.tag == Some("report.end") && op(s, "st.release.sys")), "nine words of the black box are .sys");
    for (rule, is) in [
        ("no loads through the read-only cache", (|s| s.opcode().split('.').any(|part| part == "nc")) as Is),
        ("no local memory", |s| op(s, ".local") || s.opcode().split('.').any(|part| part == "local")),
        ("no ld.acquire of global memory", |s| op(s, "ld.acquire") && s.opcode() != "ld.acquire.cta.shared::cta.b32"),
        ("no fence of all scopes", |s| op(s, "fence.sc") && s.opcode() != "fence.sc.cta" || op(s, "membar")),
    ] {
        must(count(is) == 0, rule);
    }
    broken.extend(lint::check(&entry.text, &Rules::default()).into_iter().map(|finding| finding.text));
    broken
}

#[test]
fn every_entry_keeps_the_protocol() {
    for entry in device_code(kernels::OUT_DIR, "the protocol in PTX") {
        assert_eq!(broken(&entry), Vec::<String>::new(), "`{}`", entry.name);
    }
}

#[test]
fn tensor_cores_are_used_where_they_should_be() {
    let entries = device_code(kernels::OUT_DIR, "tensor cores in PTX");
    for (name, expected) in WGMMA {
        for entry in entries.iter().filter(|entry| entry.name == name) {
            assert_eq!(count(entry, MULTIPLY), expected, "`{name}`");
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
    for statement in module.functions.iter().flat_map(|function| &function.body).filter(|statement| known(statement)) {
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
    for entry in device_code(kernels::OUT_DIR, "summaries of PTX").iter().filter(|entry| GOLDEN.contains(&&*entry.name)) {
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
    let entries = device_code(kernels::OUT_DIR, "mistakes in PTX");
    let Some(entry) = entries.iter().find(|entry| entry.name == "layers") else { return };
    assert_eq!(broken(entry), Vec::<String>::new());
    for (from, to, rule) in [
        ("ld.relaxed.gpu.global", "ld.acquire.gpu.global", "no ld.acquire"),
        ("ld.relaxed.gpu.global", "ld.volatile.global", "there is no `ld.relaxed.gpu.global`"),
        ("red.relaxed.gpu.global.add", "red.release.gpu.global.add", "there is no `red.relaxed.gpu.global.add`"),
        ("red.relaxed.gpu.global.add", "red.global.add", "no ordering"),
        ("st.release.sys", "st.release.gpu", "there is no `st.release.sys`"),
        ("st.relaxed.sys", "st.relaxed.gpu", "nine words of the black box are .sys"),
        ("cp.async.bulk.wait_group 0;", "cp.async.bulk.wait_group.read 0;", "may not have arrived"),
        ("cp.async.bulk.commit_group;", "", "not committed"),
        ("setmaxnreg.inc.sync.aligned.u32 216;", "setmaxnreg.inc.sync.aligned.u32 232;", "setmaxnreg 72 and 216"),
        (".maxntid 384, 1, 1", ".maxntid 512, 1, 1", "launch bounds"),
        (".minnctapersm 1", "", "launch bounds"),
        (".target sm_90a", ".target sm_90", "for sm_90a"),
        ("ret;", "multimem.red.relaxed.sys.global.add.u32 [%rd1], %r1;\nret;", "NVLink multicast"),
        ("ret;", "ld.global.nc.b32 %r1, [%rd1];\nret;", "no loads through the read-only cache"),
        ("ret;", "st.local.b32 [%rd1], %r1;\nret;", "no local memory"),
        ("ret;", "fence.sc.sys;\nret;", "no fence of all scopes"),
        (")\n.maxntid", ")\n;\n.extern .func missing\n(\n)\n.maxntid", "one entry, nothing missing"),
    ] {
        let text = entry.text.replace(from, to);
        assert_ne!(text, entry.text, "there is no `{from}`");
        let found = broken(&Entry { text, ..entry.clone() });
        assert!(found.iter().any(|broken| broken.contains(rule)), "`{from}` → `{to}`: {rule:?} is not among {found:?}");
    }
}

/// Contractions and element-wise tasks, so that every role needs its fences; and tasks of one warp beside those of all threads, with copies and without.
#[test]
fn no_fence_and_no_scope_can_be_spared() {
    let entries = device_code(kernels::OUT_DIR, "fences and scopes of PTX");
    for name in ["layers", "kinds", "gated_warps"] {
        let entry = entries.iter().find(|entry| entry.name == name);
        assert!(entry.is_some() || entries.is_empty(), "there is no `{name}`");
        let Some(entry) = entry else { continue };
        // Scopes are looked at one access at a time: those of one entry do for all.
        let (unseen, fences) = if name == "layers" { unseen(entry) } else { unseen_fences(entry) };
        assert_eq!(unseen, Vec::<String>::new());
        assert!(name == "gated_warps" || fences == FENCES, "{name}: {fences:?}");
    }
}

#[test]
fn few_words_spill() {
    ptx::few_words_spill(kernels::OUT_DIR);
}
