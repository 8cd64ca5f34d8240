//! What is passed arrives, what is written comes back, and what fails is an error.

use std::ffi::c_void;
use std::ptr::null_mut;

use nccl_sys::*;

use crate::library::{Fake, complete};

/// Addresses above 32 bits, so that one that is cut short differs. Nobody reads or writes there.
const A: usize = 0x1_0000_0001;
const B: usize = 0x2_0000_0002;
const N: usize = 0x3_0000_0003;
const COMM: usize = 0x4_0000_0000;
const STREAM: usize = 0x5_0000_0005;

fn at<T>(address: usize) -> *mut T {
    std::ptr::without_provenance_mut(address)
}

fn nccl() -> (Nccl, Fake) {
    let library = complete();
    // SAFETY: the fake has NCCL's signatures.
    let nccl = unsafe { Nccl::open([&library]) }.unwrap();
    let fake = Fake::of(&library);
    fake.take();
    (nccl, fake)
}

#[test]
fn collectives() {
    let (nccl, fake) = nccl();
    let (a, b, comm, stream): (*mut c_void, *mut c_void, ncclComm_t, cudaStream_t) = (at(A), at(B), at(COMM), at(STREAM));
    // SAFETY: the fake reads and writes nothing.
    let results = unsafe {
        [
            nccl.all_reduce(a, b, N, ncclFloat32, ncclMax, comm, stream),
            nccl.broadcast(a, b, N, ncclBfloat16, 6, comm, stream),
            nccl.reduce(a, b, N, ncclInt8, ncclAvg, 6, comm, stream),
            nccl.all_gather(a, b, N, ncclUint64, comm, stream),
            nccl.reduce_scatter(a, b, N, ncclFloat16, ncclProd, comm, stream),
            nccl.send(a, N, ncclInt32, 6, comm, stream),
            nccl.recv(b, N, ncclInt64, 6, comm, stream),
        ]
    };
    assert!(results.into_iter().all(|result| result.unwrap() == Status::Done));
    let expected = [
        format!("ncclAllReduce {A} {B} {N} 7 2 {COMM} {STREAM}\n"),
        format!("ncclBroadcast {A} {B} {N} 9 6 {COMM} {STREAM}\n"),
        format!("ncclReduce {A} {B} {N} 0 4 6 {COMM} {STREAM}\n"),
        format!("ncclAllGather {A} {B} {N} 5 {COMM} {STREAM}\n"),
        format!("ncclReduceScatter {A} {B} {N} 6 1 {COMM} {STREAM}\n"),
        format!("ncclSend {A} {N} 2 6 {COMM} {STREAM}\n"),
        format!("ncclRecv {B} {N} 4 6 {COMM} {STREAM}\n"),
    ];
    assert_eq!(fake.take(), expected.concat());
}

#[test]
fn a_communicator_begins_with_its_configuration() {
    let (nccl, fake) = nccl();
    let id = nccl.unique_id().unwrap();
    let mut config =
        ncclConfig_t { blocking: 0, cgaClusterSize: 1, minCTAs: 4, maxCTAs: 8, netName: at(A), nvlsHostMode: 9, ..ncclConfig_t::default() };
    let mut comm = null_mut();
    // SAFETY: `comm` is writable, and the fake does not read the name.
    assert_eq!(unsafe { nccl.comm_init_rank_config(&mut comm, 4, id, 3, &mut config) }.unwrap(), Status::Done);
    assert_eq!(comm.addr(), 0xC0FFEE);
    let magic = 0xcafe_beef_u32.cast_signed();
    assert_eq!(
        fake.take(),
        format!("ncclGetUniqueId\nncclCommInitRankConfig 4 1 127 3 120 [{magic}, 23203, 0, 1, 4, 8] {A} 9\n"),
        "ranks, two bytes of the identity, rank, the configuration"
    );
}

#[test]
fn communicators_of_one_process() {
    let (nccl, fake) = nccl();
    let mut comms = [null_mut(); 2];
    // SAFETY: the fake needs no CUDA.
    unsafe { nccl.comm_init_all(&mut comms, &[1, 0]) }.unwrap();
    assert_eq!(comms.map(|comm| comm.addr()), [0xC1, 0xC0]);
    assert!(fake.take().starts_with("ncclCommInitAll out 2 "));
    // SAFETY: as above.
    let error = unsafe { nccl.comm_init_all(&mut comms, &[0]) }.unwrap_err();
    assert!(error.to_string().starts_with("`ncclCommInitAll` failed: 2 communicators were asked for on 1 devices"), "{error}");
    assert_eq!(fake.take(), "", "nothing is called");
}

#[test]
fn a_communicator_and_a_group() {
    let (nccl, fake) = nccl();
    let comm = at(COMM);
    nccl.group_start().unwrap();
    // SAFETY: the fake does not use the communicator.
    unsafe {
        assert_eq!(
            [nccl.comm_count(comm).unwrap(), nccl.comm_cu_device(comm).unwrap(), nccl.comm_user_rank(comm).unwrap()],
            [101, 102, 103]
        );
        assert_eq!(nccl.group_end().unwrap(), Status::Done);
        assert_eq!(nccl.comm_finalize(comm).unwrap(), Status::Done);
        assert_eq!(nccl.comm_destroy(comm).unwrap(), Status::Done);
        assert_eq!(nccl.comm_abort(comm).unwrap(), Status::Done);
    }
    let expected = [
        "ncclGroupStart\n".to_owned(),
        format!("ncclCommCount {COMM} out\n"),
        format!("ncclCommCuDevice {COMM} out\n"),
        format!("ncclCommUserRank {COMM} out\n"),
        "ncclGroupEnd\n".to_owned(),
        format!("ncclCommFinalize {COMM}\n"),
        format!("ncclCommDestroy {COMM}\n"),
        format!("ncclCommAbort {COMM}\n"),
    ];
    assert_eq!(fake.take(), expected.concat());
}

#[test]
fn memory_and_windows() {
    let (nccl, fake) = nccl();
    let (comm, mut window): (ncclComm_t, ncclWindow_t) = (at(COMM), null_mut());
    // SAFETY: the fake writes its results only.
    unsafe {
        assert_eq!(nccl.mem_alloc(N).unwrap().addr(), 201);
        nccl.mem_free(at(A)).unwrap();
        assert_eq!(nccl.comm_register(comm, at(A), N).unwrap().addr(), 202);
        nccl.comm_deregister(comm, at(B)).unwrap();
        assert_eq!(nccl.comm_window_register(comm, at(A), N, &mut window, NCCL_WIN_COLL_SYMMETRIC).unwrap(), Status::Done);
        assert_eq!(window.addr(), 203);
        assert_eq!(nccl.comm_window_deregister(comm, at(B)).unwrap(), Status::Done);
        assert_eq!(nccl.lsa_multimem_device_pointer(at(A), N).unwrap().addr(), 204);
        assert_eq!(nccl.lsa_device_pointer(at(A), N, 6).unwrap().addr(), 205);
        assert_eq!(nccl.peer_device_pointer(at(A), N, 7).unwrap().addr(), 206);
    }
    let expected = [
        format!("ncclMemAlloc out {N}\n"),
        format!("ncclMemFree {A}\n"),
        format!("ncclCommRegister {COMM} {A} {N} out\n"),
        format!("ncclCommDeregister {COMM} {B}\n"),
        format!("ncclCommWindowRegister {COMM} {A} {N} out 1\n"),
        format!("ncclCommWindowDeregister {COMM} {B}\n"),
        format!("ncclGetLsaMultimemDevicePointer {A} {N} out\n"),
        format!("ncclGetLsaDevicePointer {A} {N} 6 out\n"),
        format!("ncclGetPeerDevicePointer {A} {N} 7 out\n"),
    ];
    assert_eq!(fake.take(), expected.concat());
}

#[test]
fn put_signal_and_wait() {
    let (nccl, fake) = nccl();
    let (comm, stream) = (at(COMM), at(STREAM));
    let mut signals =
        [ncclWaitSignalDesc_t { opCnt: 1, peer: 2, sigIdx: 3, ctx: 4 }, ncclWaitSignalDesc_t { opCnt: 5, peer: 6, sigIdx: 7, ctx: 8 }];
    // SAFETY: the fake reads the signals only.
    let results = unsafe {
        [
            nccl.put_signal(at(A), N, ncclFloat64, 6, at(B), 40, 7, 8, 9, comm, stream),
            nccl.signal(6, 7, 8, 9, comm, stream),
            nccl.wait_signal(&mut signals, comm, stream),
        ]
    };
    assert!(results.into_iter().all(|result| result.unwrap() == Status::Done));
    let expected = [
        format!("ncclPutSignal {A} {N} 8 6 {B} 40 7 8 9 {COMM} {STREAM}\n"),
        format!("ncclSignal 6 7 8 9 {COMM} {STREAM}\n"),
        format!("ncclWaitSignal [[1, 2, 3, 4], [5, 6, 7, 8]] {COMM} {STREAM}\n"),
    ];
    assert_eq!(fake.take(), expected.concat());
}

#[test]
fn a_call_that_fails_is_an_error_with_nccls_texts() {
    let (nccl, fake) = nccl();
    fake.next(5);
    let error = nccl.group_start().unwrap_err();
    let Error::Call { function, result, text, last_error } = &error else { panic!("{error}") };
    assert_eq!((*function, *result, &**text, &**last_error), ("ncclGroupStart", ncclInvalidUsage, "invalid usage", "what happened last"));
    let text = "`ncclGroupStart` failed: invalid usage (ncclResult_t 5)\nbecause: what happened last\nhelp: set NCCL_DEBUG=WARN";
    assert!(error.to_string().starts_with(text), "{error}");
    // Of a version to come.
    fake.next(77);
    assert!(matches!(nccl.group_start(), Err(Error::Call { result: ncclResult_t(77), .. })));
    assert!(nccl.group_start().is_ok());
    assert_eq!((nccl.error_string(ncclInvalidUsage), nccl.last_error()), ("invalid usage".to_owned(), "what happened last".to_owned()));
}

#[test]
fn a_call_in_progress_is_no_error_where_it_may_be() {
    let (nccl, fake) = nccl();
    fake.next(7);
    // SAFETY: the fake does not use the communicator.
    assert_eq!(unsafe { nccl.comm_finalize(at(COMM)) }.unwrap(), Status::InProgress);
    fake.next(7);
    assert!(nccl.unique_id().is_err(), "an identity is there or not");
}

#[test]
fn the_state_of_a_communicator() {
    let (nccl, _) = nccl();
    // The fake's state is the last byte of the communicator.
    // SAFETY: the fake does not use the communicator.
    let state = |state: usize| unsafe { nccl.comm_async_status(at(COMM + state)) };
    assert_eq!((state(0).unwrap(), state(7).unwrap()), (Status::Done, Status::InProgress));
    assert!(matches!(state(6), Err(Error::Call { function: "ncclCommGetAsyncError", result, .. }) if result == ncclRemoteError));
}
