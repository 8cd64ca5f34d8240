//! Branches of a CUDA graph: work that is queued side by side, on streams that leave the captured one and come back to it.

use anyhow::Context;
use cudarc::driver::result::{event, stream as streams};
use cudarc::driver::sys::{CUevent, CUevent_flags, CUevent_wait_flags, CUstream};
use maco::{Device, Stream};

/// Streams of the branches, and the events that tie them to the captured one.
pub struct Branches {
    streams: Vec<Stream>,
    /// Of the captured stream, then of each branch.
    events: Vec<CUevent>,
}

impl Branches {
    /// As many branches on `device`, whose context is current.
    pub fn new(device: &Device, count: usize) -> anyhow::Result<Branches> {
        let streams = (0..count).map(|_| Stream::new(device)).collect::<Result<_, _>>()?;
        let mut branches = Branches { streams, events: Vec::new() };
        for _ in 0..=count {
            branches.events.push(event::create(CUevent_flags::CU_EVENT_DISABLE_TIMING).context("cuEventCreate")?);
        }
        Ok(branches)
    }

    /// Queues `work` of each branch on its stream, behind what is queued on `stream`; what is queued there next comes behind all of them.
    pub fn queue(&self, stream: &Stream, mut work: impl FnMut(usize, &Stream) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let raw = |stream: &Stream| stream.as_raw() as CUstream;
        // One stream waits for what another has queued so far.
        let follow = |event: CUevent, before: &Stream, behind: &Stream| -> anyhow::Result<()> {
            // SAFETY: live streams of the current context, and a live event of it.
            unsafe {
                event::record(event, raw(before)).context("cuEventRecord")?;
                streams::wait_event(raw(behind), event, CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT).context("cuStreamWaitEvent")
            }
        };
        for (n, branch) in self.streams.iter().enumerate() {
            follow(self.events[0], stream, branch)?;
            work(n, branch)?;
        }
        for (branch, &event) in self.streams.iter().zip(&self.events[1..]) {
            follow(event, branch, stream)?;
        }
        Ok(())
    }
}

impl Drop for Branches {
    fn drop(&mut self) {
        for &event in &self.events {
            // SAFETY: made once, and used by nobody else; work that waits for it keeps what it needs (CUDA driver API, `cuEventDestroy`). Nobody takes the error.
            let _ = unsafe { event::destroy(event) };
        }
    }
}
