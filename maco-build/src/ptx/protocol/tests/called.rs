//! Rules of the functions of consumers that an entry calls, each by its mistake.

use crate::ptx::{Rules, lint};

/// What the lint says of a function that an entry calls.
fn called(body: &str) -> Vec<String> {
    let ptx = format!(
        ".version 8.6\n.func called(\n)\n{{\n{body}ret;\n}}\n.visible .entry maco_small(\n)\n{{\ncall.uni called, (p);\nret;\n}}\n"
    );
    let findings = lint::check(&ptx, &Rules::default()).into_iter().filter(|finding| finding.function == "called");
    findings.map(|finding| finding.text).collect()
}

/// What an entry calls for the main loop of a GEMV: consumers meet there.
#[test]
fn sums_keep_to_their_barriers() {
    const SUMS: &str = "\
// maco: in_band.load
ld.relaxed.gpu.global.v4.u32 {%r42, %r43, %r44, %r45}, [%rd21];
cp.async.cg.shared.global [%r41], [%rd20], 16;
// maco: receive
st.shared.v4.u32 [%r41], {%r42, %r43, %r44, %r45};
cp.async.wait_all;
bar.sync 5, 256; // of received elements
call.uni norm, (p);
$STAGE:
mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r13], %r15;
mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f2}, {%r42}, {%r43}, {%f2};
@%p6 bra $LAST;
mbarrier.arrive.shared::cta.b64 _, [%r14];
bra.uni $STAGE;
$LAST:
bar.sync 5, 256; // of the last stage
st.shared.v2.b32 [%r38], {%r9, %r10};
fence.proxy.async.shared::cta;
bar.sync 5, 256; // of sums
";
    assert_eq!(called(SUMS), Vec::<String>::new());
    for (line, instead, word) in [
        ("ld.relaxed.gpu.global.v4", "ld.relaxed.cta.global.v4", "one GPU"),
        ("cp.async.wait_all;", "", "weights of an RMSNorm prologue may not have come"),
        ("bar.sync 5, 256; // of received elements", "", "have received their elements"),
        ("bar.sync 5, 256; // of received elements", "", "their weights of an RMSNorm prologue"),
        ("bar.sync 5, 256; // of the last stage", "", "may still read the stage"),
        ("fence.proxy.async.shared::cta;", "", "next bytes"),
        ("bar.sync 5, 256; // of sums", "", "left their sums"),
        ("bar.sync 5, 256; // of sums", "bar.sync 5, 256;\nbar.sync 0;", "belongs into the entry"),
        ("cp.async.wait_all;", "cp.async.wait_all;\ncp.async.bulk.commit_group;", "belongs into the entry"),
    ] {
        let broken = SUMS.replacen(line, instead, 1);
        assert!(broken != SUMS && called(&broken).iter().any(|text| text.contains(word)), "{line}: {:?}", called(&broken));
    }
}

/// What an entry calls to receive operand A: consumers meet there.
#[test]
fn what_receives_keeps_to_its_barriers() {
    const RECEIVES: &str = "\
cp.async.cg.shared.global [%r41], [%rd20], 16;
$POLL:
// maco: in_band.load
ld.relaxed.gpu.global.v4.u32 {%r42, %r43, %r44, %r45}, [%rd21];
@%p1 bra $POLL;
// maco: receive
st.shared.v4.u32 [%r41], {%r42, %r43, %r44, %r45};
cp.async.wait_all;
bar.sync 5, 256; // of received elements
";
    assert_eq!(called(RECEIVES), Vec::<String>::new());
    for (line, instead, word) in [
        ("ld.relaxed.gpu.global.v4", "ld.relaxed.cta.global.v4", "one GPU"),
        ("cp.async.wait_all;", "", "weights of an RMSNorm prologue may not have come"),
        ("bar.sync 5, 256; // of received elements", "", "have received their elements"),
        ("bar.sync 5, 256; // of received elements", "", "their weights of an RMSNorm prologue"),
        ("bar.sync 5, 256; // of received elements", "bar.sync 5, 256;\nbar.sync 0;", "belongs into the entry"),
    ] {
        let broken = RECEIVES.replacen(line, instead, 1);
        assert!(broken != RECEIVES && called(&broken).iter().any(|text| text.contains(word)), "{line}: {:?}", called(&broken));
    }
}

/// What an entry calls to receive operand A and run its elementwise prologue: consumers meet there.
#[test]
fn an_elementwise_prologue_keeps_to_its_barriers() {
    const ELEMENTWISE: &str = "\
$POLL:
// maco: in_band.load
ld.relaxed.gpu.global.v4.u32 {%r42, %r43, %r44, %r45}, [%rd21];
@%p1 bra $POLL;
// maco: receive
st.shared.v4.u32 [%r41], {%r42, %r43, %r44, %r45};
bar.sync 5, 256; // of received elements
$MAP:
ld.shared.v4.b32 {%r42, %r43, %r44, %r45}, [%r41];
// maco: elementwise
st.shared.v4.s32 [%r41], {%r42, %r43, %r44, %r45};
@%p1 bra $MAP;
bar.sync 5, 256; // of the prologue
";
    assert_eq!(called(ELEMENTWISE), Vec::<String>::new());
    for (line, instead, word) in [
        ("ld.relaxed.gpu.global.v4", "ld.relaxed.cta.global.v4", "one GPU"),
        ("bar.sync 5, 256; // of received elements", "", "have received their elements"),
        ("bar.sync 5, 256; // of the prologue", "", "have run the elementwise prologue on their elements"),
        ("bar.sync 5, 256; // of the prologue", "bar.sync 5, 256;\nbar.sync 0;", "belongs into the entry"),
    ] {
        let broken = ELEMENTWISE.replacen(line, instead, 1);
        assert!(broken != ELEMENTWISE && called(&broken).iter().any(|text| text.contains(word)), "{line}: {:?}", called(&broken));
    }
}

/// What an entry calls to run the RMSNorm prologue of operand A: consumers meet there.
#[test]
fn an_rmsnorm_prologue_keeps_to_its_barriers() {
    const RMSNORM: &str = "\
$SQUARES:
// maco: rmsnorm.sum
st.shared.f32 [%r1], %r2;
@%p1 bra $SQUARES;
bar.sync 5, 256; // of squares
// maco: rmsnorm.sum
ld.shared.f32 %r2, [%r1];
// maco: rmsnorm.factor
st.shared.u32 [%r1], %r2;
bar.sync 5, 256; // of factors
// maco: rmsnorm.factor
ld.shared.u32 %r2, [%r1];
// maco: receive
st.shared.v4.u32 [%r1], {%r2, %r3, %r4, %r5};
bar.sync 5, 256; // of the prologue
";
    assert_eq!(called(RMSNORM), Vec::<String>::new());
    for (line, instead, word) in [
        ("bar.sync 5, 256; // of squares", "", "squares of other warps"),
        ("bar.sync 5, 256; // of factors", "", "a row's factor"),
        ("bar.sync 5, 256; // of the prologue", "", "their part of the RMSNorm prologue"),
        ("bar.sync 5, 256; // of the prologue", "bar.sync 5, 256;\nbar.sync 0;", "belongs into the entry"),
    ] {
        let broken = RMSNORM.replacen(line, instead, 1);
        assert!(broken != RMSNORM && called(&broken).iter().any(|text| text.contains(word)), "{line}: {:?}", called(&broken));
    }
}
