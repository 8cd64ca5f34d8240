//! Devices, their contexts, and memory of peers.

use std::sync::Barrier;

use super::*;

const TWO: (&str, &str) = ("EMU_GPUS", "2");

fn attribute(attribute: u32, device: i32) -> i32 {
    let mut value = -1;
    // SAFETY: a place for the answer.
    assert_eq!(unsafe { cuDeviceGetAttribute(&mut value, attribute, device) }, SUCCESS);
    value
}

/// Lets the current device use the memory of another one.
fn enable(other: usize) -> Status {
    cuCtxEnablePeerAccess(primary(other), 0)
}

#[test]
fn devices_are_told_apart() {
    alone!(devices_are_told_apart, &[("EMU_GPUS", "3")], {
        let (mut count, mut device) = (0, -1);
        let mut uuids = [[0u8; 16]; 3];
        // SAFETY: places for the answers.
        unsafe {
            assert_eq!((cuDeviceGetCount(&mut count), count), (SUCCESS, 3));
            assert_eq!((cuDeviceGet(&mut device, 2), device), (SUCCESS, 2));
            assert_eq!(cuDeviceGet(&mut device, 3), INVALID_DEVICE);
            assert_eq!(cuDeviceGetAttribute(&mut device, 16, 3), INVALID_DEVICE);
            for (device, uuid) in uuids.iter_mut().enumerate() {
                assert_eq!(cuDeviceGetUuid_v2(uuid, device as i32), SUCCESS);
            }
        }
        assert!(uuids[0] != uuids[1] && uuids[1] != uuids[2]);
        assert_eq!((attribute(33, 1), attribute(33, 2), attribute(102, 1), attribute(103, 1)), (1, 2, 1, 1));
        let mut at = 0;
        // SAFETY: a place for the answer. No context is current.
        assert_eq!(unsafe { cuMemAlloc_v2(&mut at, 64) }, INVALID_CONTEXT);
        let mut places = Vec::new();
        for device in [1, 2] {
            enter(device);
            places.push((zeros(64), stream(), kernel("")));
        }
        let (mut owner, mut context) = (-1, null_mut::<c_void>());
        // SAFETY: places for the answers.
        unsafe {
            assert_eq!(cuPointerGetAttribute((&raw mut owner).cast(), 9, places[0].0), SUCCESS);
            assert_eq!(cuPointerGetAttribute((&raw mut context).cast(), 1, places[0].0), SUCCESS);
            assert_eq!((cuCtxGetDevice(&mut device), device), (SUCCESS, 2));
        }
        assert_eq!((owner, context), (1, primary(1)));
        // SAFETY: a place for the answer.
        unsafe { cuStreamGetCtx(places[0].1, &mut context) };
        assert_eq!(context, primary(1));
        assert_eq!(launch_on(places[0].1, places[1].2, 0, 0), INVALID_HANDLE);
        std::thread::spawn(|| assert_eq!(current_device(), None)).join().unwrap();
    });
}

#[test]
fn peers_have_to_be_enabled() {
    let store = "mov.b32 %r1, 7; st.global.u32 [%far], %r1;";
    let text = alone!(peers_have_to_be_enabled, &[TWO], {
        let [mut can, mut atomics] = [-1; 2];
        // SAFETY: places for the answers.
        unsafe {
            assert_eq!((cuDeviceCanAccessPeer(&mut can, 0, 1), can), (SUCCESS, 1));
            assert_eq!((cuDeviceCanAccessPeer(&mut can, 1, 1), can), (SUCCESS, 0));
            assert_eq!((cuDeviceGetP2PAttribute(&mut atomics, 3, 0, 1), atomics), (SUCCESS, 1));
            assert_eq!(cuDeviceGetP2PAttribute(&mut atomics, 3, 1, 1), INVALID_DEVICE);
        }
        enter(1);
        let far = zeros(64);
        enter(0);
        assert_eq!((enable(0), enable(1), enable(1)), (INVALID_DEVICE, SUCCESS, PEER_ACCESS_ALREADY_ENABLED));
        assert_eq!(run(kernel(store), 0, far), SUCCESS);
        assert_eq!(word(far), 7);
        // Copies go without.
        assert_eq!(cuCtxDisablePeerAccess(primary(1)), SUCCESS);
        assert_eq!(cuCtxDisablePeerAccess(primary(1)), PEER_ACCESS_NOT_ENABLED);
        assert_eq!(word(far), 7);
        assert_eq!(run(kernel(store), 0, far), crate::exec::ILLEGAL_ADDRESS);
        // The other device's context is not spoilt.
        assert_eq!(fault(), crate::exec::ILLEGAL_ADDRESS);
        enter(1);
        assert_eq!((fault(), word(far)), (SUCCESS, 7));
    });
    assert!(text.contains("no peer access was enabled"), "{text}");
}

#[test]
fn bulk_copies_need_peer_access() {
    let text = alone!(bulk_copies_need_peer_access, &[TWO], {
        enter(1);
        let far = zeros(64);
        enter(0);
        let body = ".shared .align 128 .b8 arena[256]; mov.u32 %r1, arena; add.s32 %r2, %r1, 128; mbarrier.init.shared::cta.b64 [%r1], 1;\n\
            mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 64;\n\
            cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%far], 64, [%r1];\n\
            $POLL: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0; @!%p1 bra $POLL;";
        assert_eq!(enable(1), SUCCESS);
        assert_eq!(run(kernel(body), 0, far), SUCCESS);
        assert_eq!(cuCtxDisablePeerAccess(primary(1)), SUCCESS);
        assert_eq!(run(kernel(body), 0, far), crate::exec::ILLEGAL_ADDRESS);
    });
    assert!(text.contains("not for device 0"), "{text}");
}

#[test]
fn there_may_be_no_peers() {
    alone!(there_may_be_no_peers, &[TWO, ("EMU_NO_PEERS", "1")], {
        let mut can = -1;
        // SAFETY: places for the answers.
        unsafe {
            assert_eq!((cuDeviceCanAccessPeer(&mut can, 0, 1), can), (SUCCESS, 0));
            assert_eq!((cuDeviceGetP2PAttribute(&mut can, 2, 0, 1), can), (SUCCESS, 0));
        }
        enter(0);
        assert_eq!(enable(1), PEER_ACCESS_UNSUPPORTED);
    });
}

fn can(device: i32, other: i32) -> i32 {
    let mut can = -1;
    // SAFETY: a place for the answer.
    assert_eq!(unsafe { cuDeviceCanAccessPeer(&mut can, device, other) }, SUCCESS);
    can
}

#[test]
fn access_may_be_of_one_direction() {
    alone!(access_may_be_of_one_direction, &[("EMU_GPUS", "3"), ("EMU_NO_PEER", "0>1, 2>0")], {
        let pairs = [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)];
        assert_eq!(pairs.map(|(device, other)| can(device, other)), [0, 1, 1, 0, 1, 1]);
        enter(1);
        enter(0);
        assert_eq!((enable(1), enable(2)), (PEER_ACCESS_UNSUPPORTED, SUCCESS));
        enter(1);
        assert_eq!(enable(0), SUCCESS);
    });
}

#[test]
fn devices_may_be_parts() {
    alone!(devices_may_be_parts, &[TWO, ("EMU_MIG", "1")], {
        let mut name = [0i8; 64];
        // SAFETY: a place of that length.
        assert_eq!(unsafe { cuDeviceGetName(name.as_mut_ptr().cast(), 64, 1) }, SUCCESS);
        assert_eq!(&name.map(|byte| byte as u8)[..24], b"NVIDIA H200 MIG 1g.18gb ");
        assert_eq!((can(0, 1), can(1, 0)), (0, 0));
        enter(0);
        assert_eq!(enable(1), PEER_ACCESS_UNSUPPORTED);
    });
}

/// Kernels of two ranks that send a number to and fro `rounds` times, each adding one: behind a flag of `scope`.
pub fn ping_pong(rounds: u32, release: &str, acquire: &str) -> [String; 2] {
    let send = format!("add.s32 %r3, %r3, 1; st.global.u32 [%far+64], %r3; {release}.global.u32 [%far], %r1;");
    let wait = |label: &str| {
        format!("{label}: {acquire}.global.u32 %r2, [%own]; setp.ne.u32 %p1, %r2, %r1; @%p1 bra {label}; ld.global.u32 %r3, [%own+64];")
    };
    let rank = |body: &str| {
        format!(
            "mov.b32 %r1, 0; mov.b32 %r3, 0;\n$ROUND: add.s32 %r1, %r1, 1;\n{body}\nsetp.lt.u32 %p2, %r1, {rounds}; @%p2 bra $ROUND;\n\
             st.global.u32 [%own+128], %r3;"
        )
    };
    [rank(&format!("{send}\n{}", wait("$WAIT"))), rank(&format!("{}\n{send}", wait("$WAIT")))]
}

/// Runs a kernel for each device at once, each by a thread: with its memory and the next device's. What they end with, and the words at 128.
pub fn all<const RANKS: usize>(bodies: &[String; RANKS]) -> [(Status, u32); RANKS] {
    let places: [u64; RANKS] = std::array::from_fn(|device| {
        enter(device);
        zeros(4096)
    });
    let ready = Barrier::new(RANKS);
    std::thread::scope(|scope| {
        let threads: [_; RANKS] = std::array::from_fn(|rank| {
            let (ready, body, next) = (&ready, &bodies[rank], (rank + 1) % RANKS);
            scope.spawn(move || {
                enter(rank);
                assert!([SUCCESS, PEER_ACCESS_ALREADY_ENABLED].contains(&enable(next)));
                let (kernel, stream) = (kernel(body), stream());
                ready.wait();
                assert_eq!(launch_on(stream, kernel, places[rank], places[next]), SUCCESS);
                // SAFETY: a stream that lives.
                let status = unsafe { cuStreamSynchronize(stream) };
                (status, if status == SUCCESS { word(places[rank] + 128) } else { 0 })
            })
        });
        threads.map(|thread| thread.join().unwrap())
    })
}

#[test]
fn ranks_exchange_by_flags() {
    alone!(ranks_exchange_by_flags, &[TWO], {
        let ranks = ping_pong(200, "st.release.sys", "ld.acquire.sys");
        assert_eq!(all(&ranks), [(SUCCESS, 400), (SUCCESS, 400)]);
    });
}

/// Kernels that exchange two packets a round: 32 bits of data and 32 of a flag each.
pub fn packets(rounds: u32) -> [String; 2] {
    let send = "add.s32 %r3, %r3, 1; mov.b64 %rd1, {%r3, %r1}; st.relaxed.sys.global.v2.u64 [%far], {%rd1, %rd1};";
    let wait = "$WAIT: ld.relaxed.sys.global.v2.u64 {%rd2, %rd3}, [%own]; mov.b64 {%r3, %r4}, %rd2; mov.b64 {%r5, %r6}, %rd3;\n\
        setp.ne.u32 %p1, %r4, %r1; @%p1 bra $WAIT; setp.ne.u32 %p1, %r6, %r1; @%p1 bra $WAIT;";
    let rank = |body: String| {
        format!(
            "mov.b32 %r1, 0; mov.b32 %r3, 0;\n$ROUND: add.s32 %r1, %r1, 1;\n{body}\nsetp.lt.u32 %p2, %r1, {rounds}; @%p2 bra $ROUND;\n\
             st.global.u32 [%own+128], %r3;"
        )
    };
    [rank(format!("{send}\n{wait}")), rank(format!("{wait}\n{send}"))]
}

#[test]
fn ranks_exchange_packets() {
    alone!(ranks_exchange_packets, &[TWO], {
        assert_eq!(all(&packets(200)), [(SUCCESS, 400), (SUCCESS, 400)]);
    });
}

/// Rank 0 begins; a number goes around and each rank adds one, while all others spin.
fn ring(rounds: u32) -> [String; 8] {
    let [first, other] = ping_pong(rounds, "st.release.sys", "ld.acquire.sys");
    std::array::from_fn(|rank| if rank == 0 { first.clone() } else { other.clone() })
}

#[test]
fn eight_ranks_get_on() {
    alone!(eight_ranks_get_on, &[("EMU_GPUS", "8")], {
        let ends = all(&ring(20));
        assert_eq!(ends[0], (SUCCESS, 160));
        assert_eq!(ends.map(|(status, _)| status), [SUCCESS; 8]);
    });
}

#[test]
fn eight_ranks_get_on_in_one_order() {
    alone!(eight_ranks_get_on_in_one_order, &[("EMU_GPUS", "8"), ("EMU_RACES", "2")], { assert_eq!(all(&ring(20))[0], (SUCCESS, 160)) });
}

/// Rank 0 sleeps between its polls, which takes no time but of the virtual clock; rank 1 counts to 50 000. Rank 0 is not to have slept through
/// much more than that took.
#[test]
fn sleepers_wait_for_the_other_device() {
    let wait = |label: &str, value: u32, sleep: &str| {
        format!("{label}: {sleep} ld.relaxed.sys.global.u32 %r2, [%own]; setp.lt.u32 %p1, %r2, {value}; @%p1 bra {label};")
    };
    let tell = |value: u32| format!("mov.b32 %r1, {value}; st.relaxed.sys.global.u32 [%far], %r1;");
    let sleeper = format!(
        "{}\n{}\nmov.u64 %rd1, %globaltimer;\n{}\nmov.u64 %rd2, %globaltimer; sub.s64 %rd2, %rd2, %rd1; cvt.u32.u64 %r3, %rd2;\n\
         st.global.u32 [%own+128], %r3;",
        tell(1),
        wait("$HELLO", 1, ""),
        wait("$WAIT", 2, "nanosleep.u32 1000;")
    );
    let count = "mov.b32 %r3, 0;\n$COUNT: add.s32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 50000; @%p2 bra $COUNT;";
    let counter = format!("{}\n{}\n{count}\n{}", tell(1), wait("$HELLO", 1, ""), tell(2));
    alone!(sleepers_wait_for_the_other_device, &[TWO], {
        let [(status, slept), _] = all(&[sleeper, counter]);
        assert_eq!(status, SUCCESS);
        // 150 000 instructions of 4 ns, and as many more as a launch may be ahead.
        assert!((100_000..2_000_000).contains(&slept), "slept {slept} ns");
    });
}
