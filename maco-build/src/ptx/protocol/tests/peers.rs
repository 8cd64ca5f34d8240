//! Rules of channels, each by its mistake.

use crate::ptx::{Rules, lint};

/// What the device half of channels does: put and signal, wait, packets, a trigger, a report.
const CHANNEL: &str = "\
griddepcontrol.wait;
ld.param.b64 %rd1, [maco_channel_param_0];
add.s64 %rd2, %rd1, 128;
add.s64 %rd3, %rd1, 256;
// maco: get.sys
ld.relaxed.sys.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd4];
// maco: put.sys
st.relaxed.sys.global.v4.u32 [%rd5], {%r1, %r2, %r3, %r4};
bar.warp.sync -1;
// maco: signal.sys
st.release.sys.global.u32 [%rd2], %r5;
$POLL:
// maco: wait.sys
ld.relaxed.sys.global.u32 %r6, [%rd3];
@%p1 bra $SEEN;
// maco: get.sys
ld.relaxed.sys.global.u32 %r7, [%rd6];
@%p2 bra $LATE;
bra.uni $POLL;
$SEEN:
fence.acquire.sys;
bar.warp.sync -1;
// maco: packet.store
st.relaxed.sys.global.v2.u64 [%rd7], {%rd8, %rd9};
$PACKET:
// maco: packet.load
ld.relaxed.sys.global.u64 %rd10, [%rd11];
@%p3 bra $PACKET;
fence.release.sys;
// maco: trigger.sys
st.relaxed.sys.global.v2.u64 [%rd12], {%rd13, %rd14};
bra.uni $END;
$LATE:
// maco: stop.sys
atom.relaxed.sys.global.cas.b32 %r8, [%rd6], %r9, %r10;
// maco: tell.sys
st.relaxed.sys.global.u32 [%rd15], %r11;
// maco: signal.sys
st.release.sys.global.u32 [%rd16], %r12;
$END:
";

/// How a store role pushes a box: to a peer's memory, and then the signal.
const PUSH: &str = "\
fence.proxy.tensormap::generic.acquire.gpu [%rd20], 128;
cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%rd20, {%r20, %r21, %r22}], [%r23];
cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read 0;
mbarrier.arrive.shared::cta.b64 _, [%r24];
cp.async.bulk.wait_group 0;
@%p20 bra $QUIET;
fence.proxy.async.global;
$PEER:
// maco: signal.sys
st.release.sys.global.u32 [%rd21], %r25;
@%p21 bra $PEER;
$QUIET:
";

/// What the lint says, but for what an entry without a megakernel lacks.
fn lint(body: &str) -> Vec<String> {
    let ptx = format!(".version 8.6\n.target sm_90a\n.visible .entry maco_channel(\n)\n{{\n{body}ret;\n}}\n");
    let findings = lint::check(&ptx, &Rules::default()).into_iter().map(|finding| finding.text);
    findings.filter(|text| !text.starts_with("there is no `") || text.contains("tag")).collect()
}

#[test]
fn channels_keep_their_rules() {
    assert_eq!(lint(CHANNEL), Vec::<String>::new());
    assert_eq!(lint(PUSH), Vec::<String>::new());
}

/// A completed store of a box is behind the fence of its proxy on every path to a signal: one path with it is not enough.
#[test]
fn pushed_boxes_are_fenced_on_every_path() {
    const FENCE: &str = "fence.proxy.async.global;\n";
    let text = "another rank may not see what TMA wrote";
    for instead in [
        "",
        // Of the wrong proxy's memory, and the fence of a normal signal.
        "fence.proxy.async.shared::cta;\n",
        "fence.release.gpu;\n",
        "fence.release.sys;\n",
        // Where a flag decides.
        "@%p22 bra $PEER;\nfence.proxy.async.global;\n",
    ] {
        let found = lint(&PUSH.replace(FENCE, instead));
        assert!(found.iter().any(|found| found.contains(text)), "{instead}: {found:?}");
    }
    // Before the completion it is none.
    let early = PUSH.replace(FENCE, "").replace("cp.async.bulk.wait_group 0;", "fence.proxy.async.global;\ncp.async.bulk.wait_group 0;");
    assert!(lint(&early).iter().any(|found| found.contains(text)));
    // The proxy of a port channel tells the peer, too.
    let trigger = PUSH.replace(
        "// maco: signal.sys\nst.release.sys.global.u32 [%rd21], %r25;",
        "fence.release.sys;\n// maco: trigger.sys\nst.relaxed.sys.global.v2.u64 [%rd21], {%rd22, %rd23};",
    );
    assert_eq!(lint(&trigger), Vec::<String>::new());
    assert!(lint(&trigger.replace(FENCE, "")).iter().any(|found| found.contains(text)));
}

#[test]
fn each_rule_by_its_mistake() {
    for (line, instead, word) in [
        // Scopes of words, data and packets of peers.
        ("st.release.sys.global.u32 [%rd2]", "st.release.gpu.global.u32 [%rd2]", "its scope is `.sys`"),
        ("st.relaxed.sys.global.v4", "st.relaxed.gpu.global.v4", "its scope is `.sys`"),
        ("ld.relaxed.sys.global.v4", "ld.relaxed.gpu.global.v4", "its scope is `.sys`"),
        ("ld.relaxed.sys.global.u32 %r6", "ld.relaxed.gpu.global.u32 %r6", "its scope is `.sys`"),
        ("st.relaxed.sys.global.v2.u64 [%rd7]", "st.relaxed.gpu.global.v2.u64 [%rd7]", "its scope is `.sys`"),
        ("ld.relaxed.sys.global.u64", "ld.relaxed.gpu.global.u64", "its scope is `.sys`"),
        ("st.relaxed.sys.global.v2.u64 [%rd12]", "st.relaxed.gpu.global.v2.u64 [%rd12]", "its scope is `.sys`"),
        ("atom.relaxed.sys.global.cas.b32", "atom.relaxed.gpu.global.cas.b32", "its scope is `.sys`"),
        ("st.relaxed.sys.global.u32 [%rd15]", "st.relaxed.gpu.global.u32 [%rd15]", "its scope is `.sys`"),
        // A peer's word with another tag.
        (
            "bar.warp.sync -1;\n// maco: packet.store",
            "// maco: signal.gpu\nst.relaxed.gpu.global.u32 [%rd2], 1;\n// maco: packet.store",
            "elsewhere an access of `.sys` scope has this address",
        ),
        // Signals release, waits acquire, triggers are behind a release.
        ("st.release.sys.global.u32 [%rd2]", "st.relaxed.sys.global.u32 [%rd2]", "is tagged `signal.sys`"),
        ("fence.acquire.sys;\n", "", "`fence.acquire.sys` belongs"),
        ("fence.acquire.sys;", "fence.acquire.gpu;", "`fence.acquire.sys` belongs"),
        ("fence.release.sys;\n", "", "`fence.release.sys` belongs"),
        ("fence.release.sys;", "fence.release.gpu;", "`fence.release.sys` belongs"),
        ("// maco: get.sys\nld.relaxed.sys.global.v4", "// begin inline asm\nld.relaxed.sys.global.v4", "does not say what it is for"),
        ("// maco: stop.sys\n", "// begin inline asm\n", "does not say what it is for"),
        // Data that has not arrived.
        ("bar.warp.sync -1;\n// maco: signal.sys", "cp.async.bulk.wait_group.read 0;\n// maco: signal.sys", "wait_group.read"),
        ("fence.release.sys;", "cp.async.bulk.wait_group.read 0;\nfence.release.sys;", "wait_group.read"),
        // Multicast.
        ("st.release.sys.global.u32 [%rd16], %r12;", "multimem.red.release.sys.global.add.u32 [%rd16], %r12;", "multicast"),
    ] {
        assert_eq!(CHANNEL.matches(line).count(), 1, "{line}");
        let found = lint(&CHANNEL.replace(line, instead));
        assert!(found.iter().any(|text| text.contains(word)), "{line} → {instead}: {found:?}");
    }
}
