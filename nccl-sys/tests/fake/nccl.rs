//! A library with NCCL's names that does nothing but write down its calls. `library.rs` compiles it, in several versions.
//! Arguments have the widths of C's types, and are not those of the bindings: what arrives is compared with what was passed.

#![allow(non_snake_case)]

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, c_uint};
use std::fmt::Debug;

thread_local! {
    static LOG: RefCell<String> = const { RefCell::new(String::new()) };
    static NEXT: Cell<c_int> = const { Cell::new(0) };
}

type Pointer = usize;

/// Where a result is written. It is a place in the bindings, so that its address says nothing.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Out(usize);

impl Debug for Out {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("out")
    }
}

fn call(name: &str, arguments: &[&dyn Debug]) -> c_int {
    LOG.with_borrow_mut(|log| {
        log.push_str(name);
        for argument in arguments {
            log.push_str(&format!(" {argument:?}"));
        }
        log.push('\n');
    });
    NEXT.replace(0)
}

fn write<T>(at: Out, value: T) {
    // SAFETY: the test passed a place for a `T`, as NCCL asks for.
    unsafe { (at.0 as *mut T).write(value) }
}

fn read<T>(at: Pointer, offset: usize) -> T {
    // SAFETY: the test passed a structure that has a `T` there.
    unsafe { ((at + offset) as *const T).read() }
}

/// Moves this thread's calls to `buffer`.
#[unsafe(no_mangle)]
pub extern "C" fn fake_take(buffer: *mut u8, size: usize) -> usize {
    let log = LOG.take();
    assert!(log.len() <= size);
    // SAFETY: the test's buffer has `size` bytes.
    unsafe { log.as_ptr().copy_to_nonoverlapping(buffer, log.len()) };
    log.len()
}

/// What this thread's next call returns.
#[unsafe(no_mangle)]
pub extern "C" fn fake_next(result: c_int) {
    NEXT.set(result);
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Id([u8; 128]);

macro_rules! functions {
    ($($(#[$attribute:meta])* $name:ident($($argument:ident: $type:ty),*) $({ $($body:tt)* })?)*) => {
        $($(#[$attribute])* #[unsafe(no_mangle)] pub extern "C" fn $name($($argument: $type),*) -> c_int {
            $($($body)*)?
            call(stringify!($name), &[$(&$argument),*])
        })*
    };
}

functions! {
    #[cfg(not(without_version))]
    ncclGetVersion(version: Out) { write::<c_int>(version, env!("FAKE_VERSION").parse().unwrap()); }
    ncclCommInitAll(comms: Out, count: c_int, devices: Pointer) {
        for i in 0..count as usize {
            write::<Pointer>(Out(comms.0 + 8 * i), 0xC0 + read::<c_int>(devices, 4 * i) as usize);
        }
    }
    ncclCommGetAsyncError(comm: Pointer, state: Out) { write::<c_int>(state, (comm & 0xFF) as c_int); }
    ncclCommAbort(comm: Pointer)
    ncclCommFinalize(comm: Pointer)
    ncclCommDestroy(comm: Pointer)
    ncclCommCount(comm: Pointer, count: Out) { write::<c_int>(count, 101); }
    ncclCommCuDevice(comm: Pointer, device: Out) { write::<c_int>(device, 102); }
    ncclCommUserRank(comm: Pointer, rank: Out) { write::<c_int>(rank, 103); }
    ncclGroupStart()
    ncclGroupEnd()
    ncclAllReduce(send: Pointer, receive: Pointer, count: usize, element: c_uint, operation: c_uint, comm: Pointer, stream: Pointer)
    ncclBroadcast(send: Pointer, receive: Pointer, count: usize, element: c_uint, root: c_int, comm: Pointer, stream: Pointer)
    ncclReduce(send: Pointer, receive: Pointer, count: usize, element: c_uint, operation: c_uint, root: c_int, comm: Pointer, stream: Pointer)
    ncclAllGather(send: Pointer, receive: Pointer, count: usize, element: c_uint, comm: Pointer, stream: Pointer)
    ncclReduceScatter(send: Pointer, receive: Pointer, count: usize, element: c_uint, operation: c_uint, comm: Pointer, stream: Pointer)
    #[cfg(not(without_send))]
    ncclSend(send: Pointer, count: usize, element: c_uint, peer: c_int, comm: Pointer, stream: Pointer)
    ncclRecv(receive: Pointer, count: usize, element: c_uint, peer: c_int, comm: Pointer, stream: Pointer)
    ncclMemAlloc(memory: Out, bytes: usize) { write::<Pointer>(memory, 201); }
    ncclMemFree(memory: Pointer)
    ncclCommRegister(comm: Pointer, buffer: Pointer, bytes: usize, handle: Out) { write::<Pointer>(handle, 202); }
    ncclCommDeregister(comm: Pointer, handle: Pointer)
    #[cfg(not(without_windows))]
    ncclCommWindowRegister(comm: Pointer, buffer: Pointer, bytes: usize, window: Out, flags: c_int) { write::<Pointer>(window, 203); }
    #[cfg(not(without_windows))]
    ncclCommWindowDeregister(comm: Pointer, window: Pointer)
    #[cfg(not(without_one_sided))]
    ncclGetLsaMultimemDevicePointer(window: Pointer, offset: usize, address: Out) { write::<Pointer>(address, 204); }
    #[cfg(not(without_one_sided))]
    ncclGetLsaDevicePointer(window: Pointer, offset: usize, rank: c_int, address: Out) { write::<Pointer>(address, 205); }
    #[cfg(not(without_one_sided))]
    ncclGetPeerDevicePointer(window: Pointer, offset: usize, peer: c_int, address: Out) { write::<Pointer>(address, 206); }
    #[cfg(not(without_one_sided))]
    ncclPutSignal(local: Pointer, count: usize, element: c_uint, peer: c_int, window: Pointer, offset: usize, signal: c_int, context: c_int,
        flags: c_uint, comm: Pointer, stream: Pointer)
    #[cfg(not(without_one_sided))]
    ncclSignal(peer: c_int, signal: c_int, context: c_int, flags: c_uint, comm: Pointer, stream: Pointer)
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetUniqueId(id: Out) -> c_int {
    write(id, Id(std::array::from_fn(|i| i as u8)));
    call("ncclGetUniqueId", &[])
}

/// Reads the configuration at the offsets of the header's structure: size, the words from `magic` to `maxCTAs`, `netName`, `nvlsHostMode`.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommInitRankConfig(comm: Out, ranks: c_int, id: Id, rank: c_int, config: Pointer) -> c_int {
    write::<Pointer>(comm, 0xC0FFEE);
    let (size, words, name): (usize, [c_int; 6], Pointer) = (read(config, 0), read(config, 8), read(config, 32));
    call("ncclCommInitRankConfig", &[&ranks, &id.0[1], &id.0[127], &rank, &size, &words, &name, &read::<c_int>(config, 112)])
}

#[cfg(not(without_one_sided))]
#[unsafe(no_mangle)]
pub extern "C" fn ncclWaitSignal(count: c_int, signals: Pointer, comm: Pointer, stream: Pointer) -> c_int {
    let signals: Vec<[c_int; 4]> = (0..count as usize).map(|i| read(signals, 16 * i)).collect();
    call("ncclWaitSignal", &[&signals, &comm, &stream])
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(result: c_int) -> *const c_char {
    if result == 5 { c"invalid usage".as_ptr() } else { c"another".as_ptr() }
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetLastError(comm: Pointer) -> *const c_char {
    if comm == 0 { c"what happened last".as_ptr() } else { c"asked for a communicator".as_ptr() }
}
