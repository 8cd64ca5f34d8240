//! Races between devices.

use super::super::events::*;
use super::mapped::{create, export, import, mapped};
use super::peers::{all, packets, ping_pong};
use super::*;

const TWO: (&str, &str) = ("EMU_GPUS", "2");
/// Reported: a kernel that ends leaves another one waiting.
const REPORTED: [(&str, &str); 2] = [TWO, ("EMU_RACES", "1")];
const FATAL: [(&str, &str); 2] = [TWO, ("EMU_RACES", "2")];
const DONE: [(Status, u32); 2] = [(SUCCESS, 20); 2];

/// Ping-pong with these instructions to release and to acquire.
fn exchange(release: &str, acquire: &str) {
    assert_eq!(all(&ping_pong(10, release, acquire)), DONE);
}

const RELEASE: &str = "st.release.sys";
const ACQUIRE: &str = "ld.acquire.sys";
/// Relaxed accesses with fences: of `sys` and of `gpu`.
const FENCED: &str = "fence.acq_rel.sys; st.relaxed.sys";
const FENCED_GPU: &str = "fence.acq_rel.gpu; st.relaxed.sys";

/// Ping-pong by flags that count.
fn by_atomics(scope: &str) -> [String; 2] {
    let counts = format!("red.release.{scope}.global.add.u32 [%far], 1");
    ping_pong(10, RELEASE, ACQUIRE).map(|body| body.replace("st.release.sys.global.u32 [%far], %r1", &counts))
}

#[test]
fn atomics_of_scope_gpu_are_races() {
    let text = alone!(atomics_of_scope_gpu_are_races, &REPORTED, { assert_eq!(all(&by_atomics("gpu")), DONE) });
    assert!(text.contains("scope gpu to a peer's word") && text.contains("nothing orders"), "{text}");
}

/// No exchange of these is a race.
#[test]
fn flags_and_packets_order() {
    alone!(flags_and_packets_order, &FATAL, {
        exchange(RELEASE, ACQUIRE);
        exchange(FENCED, ACQUIRE);
        exchange("fence.sc.sys; st.volatile", ACQUIRE);
        assert_eq!(all(&by_atomics("sys")), DONE);
        assert_eq!(all(&packets(10)), DONE);
    });
}

/// What one exchange in a process of its own reports.
macro_rules! reported {
    ($($test:ident: $release:expr, $acquire:expr => $($told:literal)+;)*) => {
        $(
            #[test]
            fn $test() {
                let text = alone!($test, &REPORTED, { exchange($release, $acquire) });
                $(assert!(text.contains($told), "{text}");)+
            }
        )*
    };
}
reported! {
    stores_of_scope_gpu_are_races: "st.release.gpu", ACQUIRE => "scope gpu to a peer's word, global memory at" "of device";
    loads_of_scope_gpu_are_races: RELEASE, "ld.acquire.gpu" => "scope gpu to a peer's word" "by one of these: device" "nothing orders";
    both_of_scope_gpu_are_races: "st.release.gpu", "ld.acquire.gpu" => "scope gpu to a peer's word";
    loads_have_to_acquire: RELEASE, "ld.relaxed.sys" => "nothing orders the write of global memory" "device 0, kernel k, CTA 0, warp 0";
    stores_have_to_release: "st.relaxed.sys", ACQUIRE => "nothing orders";
    fences_have_to_be_of_the_system: FENCED_GPU, ACQUIRE => "nothing orders";
    polls_of_weak_stores_are_races: "fence.acq_rel.sys; st", ACQUIRE => "nothing orders";
}

/// A load, with a fence behind it in the ring of the loop.
fn fence_behind(fence: &str) -> [String; 2] {
    ping_pong(10, RELEASE, "ld.relaxed.sys").map(|body| body.replace("ld.global.u32 %r3", &format!("{fence} ld.global.u32 %r3")))
}

#[test]
fn fences_acquire_by_their_scope() {
    alone!(fences_acquire_by_their_scope, &FATAL, { assert_eq!(all(&fence_behind("fence.acq_rel.sys;")), DONE) });
}

#[test]
fn fences_of_scope_gpu_acquire_nothing_of_peers() {
    let body = || assert_eq!(all(&fence_behind("fence.acq_rel.gpu;")), DONE);
    let text = alone!(fences_of_scope_gpu_acquire_nothing_of_peers, &REPORTED, { body() });
    assert!(text.contains("nothing orders"), "{text}");
}

/// Rank 0 counts in its own memory by atomics of its own scope, and tells rank 1, which reads the sum.
#[test]
fn scopes_are_free_at_home() {
    let count =
        "red.relaxed.gpu.global.add.u32 [%own+256], 5; mov.b32 %r1, 1; st.release.sys.global.u32 [%far], %r1; st.global.u32 [%own+128], 5;";
    let read = "$WAIT: ld.acquire.sys.global.u32 %r1, [%own]; setp.eq.u32 %p1, %r1, 0; @%p1 bra $WAIT;\n\
        ld.global.u32 %r2, [%far+256]; st.global.u32 [%own+128], %r2;";
    let bodies = [count, read].map(String::from);
    alone!(scopes_are_free_at_home, &FATAL, { assert_eq!(all(&bodies), [(SUCCESS, 5); 2]) });
}

const WRITE: &str = "mov.b32 %r1, 7; st.global.u32 [%own], %r1;";
const READ: &str = "ld.global.u32 %r1, [%own];";

/// A launch of device 0 on a word of its memory, then one of device 1 on it. `between` gets both streams.
fn one_behind_the_other(first: &str, second: &str, between: impl Fn([*mut c_void; 2])) -> Status {
    enter(0);
    let at = zeros(64);
    behind([at; 2], first, second, between)
}

fn behind(at: [u64; 2], first: &str, second: &str, between: impl Fn([*mut c_void; 2])) -> Status {
    enter(0);
    let (kernel_0, stream_0) = (kernel(first), stream());
    enter(1);
    cuCtxEnablePeerAccess(primary(0), 0);
    let (kernel_1, stream_1) = (kernel(second), stream());
    assert_eq!(launch_on(stream_0, kernel_0, at[0], 0), SUCCESS);
    between([stream_0, stream_1]);
    assert_eq!(launch_on(stream_1, kernel_1, at[1], 0), SUCCESS);
    // SAFETY: streams that live.
    unsafe { cuStreamSynchronize(stream_0).max(cuStreamSynchronize(stream_1)) }
}

fn synchronize([first, _]: [*mut c_void; 2]) {
    // SAFETY: a stream that lives.
    assert_eq!(unsafe { cuStreamSynchronize(first) }, SUCCESS);
}

/// Without the driver: the launch has ended, but nobody has waited for that.
fn sleep(_: [*mut c_void; 2]) {
    std::thread::sleep(std::time::Duration::from_millis(100));
}

fn with_event([first, second]: [*mut c_void; 2]) {
    enter(0);
    let mut event = null_mut();
    // SAFETY: a place for the answer, and streams that live.
    unsafe {
        assert_eq!(cuEventCreate(&mut event, 0), SUCCESS);
        assert_eq!(cuEventRecord(event, first), SUCCESS);
        assert_eq!(cuStreamWaitEvent(second, event, 0), SUCCESS);
    }
    enter(1);
}

fn query([first, _]: [*mut c_void; 2]) {
    // SAFETY: a stream that lives.
    while unsafe { cuStreamQuery(first) } == NOT_READY {}
}

#[test]
fn hosts_and_events_order_launches() {
    alone!(hosts_and_events_order_launches, &FATAL, {
        for between in [synchronize, with_event, query] {
            for (first, second) in [(WRITE, READ), (WRITE, WRITE), (READ, WRITE)] {
                assert_eq!(one_behind_the_other(first, second, between), SUCCESS);
            }
        }
    });
}

macro_rules! unordered {
    ($($test:ident: $first:expr, $second:expr;)*) => {
        $(
            #[test]
            fn $test() {
                let text = alone!($test, &FATAL, { assert_eq!(one_behind_the_other($first, $second, sleep), crate::exec::LAUNCH_FAILED) });
                assert!(text.contains("nothing orders"), "{text}");
            }
        )*
    };
}
unordered! {
    launches_that_nobody_waited_for_write: WRITE, READ;
    launches_that_nobody_waited_for_read: READ, WRITE;
}

/// Launches of one stream, and of one device in general, are not looked at: as with one device.
#[test]
fn launches_of_one_device_are_not_races() {
    alone!(launches_of_one_device_are_not_races, &FATAL, {
        enter(0);
        let (at, kernel) = (zeros(64), kernel(WRITE));
        for _ in 0..3 {
            assert_eq!([launch_on(stream(), kernel, at, 0), launch_on(stream(), kernel, at, 0)], [SUCCESS; 2]);
        }
        assert_eq!((cuCtxSynchronize(), word(at)), (SUCCESS, 7));
    });
}

/// The same memory at two addresses.
#[test]
fn races_do_not_hide_behind_mappings() {
    let text = alone!(races_do_not_hide_behind_mappings, &FATAL, {
        enter(0);
        let handle = create(0);
        let at = [mapped(handle, 0), mapped(import(&export(handle)), 1)];
        assert_eq!(behind(at, WRITE, WRITE, synchronize), SUCCESS);
        let apart = [at[0], at[1] + 64];
        assert_eq!(behind(apart, WRITE, WRITE, sleep), SUCCESS);
        assert_eq!(behind(at, WRITE, WRITE, sleep), crate::exec::LAUNCH_FAILED);
    });
    assert!(text.contains("byte 0x0 of mapped memory"), "{text}");
}
