//! Port channels: copies that a proxy drives, handed to it through a FIFO.

use super::{FifoProducer, Semaphore, Stopped, System, Trigger, Watch};

/// What a rank has a proxy do with the memory of one peer (`PortChannel` of MSCCL++). Offsets are bytes from the beginning of the symmetric memory of each.
///
/// The proxy copies and signals in the order of triggers. The semaphore is waited for here and signalled by the peer's proxy, its only writer.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct PortChannel {
    fifo: FifoProducer,
    semaphore: Semaphore,
    channel: u32,
}

impl PortChannel {
    /// Channel `channel` of the proxy behind `fifo`. Of `semaphore` only the waiting end is used here.
    #[inline(always)]
    pub const fn new(fifo: FifoProducer, semaphore: Semaphore, channel: u32) -> PortChannel {
        PortChannel { fifo, semaphore, channel }
    }

    /// Has `bytes` bytes copied from `from` of this rank, as all lanes have left it, to `to` of the peer. All lanes call together.
    ///
    /// # Errors
    /// When the ranks do not go on.
    ///
    /// # Safety
    /// Both ranges are inside the symmetric memory. Nobody stores the one until a flush, or uses the other until a signal. `watch` has a control block.
    #[inline(always)]
    pub unsafe fn put<S: System>(&self, system: &S, watch: &Watch, to: u64, from: u64, bytes: u32) -> Result<(), Stopped> {
        // SAFETY: passed on from the caller.
        unsafe { self.push(system, watch, Trigger { copy: true, to, from, bytes, ..Trigger::default() }) }
    }

    /// [`PortChannel::put`], and the peer is told of it.
    ///
    /// # Errors
    /// When the ranks do not go on.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub unsafe fn put_with_signal<S: System>(&self, system: &S, watch: &Watch, to: u64, from: u64, bytes: u32) -> Result<(), Stopped> {
        // SAFETY: passed on from the caller.
        unsafe { self.push(system, watch, Trigger { copy: true, signal: true, to, from, bytes, ..Trigger::default() }) }
    }

    /// [`PortChannel::put_with_signal`], and returns when the proxy has done it: the source may be stored again.
    ///
    /// # Errors
    /// When the ranks do not go on.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub unsafe fn put_with_signal_and_flush<S: System>(
        &self,
        system: &S,
        watch: &Watch,
        to: u64,
        from: u64,
        bytes: u32,
    ) -> Result<(), Stopped> {
        // SAFETY: passed on from the caller.
        unsafe { self.push(system, watch, Trigger { copy: true, signal: true, flush: true, to, from, bytes, ..Trigger::default() }) }
    }

    /// Tells the peer that everything put before is there.
    ///
    /// # Errors
    /// When the ranks do not go on.
    ///
    /// # Safety
    /// As of [`PortChannel::put`].
    #[inline(always)]
    pub unsafe fn signal<S: System>(&self, system: &S, watch: &Watch) -> Result<(), Stopped> {
        // SAFETY: passed on from the caller.
        unsafe { self.push(system, watch, Trigger { signal: true, ..Trigger::default() }) }
    }

    /// Returns when the proxy has done everything that was handed to it before.
    ///
    /// # Errors
    /// When the ranks do not go on.
    ///
    /// # Safety
    /// As of [`PortChannel::put`].
    #[inline(always)]
    pub unsafe fn flush<S: System>(&self, system: &S, watch: &Watch) -> Result<(), Stopped> {
        // SAFETY: passed on from the caller.
        unsafe { self.push(system, watch, Trigger { flush: true, ..Trigger::default() }) }
    }

    /// Waits for the next signal of the peer's proxy.
    ///
    /// # Errors
    /// When the ranks do not go on.
    ///
    /// # Safety
    /// As of [`Semaphore::wait`].
    #[inline(always)]
    pub unsafe fn wait<S: System>(&self, system: &S, watch: &Watch) -> Result<(), Stopped> {
        // SAFETY: passed on from the caller.
        unsafe { self.semaphore.wait(system, watch) }
    }

    /// # Safety
    /// As of [`PortChannel::put`].
    #[inline(always)]
    unsafe fn push<S: System>(&self, system: &S, watch: &Watch, trigger: Trigger) -> Result<(), Stopped> {
        // What the other lanes stored comes before the trigger.
        system.meet();
        let mut done = true;
        if system.lane() == 0 {
            // SAFETY: passed on from the caller.
            let ticket = unsafe { self.fifo.push(system, watch, Trigger { channel: self.channel, ..trigger }) };
            done = match ticket {
                // SAFETY: as above.
                Ok(ticket) if trigger.flush => unsafe { self.fifo.completed(system, watch, ticket).is_ok() },
                ticket => ticket.is_ok(),
            };
        }
        if system.all(done) { Ok(()) } else { Err(Stopped) }
    }
}
