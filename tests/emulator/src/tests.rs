//! Small kernels, and the faults that they are to end with.

use std::sync::{Arc, Mutex};

use crate::exec::{self, Config, Fault};
use crate::memory::{self, Kind};
use crate::ptx::Module;

/// Runs `body` as a kernel with one pointer `%at` to `words`, by `ctas` CTAs of `threads`; what the words are then.
fn run_clusters(body: &str, words: &[u32], ctas: u32, threads: u32, cluster: u32) -> Result<Vec<u32>, Fault> {
    // Launches share nothing, but tests of a busy machine should not take turns with each other's threads.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(|error| error.into_inner());
    let text = format!(
        ".version 8.6\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 arena[];\n.visible .entry k(.param .u64 k_0)\n{{\n\
         .reg .pred %p<20>; .reg .b32 %r<60>; .reg .b64 %rd<40>; .reg .b64 %at;\nld.param.u64 %at, [k_0];\n{body}\nret;\n}}\n"
    );
    let module = Module::new(text, &mut |bytes| memory::allocate(bytes, 0, Kind::Plain).unwrap()).unwrap();
    let program = Arc::new(module.program("k").unwrap());
    let at = memory::allocate(words.len() as u64 * 4, 0, Kind::Plain).unwrap();
    // SAFETY: as large as the words.
    unsafe { std::ptr::copy_nonoverlapping(words.as_ptr(), at as *mut u32, words.len()) };
    let config = Config {
        device: 0,
        program,
        parameters: at.to_le_bytes().to_vec(),
        grid: [ctas, 1, 1],
        block: [threads, 1, 1],
        dynamic_shared: 16384,
        cluster,
        multiprocessors: 4,
    };
    let result = exec::run(config);
    // SAFETY: as above.
    let words = unsafe { std::slice::from_raw_parts(at as *const u32, words.len()) }.to_vec();
    memory::free(at);
    result.map(|_| words)
}

fn run(body: &str, words: &[u32], ctas: u32, threads: u32) -> Result<Vec<u32>, Fault> {
    run_clusters(body, words, ctas, threads, 1)
}

const INDEX: &str = "mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.s32 %r4, %r2, %r3, %r1; mul.wide.u32 %rd1, %r4, 4; add.s64 %rd2, %at, %rd1;";

#[test]
fn every_thread_adds() {
    let words: Vec<u32> = (0..320).collect();
    let found = run(&format!("{INDEX} ld.global.u32 %r5, [%rd2]; add.s32 %r5, %r5, 7; st.global.u32 [%rd2], %r5;"), &words, 5, 64).unwrap();
    assert_eq!(found, (7..327).collect::<Vec<u32>>());
}

#[test]
fn accesses_are_checked() {
    let beyond = run(&format!("{INDEX} ld.global.u32 %r5, [%rd2+4];"), &[0; 32], 1, 32).unwrap_err();
    assert_eq!(beyond.code, exec::ILLEGAL_ADDRESS, "{}", beyond.text);
    assert!(beyond.text.contains("thread 31"), "{}", beyond.text);
    let odd = run(&format!("{INDEX} ld.global.v2.u32 {{%r5, %r6}}, [%rd2];"), &[0; 34], 1, 32).unwrap_err();
    assert_eq!(odd.code, exec::MISALIGNED_ADDRESS, "{}", odd.text);
    let null = run("mov.b32 %r1, 0; ld.shared.u32 %r2, [%r1];", &[0; 1], 1, 32).unwrap_err();
    assert_eq!(null.code, exec::ILLEGAL_ADDRESS, "{}", null.text);
}

#[test]
fn lanes_meet_again() {
    // Lanes below 10 take a longer way; then all exchange.
    let body = format!(
        "{INDEX} mov.b32 %r5, %r1; setp.ge.u32 %p1, %r1, 10; @%p1 bra $OVER; mov.b32 %r6, 0;\n$LOOP: add.s32 %r6, %r6, 1; add.s32 %r5, %r5, 100;\n\
         setp.lt.u32 %p2, %r6, %r1; @%p2 bra $LOOP;\n$OVER: shfl.sync.bfly.b32 %r7, %r5, 1, 31, -1; st.global.u32 [%rd2], %r7;"
    );
    let found = run(&body, &[0; 32], 1, 32).unwrap();
    let own = |lane: u32| if lane < 10 { lane + 100 * lane.max(1) } else { lane };
    assert_eq!(found, (0..32).map(|lane| own(lane ^ 1)).collect::<Vec<u32>>());
}

#[test]
fn lanes_that_wait_for_each_other_get_on() {
    // Lane 0 waits for a word that lane 1 writes.
    let body = format!(
        "{INDEX} setp.ne.u32 %p1, %r1, 0; @%p1 bra $OTHER;\n$LOOP: ld.relaxed.gpu.global.u32 %r5, [%at+4]; setp.eq.u32 %p2, %r5, 0; @%p2 bra $LOOP; bra $END;\n\
         $OTHER: mov.b32 %r6, 5; st.relaxed.gpu.global.u32 [%rd2], %r6;\n$END: bar.warp.sync -1;"
    );
    assert_eq!(run(&body, &[0; 32], 1, 32).unwrap()[1], 5);
}

const LOAD: &str = "mov.u32 %r10, arena; add.s32 %r11, %r10, 1024; mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra $WAIT;\n\
    mbarrier.init.shared::cta.b64 [%r10], 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r10], 128;\n\
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r11], [%at], 128, [%r10];\n$WAIT: bar.sync 0;\n";
const POLL: &str = "$POLL: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r10], 0; @!%p2 bra $POLL;\n";
const TAKE: &str = "shl.b32 %r12, %r1, 2; add.s32 %r12, %r12, %r11; ld.shared.u32 %r13, [%r12]; mul.wide.u32 %rd1, %r1, 4; add.s64 %rd2, %at, %rd1; st.global.u32 [%rd2+128], %r13;";

#[test]
fn bulk_copies_arrive_when_they_are_waited_for() {
    let words: Vec<u32> = (0..64).collect();
    let found = run(&format!("{LOAD}{POLL}{TAKE}"), &words, 1, 32).unwrap();
    assert_eq!(found[32..], words[..32]);
    let early = run(&format!("{LOAD}{TAKE}{POLL}"), &words, 1, 32).unwrap();
    assert_eq!(early[32..], [u32::MAX; 32]);
}

#[test]
fn deadlocks_are_found() {
    let body = LOAD.replace("expect_tx.shared::cta.b64 _, [%r10], 128", "expect_tx.shared::cta.b64 _, [%r10], 144");
    let fault = run(&format!("{body}{POLL}"), &[0; 64], 1, 32).unwrap_err();
    assert_eq!(fault.code, exec::LAUNCH_TIMEOUT);
    assert!(fault.text.contains("bytes: 16"), "{}", fault.text);
    let fault = run("mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 32; @%p1 bra $END; bar.sync 1, 64;\n$END:", &[0; 64], 1, 64).unwrap_err();
    assert!(fault.text.contains("barrier 1 has 32 of 64"), "{}", fault.text);
}

#[test]
fn mbarriers_are_checked() {
    let none = run("mov.u32 %r10, arena; mbarrier.arrive.shared::cta.b64 _, [%r10];", &[0; 1], 1, 1).unwrap_err();
    assert!(none.text.contains("no mbarrier"), "{}", none.text);
    let many =
        run("mov.u32 %r10, arena; mbarrier.init.shared::cta.b64 [%r10], 2; mbarrier.arrive.shared::cta.b64 _, [%r10], 3;", &[0; 1], 1, 1)
            .unwrap_err();
    assert!(many.text.contains("3 arrivals"), "{}", many.text);
    let over =
        run("mov.u32 %r10, arena; mbarrier.init.shared::cta.b64 [%r10], 2; st.shared.u32 [%r10+4], %r10;", &[0; 1], 1, 1).unwrap_err();
    assert!(over.text.contains("live mbarrier"), "{}", over.text);
}

#[test]
fn parts_of_warps_at_collectives_are_found() {
    let body = format!(
        "{INDEX} setp.lt.u32 %p1, %r1, 4; @%p1 bra $A; bar.warp.sync -1; bra $END;\n$A: shfl.sync.idx.b32 %r5, %r1, 0, 31, -1;\n$END:"
    );
    let fault = run(&body, &[0; 32], 1, 32).unwrap_err();
    assert!(fault.text.contains("lanes of a warp wait"), "{}", fault.text);
}

#[test]
fn clusters_share_copies_and_mbarriers() {
    // CTA 0 copies 128 bytes to both CTAs; each waits, adds its rank, and tells the other CTA's second mbarrier.
    let body = "mov.u32 %r10, arena; add.s32 %r11, %r10, 1024; mov.u32 %r1, %tid.x; mov.u32 %r2, %cluster_ctarank; xor.b32 %r3, %r2, 1;\n\
        setp.ne.u32 %p1, %r1, 0; @%p1 bra $READY;\n\
        mbarrier.init.shared::cta.b64 [%r10], 1; mbarrier.init.shared::cta.b64 [%r10+8], 32; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r10], 128;\n\
        fence.mbarrier_init.release.cluster;\n\
        $READY: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n\
        or.b32 %r4, %r1, %r2; setp.ne.u32 %p1, %r4, 0; @%p1 bra $POLL; mov.b16 %r20, 3;\n\
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r11], [%at], 128, [%r10], 3;\n\
        $POLL: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r10], 0; @!%p2 bra $POLL;\n\
        shl.b32 %r12, %r1, 2; add.s32 %r12, %r12, %r11; ld.shared.u32 %r13, [%r12]; add.s32 %r13, %r13, %r2;\n\
        mapa.shared::cluster.u32 %r14, %r12, %r3; st.shared::cluster.u32 [%r14+512], %r13;\n\
        add.s32 %r15, %r10, 8; mapa.shared::cluster.u32 %r15, %r15, %r3; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r15];\n\
        $AGAIN: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r10+8], 0; @!%p2 bra $AGAIN;\n\
        ld.shared.u32 %r13, [%r12+512]; shl.b32 %r16, %r2, 5; add.s32 %r16, %r16, %r1; mul.wide.u32 %rd1, %r16, 4; add.s64 %rd2, %at, %rd1;\n\
        st.global.u32 [%rd2+128], %r13; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;";
    let mut words = vec![0; 96];
    words[..32].copy_from_slice(&(100..132).collect::<Vec<u32>>());
    let found = run_clusters(body, &words, 2, 32, 2).unwrap();
    for lane in 0..32 {
        // CTA 0 holds what CTA 1 sent.
        assert_eq!((found[32 + lane], found[64 + lane]), (101 + lane as u32, 100 + lane as u32));
    }
}

#[test]
fn functions_return_values() {
    let module = ".version 8.6\n.func (.param .b64 out) twice(.param .b32 a, .param .b64 b)\n{\n.reg .b32 %r<3>; .reg .b64 %rd<4>;\nld.param.u32 %r1, [a]; ld.param.u64 %rd1, [b];\n\
        mul.wide.u32 %rd2, %r1, 2; add.s64 %rd3, %rd1, %rd2; st.param.b64 [out], %rd3; ret;\n}\n\
        .visible .entry k(.param .u64 k_0)\n{\n.reg .b32 %r<3>; .reg .b64 %rd<9>; .reg .pred %p<3>;\nld.param.u64 %rd1, [k_0]; mov.u32 %r1, %tid.x;\n\
        setp.gt.u32 %p1, %r1, 3; mul.wide.u32 %rd2, %r1, 8; add.s64 %rd2, %rd1, %rd2; @%p1 bra $END;\n\
        { .param .b32 p0; .param .b64 p1; .param .b64 r0; st.param.b32 [p0], %r1; st.param.b64 [p1], 1000; call.uni (r0), twice, (p0, p1); ld.param.b64 %rd3, [r0]; }\n\
        st.global.u64 [%rd2], %rd3;\n$END: ret;\n}\n";
    let module = Module::new(module.to_string(), &mut |_| 0).unwrap();
    let program = Arc::new(module.program("k").unwrap());
    let at = memory::allocate(256, 0, Kind::Plain).unwrap();
    let parameters = at.to_le_bytes().to_vec();
    exec::run(Config {
        device: 0,
        program,
        parameters,
        grid: [1; 3],
        block: [32, 1, 1],
        dynamic_shared: 0,
        cluster: 1,
        multiprocessors: 1,
    })
    .unwrap();
    // SAFETY: just allocated.
    let found = unsafe { *(at as *const [u64; 5]) };
    assert_eq!(found, [1000, 1002, 1004, 1006, u64::MAX]);
    memory::free(at);
}

#[test]
fn missing_proxy_fences_are_found() {
    let body = |fence: &str| {
        format!(
            "mov.u32 %r10, arena; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; add.s32 %r2, %r2, %r10; st.shared.u32 [%r2], %r1; {fence} bar.sync 0;\n\
             setp.ne.u32 %p1, %r1, 0; @%p1 bra $END; cp.async.bulk.global.shared::cta.bulk_group [%at], [%r10], 128; cp.async.bulk.commit_group;\n\
             cp.async.bulk.wait_group 0;\n$END:"
        )
    };
    let (with, without) = (body("fence.proxy.async.shared::cta;"), body(""));
    assert_eq!(run(&with, &[0; 32], 1, 32).unwrap(), (0..32).collect::<Vec<u32>>());
    // SAFETY: other tests read the variable under the same lock as their launches, and none minds it.
    unsafe { std::env::set_var("EMU_PROXY", "2") };
    let (with, without) = (run(&with, &[0; 32], 1, 32), run(&without, &[0; 32], 1, 32));
    // SAFETY: as above.
    unsafe { std::env::remove_var("EMU_PROXY") };
    assert!(with.is_ok());
    assert!(without.unwrap_err().text.contains("no fence.proxy.async"));
}

#[test]
fn accesses_that_nothing_orders_are_found() {
    let two = "mov.u32 %r10, arena; mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 32;";
    let shared = |barrier: &str| format!("{two} @%p1 st.shared.u32 [%r10], %r1; {barrier} @!%p1 ld.shared.u32 %r5, [%r10];");
    // CTA 1 reads word 1 when CTA 0 has written word 0.
    let flags = |release: &str, acquire: &str| {
        format!(
            "mov.u32 %r2, %ctaid.x; setp.eq.u32 %p1, %r2, 1; @%p1 bra $POLL; mov.b32 %r3, 1; st.global.u32 [%at+4], %r3; {release}\n\
             st.relaxed.gpu.global.u32 [%at], %r3; bra $END;\n\
             $POLL: ld.relaxed.gpu.global.u32 %r4, [%at]; setp.eq.u32 %p2, %r4, 0; @%p2 bra $POLL; {acquire} ld.global.u32 %r5, [%at+4];\n$END:"
        )
    };
    // Warp 1 writes and arrives; warp 0 waits, and reads.
    let mbarrier = |before: &str, behind: &str| {
        format!(
            "{two} setp.ne.u32 %p2, %r1, 0; @%p2 bra $READY; mbarrier.init.shared::cta.b64 [%r10], 32;\n$READY: bar.sync 0; @%p1 bra $POLL;\n\
             st.shared.u32 [%r10+64], %r1; mbarrier.arrive.shared::cta.b64 _, [%r10]; bra $END;\n\
             $POLL: {before} mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], 0; @!%p3 bra $POLL; {behind}\n$END:"
        )
    };
    // Warp 1 reads what a copy of warp 0 writes over.
    let over = |barrier: &str| {
        format!(
            "{two} @!%p1 ld.shared.u32 %r5, [%r10+1024]; mbarrier.init.shared::cta.b64 [%r10], 1; {barrier} setp.ne.u32 %p2, %r1, 0; @%p2 bra $END;\n\
             mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r10], 128; add.s32 %r11, %r10, 1024;\n\
             cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r11], [%at], 128, [%r10];\n\
             $POLL: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], 0; @!%p3 bra $POLL;\n$END:"
        )
    };
    // Warp 0 uses one half of a word, and behind the barrier the other; warp 1 uses the first one then.
    let halves = |own: &str, theirs: &str| {
        format!("{two} .reg .b16 %h; mov.b16 %h, 1; @%p1 {own}; bar.sync 0; @%p1 {}; @!%p1 {theirs};", own.replace("%r10+2", "%r10"))
    };
    let (store, load) = ("st.shared.u16 [%r10+2], %h", "ld.shared.u16 %h, [%r10+2]");
    let (release, acquire, read) = ("fence.acq_rel.gpu;", "fence.acquire.gpu;", "ld.shared.u32 %r5, [%r10+64];");
    let ordered = [
        (shared("bar.sync 0;"), 1),
        (flags(release, acquire), 2),
        (mbarrier("", read), 1),
        (over("bar.sync 0;"), 1),
        (halves(store, load), 1),
        (halves(load, store), 1),
    ];
    let apart = [
        (shared(""), 1),
        (flags("", acquire), 2),
        (flags(release, ""), 2),
        (flags(acquire, acquire), 2),
        (mbarrier(read, ""), 1),
        (over(""), 1),
    ];
    // SAFETY: as above.
    unsafe { std::env::set_var("EMU_RACES", "2") };
    let found = |cases: &[(String, u32)]| cases.iter().map(|(body, ctas)| run(body, &[0; 64], *ctas, 64 / ctas)).collect::<Vec<_>>();
    let (ordered, apart) = (found(&ordered), found(&apart));
    // SAFETY: as above.
    unsafe { std::env::remove_var("EMU_RACES") };
    for result in ordered {
        result.unwrap();
    }
    for (case, result) in apart.into_iter().enumerate() {
        let fault = result.expect_err(&format!("case {case} is a race"));
        assert!(fault.text.contains("nothing orders"), "case {case}: {}", fault.text);
    }
}
