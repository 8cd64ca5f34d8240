//! Port channels as CPU ranks call them, and the proxy thread behind them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};

use maco_device::channel::{self, FifoConsumer, FifoProducer, Peer, Semaphore, Stopped};
use maco_ranks::Error as RanksError;

use super::channels::Own;
use super::control::Shared;
use super::proxy::{Proxy, Signals};
use super::symmetric::SymmetricPlace;
use crate::device::Device;
use crate::error::Error;
use crate::gpu::{CopyEngine, TriggerMemory};

/// What producers and proxy share, at 16-byte boundaries.
#[repr(C, align(16))]
#[derive(Default)]
struct Place16([AtomicU64; 2]);

/// Triggers and the words beside them, of threads.
#[derive(Default)]
pub(super) struct HostFifo {
    ring: Box<[Place16]>,
    head: AtomicU32,
    /// Taken, and completed.
    progress: [AtomicU32; 2],
}

/// Where triggers are.
enum Fifo {
    Host(HostFifo),
    Gpu(TriggerMemory),
}

impl Fifo {
    /// Ring, and progress.
    fn places(&self) -> (*mut u64, *mut u32) {
        match self {
            Fifo::Host(fifo) => (fifo.ring.as_ptr().cast_mut().cast(), fifo.progress.as_ptr().cast_mut().cast()),
            Fifo::Gpu(fifo) => (fifo.ring(), fifo.progress()),
        }
    }
}

/// The proxy of a rank. It ends with the last channel, or the plan, when it has done what was handed to it.
pub(crate) struct Service {
    shared: Arc<Shared>,
    fifo: Arc<Fifo>,
    size: u32,
    engine: Option<Arc<CopyEngine>>,
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// A thread that does what is pushed, of which so many may wait.
    pub(super) fn start(shared: Arc<Shared>, device: &Device, signals: Signals, size: u32) -> Result<Service, Error> {
        let fifo = match device.context() {
            Some(context) => Fifo::Gpu(TriggerMemory::new(context, size)?),
            None => Fifo::Host(HostFifo { ring: (0..size).map(|_| Place16::default()).collect(), ..HostFifo::default() }),
        };
        let engine = device.context().map(|context| CopyEngine::new(context).map(Arc::new)).transpose()?;
        let mut service = Service { shared, fifo: Arc::new(fifo), size, engine, ending: Arc::default(), thread: None };
        service.begin(signals)?;
        Ok(service)
    }

    /// Starts the thread, of a FIFO through which nothing has gone.
    fn begin(&mut self, signals: Signals) -> Result<(), Error> {
        let (shared, fifo, engine) = (self.shared.clone(), self.fifo.clone(), self.engine.clone());
        let (ring, progress) = fifo.places();
        // SAFETY: the ring has room for so many triggers; it and the words are in `fifo`, which the proxy holds.
        let consumer = unsafe { FifoConsumer::new(ring, progress, self.size) };
        let (rank, end) = (shared.group().rank(), self.ending.clone());
        let run = move || {
            let _held = fifo;
            Proxy::new(shared, consumer, signals, engine).run(|| end.load(Ordering::Acquire));
        };
        let thread = Builder::new().name(format!("maco proxy {rank}")).spawn(run).map_err(|why| RanksError::Meeting {
            what: format!("the proxy of rank {rank} could not be started").into(),
            why: why.to_string().into(),
            help: "see the limits of this process: threads",
        })?;
        self.thread = Some(thread);
        Ok(())
    }

    /// Returns when the thread has done what was handed to it, and ended.
    pub(crate) fn stop(&mut self) {
        if let Some(engine) = &self.engine {
            // Tasks of a launch that still runs hand over more. A GPU that does not end is lost, and hands over nothing.
            let _ = engine.settle();
        }
        self.ending.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // What it may have panicked of stops the ranks by their deadline.
            let _ = thread.join();
        }
    }

    /// Begins anew behind [`Service::stop`], for tasks of a plan of which none runs.
    pub(crate) fn again(&mut self) -> Result<(), Error> {
        match &*self.fifo {
            Fifo::Host(HostFifo { ring, head, progress }) => {
                ring.iter().flat_map(|place| &place.0).for_each(|word| word.store(0, Ordering::Relaxed));
                [head].into_iter().chain(progress).for_each(|word| word.store(0, Ordering::Relaxed));
            }
            Fifo::Gpu(fifo) => fifo.clear()?,
        }
        self.ending.store(false, Ordering::Release);
        self.begin(Signals::Behind)
    }

    /// The same for tasks.
    pub(crate) fn table(&self, rank: u32) -> Result<maco_abi::Fifo, Error> {
        let (ring, progress) = self.fifo.places();
        match &*self.fifo {
            Fifo::Host(fifo) => {
                let [ring, head, progress] = [ring as u64, fifo.head.as_ptr() as u64, progress as u64];
                Ok(maco_abi::Fifo { ring, head, progress, size: self.size, rank })
            }
            Fifo::Gpu(fifo) => fifo.table(rank),
        }
    }

    /// Where the executors of this rank push.
    fn producer(&self, rank: u32) -> FifoProducer {
        let (ring, progress) = self.fifo.places();
        let head = match &*self.fifo {
            Fifo::Host(fifo) => fifo.head.as_ptr(),
            Fifo::Gpu(_) => unreachable!("channels of threads are of CPU ranks"),
        };
        // SAFETY: the other end of `start`; all is in `fifo`, which each channel holds by its service, and only used by atomics.
        unsafe { FifoProducer::new(Peer::new(ring), head, progress, self.size, rank) }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Service({} triggers)", self.size)
    }
}

/// The memory of one peer, to which a thread of this rank, the proxy, copies what it is handed: the caller does not wait for the copy. It is what drives copy
/// engines between GPUs.
///
/// Errors are as of [`super::MemoryChannel`].
pub struct PortChannel {
    shared: Arc<Shared>,
    peer: u32,
    channel: channel::PortChannel,
    /// Words that the channel points to.
    _own: Own,
    _service: Arc<Service>,
}

// SAFETY: as of `MemoryChannel`.
unsafe impl Send for PortChannel {}

impl PortChannel {
    pub(super) fn new(shared: Arc<Shared>, service: Arc<Service>, peer: u32, own: Own, waits: Semaphore) -> PortChannel {
        let channel = channel::PortChannel::new(service.producer(shared.group().rank()), waits, peer);
        PortChannel { shared, peer, channel, _own: own, _service: service }
    }

    /// The other rank.
    pub fn peer(&self) -> u32 {
        self.peer
    }

    /// Has `bytes` bytes copied from `from` of this rank, which nobody may store until a flush, to `to` of the peer. They are there, for the peer, behind a signal.
    /// Waits for room in the FIFO.
    ///
    /// # Errors
    /// MACO0100 outside of buffers, MACO0099 if there is no room by the deadline.
    pub fn put(&mut self, to: SymmetricPlace, from: SymmetricPlace, bytes: usize) -> Result<(), Error> {
        let ([to, from], bytes) = self.places(to, from, bytes)?;
        // SAFETY: inside the memory of all ranks, as was checked; all accesses to it are atomics.
        self.outcome(unsafe { self.channel.put(&self.shared.system(), &self.shared.watch(), to, from, bytes) })
    }

    /// [`PortChannel::put`], and then a signal to the peer.
    ///
    /// # Errors
    /// As there.
    pub fn put_with_signal(&mut self, to: SymmetricPlace, from: SymmetricPlace, bytes: usize) -> Result<(), Error> {
        let ([to, from], bytes) = self.places(to, from, bytes)?;
        // SAFETY: inside the memory of all ranks, as was checked; all accesses to it are atomics.
        self.outcome(unsafe { self.channel.put_with_signal(&self.shared.system(), &self.shared.watch(), to, from, bytes) })
    }

    /// [`PortChannel::put_with_signal`], and waits until it is done.
    ///
    /// # Errors
    /// As there.
    pub fn put_with_signal_and_flush(&mut self, to: SymmetricPlace, from: SymmetricPlace, bytes: usize) -> Result<(), Error> {
        let ([to, from], bytes) = self.places(to, from, bytes)?;
        // SAFETY: inside the memory of all ranks, as was checked; all accesses to it are atomics.
        self.outcome(unsafe { self.channel.put_with_signal_and_flush(&self.shared.system(), &self.shared.watch(), to, from, bytes) })
    }

    /// Tells the peer that everything put before is there.
    ///
    /// # Errors
    /// MACO0099 if there is no room in the FIFO by the deadline.
    pub fn signal(&mut self) -> Result<(), Error> {
        self.shared.check()?;
        // SAFETY: the watch is this rank's.
        self.outcome(unsafe { self.channel.signal(&self.shared.system(), &self.shared.watch()) })
    }

    /// Waits until the proxy has done everything that this rank handed to it.
    ///
    /// # Errors
    /// MACO0099 if it has not by the deadline.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.shared.check()?;
        // SAFETY: as above.
        self.outcome(unsafe { self.channel.flush(&self.shared.system(), &self.shared.watch()) })
    }

    /// Waits for the next signal of the peer's proxy.
    ///
    /// # Errors
    /// MACO0099 if it does not come by the deadline.
    pub fn wait(&mut self) -> Result<(), Error> {
        // SAFETY: this thread alone uses the channel.
        self.outcome(unsafe { self.channel.wait(&self.shared.system(), &self.shared.watch()) })
    }

    /// Offsets and size of a copy, if it is inside of buffers and the ranks go on.
    fn places(&self, to: SymmetricPlace, from: SymmetricPlace, bytes: usize) -> Result<([u64; 2], u32), Error> {
        let places = [to.of(bytes)?, from.of(bytes)?];
        let Ok(size) = u32::try_from(bytes) else {
            let what = format!("a copy of {bytes} bytes by the proxy, which copies less than 4 GiB at once").into();
            return Err(RanksError::Memory { what, help: "copy it in parts" }.into());
        };
        self.shared.check()?;
        Ok((places, size))
    }

    fn outcome(&self, outcome: Result<(), Stopped>) -> Result<(), Error> {
        outcome.map_err(|Stopped| self.shared.stopped())
    }
}

impl fmt::Debug for PortChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PortChannel(rank {} to rank {})", self.shared.group().rank(), self.peer)
    }
}
