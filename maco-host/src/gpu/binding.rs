//! The tables of one set of arguments on the GPU, in one block, because workers read them first: initial tasks, launch record, list starts, views, tensor
//! maps, scalars.

use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys;
use maco_abi::{self as abi, INITIAL_TASKS, Launch, TensorMap, View};
use maco_graph::plan::Schedule;

use super::context::Context;
use super::events::EventHandle;
use super::memory::{DeviceMemory, PinnedMemory};
use super::nccl::Chunk;
use super::plan_memory::PlanMemory;
use super::tensor_map;
use crate::error::Error;
use crate::lower::Tables;
use crate::plan_core::PlanCore;

/// Uploads that may be queued before the host waits for one.
const SLOTS: usize = 4;
/// Polls of a wait before its deadline counts: time slices and sanitizers stretch time.
const DEADLINE_POLLS: u32 = 10_000;
/// Tensor maps and views start at multiples of a line.
const LINE: usize = 128;

/// Tables in device memory, written through pinned slots in turn.
pub(crate) struct Binding {
    memory: DeviceMemory,
    offsets: TableOffsets,
    slots: Mutex<Slots>,
    /// What NCCL exchanges beside a launch with the tables that were written last.
    chunks: Mutex<Arc<[Chunk]>>,
}

/// Where each table starts, in bytes; before the launch record are the first tasks of each CTA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TableOffsets {
    launch: usize,
    starts: usize,
    views: usize,
    tensor_maps: usize,
    scalars: usize,
    end: usize,
}

impl TableOffsets {
    fn new(ctas: usize, starts: usize, (views, tensor_maps, scalars): (usize, usize, usize)) -> TableOffsets {
        let launch = ctas * INITIAL_TASKS as usize * size_of::<abi::Slot>();
        let at_starts = launch + size_of::<Launch>();
        let at_views = (at_starts + starts * 4).next_multiple_of(LINE);
        let at_maps = (at_views + views * size_of::<View>()).next_multiple_of(LINE);
        let at_scalars = at_maps + tensor_maps * size_of::<TensorMap>();
        TableOffsets {
            launch,
            starts: at_starts,
            views: at_views,
            tensor_maps: at_maps,
            scalars: at_scalars,
            end: at_scalars + scalars * 4,
        }
    }
}

struct Slots {
    ring: Vec<Slot>,
    next: usize,
}

struct Slot {
    memory: PinnedMemory,
    /// Recorded behind the last copy out of it.
    read: Option<Arc<EventHandle>>,
}

impl Binding {
    pub(super) fn new(context: &Arc<Context>, core: &PlanCore) -> Result<Binding, Error> {
        let offsets = TableOffsets::new(core.lowered.grid() as usize, core.lowered.starts.len(), core.lowered.table_sizes());
        let what = format!("the argument tables of megakernel `{}`", core.megakernel());
        let memory = DeviceMemory::zeroed(context, offsets.end as u64, &what)?;
        let slot = || Ok(Slot { memory: PinnedMemory::new(context, offsets.end, &what)?, read: None });
        let ring = (0..SLOTS).map(|_| slot()).collect::<Result<_, Error>>()?;
        Ok(Binding { memory, offsets, slots: Mutex::new(Slots { ring, next: 0 }), chunks: Mutex::new([].into()) })
    }

    /// Address of the launch record: the kernel's one parameter.
    pub(super) fn launch(&self) -> u64 {
        self.memory.address() + self.offsets.launch as u64
    }

    /// See [`super::beside::Beside::chunks`].
    pub(super) fn chunks(&self) -> Arc<[Chunk]> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Queues new tables on `stream`, behind whatever reads the old ones. Waits only if [`SLOTS`] uploads are still queued.
    ///
    /// # Safety
    /// `stream` is a live stream of `context`, and every launch that reads the old tables is in front of it.
    pub(super) unsafe fn write(
        &self,
        context: &Arc<Context>,
        core: &PlanCore,
        plan: &PlanMemory,
        tables: &Tables,
        stream: sys::CUstream,
    ) -> Result<(), Error> {
        let tensor_maps =
            tables.tensor_maps.iter().map(|request| tensor_map::encode(context, request, plan.zeros())).collect::<Result<Vec<_>, _>>()?;
        if let Some(beside) = &core.beside {
            *self.chunks.lock().unwrap_or_else(PoisonError::into_inner) = beside.chunks(tables)?.into();
        }
        let (launch, mut first) = (self.record(core, plan), core.lowered.initial_tasks(&tables.views, core.fault()));
        // The last CTA's come first.
        first.reverse();
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let at = slots.next;
        slots.next = (at + 1) % slots.ring.len();
        let slot = &mut slots.ring[at];
        if let Some(read) = slot.read.take() {
            read.synchronize(context)?;
        }
        let base = slot.memory.pointer();
        // SAFETY: the slot has `offsets.end` bytes, its last copy has ended, and the tables have the sizes the offsets were made for.
        unsafe {
            put(base, &first);
            put(base.add(self.offsets.launch), &[launch]);
            put(base.add(self.offsets.starts), &core.lowered.starts);
            put(base.add(self.offsets.views), &tables.views);
            put(base.add(self.offsets.tensor_maps), &tensor_maps);
            put(base.add(self.offsets.scalars), &tables.scalars);
            let code = sys::cuMemcpyHtoDAsync_v2(self.memory.address(), base.cast(), self.offsets.end, stream);
            context.check("cuMemcpyHtoDAsync", code)?;
            let read = EventHandle::new(context)?;
            read.record(context, stream)?;
            slot.read = Some(read);
        }
        Ok(())
    }

    fn record(&self, core: &PlanCore, plan: &PlanMemory) -> Launch {
        let (base, lowered) = (self.memory.address(), &core.lowered);
        Launch {
            descriptors: plan.descriptors(),
            starts: base + self.offsets.starts as u64,
            views: base + self.offsets.views as u64,
            tensor_maps: base + self.offsets.tensor_maps as u64,
            scalars: base + self.offsets.scalars as u64,
            overflow: plan.overflow(),
            state: plan.state(),
            black_box: plan.black_box_address(),
            partitions: plan.partitions(),
            rings: plan.rings(),
            counters: lowered.counters,
            workers: lowered.workers,
            tasks: lowered.tasks,
            schedule: lowered.mode(),
            schedulers: lowered.images.len() as u32,
            spare: matches!(lowered.schedule, Schedule::SpareWarps(_)) as u32,
            deadline_ns: core.deadline_ns(),
            deadline_polls: DEADLINE_POLLS,
            delays: core.delays(),
            profile: core.profile().0,
            records: core.profile().1,
            executors: lowered.grid(),
            partials: plan.partials(),
            arrived: plan.arrived(),
            in_band: plan.arena(),
            in_band_words: plan.arena() + lowered.arena.words.start,
            in_band_bytes: lowered.arena.in_band_bytes,
            reserved: 0,
            fault: plan.fault(),
            ranks: core.ranks(),
        }
    }
}

/// Copies plain data without padding.
///
/// # Safety
/// `to` has room for all of `from`.
unsafe fn put<T: Copy>(to: *mut u8, from: &[T]) {
    // SAFETY: passed on from the caller.
    unsafe { to.copy_from_nonoverlapping(from.as_ptr().cast(), size_of_val(from)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_do_not_overlap_and_maps_are_aligned() {
        for (ctas, starts, views, tensor_maps, scalars) in [(1, 2, 1, 0, 0), (132, 133, 3, 2, 5), (1, 0, 4, 4, 1), (5, 5, 1000, 7, 0)] {
            let offsets = TableOffsets::new(ctas, starts, (views, tensor_maps, scalars));
            assert_eq!(offsets.launch, ctas * 512);
            assert!(offsets.starts >= offsets.launch + size_of::<Launch>() && offsets.views >= offsets.starts + starts * 4);
            assert!(offsets.tensor_maps >= offsets.views + views * 32);
            assert_eq!(offsets.scalars, offsets.tensor_maps + tensor_maps * 128);
            assert_eq!(offsets.end, offsets.scalars + scalars * 4);
            assert_eq!((offsets.starts % 4, offsets.views % 32, offsets.tensor_maps % 128, offsets.scalars % 4), (0, 0, 0, 0));
        }
    }
}
