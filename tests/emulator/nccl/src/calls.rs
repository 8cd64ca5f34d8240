//! Calls: what they queue on a stream, and what ranks that meet compute.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::faults::{self, Fault};
use crate::world::{Comm, Part};
use crate::{INVALID_ARGUMENT, SUCCESS, Status, driver, numbers};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    AllReduce,
    ReduceScatter,
    AllGather,
    Broadcast(usize),
    Reduce(usize),
    Send(usize),
    Receive(usize),
}

/// What all ranks of a collective have to agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub kind: Kind,
    pub count: usize,
    /// `ncclDataType_t` and `ncclRedOp_t`.
    pub element: u32,
    pub operation: u32,
}

/// Addresses of what a rank sends and receives, and how many times the call's elements.
pub struct Buffers {
    pub send: u64,
    pub sent: usize,
    pub receive: u64,
    pub received: usize,
}

/// Pinned memory of the host. It is never given back to the driver, which functions of the host must not call.
struct Pinned {
    at: *mut u8,
    bytes: usize,
}

// SAFETY: memory that one operation has for itself, and hands to others under a lock.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

static SPARE: Mutex<Option<HashMap<usize, Vec<Pinned>>>> = Mutex::new(None);

impl Pinned {
    fn new(bytes: usize) -> Result<Pinned, Status> {
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        let found = spare.get_or_insert_default().get_mut(&bytes).and_then(Vec::pop);
        found.map_or_else(|| Ok(Pinned { at: driver::pinned(bytes.max(1))?, bytes }), Ok)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        spare.get_or_insert_default().entry(self.bytes).or_default().push(Pinned { ..*self });
    }
}

/// A call in a stream or a graph.
pub struct Operation {
    comm: Arc<Comm>,
    call: Call,
    pub fault: Option<Fault>,
    send: Pinned,
    receive: Pinned,
}

impl Operation {
    pub fn part(&self) -> Part {
        Part { call: self.call, send: (self.send.at, self.send.bytes), receive: (self.receive.at, self.receive.bytes) }
    }
}

/// Queues a call.
///
/// # Safety
/// The stream lives, is of the communicator's device, whose context is current; buffers live until it has passed the call.
pub unsafe fn queue(comm: Arc<Comm>, call: Call, buffers: Buffers, stream: *mut c_void) -> Status {
    // SAFETY: passed on.
    unsafe { try_queue(comm, call, buffers, stream) }.err().unwrap_or(SUCCESS)
}

/// A fault that has not happened yet.
fn fault(rank: usize, call: u64) -> Option<Fault> {
    static HAPPENED: AtomicBool = AtomicBool::new(false);
    faults::of_call(rank, call).filter(|_| !HAPPENED.swap(true, Ordering::Relaxed))
}

/// # Safety
/// As for [`queue`].
unsafe fn try_queue(comm: Arc<Comm>, call: Call, buffers: Buffers, stream: *mut c_void) -> Result<(), Status> {
    let (rank, ranks) = (comm.rank, comm.world.ranks);
    let peer = match call.kind {
        Kind::Broadcast(peer) | Kind::Reduce(peer) | Kind::Send(peer) | Kind::Receive(peer) => peer,
        _ => 0,
    };
    let size = numbers::bytes(call.element).filter(|_| peer < ranks && call.operation <= 4).ok_or(INVALID_ARGUMENT)? * call.count;
    match comm.state() {
        SUCCESS => {}
        status => return Err(status),
    }
    let fault = fault(rank, comm.queued.fetch_add(1, Ordering::Relaxed));
    if let Some(Fault::Returns(status)) = fault {
        return Err(status);
    }
    if size == 0 {
        return Ok(());
    }
    let sent = if matches!(call.kind, Kind::Broadcast(root) if root != rank) { 0 } else { size * buffers.sent };
    let received = if matches!(call.kind, Kind::Reduce(root) if root != rank) { 0 } else { size * buffers.received };
    let queued = comm.clone();
    let operation = Operation { comm, call, fault, send: Pinned::new(sent)?, receive: Pinned::new(received)? };
    let (from, to) = (operation.send.at, operation.receive.at);
    // SAFETY: the caller promises the stream and the buffers. The operation, with the pinned memory, lives until the last function of the host in this stream has
    // run, or as long as the graph; where something fails in between, for ever.
    unsafe {
        let graph = driver::graph_of(stream)?;
        let data = Box::into_raw(Box::new(operation)).cast::<c_void>();
        driver::from_gpu(from, buffers.send, sent, stream)?;
        driver::host(stream, exchange, data)?;
        driver::to_gpu(buffers.receive, to, received, stream)?;
        if !graph.is_null() {
            return driver::owned_by(graph, data, destroy);
        }
        queued.pending.fetch_add(1, Ordering::AcqRel);
        driver::host(stream, ended, data)
    }
}

/// The stream has come to it.
unsafe extern "C" fn exchange(data: *mut c_void) {
    // SAFETY: the operation lives, see `try_queue`.
    let operation = unsafe { &*data.cast::<Operation>() };
    operation.comm.exchange(operation);
}

/// The stream has passed it.
unsafe extern "C" fn ended(data: *mut c_void) {
    // SAFETY: as above, and nobody else has it any more.
    let operation = unsafe { Box::from_raw(data.cast::<Operation>()) };
    operation.comm.pending.fetch_sub(1, Ordering::AcqRel);
}

/// The graph is gone.
unsafe extern "C" fn destroy(data: *mut c_void) {
    // SAFETY: as above.
    drop(unsafe { Box::from_raw(data.cast::<Operation>()) });
}

/// Gives all ranks their results. `parts` are those of all ranks, in their order, which wait meanwhile.
pub fn compute(call: Call, parts: &[Part]) {
    // SAFETY: (of all) memory of operations that wait, of these sizes; what is sent and what is received are different memory.
    let sent: Vec<&[u8]> = parts.iter().map(|part| unsafe { std::slice::from_raw_parts(part.send.0, part.send.1) }).collect();
    for (rank, part) in parts.iter().enumerate() {
        // SAFETY: as above.
        let to = unsafe { std::slice::from_raw_parts_mut(part.receive.0, part.receive.1) };
        match call.kind {
            Kind::AllReduce => numbers::reduce(&sent, to, call.element, call.operation),
            Kind::Reduce(root) if root != rank => {}
            Kind::Reduce(_) => numbers::reduce(&sent, to, call.element, call.operation),
            Kind::ReduceScatter => {
                let own: Vec<&[u8]> = sent.iter().map(|bytes| &bytes[rank * to.len()..][..to.len()]).collect();
                numbers::reduce(&own, to, call.element, call.operation);
            }
            Kind::AllGather => to.chunks_exact_mut(sent[0].len()).zip(&sent).for_each(|(to, part)| to.copy_from_slice(part)),
            Kind::Broadcast(root) => to.copy_from_slice(sent[root]),
            Kind::Send(_) | Kind::Receive(_) => {}
        }
    }
}
