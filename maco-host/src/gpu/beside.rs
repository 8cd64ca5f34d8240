//! NCCL beside a running megakernel: a stream of its own waits for gates that tasks open, has NCCL exchange the chunk, and opens those that other tasks wait at.
//!
//! NCCL's kernels need multiprocessors that no worker has, and no clusters, for which scattered ones might not do. Where chunks lie is in the plan (`lower/messages.rs`), what
//! tasks do at gates in the device crate (`operations/collective.rs`).

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cudarc::driver::sys::{self, CUstreamWaitValue_flags};
use maco_abi::{Gates, View};
use maco_ranks::Group;

use super::context::Context;
use super::driver;
use super::events::EventHandle;
use super::memory::DeviceMemory;
use super::nccl::{Chunk, InGraph, NcclCommunicator, NcclCommunicators};
use crate::error::Error;
use crate::lower::{NcclCall, Tables};

/// Between two looks at a stream that has not ended.
const NAP: Duration = Duration::from_micros(200);
/// How long work that no task will come to may go on once its gates are open.
const GRACE: Duration = Duration::from_secs(2);

/// NCCL for the calls of one plan, on this rank.
pub(crate) struct Beside {
    context: Arc<Context>,
    group: Arc<Group>,
    megakernel: Box<str>,
    nccl: Arc<NcclCommunicator>,
    stream: sys::CUstream,
    gates: DeviceMemory,
    calls: Vec<NcclCall>,
    /// When all gates were opened, since a launch was aborted.
    opened: Mutex<Option<Instant>>,
}

// SAFETY: streams may be used from any thread.
unsafe impl Send for Beside {}
// SAFETY: as above.
unsafe impl Sync for Beside {}

impl Beside {
    /// For the calls of megakernel `name`. All ranks call it, and get the same error, if one has any. It returns when chunks of all sizes have been
    /// exchanged once, and one through a gate: what a first call of NCCL's sets up cannot wait for a kernel that waits for it.
    pub(crate) fn new(
        context: &Arc<Context>,
        group: &Arc<Group>,
        all: &NcclCommunicators,
        name: &str,
        calls: &[NcclCall],
        ctas: u32,
    ) -> Result<Beside, Error> {
        let nccl = all.of(context, group, ctas);
        let made = Beside::make(context, group, nccl, name, calls);
        let text = made.as_ref().err().map(Error::to_string);
        group.vote(&format!("NCCL beside megakernel {name}"), text.as_deref().map_or(Ok(&[]), Err))?;
        let beside = made?;
        beside.connect()?;
        Ok(beside)
    }

    /// What a rank makes by itself: gates and a stream.
    fn make(
        context: &Arc<Context>,
        group: &Arc<Group>,
        nccl: Arc<NcclCommunicator>,
        name: &str,
        calls: &[NcclCall],
    ) -> Result<Beside, Error> {
        driver::find_stream_words()?;
        let count: u32 = calls.iter().map(|call| call.chunks).sum();
        let gates = DeviceMemory::zeroed(context, u64::from(count) * Gates::BYTES, &format!("the gates of megakernel `{name}`"))?;
        let _entered = context.enter()?;
        let (mut least, mut greatest, mut stream) = (0, 0, std::ptr::null_mut());
        // SAFETY: the context is current, and all that is written to writable.
        unsafe {
            context.check("cuCtxGetStreamPriorityRange", sys::cuCtxGetStreamPriorityRange(&mut least, &mut greatest))?;
            let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
            context.check("cuStreamCreateWithPriority", sys::cuStreamCreateWithPriority(&mut stream, flags, greatest))?;
        }
        Ok(Beside {
            context: context.clone(),
            group: group.clone(),
            megakernel: name.into(),
            nccl,
            stream,
            gates,
            calls: calls.to_vec(),
            opened: Mutex::new(None),
        })
    }

    /// The ranks.
    pub(crate) fn group(&self) -> &Group {
        &self.group
    }

    /// Address of the gates.
    pub(crate) fn gates(&self) -> u64 {
        self.gates.address()
    }

    /// The error of one rank, in a sentence.
    fn failed(&self, what: &str) -> Error {
        Error::Collectives {
            megakernel: self.megakernel.clone(),
            what: format!("NCCL cannot exchange chunks beside it: {what}").into(),
            ranks: self.group.ranks(),
            help: "leave `.via(Nccl)` out, of calls and of `PlanOptions`, and plan with `PlanOptions::choose_nccl(false)`: then the kernel exchanges them itself",
        }
    }

    /// Connects the ranks, unless they are, and warms up what this plan uses. All ranks call it.
    fn connect(&self) -> Result<(), Error> {
        let name = format!("NCCL beside megakernel {}", self.megakernel);
        let connected = self.nccl.connect(&name)?.and_then(|()| self.warm_up());
        // Who has no communicator, of whatever rank, leaves none behind.
        let voted = self.group.vote(&name, connected.as_ref().map(|()| &[][..]).map_err(String::as_str));
        if voted.is_err() {
            self.nccl.abort();
        }
        voted?;
        connected.map_err(|what| self.failed(&what))
    }

    /// Exchanges a chunk of each call in memory of its own, then the first one once more, through a gate: before a communicator has been used, its calls set up what waits for
    /// all that the GPU does.
    fn warm_up(&self) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        let _entered = self.context.enter().map_err(text)?;
        let ranks = u64::from(self.group.ranks());
        // A chunk of as many planes as there are ranks.
        let bytes = self.calls.iter().map(|call| ranks * u64::from(call.rows) * call.row_bytes).max().unwrap_or(0);
        let memory = DeviceMemory::zeroed(&self.context, 2 * bytes, "what NCCL is warmed up with").map_err(text)?;
        let chunk = |call: &NcclCall, rows: u32| {
            let plane = u64::from(call.rows) * call.row_bytes;
            let count = (u64::from(rows) * call.row_bytes / u64::from(call.element.bytes())) as usize;
            let (from, to) = (memory.address(), memory.address() + bytes);
            // A rank sends to the one behind it: those that will are not known yet.
            Chunk { from, to, count, planes: [plane; 2], element: call.element, collective: call.collective, numbers: [0, 1] }
        };
        for call in &self.calls {
            // By the number of bytes NCCL chooses how it exchanges them, and what it connects for that.
            for rows in [call.rows, call.last_rows] {
                // SAFETY: memory of two chunks, which stays until the stream has ended.
                unsafe { self.nccl.exchange(&chunk(call, rows), self.stream)? };
            }
        }
        self.drain("a first exchange")?;
        if let Some(call) = self.calls.first() {
            let gate = Gates::new(self.gates.address(), 1);
            // SAFETY: as above; streams of the context, and a live gate.
            unsafe {
                self.wait(gate.ready(0)).map_err(text)?;
                self.nccl.exchange(&chunk(call, call.rows), self.stream)?;
                self.write(self.stream, gate.ready(0), 0).map_err(text)?;
                self.write(self.context.probe(), gate.ready(0), 1).map_err(text)?;
            }
        }
        self.drain("an exchange through a gate")
    }

    /// Waits until the stream has ended; the context is entered.
    fn drain(&self, what: &str) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        let end = EventHandle::new(&self.context).map_err(text)?;
        // SAFETY: a live stream of the context.
        unsafe { end.record(&self.context, self.stream).map_err(text)? };
        let late = Instant::now() + self.group.deadline();
        while !end.done(&self.context).map_err(text)? {
            if let Some(fault) = self.nccl.fault() {
                self.nccl.abort();
                return Err(fault);
            }
            if Instant::now() > late {
                self.nccl.abort();
                return Err(format!("{what} did not end within {:.1?}", self.group.deadline()));
            }
            std::thread::sleep(NAP);
        }
        Ok(())
    }

    /// What a graph keeps that launches are captured into.
    pub(super) fn in_graph(&self) -> Arc<InGraph> {
        self.nccl.in_graph()
    }

    /// What a launch with these tables has NCCL exchange.
    ///
    /// # Errors
    /// MACO0098 for a tensor whose rows have gaps.
    pub(super) fn chunks(&self, tables: &Tables) -> Result<Vec<Chunk>, Error> {
        let mut chunks = Vec::new();
        for call in &self.calls {
            let [from, to]: [View; 2] = call.views.map(|view| tables.views[view].as_view());
            let element = u64::from(call.element.bytes());
            let row = u64::from(from.row_stride) * element;
            if row != call.row_bytes || to.row_stride != from.row_stride {
                return Err(self.failed("rows of a tensor that it reads or writes do not follow one another"));
            }
            let mut numbers = tables.scalars[call.scalars.clone()].iter().copied();
            let numbers = [numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)];
            for n in 0..call.chunks {
                let first = n * call.rows;
                let rows = call.rows.min(from.rows - first);
                let at = |base: u64| base + u64::from(first) * row;
                chunks.push(Chunk {
                    from: at(from.base),
                    to: at(to.base),
                    count: rows as usize * from.row_stride as usize,
                    planes: [from, to].map(|view| u64::from(view.plane_stride) * element),
                    element: call.element,
                    collective: call.collective,
                    numbers,
                });
            }
        }
        Ok(chunks)
    }

    /// Queues `launch` on `stream`, and on this value's own stream what belongs beside it. What comes behind it on `stream` comes behind both.
    ///
    /// # Safety
    /// `stream` is a live stream of the context, which is entered; `chunks` are those of the launch, and their memory lives as long as that.
    pub(super) unsafe fn around(
        &self,
        stream: sys::CUstream,
        chunks: &[Chunk],
        launch: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let context = &self.context;
        let (begin, end) = (EventHandle::new(context)?, EventHandle::new(context)?);
        // SAFETY: (of all) live streams of the context and live gates; the caller promises the rest.
        unsafe {
            begin.record(context, stream)?;
            begin.hold(context, self.stream)?;
            // The kernel is first also in a graph: behind a node that waits for one of its words it might not begin.
            launch()?;
            let queued = self.queue(chunks);
            // Behind an error, too: the kernel runs, and what has been queued may.
            end.record(context, self.stream)?;
            end.hold(context, stream)?;
            // All tasks and the stream have seen them.
            self.gates.clear_on(stream)?;
            queued
        }
    }

    /// Queues the exchanges of chunks, each behind its gate.
    ///
    /// # Safety
    /// As for [`Beside::around`].
    unsafe fn queue(&self, chunks: &[Chunk]) -> Result<(), Error> {
        let gates = Gates::new(self.gates.address(), chunks.len() as u32);
        for (n, chunk) in (0..).zip(chunks) {
            // SAFETY: (of all) a live stream and live gates; the caller promises the memory.
            unsafe {
                self.wait(gates.ready(n))?;
                self.nccl.exchange(chunk, self.stream).map_err(|what| self.failed(&what))?;
                self.write(self.stream, gates.done(n), 1)?;
            }
        }
        Ok(())
    }

    /// The stream goes on when a task has stored 1.
    unsafe fn wait(&self, word: u64) -> Result<(), Error> {
        let equal = CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_EQ as u32;
        // SAFETY: a live stream, and a word of the gates.
        self.context.check("cuStreamWaitValue32", unsafe { sys::cuStreamWaitValue32_v2(self.stream, word, 1, equal) })
    }

    unsafe fn write(&self, stream: sys::CUstream, word: u64, value: u32) -> Result<(), Error> {
        // SAFETY: the callers have a live stream, and a word of the gates.
        self.context.check("cuStreamWriteValue32", unsafe { sys::cuStreamWriteValue32_v2(stream, word, value, 0) })
    }

    /// A launch was aborted, and nobody will come to the gates that are closed: opens them all, so that the streams of all ranks come to their ends. If NCCL's work does not, since
    /// a rank is lost, it is aborted. Called again and again while somebody waits.
    pub(super) fn release(&self) -> Result<(), Error> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        match *opened {
            None => {
                let count: u32 = self.calls.iter().map(|call| call.chunks).sum();
                let gates = Gates::new(self.gates.address(), count);
                // SAFETY: a live stream of the context, and live gates.
                (0..count).try_for_each(|n| unsafe { self.write(self.context.probe(), gates.ready(n), 1) })?;
                *opened = Some(Instant::now());
            }
            Some(since) if since.elapsed() > GRACE => self.nccl.abort(),
            Some(_) => {}
        }
        Ok(())
    }

    /// Makes gates and communicator as new, behind an aborted launch. All ranks call it, and no launch is running.
    pub(crate) fn again(&self) -> Result<(), Error> {
        // No rank opens gates any more.
        self.group.vote(&format!("recover NCCL beside megakernel {}", self.megakernel), Ok(&[]))?;
        self.gates.clear()?;
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.connect()
    }
}

impl fmt::Debug for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Beside").field("megakernel", &self.megakernel).finish_non_exhaustive()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let Ok(_entered) = self.context.enter() else { return };
        // Nothing of it is running: the plan's launches have ended.
        // SAFETY: made by `new`, and destroyed once.
        let _ = unsafe { sys::cuStreamDestroy_v2(self.stream) };
    }
}
