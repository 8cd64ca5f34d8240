//! The messages of a plan of several ranks: a piece of the symmetric memory that the ranks' plans share, and what device code reads of it.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use maco_abi::{Fifo, Ranks};
use maco_graph::ir::{Graph, TensorKind};
use maco_ranks::{Block, Error as RanksError, Group};

use crate::arguments::Arguments;
use crate::channel::{Service, SymmetricMemory};
use crate::device::Device;
use crate::error::Error;
use crate::gpu::RankTable;
use crate::lower::{MessagePlaces, PlanMessages};

/// Bytes of each rank's symmetric memory for the messages of all plans, unless it is set.
pub(crate) const MESSAGE_MEMORY: usize = 64 << 20;

/// Triggers that may wait for a plan's proxy: tasks wait for room behind them.
const TRIGGERS: u32 = 256;

/// How long a launch that hung may wait for word of a lost rank: it may be on its way, or another thread of this rank may be reading it.
const LEARNING: Duration = Duration::from_millis(20);

/// The symmetric memory of a communicator's plans, made when the first plan needs it.
#[derive(Debug)]
pub(crate) struct PlanArena {
    bytes: AtomicUsize,
    /// One for each device that this rank plans for.
    made: Mutex<Vec<(Device, Arc<Shared>)>>,
}

#[derive(Debug)]
struct Shared {
    memory: SymmetricMemory,
    /// Blocks of plans that this rank has dropped. They are free when all ranks have dropped them.
    dropped: Mutex<Vec<Block>>,
}

impl Default for PlanArena {
    fn default() -> PlanArena {
        PlanArena { bytes: AtomicUsize::new(MESSAGE_MEMORY), made: Mutex::default() }
    }
}

impl PlanArena {
    /// See `Communicator::set_message_memory`. Whether the memory was not made yet.
    pub(crate) fn set_bytes(&self, bytes: usize) -> bool {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.is_empty() {
            self.bytes.store(bytes, Ordering::Relaxed);
        }
        made.is_empty()
    }

    /// Bytes of the largest piece that is free for a plan's messages on `device`, the same on all ranks. All ranks call it, and no rank plans meanwhile.
    pub(crate) fn room(&self, group: &Group, device: &Device) -> Result<usize, Error> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((_, shared)) = made.iter().find(|(known, _)| known == device) else { return Ok(self.bytes.load(Ordering::Relaxed)) };
        shared.collect(group)?;
        Ok(shared.memory.largest_free())
    }

    /// Most bytes that were in use at once, on each rank.
    pub(crate) fn high_water(&self) -> usize {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.iter().map(|(_, shared)| shared.memory.high_water()).max().unwrap_or(0)
    }

    /// All ranks call it at the same plan.
    fn get(&self, group: &Arc<Group>, device: &Device) -> Result<Arc<Shared>, Error> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, shared)) = made.iter().find(|(known, _)| known == device) {
            return Ok(shared.clone());
        }
        let memory = SymmetricMemory::new(group.clone(), device, self.bytes.load(Ordering::Relaxed))?;
        let shared = Arc::new(Shared { memory, dropped: Mutex::default() });
        made.push((device.clone(), shared.clone()));
        Ok(shared)
    }
}

/// A part of every rank's symmetric memory for a tensor, until it is dropped: see `Communicator::symmetric_tensor`.
#[derive(Debug)]
pub(crate) struct SymmetricPart {
    shared: Arc<Shared>,
    block: Option<Block>,
    address: u64,
}

impl SymmetricPart {
    /// `bytes` zeros on `device`. All ranks call it; `what` is for messages.
    pub(crate) fn new(group: &Arc<Group>, arena: &PlanArena, device: &Device, what: &str, bytes: u64) -> Result<SymmetricPart, Error> {
        let shared = arena.get(group, device)?;
        shared.collect(group)?;
        let block = shared.memory.block(what, usize::try_from(bytes).unwrap_or(usize::MAX))?;
        let base = shared.memory.table().bases[group.rank() as usize];
        let address = base + block.offset() as u64;
        Ok(SymmetricPart { shared, block: Some(block), address })
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for SymmetricPart {
    fn drop(&mut self) {
        let mut dropped = self.shared.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        dropped.extend(self.block.take());
    }
}

impl Shared {
    /// Frees what all ranks have dropped. All ranks call it.
    fn collect(&self, group: &Group) -> Result<(), RanksError> {
        let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        let offsets: Vec<u8> = dropped.iter().flat_map(|block| (block.offset() as u64).to_le_bytes()).collect();
        let of_ranks = group.all_gather(&offsets)?;
        let has = |offsets: &Vec<u8>, offset: usize| offsets.as_chunks::<8>().0.contains(&(offset as u64).to_le_bytes());
        let mut free: Vec<Block> = dropped.extract_if(.., |block| of_ranks.iter().all(|rank| has(rank, block.offset()))).collect();
        free.sort_by_key(Block::offset);
        free.into_iter().try_for_each(|block| self.memory.free(block))
    }
}

/// The messages of one plan, on this rank.
#[derive(Debug)]
pub(crate) struct Exchange {
    group: Arc<Group>,
    shared: Arc<Shared>,
    /// Until it is dropped.
    block: Option<Block>,
    /// Of port channels. It ends before the block is given back.
    proxy: Option<Mutex<Service>>,
    table: Table,
    /// Where this process has the symmetric memory of each rank.
    bases: Box<[u64]>,
}

/// What device code reads, where it can.
#[derive(Debug)]
enum Table {
    Host { missing: Box<[AtomicU32]>, _fifo: Option<Box<Fifo>>, table: Box<Ranks> },
    Gpu(RankTable),
}

impl Exchange {
    /// Memory for `messages` of megakernel `name` on `device`. All ranks call it.
    pub(crate) fn new(
        group: &Arc<Group>,
        arena: &PlanArena,
        device: &Device,
        name: &str,
        messages: &PlanMessages,
    ) -> Result<Exchange, Error> {
        let shared = arena.get(group, device)?;
        if let Some([first, second]) = shared.memory.same_gpu() {
            return Err(Error::Collectives {
                megakernel: name.into(),
                what: format!("ranks {first} and {second} have one GPU, where the launch of one would wait for the other's to end").into(),
                ranks: group.ranks(),
                help: "give each rank a GPU of its own: `Device::gpu(communicator.local_rank())`",
            });
        }
        shared.collect(group)?;
        let bytes = usize::try_from(messages.bytes).unwrap_or(usize::MAX);
        let block = shared.memory.block(&format!("messages of megakernel {name}"), bytes)?;
        let bases = shared.memory.table().bases.into_boxed_slice();
        let (rank, ranks) = (group.rank(), group.ranks());
        let proxy = messages.proxy.then(|| shared.memory.proxy(device, TRIGGERS)).transpose()?;
        let fifo = proxy.as_ref().map(|proxy| proxy.table(rank)).transpose()?;
        let table = match device.context() {
            Some(context) => Table::Gpu(RankTable::new(context, rank, &bases, messages.tiles, fifo)?),
            None => {
                let missing: Box<[AtomicU32]> = (0..messages.tiles).map(|_| AtomicU32::new(0)).collect();
                let fifo = fifo.map(Box::new);
                let at = fifo.as_ref().map_or(0, |fifo| &raw const **fifo as u64);
                let table = Box::new(Ranks { rank, ranks, bases: bases.as_ptr() as u64, missing: missing.as_ptr() as u64, fifo: at });
                Table::Host { missing, _fifo: fifo, table }
            }
        };
        Ok(Exchange { group: group.clone(), shared, block: Some(block), proxy: proxy.map(Mutex::new), table, bases })
    }

    /// [`maco_abi::Launch::ranks`].
    pub(crate) fn table(&self) -> u64 {
        match &self.table {
            Table::Host { table, .. } => &raw const **table as u64,
            Table::Gpu(table) => table.address(),
        }
    }

    /// Where the messages are.
    pub(crate) fn places(&self) -> MessagePlaces<'_> {
        MessagePlaces {
            rank: self.group.rank(),
            bases: &self.bases,
            offset: self.block.as_ref().map_or(0, |block| block.offset() as u64),
            gates: 0,
        }
    }

    /// Refuses arguments outside of the symmetric memory for tensors that other ranks store.
    pub(crate) fn check_symmetric(&self, graph: &Graph, arguments: &Arguments<'_>) -> Result<(), Error> {
        let begin = self.bases[self.group.rank() as usize];
        let end = begin + self.shared.memory.bytes() as u64;
        let parameters = graph.tensors.iter().enumerate().filter(|(_, tensor)| tensor.kind != TensorKind::Temp);
        for ((n, tensor), argument) in parameters.zip(&arguments.tensors) {
            let placed = &argument.placed;
            let inside = begin <= placed.address && placed.end() <= end && placed.address.is_multiple_of(16);
            let wide = (placed.layout.row_stride * u64::from(placed.element.bytes())).is_multiple_of(16);
            if graph.symmetric.contains(&(n as u32)) && !(inside && wide) {
                let what = format!(
                    "`{}` of megakernel `{}` is symmetric, and the memory of its argument is not: other ranks cannot store there",
                    tensor.name, graph.name
                );
                let help = "make the tensor with `communicator.symmetric_tensor(&device, shape)`, on all ranks";
                return Err(RanksError::Memory { what: what.into(), help }.into());
            }
        }
        Ok(())
    }

    /// For each tile the rank, plus 1, whose message it has waited for in vain; 0 for none. The launch has ended.
    pub(crate) fn missing(&self) -> Vec<u32> {
        match &self.table {
            Table::Host { missing, .. } => missing.iter().map(|word| word.load(Ordering::Relaxed)).collect(),
            Table::Gpu(table) => table.missing(),
        }
    }

    /// The error of a rank that is lost, if one is known to be. Does not wait.
    pub(crate) fn lost(&self) -> Option<RanksError> {
        self.group.try_check().err()
    }

    /// The ranks.
    pub(crate) fn group(&self) -> &Group {
        &self.group
    }

    /// Clears all messages, between two votes: before it no rank runs a launch any more, and none begins one before all have cleared theirs. `own` is what else
    /// this rank clears.
    pub(crate) fn clear(&self, name: &str, own: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let mut proxy = self.proxy.as_ref().map(|proxy| proxy.lock().unwrap_or_else(PoisonError::into_inner));
        // What is on its way arrives before anybody clears.
        if let Some(proxy) = &mut proxy {
            proxy.stop();
        }
        self.group.vote(&format!("recover megakernel {name}"), Ok(&[]))?;
        let own = own().and_then(|()| match &self.block {
            Some(block) => self.shared.memory.clear(block),
            None => Ok(()),
        });
        let own = own.and_then(|()| match &self.table {
            Table::Host { missing, .. } => {
                missing.iter().for_each(|word| word.store(0, Ordering::Relaxed));
                Ok(())
            }
            Table::Gpu(table) => table.clear(),
        });
        let own = own.and_then(|()| proxy.as_mut().map_or(Ok(()), |proxy| proxy.again()));
        let text = own.as_ref().err().map(Error::to_string);
        self.group.vote(&format!("recovered megakernel {name}"), text.as_deref().map_or(Ok(&[]), Err))?;
        own
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.proxy = None;
        let mut dropped = self.shared.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        dropped.extend(self.block.take());
    }
}

/// The error of a rank that is lost, of a launch that has hung: waits a moment for the word.
pub(crate) fn lost_at_last(group: &Group) -> Option<RanksError> {
    let until = Instant::now() + LEARNING;
    loop {
        match group.try_check().err() {
            None if Instant::now() < until => thread::sleep(Duration::from_millis(1)),
            known => return known,
        }
    }
}
