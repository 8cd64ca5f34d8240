//! Words that streams wait for and write, and the order that they make.

use super::super::events::*;
use super::super::graphs::*;
use super::super::words::*;
use super::*;

const FATAL: [(&str, &str); 2] = [("EMU_GPUS", "2"), ("EMU_RACES", "2")];
const EQUAL: u32 = 1;

/// A kernel that makes a number at `%own`, opens the gate at `%far`, and reads what it gets behind the next word.
fn exchanged(release: &str, acquire: &str) -> String {
    format!(
        "mov.b32 %r1, 7; st.global.u32 [%own], %r1; mov.b32 %r2, 1; {release}.global.u32 [%far], %r2;\n\
         $WAIT: {acquire}.global.u32 %r3, [%far+4]; setp.eq.u32 %p1, %r3, 0; @%p1 bra $WAIT;\n\
         ld.global.u32 %r4, [%own+64]; st.global.u32 [%own+128], %r4;"
    )
}

/// What the kernel made is copied behind its gate, while the kernel waits for the copy.
fn beside(release: &str, acquire: &str, wait: u32, flags: u32) -> (Status, u32) {
    enter(0);
    let (own, gates) = (zeros(256), zeros(64));
    let (kernel, launches, copies) = (kernel(&exchanged(release, acquire)), stream(), stream());
    assert_eq!(launch_on(launches, kernel, own, gates), SUCCESS);
    // SAFETY: streams and memory that live.
    unsafe {
        assert_eq!(cuStreamWaitValue32_v2(copies, gates, wait, EQUAL), SUCCESS);
        assert_eq!(cuMemcpyDtoDAsync_v2(own + 64, own, 4, copies), SUCCESS);
        assert_eq!(cuStreamWriteValue32_v2(copies, gates + 4, 1, flags), SUCCESS);
        let status = cuStreamSynchronize(copies).max(cuStreamSynchronize(launches));
        (status, if status == SUCCESS { word(own + 128) } else { 0 })
    }
}

#[test]
fn streams_wait_beside_kernels() {
    alone!(streams_wait_beside_kernels, &FATAL, {
        assert_eq!(beside("st.release.sys", "ld.acquire.sys", 1, 0), (SUCCESS, 7));
        assert_eq!(beside("fence.acq_rel.sys; st.relaxed.sys", "ld.acquire.sys", 1, 0), (SUCCESS, 7));
    });
}

/// What goes wrong in a process of its own, and what it says.
macro_rules! raced {
    ($($test:ident: $release:expr, $acquire:expr, $wait:expr, $flags:expr => $told:literal;)*) => {
        $(
            #[test]
            fn $test() {
                let text = alone!($test, &FATAL, { assert_eq!(beside($release, $acquire, $wait, $flags).0, crate::exec::LAUNCH_FAILED) });
                assert!(text.contains("nothing orders") && text.contains("a copy of a stream") && text.contains($told), "{text}");
            }
        )*
    };
}
raced! {
    gates_have_to_release: "st.relaxed.sys", "ld.acquire.sys", 1, 0 => "the read by device 0, a copy";
    gates_have_to_release_for_all_devices: "st.release.gpu", "ld.acquire.sys", 1, 0 => "the read by device 0, a copy";
    results_have_to_be_acquired: "st.release.sys", "ld.relaxed.sys", 1, 0 => "the read by device 0, kernel k";
    streams_have_to_release: "st.release.sys", "ld.acquire.sys", 1, 1 => "the read by device 0, kernel k";
}

/// A copy that does not wait for the gate, on a stream that has waited for another one.
#[test]
fn copies_before_a_gate_are_races() {
    let text = alone!(copies_before_a_gate_are_races, &FATAL, {
        enter(0);
        let (own, gates) = (zeros(256), zeros(64));
        let (kernel, launches, copies) = (kernel("mov.b32 %r1, 7; st.global.u32 [%own], %r1;"), stream(), stream());
        assert_eq!(launch_on(launches, kernel, own, gates), SUCCESS);
        std::thread::sleep(std::time::Duration::from_millis(100));
        // SAFETY: streams and memory that live.
        unsafe {
            assert_eq!(cuStreamWaitValue32_v2(copies, gates, 0, EQUAL), SUCCESS);
            assert_eq!(cuMemcpyDtoDAsync_v2(own + 64, own, 4, copies), SUCCESS);
            assert_eq!(cuStreamSynchronize(copies), crate::exec::LAUNCH_FAILED);
        }
    });
    assert!(text.contains("nothing orders") && text.contains("the read by device 0, a copy of a stream"), "{text}");
}

/// A graph of a launch and of what another stream does beside it: its branches run at once, again and again.
#[test]
fn branches_of_graphs_run_at_once() {
    alone!(branches_of_graphs_run_at_once, &FATAL, {
        enter(0);
        let (own, gates) = (zeros(256), zeros(64));
        let (kernel, launches, copies) = (kernel(&exchanged("st.release.sys", "ld.acquire.sys")), stream(), stream());
        let (mut graph, mut ready) = (null_mut(), null_mut());
        // SAFETY: streams, events and memory that live, and places for the answers.
        unsafe {
            let event = || {
                let mut event = null_mut();
                assert_eq!(cuEventCreate(&mut event, 0), SUCCESS);
                event
            };
            let (begin, end) = (event(), event());
            assert_eq!(cuStreamBeginCapture_v2(launches, 2), SUCCESS);
            assert_eq!([cuEventRecord(begin, launches), cuStreamWaitEvent(copies, begin, 0)], [SUCCESS; 2]);
            assert_eq!(launch_on(launches, kernel, own, gates), SUCCESS);
            assert_eq!(cuStreamWaitValue32_v2(copies, gates, 1, EQUAL), SUCCESS);
            assert_eq!(cuMemcpyDtoDAsync_v2(own + 64, own, 4, copies), SUCCESS);
            assert_eq!([cuStreamWriteValue32_v2(copies, gates, 0, 0), cuStreamWriteValue32_v2(copies, gates + 4, 1, 0)], [SUCCESS; 2]);
            assert_eq!([cuEventRecord(end, copies), cuStreamWaitEvent(launches, end, 0)], [SUCCESS; 2]);
            assert_eq!(cuStreamWriteValue32_v2(launches, gates + 4, 0, 0), SUCCESS);
            assert_eq!(cuStreamEndCapture(launches, &mut graph), SUCCESS);
            assert_eq!(cuGraphInstantiateWithFlags(&mut ready, graph, 0), SUCCESS);
            for _ in 0..3 {
                assert_eq!([cuMemsetD8_v2(own, 0, 256), cuGraphLaunch(ready, launches), cuStreamSynchronize(launches)], [SUCCESS; 3]);
                assert_eq!([word(own + 128), word(gates), word(gates + 4)], [7, 0, 0]);
            }
            assert_eq!([cuGraphExecDestroy(ready), cuGraphDestroy(graph)], [SUCCESS; 2]);
        }
    });
}
