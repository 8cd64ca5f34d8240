//! Each rule by the mistake that it is for.

mod called;
mod peers;

use std::collections::BTreeSet;

use crate::ptx::{Rules, lint};

/// An entry with every role in short: loader, consumer, store warp, scheduler, fetcher, controller.
const ENTRY: &str = "
mbarrier.init.shared::cta.b64 [%r1], %r2;
fence.mbarrier_init.release.cluster;
griddepcontrol.wait;
bar.sync 0;
ld.param.b64 %rd1, [maco_small_param_0];
add.s64 %rd2, %rd1, 4;
@%p1 bra $CONSUMER;
@%p2 bra $STORE;
@%p3 bra $CONTROL;
@%p19 bra $SCHEDULER;
@%p20 bra $FETCHER;
$LOADER:
fence.proxy.async.global;
fence.proxy.tensormap::generic.acquire.gpu [%rd3], 128;
cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd3, {%r4, %r5, %r6}], [%r7];
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd3], %r4, [%r7];
@%p4 bra $LOADER;
bra.uni $END;
$CONSUMER:
setmaxnreg.inc.sync.aligned.u32 216;
bar.sync 0; // of consumers
fence.sc.cta;
$LOOK:
// maco: wait.gpu
ld.relaxed.gpu.global.u32 %r32, [%rd6];
@%p11 bra $LOOK;
fence.acquire.gpu; // of a gate
bar.warp.sync -1;
$NEXT:
// maco: wait.gpu
ld.relaxed.gpu.global.u32 %r46, [%rd21];
@%p15 bra $NEXT;
fence.acquire.gpu; // of the next gate
bar.warp.sync -1; // of the next gate
st.shared.v4.b32 [%r39], {%r9, %r10, %r11, %r12};
fence.proxy.async.shared::cta; // of transposed operands
bar.sync 5, 256; // of transposed operands
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {%f1}, %rd17, %rd18, p, 1, 1;
wgmma.commit_group.sync.aligned;
mbarrier.init.shared::cta.b64 [%r40], %r41;
fence.mbarrier_init.release.cluster; // of a body
bar.sync 6, 128;
bar.sync 6, 64;
fence.proxy.async.global; // of a load
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r42], [%rd20], %r43, [%r40];
@%p21 bra $KNOWN;
fence.proxy.tensormap::generic.acquire.gpu [%rd22], 128;
fence.proxy.async.global; // of boxes
$KNOWN:
// maco: scratch
cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r42], [%rd22, {%r4, %r5, %r6}], [%r40];
// maco: scratch
mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p14, [%r40], %r44;
// maco: scratch
st.weak.shared.u32 [%r42], 2;
// maco: scratch
mbarrier.arrive.release.cta.shared::cta.b64 _, [%r40];
fence.proxy.async.shared::cta; // of copies
bar.sync 4, 256;
wgmma.fence.sync.aligned; // of a body
wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.u8 {%r48}, %rd17, %rd18, p;
wgmma.commit_group.sync.aligned;
// maco: scratch
cp.async.bulk.global.shared::cta.bulk_group [%rd20], [%r42], %r43;
// maco: scratch
cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%rd22, {%r4, %r5, %r6}], [%r42];
cp.async.bulk.commit_group; // of a body
cp.async.bulk.wait_group 0; // of a body
fence.proxy.async.global; // of a store
// maco: scratch
mbarrier.inval.shared::cta.b64 [%r40];
fence.proxy.async.shared::cta; // of a body
mbarrier.arrive.shared::cta.b64 _, [%r45];
stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r8], {%r9, %r10, %r11, %r12};
fence.proxy.async.shared::cta;
mbarrier.arrive.shared::cta.b64 _, [%r13];
st.global.v4.b32 [%rd15], {%r9, %r10, %r11, %r12};
bar.sync 5, 256;
fence.release.gpu; // of a part
// maco: part.arrive
atom.relaxed.gpu.global.add.s32 %r35, [%rd16], %r36;
$PARTS:
// maco: wait.gpu
ld.relaxed.gpu.global.u32 %r37, [%rd16];
@%p12 bra $PARTS;
fence.acquire.gpu; // of parts
bar.warp.sync -1;
bar.sync 5, 256;
st.global.v4.b32 [%rd15], {%r9, %r10, %r11, %r12};
bar.sync 5, 256; // of a late part
fence.release.gpu; // of a late part
// maco: part.leave
atom.relaxed.gpu.global.or.b32 %r35, [%rd16], %r36;
fence.acquire.gpu; // of late parts
bar.warp.sync -1;
bar.sync 5, 256;
st.global.v4.b32 [%rd4], {%r9, %r10, %r11, %r12};
@%p13 bra $ENDED;
call.uni panics, ();
$ENDED:
mbarrier.arrive.shared::cta.b64 _, [%r14];
fence.proxy.async.global;
mbarrier.arrive.shared::cta.b64 _, [%r14];
bra.uni $END;
$STORE:
mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r13], %r15;
fence.proxy.tensormap::generic.acquire.gpu [%rd5], 128;
cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%rd5, {%r4, %r5, %r6}], [%r16];
cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read 0;
mbarrier.arrive.shared::cta.b64 _, [%r53];
cp.async.bulk.wait_group 0;
fence.proxy.async.global;
fence.release.gpu;
// maco: signal.gpu
red.relaxed.gpu.global.add.u32 [%rd6], %r17;
mov.b32 %r18, 1;
// maco: message.gpu
st.relaxed.gpu.global.u32 [%rd7], %r18;
bra.uni $END;
$SCHEDULER:
// maco: wait.gpu
ld.relaxed.gpu.global.u32 %r47, [%rd22];
@%p16 bra $SCHEDULER;
fence.acquire.gpu; // of a message
bar.warp.sync -1;
@%p17 bra $PUSH;
// maco: message.gpu
st.relaxed.gpu.global.u32 [%rd23], %r47;
$PUSH:
fence.release.gpu; // of a push
// maco: message.gpu
st.relaxed.gpu.global.u32 [%rd24], %r47;
@%p18 bra $SCHEDULER;
bra.uni $END;
$FETCHER:
// maco: wait.gpu
ld.relaxed.gpu.global.u32 %r49, [%rd25];
@%p21 bra $FETCHER;
fence.acquire.gpu; // of a pushed task
bar.warp.sync -1; // of a pushed task
@%p22 bra $UNTIL;
mbarrier.arrive.shared::cta.b64 _, [%r50];
$UNTIL:
// maco: wait.gpu
ld.relaxed.gpu.global.u32 %r51, [%rd26];
@%p23 bra $UNTIL;
fence.acquire.gpu; // of what a task waits for
bar.warp.sync -1; // of what a task waits for
@%p24 bra $READY;
mbarrier.arrive.shared::cta.b64 _, [%r52];
$READY:
@%p25 bra $FETCHER;
bra.uni $END;
$CONTROL:
mov.b32 %r18, 0;
// maco: message.gpu
st.relaxed.gpu.global.u32 [%rd8], %r18;
$POLL:
// maco: wait.gpu
ld.relaxed.gpu.global.u32 %r19, [%rd6];
add.s64 %rd9, %rd1, 4;
// maco: wait.gpu
ld.relaxed.gpu.global.u32 %r20, [%rd9];
@%p6 bra $LATE;
@%p7 bra $POLL;
fence.acquire.gpu;
bar.warp.sync -1;
mbarrier.arrive.shared::cta.b64 _, [%r21];
$NAMED:
// maco: wait.gpu
ld.relaxed.gpu.global.u32 %r22, [%rd10];
mul.wide.u32 %rd11, %r22, 4;
// maco: wait.gpu
ld.relaxed.gpu.global.u32 %r23, [%rd11];
@%p8 bra $NAMED;
fence.acquire.gpu; // of names
bar.warp.sync -1;
mbarrier.arrive.shared::cta.b64 _, [%r21];
bra.uni $END;
$LATE:
// maco: claim.gpu
atom.relaxed.gpu.global.cas.b32 %r24, [%rd2], %r25, %r26;
@%p9 bra $END;
// maco: report.word
st.relaxed.sys.u32 [%rd12], %r27;
// maco: report.end
st.release.sys.u32 [%rd13], %r28;
@%p10 bra $END;
// maco: report.word
st.relaxed.sys.u32 [%rd14], %r27;
// maco: report.end
st.release.sys.u32 [%rd13], %r28;
fence.sc.cta; // of a stop
mov.b32 %r33, 2;
st.release.cta.shared::cta.b32 [%r34], %r33;
$END:
bar.sync 0;
";

fn lint(body: &str) -> Vec<String> {
    lint_with(body, "")
}

/// With functions that the entry calls.
fn lint_with(body: &str, functions: &str) -> Vec<String> {
    let ptx = format!(
        ".version 8.6\n.target sm_90a\n.visible .entry maco_small(\n)\n{{\n{body}ret;\n}}\n.func panics()\n.noreturn\n{{\ntrap;\n}}\n{functions}"
    );
    lint::check(&ptx, &Rules::default()).into_iter().map(|finding| finding.text).collect()
}

#[test]
fn an_entry_that_keeps_the_protocol() {
    assert_eq!(lint(ENTRY), Vec::<String>::new());
}

/// Parts of an entry as functions of their own, which it calls with what they read in registers: where each begins, and what comes behind it. What
/// uses tensor cores stays. The report is called by the controller.
fn outlined(entry: &str) -> Vec<String> {
    const PARTS: [(&str, &str); 10] = [
        ("$LATE:", "$END:"),
        ("$CONTROL:", "$END:"),
        ("$LOADER:", "$CONSUMER:"),
        ("$STORE:", "$SCHEDULER:"),
        ("$SCHEDULER:", "$FETCHER:"),
        ("$FETCHER:", "$CONTROL:"),
        ("$LOOK:", "st.shared.v4.b32 [%r39]"),
        ("mbarrier.init.shared::cta.b64 [%r40]", "wgmma.fence.sync.aligned; // of a body"),
        ("// maco: scratch\ncp.async.bulk.global.shared::cta.bulk_group", "mbarrier.arrive.shared::cta.b64 _, [%r45]"),
        ("stmatrix.", "@%p13 bra $ENDED;"),
    ];
    let (mut entry, mut functions) = (entry.to_owned(), String::new());
    for (n, (first, behind)) in PARTS.iter().enumerate() {
        let find = |from: usize, what: &str| entry[from..].find(&format!("\n{what}")).map(|at| from + at + 1);
        let Some(begin) = find(0, first) else { continue };
        let Some(end) = find(begin, behind) else { continue };
        let part = &entry[begin..end];
        let written: BTreeSet<&str> = part.lines().filter_map(|line| line.split([' ', ',']).nth(1)).collect();
        let words = part.split(|c: char| !(c.is_alphanumeric() || c == '%'));
        let read: BTreeSet<&str> = words.filter(|word| word.starts_with("%r") && !written.contains(word)).collect();
        let given = read.iter().enumerate().map(|(n, register)| format!("st.param.b64 [param{n}], {register};\n")).collect::<String>();
        let taken =
            read.iter().enumerate().map(|(p, register)| format!("ld.param.b64 {register}, [part{n}_param_{p}];\n")).collect::<String>();
        let declared = (0..read.len()).map(|p| format!(".param .b64 part{n}_param_{p}")).collect::<Vec<_>>().join(",\n");
        let names = (0..read.len()).map(|n| format!("param{n}")).collect::<Vec<_>>().join(", ");
        // What the entry jumps to is in both.
        let label = part.lines().next().filter(|line| line.ends_with(':')).map_or_else(String::new, |line| format!("{line}\n"));
        let jump = if part.ends_with("bra.uni $END;\n") { "bra.uni $END;\n" } else { "" };
        functions += &format!(".func part{n}(\n{declared})\n{{\n{taken}{}$OUT:\nret;\n}}\n", part.replace("$END", "$OUT"));
        entry = format!("{}{label}{given}call.uni part{n}, ({names});\n{jump}{}", &entry[..begin], &entry[end..]);
    }
    lint_with(&entry, &functions)
}

#[test]
fn roles_that_are_functions_keep_the_protocol() {
    assert_eq!(outlined(ENTRY), Vec::<String>::new());
}

#[test]
fn other_entries_are_not_concerned() {
    let ptx = ".version 8.6\n.visible .entry peer(\n)\n{\nld.relaxed.sys.global.u32 %r1, [%rd1];\nret;\n}\n";
    assert_eq!(lint::check(ptx, &Rules::default()), []);
}

/// Each rule, by the mistake that it is for: the line and how often it comes before, what is there instead, and what the lint says; in an entry, and in
/// functions that it calls.
#[test]
fn every_rule_sees_its_mistake() {
    for (line, nth, instead, word) in [
        ("griddepcontrol.wait;", 0, "", "may not have ended"),
        ("fence.mbarrier_init.release.cluster;", 0, "", "`mbarrier.init` and the barrier"),
        ("fence.proxy.async.global;", 0, "", "before the loads of each task"),
        ("fence.proxy.async.global;", 1, "", "the task's body and its end"),
        ("fence.proxy.async.global;", 2, "", "its completion and the signal"),
        ("fence.proxy.async.shared::cta;", 0, "", "`stmatrix` wrote"),
        ("fence.proxy.async.shared::cta; // of transposed operands", 0, "", "what was transposed"),
        ("bar.sync 5, 256; // of transposed operands", 0, "", "other warps"),
        ("fence.mbarrier_init.release.cluster; // of a body", 0, "", "`mbarrier.init` and the barrier"),
        ("fence.proxy.async.global; // of a load", 0, "", "before the loads"),
        ("fence.proxy.async.global; // of boxes", 0, "", "the fence of a tensor map and the first copy"),
        ("fence.proxy.tensormap::generic.acquire.gpu [%rd22], 128;", 0, "", "tensor map, which the host wrote"),
        ("fence.proxy.async.shared::cta; // of copies", 0, "", "`sync_copies`"),
        ("fence.proxy.async.shared::cta; // of copies", 0, "", "tensor cores may not see what a body wrote"),
        ("bar.sync 4, 256;", 0, "", "other threads of a body"),
        ("wgmma.fence.sync.aligned; // of a body", 0, "", "in a product's registers"),
        ("wgmma.fence.sync.aligned;", 0, "", "in a product's registers"),
        ("cp.async.bulk.commit_group; // of a body", 0, "", "a body's copy that is not committed"),
        ("cp.async.bulk.wait_group 0; // of a body", 0, "cp.async.bulk.wait_group.read 0;", "when the task ends"),
        ("fence.proxy.async.global; // of a store", 0, "", "what a body's copy wrote"),
        ("mbarrier.inval.shared::cta.b64 [%r40];", 0, "", "still is one"),
        ("fence.proxy.async.shared::cta; // of a body", 0, "", "bytes of a body's pages"),
        (
            "mbarrier.arrive.release.cta.shared::cta.b64 _, [%r40];",
            0,
            "mbarrier.arrive.release.gpu.shared::cta.b64 _, [%r40];",
            "among the threads",
        ),
        ("fence.proxy.tensormap::generic.acquire.gpu [%rd3], 128;", 0, "", "tensor map"),
        ("fence.proxy.tensormap::generic.acquire.gpu [%rd5], 128;", 0, "", "tensor map"),
        ("cp.async.bulk.commit_group;", 0, "", "not committed"),
        ("cp.async.bulk.wait_group.read 0;", 0, "", "shared memory is given back before"),
        ("cp.async.bulk.wait_group 0;", 0, "cp.async.bulk.wait_group.read 0;", "may not have arrived"),
        ("fence.release.gpu;", 0, "", "may overtake"),
        ("fence.release.gpu;", 0, "fence.release.sys;", "may overtake"),
        ("fence.release.gpu; // of a push", 0, "", "may overtake"),
        ("fence.acquire.gpu; // of a message", 0, "", "may not be visible"),
        ("fence.acquire.gpu;", 0, "", "may not be visible"),
        ("fence.acquire.gpu;", 0, "fence.acquire.cta;", "may not be visible"),
        ("fence.acquire.gpu; // of names", 0, "", "may not be visible"),
        ("fence.acquire.gpu; // of a gate", 0, "", "may not be visible"),
        // Not that of the next gate, which comes without a jump between.
        ("fence.acquire.gpu; // of the next gate", 0, "", "may not be visible"),
        ("bar.warp.sync -1; // of the next gate", 0, "", "the warp meets"),
        ("fence.acquire.gpu; // of a pushed task", 0, "", "may not be visible"),
        // Not that of the next pushed task, to which lanes come that hand nothing on.
        ("fence.acquire.gpu; // of what a task waits for", 0, "", "may not be visible"),
        ("fence.acquire.gpu; // of what a task waits for", 0, "fence.acquire.cta;", "may not be visible"),
        ("bar.warp.sync -1; // of what a task waits for", 0, "", "the warp meets"),
        ("fence.acquire.gpu; // of what a task waits for\nbar.warp.sync -1; // of what a task waits for", 0, "", "may not be visible"),
        ("bar.sync 5, 256;", 0, "", "its threads meet"),
        ("fence.release.gpu; // of a part", 0, "", "may overtake its part"),
        ("fence.acquire.gpu; // of parts", 0, "", "other parts may not be visible"),
        ("bar.sync 5, 256; // of a late part", 0, "", "its threads meet"),
        ("fence.release.gpu; // of a late part", 0, "", "may overtake its part"),
        ("fence.acquire.gpu; // of late parts", 0, "", "other parts may not be visible"),
        ("fence.sc.cta;", 0, "", "its looks at counters"),
        ("fence.sc.cta; // of a stop", 0, "", "closing its gates"),
        ("ld.relaxed.gpu.global.u32 %r19, [%rd6];", 0, "ld.relaxed.sys.global.u32 %r19, [%rd6];", "one GPU"),
        ("ld.relaxed.gpu.global.u32 %r19, [%rd6];", 0, "ld.relaxed.gpu.u32 %r19, [%rd6];", "says `.global`"),
        ("ld.relaxed.gpu.global.u32 %r19, [%rd6];", 0, "ld.relaxed.sys.u32 %r19, [%rd6];", "nobody loads"),
        ("mov.b32 %r18, 0;", 0, "ld.relaxed.gpu.shared.u32 %r18, [%r1];", "one CTA's"),
        ("mov.b32 %r18, 0;", 0, "mov.b32 %r18, 7;", "may overtake"),
        ("mbarrier.arrive.shared::cta.b64 _, [%r13];", 0, "mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%r13];", "among the threads"),
        ("st.release.sys.u32 [%rd13], %r28;", 1, "", "a part of a report"),
        ("st.release.sys.u32 [%rd13], %r28;", 0, "st.release.gpu.u32 [%rd13], %r28;", "a part of a report"),
        ("st.relaxed.sys.u32 [%rd14], %r27;", 0, "", "a word of this report"),
    ] {
        let (at, _) = ENTRY.match_indices(&format!("\n{line}\n")).nth(nth).unwrap_or_else(|| panic!("no `{line}`"));
        let broken = format!("{}\n{instead}{}", &ENTRY[..at], &ENTRY[at + 1 + line.len()..]);
        for found in [lint(&broken), outlined(&broken)] {
            assert!(found.iter().any(|text| text.contains(word)), "`{line}`: {found:?}");
        }
    }
}

/// Two maps that are computed alike from a register which holds a task's own number.
#[test]
fn the_fence_of_another_tasks_map_is_none() {
    let load = "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd3, {%r4, %r5, %r6}], [%r7];\n";
    let of = |map: &str, number: &str| {
        let copy = load.replace("%rd3", map);
        format!(
            "mov.b32 %r70, {number};\nmad.wide.u32 {map}, %r70, 128, %rd1;\nfence.proxy.tensormap::generic.acquire.gpu [{map}], 128;\n{copy}"
        )
    };
    let both = format!("{}{}", of("%rd71", "%r71"), of("%rd72", "%r72"));
    let with = |maps: &str| lint(&ENTRY.replacen(load, &format!("{load}{maps}"), 1));
    assert_eq!(with(&both), Vec::<String>::new());
    for map in ["%rd71", "%rd72"] {
        let without = both.replace(&format!("fence.proxy.tensormap::generic.acquire.gpu [{map}], 128;\n"), "");
        assert!(with(&without).iter().any(|text| text.contains("tensor map")), "{map}");
    }
}

/// A warp that runs a task by itself, in vain or not: where both ways meet again, a predicate that was written on the way says which it was.
const ALONE: &str = "
$ALONE:
// maco: wait.alone
ld.relaxed.gpu.global.b32 %r60, [%rd30];
setp.eq.b32 %p30, %r60, 1;
@%p30 bra $SEEN;
mov.pred %p31, 0;
@%p32 bra $AGAIN;
// maco: give_up
bar.warp.sync 4294967295; // in vain
mov.pred %p31, -1;
$AGAIN:
mov.b32 %r61, 2;
@%p31 bra $OVER;
bra.uni $ALONE;
$SEEN:
fence.acquire.gpu; // alone
bar.warp.sync 0xffffffff;
mov.b32 %r61, 1;
$OVER:
setp.eq.b32 %p33, %r61, 2;
@%p33 bra $STOPPED;
st.global.u32 [%rd32], %r60;
fence.proxy.async.global; // of a run
fence.proxy.async.global; // of what is in a slot alone
fence.proxy.async.global; // of all threads
fence.release.gpu; // alone
// maco: signal.gpu
red.relaxed.gpu.global.add.u32 [%rd33], 1;
$STOPPED:
mbarrier.arrive.shared::cta.b64 _, [%r13];
fence.sc.cta;
$LOOK:
";

#[test]
fn a_warp_that_waits_alone_acquires_or_gives_up() {
    let with = |alone: &str| lint(&ENTRY.replace("\nfence.sc.cta;\n$LOOK:\n", alone));
    assert_eq!(with(ALONE), Vec::<String>::new());
    for (line, word) in [
        ("fence.acquire.gpu; // alone", "may not be visible"),
        ("bar.warp.sync 4294967295; // in vain", "may not be visible"),
        ("mov.pred %p31, 0;", "may not be visible"),
        ("bar.warp.sync 0xffffffff;", "the warp meets"),
        ("fence.release.gpu; // alone", "may overtake"),
    ] {
        let found = with(&ALONE.replace(&format!("{line}\n"), ""));
        assert!(found.iter().any(|text| text.contains(word)), "`{line}`: {found:?}");
    }
    let ends = ["of a run", "of what is in a slot alone", "of all threads"];
    let none = ends.iter().fold(ALONE.to_owned(), |alone, end| alone.replace(&format!("fence.proxy.async.global; // {end}\n"), ""));
    assert!(with(&none).iter().any(|text| text.contains("TMA may not see this result")));
}
