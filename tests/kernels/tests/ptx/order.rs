//! Fences and scopes, one at a time: that the lint sees when one is missing, or is another one. Neither the compiler nor a model of the
//! protocol does.

use std::collections::BTreeMap;

use maco_build::parallel;
use maco_build::ptx::{Rules, lint};

use super::Entry;

/// Every kind of fence that an entry has which uses tensor cores.
pub const FENCES: [&str; 8] = [
    "fence.acquire.gpu",
    "fence.mbarrier_init.release.cluster",
    "fence.proxy.async.global",
    "fence.proxy.async.shared::cta",
    "fence.proxy.tensormap::generic.acquire.gpu",
    "fence.release.gpu",
    "fence.sc.cta",
    "griddepcontrol.wait",
];

/// Mistakes that the lint does not see, and which kinds of fences there were to make them with.
pub fn unseen(entry: &Entry) -> (Vec<String>, Vec<&str>) {
    unseen_of(entry, |_| true)
}

/// The same of fences alone.
pub fn unseen_fences(entry: &Entry) -> (Vec<String>, Vec<&str>) {
    unseen_of(entry, is_fence)
}

/// The same of the opcodes that `of` accepts.
fn unseen_of(entry: &Entry, of: impl Fn(&str) -> bool) -> (Vec<String>, Vec<&str>) {
    let mut tried: BTreeMap<&str, usize> = BTreeMap::new();
    // What is before a line, its opcode, what it becomes, what is behind it.
    let mut made: Vec<(&str, &str, String, &str)> = Vec::new();
    // Copies to shared memory and from there, by boxes or in bulk, are all that reaches global memory through the asynchronous proxy.
    let copies = entry.text.contains("async.bulk");
    let mut at = 0;
    for line in entry.text.split_inclusive('\n') {
        let (before, after) = (&entry.text[..at], &entry.text[at + line.len()..]);
        at += line.len();
        let Some(opcode) = ordering(line).filter(|opcode| of(opcode)) else { continue };
        // Of roles that have nothing to copy in this entry: nothing is between the proxies that the fence could order.
        let idle = opcode == "fence.proxy.async.global" && !copies;
        let times = tried.entry(opcode).or_default();
        *times += 1;
        // Rules about accesses look at one alone, those about fences at its place.
        if is_fence(opcode) || *times <= 2 {
            let mistakes = mistakes(line, opcode).into_iter().filter(|mistake| !(idle && mistake.trim().is_empty()));
            // Whoever leaves an instruction out leaves its tag out: without its instruction that alone would be seen.
            let tag = before.lines().next_back().filter(|line| super::is_tag(line)).map_or(0, |line| line.len() + 1);
            made.extend(mistakes.map(|mistake| {
                let kept = if mistake.trim().is_empty() { before.len() - tag } else { before.len() };
                (&before[..kept], opcode, mistake, after)
            }));
        }
    }
    let misses = |(before, opcode, mistake, after): &(&str, &str, String, &str)| {
        let clean = lint::check(&format!("{before}{mistake}{after}"), &Rules::default()).is_empty();
        clean.then(|| format!("{}, line {}: `{opcode}` as `{}`", entry.name, before.lines().count() + 1, mistake.trim()))
    };
    // Each takes as long as reading a whole entry.
    let unseen = parallel::each(&made, |_| 0, misses).into_iter().flatten().collect();
    (unseen, tried.into_keys().filter(|opcode| is_fence(opcode)).collect())
}

/// What is nothing but order.
fn is_fence(opcode: &str) -> bool {
    ["fence.", "griddepcontrol."].iter().any(|start| opcode.starts_with(start))
}

/// The instruction on a line, if it orders memory or has a scope.
fn ordering(line: &str) -> Option<&str> {
    const STARTS: [&str; 11] = [
        "fence.",
        "ld.relaxed",
        "st.relaxed",
        "st.release",
        "red.",
        "atom.",
        "mbarrier.arrive",
        "mbarrier.test_wait",
        "mbarrier.try_wait",
        "cp.async.bulk.wait_group",
        "griddepcontrol.wait",
    ];
    line.split([' ', '\t', ';']).find(|word| STARTS.iter().any(|start| word.starts_with(start)))
}

/// What a line with this instruction could wrongly be: one without it, or with another order or scope.
fn mistakes(line: &str, opcode: &str) -> Vec<String> {
    let other = [
        (".gpu", ".cta"),
        (".gpu", ".sys"),
        (".cta.", ".gpu."),
        (".cta.", ".sys."),
        (".sys", ".gpu"),
        ("acq_rel", "relaxed"),
        ("st.release", "st.relaxed"),
        ("proxy.async.global", "proxy.async"),
        ("proxy.async.shared::cta", "proxy.async"),
        ("mbarrier.arrive.", "mbarrier.arrive.relaxed.cta."),
        (".parity.", ".parity.relaxed.cta."),
        (".parity.", ".parity.acquire.cluster."),
    ];
    let other = other.into_iter().filter(|(from, _)| opcode.contains(from));
    let mut lines: Vec<String> = other.map(|(from, to)| line.replacen(opcode, &opcode.replacen(from, to, 1), 1)).collect();
    if is_fence(opcode) || ["cp.", "st.relaxed.sys"].iter().any(|start| opcode.starts_with(start)) {
        lines.push("\n".to_owned());
    }
    lines
}
