//! What a plan keeps on the GPU whatever its arguments are: descriptors, counters, temps, black box.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cudarc::driver::sys;
use maco_abi::{self as abi, BlackBox, InjectedFault, LAUNCH, REPORT_NONE, State};
use maco_graph::plan::Schedule;

use super::context::Context;
use super::events::{EventHandle, Patience};
use super::memory::{DeviceMemory, PinnedMemory};
use crate::error::Error;
use crate::lower::{Fault, Image, Lowered};
use crate::tensor::Rows;

/// How long the copy engine may take to read the counters of a running launch.
const PROBE: Duration = Duration::from_secs(1);
/// What schedulers own starts at multiples of a line.
const LINE: u64 = 128;
/// Zeros for empty views.
const ZEROS: u64 = 256;

/// A plan's memory.
pub(super) struct PlanMemory {
    /// Temps, and zeros behind them.
    arena: DeviceMemory,
    zeros: u64,
    /// Descriptors, an [`InjectedFault`], overflow, then the schedulers' images.
    tasks: DeviceMemory,
    fault: u64,
    overflow: u64,
    schedulers: SchedulerTables,
    /// Partial sums.
    partials: DeviceMemory,
    /// [`State`], two counter banks, the rings, then arrival counts of split-K parts.
    state: DeviceMemory,
    rings: u64,
    arrived: u64,
    black_box: PinnedMemory,
    black_box_address: u64,
    /// A copy of the counters, to see whether a launch makes progress.
    probe: Mutex<PinnedMemory>,
}

/// Offsets of the schedulers' images in [`PlanMemory::tasks`].
struct SchedulerTables {
    base: u64,
    table: u64,
    images: Vec<ImageOffsets>,
    end: u64,
}

struct ImageOffsets {
    image: u64,
    names: u64,
    /// Not where the image fits shared memory.
    memory: Option<u64>,
}

impl SchedulerTables {
    fn new(begin: u64, lowered: &Lowered) -> SchedulerTables {
        let mut end = begin;
        let mut take = |bytes: u64| {
            let at = end.next_multiple_of(LINE);
            end = at + bytes;
            at
        };
        let table = take(size_of::<abi::SchedulerPartition>() as u64 * lowered.images.len() as u64);
        let spare = matches!(lowered.schedule, Schedule::SpareWarps(_));
        let offsets = |image: &Image| {
            let bytes = size_of_val(&*image.words) as u64;
            ImageOffsets {
                image: take(bytes),
                names: take(size_of_val(&*image.names) as u64),
                memory: (spare || bytes > abi::SCHEDULER_BYTES as u64).then(|| take(bytes)),
            }
        };
        let images = lowered.images.iter().map(offsets).collect();
        SchedulerTables { base: 0, table, images, end }
    }
}

impl PlanMemory {
    pub(super) fn new(context: &Arc<Context>, megakernel: &str, lowered: &Lowered) -> Result<PlanMemory, Error> {
        let what = |what: &str| format!("the {what} of megakernel `{megakernel}`");
        let zeros = lowered.arena.bytes;
        let arena = DeviceMemory::zeroed(context, zeros + ZEROS, &what("temps"))?;
        let fault = size_of_val(&*lowered.descriptors) as u64;
        let overflow = fault + size_of::<InjectedFault>() as u64;
        let mut schedulers = SchedulerTables::new(overflow + size_of_val(&*lowered.overflow) as u64, lowered);
        let tasks = DeviceMemory::zeroed(context, schedulers.end, &what("descriptors"))?;
        schedulers.base = tasks.address();
        let banks = size_of::<State>() as u64 + 2 * 4 * lowered.counters as u64;
        let arrived = banks + 4 * lowered.ring_words();
        let words = arrived + 4 * lowered.arrival_words();
        let partials = DeviceMemory::zeroed(context, lowered.partial_bytes(), &what("partial sums"))?;
        let state = DeviceMemory::zeroed(context, words, &what("counters"))?;
        let black_box = PinnedMemory::new(context, size_of::<BlackBox>(), &what("black box"))?;
        let black_box_address = black_box.device_address(context)?;
        let probe = PinnedMemory::new(context, words as usize, &what("counters"))?;
        let memory = PlanMemory {
            zeros: arena.address() + zeros,
            arena,
            fault: tasks.address() + fault,
            overflow: tasks.address() + overflow,
            tasks,
            schedulers,
            rings: state.address() + banks,
            arrived: state.address() + arrived,
            partials,
            state,
            black_box,
            black_box_address,
            probe: Mutex::new(probe),
        };
        memory.write_tasks(context, lowered, None)?;
        Ok(memory)
    }

    /// Writes what the device reads of the plan, with a fault or none. Nothing may be running.
    pub(super) fn write_tasks(&self, context: &Arc<Context>, lowered: &Lowered, fault: Option<Fault>) -> Result<(), Error> {
        let (descriptors, overflow) = lowered.with(fault);
        upload(context, self.tasks.address(), &descriptors)?;
        upload(context, self.fault, &[lowered.injected(fault)])?;
        upload(context, self.overflow, &overflow)?;
        let mut partitions = Vec::with_capacity(lowered.images.len());
        for (image, offsets) in lowered.images.iter().zip(&self.schedulers.images) {
            upload(context, self.schedulers.base + offsets.image, &image.words)?;
            upload(context, self.schedulers.base + offsets.names, &image.names)?;
            let address = |at: u64| self.schedulers.base + at;
            partitions.push(abi::SchedulerPartition {
                image: address(offsets.image),
                memory: offsets.memory.map_or(0, address),
                names: address(offsets.names),
                ..image.header
            });
        }
        upload(context, self.schedulers.base + self.schedulers.table, &partitions)
    }

    pub(super) fn arena(&self) -> u64 {
        self.arena.address()
    }

    pub(super) fn zeros(&self) -> u64 {
        self.zeros
    }

    pub(super) fn descriptors(&self) -> u64 {
        self.tasks.address()
    }

    pub(super) fn fault(&self) -> u64 {
        self.fault
    }

    pub(super) fn overflow(&self) -> u64 {
        self.overflow
    }

    pub(super) fn partitions(&self) -> u64 {
        self.schedulers.base + self.schedulers.table
    }

    pub(super) fn rings(&self) -> u64 {
        self.rings
    }

    pub(super) fn partials(&self) -> u64 {
        self.partials.address()
    }

    pub(super) fn arrived(&self) -> u64 {
        self.arrived
    }

    pub(super) fn state(&self) -> u64 {
        self.state.address()
    }

    pub(super) fn black_box_address(&self) -> u64 {
        self.black_box_address
    }

    /// What the device reported, if anything. Whole once the launch has ended.
    pub(super) fn report(&self) -> Option<BlackBox> {
        // SAFETY: pinned memory of this size and alignment that only the device writes; the read is volatile because of that.
        let report = unsafe { self.black_box.pointer().cast::<BlackBox>().read_volatile() };
        (report.report != REPORT_NONE).then_some(report)
    }

    /// Clears counters, state, in-band flags and black box. No launch may be running.
    pub(super) fn clear(&self, context: &Arc<Context>, lowered: &Lowered) -> Result<(), Error> {
        self.state.clear()?;
        self.write_words(context, lowered, 0)?;
        // SAFETY: the memory holds a black box, and no launch writes it.
        unsafe { self.black_box.pointer().write_bytes(0, size_of::<BlackBox>()) };
        Ok(())
    }

    /// See [`crate::Plan::fill_temporaries`]. No launch may be running.
    pub(super) fn fill_temporaries(&self, lowered: &Lowered, byte: u8) -> Result<(), Error> {
        self.arena.fill(0..lowered.arena.words.start, byte)?;
        self.partials.fill(0..lowered.partial_bytes(), byte)?;
        let memories = lowered.images.iter().zip(&self.schedulers.images).filter_map(|(image, offsets)| Some((image, offsets.memory?)));
        for (image, memory) in memories {
            self.tasks.fill(memory..memory + size_of_val(&*image.words) as u64, byte)?;
        }
        Ok(())
    }

    /// Writes the words of temps with in-band flags as the launch before number `launches` left them.
    fn write_words(&self, context: &Arc<Context>, lowered: &Lowered, launches: u32) -> Result<(), Error> {
        upload(context, self.arena.address() + lowered.arena.words.start, &lowered.arena.words_behind(launches))
    }

    /// Writes how many launches have ended, none of them aborted. No launch may be running.
    pub(super) fn write_launches(&self, context: &Arc<Context>, lowered: &Lowered, launches: u32) -> Result<(), Error> {
        self.write_words(context, lowered, launches)?;
        let ended = launches.wrapping_mul(LAUNCH);
        upload(context, self.state.address(), &[ended, 0, ended])
    }

    /// A hash of state and counters while a launch runs: it changes as long as tasks end. `None` before all CTAs of the launch have begun.
    pub(super) fn fingerprint(&self, context: &Arc<Context>) -> Result<Option<u64>, Error> {
        let probe = self.probe.lock().unwrap_or_else(PoisonError::into_inner);
        let (stream, bytes) = (context.probe(), probe.bytes());
        let done = EventHandle::new(context)?;
        // SAFETY: both sides have this many bytes; the lock is held until the copy has ended and was read.
        unsafe {
            context.check("cuMemcpyDtoHAsync", sys::cuMemcpyDtoHAsync_v2(probe.pointer().cast(), self.state.address(), bytes, stream))?;
            done.record(context, stream)?;
        }
        let start = Instant::now();
        let mut patience = Patience::new();
        while !done.done(context)? {
            if start.elapsed() > PROBE {
                return Err(context.lose("its copy engine does not answer"));
            }
            patience.wait();
        }
        // SAFETY: the copy has ended; the pinned buffer has a whole number of words.
        let words = unsafe { std::slice::from_raw_parts(probe.pointer().cast::<u32>(), bytes / 4) };
        // The first thing that a CTA does. The first ones know how long to wait for the others.
        const LEFT: usize = std::mem::offset_of!(State, left) / 4;
        const BEGUN: usize = std::mem::offset_of!(State, begun) / 4;
        if words[BEGUN] / LAUNCH == words[LEFT] / LAUNCH {
            return Ok(None);
        }
        Ok(Some(words.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &word| (hash ^ word as u64).wrapping_mul(0x0100_0000_01b3))))
    }
}

/// Copies a slice of plain data to the GPU, and waits.
fn upload<T: Copy>(context: &Arc<Context>, to: u64, from: &[T]) -> Result<(), Error> {
    let bytes = size_of_val(from);
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: the caller's memory was sized by these slices.
    unsafe { context.upload(to, Rows { count: 1, bytes, pitch: bytes }, from.as_ptr().cast()) }
}
