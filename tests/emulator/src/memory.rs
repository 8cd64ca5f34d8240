//! Memory of the emulated GPUs: host memory, each allocation on pages of its own with nothing valid around it.
//!
//! Addresses of freed allocations are not used again, so that a use after free is found. What `cuMemMap` maps is in [`mapped`].

pub mod mapped;
pub mod registered;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

/// Addresses that may ever be given out: enough for reservations of eight ranks of one process.
const REGION: usize = 8 << 40;
const PAGE: usize = 1 << 14;
const MOST: usize = 1 << 22;

/// Devices that there may be.
pub const DEVICES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Of `cuMemAlloc`, and variables of modules.
    Plain,
    /// Pinned memory of the host, which all devices use.
    Host,
    /// Of `cuMemMap`.
    Mapped,
}

#[derive(Clone, Copy, Debug)]
pub struct Allocation {
    pub start: u64,
    pub end: u64,
    pub kind: Kind,
    /// The device whose memory it is, and for host memory the one whose context it was asked of.
    pub device: usize,
    /// A bit for each device that `cuMemSetAccess` lets use mapped memory.
    rights: u32,
    /// What stands for the start of the memory itself, which may be mapped at several addresses.
    physical: u64,
}

impl Allocation {
    /// What stands for the memory at an address of it.
    pub fn physical_of(&self, address: u64) -> u64 {
        self.physical + (address - self.start)
    }

    pub fn usable_by(&self, device: usize) -> bool {
        match self.kind {
            Kind::Plain => self.device == device || peers(device) >> self.device & 1 == 1,
            Kind::Host => true,
            Kind::Mapped => self.rights >> device & 1 == 1,
        }
    }
}

/// An allocation as kernels look it up, without a lock.
struct Record {
    start: AtomicU64,
    /// 0 once it is freed.
    end: AtomicU64,
    /// Kind, device, and rights, a byte each.
    tag: AtomicU32,
    physical: AtomicU64,
}

struct Table {
    base: u64,
    /// Number of the allocation of each page; 0 for none.
    owners: *const AtomicU32,
    records: *const Record,
    state: Mutex<State>,
}

struct State {
    next_page: usize,
    next_number: usize,
    live: [u64; DEVICES],
}

// SAFETY: the tables are mapped for ever and hold atomics.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

fn map(bytes: usize) -> *mut u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping of memory that nobody has.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    assert!(at != libc::MAP_FAILED, "no address space for the emulated GPU");
    at.cast()
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let base = map(REGION) as u64;
        let base = base.next_multiple_of(PAGE as u64 * 16);
        Table {
            base,
            owners: map(REGION / PAGE * 4) as *const AtomicU32,
            records: map(MOST * size_of::<Record>()) as *const Record,
            state: Mutex::new(State { next_page: 1, next_number: 1, live: [0; DEVICES] }),
        }
    })
}

impl Table {
    fn page(&self, address: u64) -> usize {
        ((address - self.base) as usize) / PAGE
    }

    fn record(&self, number: usize) -> &Record {
        assert!(number < MOST);
        // SAFETY: within the table.
        unsafe { &*self.records.add(number) }
    }

    /// Makes the pages of these addresses those of an allocation, or nobody's.
    fn give(&self, start: u64, end: u64, number: usize) {
        for page in self.page(start)..=self.page(end - 1) {
            // SAFETY: addresses are within the region, and so their pages within the table.
            unsafe { (*self.owners.add(page)).store(number as u32, Ordering::Release) };
        }
    }

    /// Enters a new allocation; none if there have been too many.
    fn enter(&self, state: &mut State, new: Allocation) -> Option<()> {
        let number = state.next_number;
        if number >= MOST {
            return None;
        }
        state.next_number += 1;
        let record = self.record(number);
        record.start.store(new.start, Ordering::Relaxed);
        record.end.store(new.end, Ordering::Relaxed);
        record.tag.store(new.kind as u32 | (new.device as u32) << 8 | new.rights << 16, Ordering::Relaxed);
        record.physical.store(new.physical, Ordering::Relaxed);
        self.give(new.start, new.end, number);
        Some(())
    }

    /// Takes an allocation out.
    fn leave(&self, found: &Allocation) {
        self.record(self.number(found.start)).end.store(0, Ordering::Relaxed);
        self.give(found.start, found.end, 0);
    }

    /// Number of the allocation of an address of the region; 0 for none.
    fn number(&self, address: u64) -> usize {
        // SAFETY: within the table.
        unsafe { (*self.owners.add(self.page(address))).load(Ordering::Acquire) as usize }
    }

    /// Addresses that nobody has had, at a multiple of `align`.
    fn fresh(&self, state: &mut State, bytes: u64, align: u64) -> Option<u64> {
        let start = (self.base + (state.next_page * PAGE) as u64).next_multiple_of(align);
        let end = start.checked_add(bytes)?;
        // One page behind is nobody's.
        let next = (end - self.base).div_ceil(PAGE as u64) + 1;
        if next >= (REGION / PAGE - 16) as u64 {
            return None;
        }
        state.next_page = next as usize;
        Some(start)
    }
}

/// Bytes that all allocations of a device together may have.
pub fn capacity() -> u64 {
    static CAPACITY: OnceLock<u64> = OnceLock::new();
    *CAPACITY.get_or_init(|| crate::settings::number("EMU_MEMORY_MB", 8192) << 20)
}

pub fn live(device: usize) -> u64 {
    table().state.lock().unwrap().live[device]
}

/// New memory, full of ones (not a number in every floating type).
pub fn allocate(bytes: u64, device: usize, kind: Kind) -> Option<u64> {
    let table = table();
    let mut state = table.state.lock().unwrap();
    if bytes == 0 || state.live[device] + bytes > capacity() {
        return None;
    }
    // An odd multiple of 512 bytes: no more alignment than is promised.
    let start = table.fresh(&mut state, bytes + 512, PAGE as u64)? + 512;
    table.enter(&mut state, Allocation { start, end: start + bytes, kind, device, rights: 0, physical: start })?;
    state.live[device] += bytes;
    if bytes <= 256 << 20 {
        // SAFETY: of the region, and nobody else's.
        unsafe { std::ptr::write_bytes(start as *mut u8, 0xFF, bytes as usize) };
    }
    Some(start)
}

/// Frees what starts there.
pub fn free(start: u64) -> bool {
    let table = table();
    let mut state = table.state.lock().unwrap();
    let Some(found) = find(start).filter(|found| found.start == start && found.kind != Kind::Mapped) else { return false };
    state.live[found.device] -= found.end - found.start;
    table.leave(&found);
    crate::exec::races::domain::forget(found.start, found.end);
    let (first, pages) = (table.page(start), table.page(found.end - 1) - table.page(start) + 1);
    // SAFETY: within the region; nobody may use freed memory.
    unsafe { libc::madvise((table.base as usize + first * PAGE) as *mut libc::c_void, pages * PAGE, libc::MADV_DONTNEED) };
    true
}

/// Devices whose plain memory each device may use besides its own, a bit for each.
static PEERS: [AtomicU32; DEVICES] = [const { AtomicU32::new(0) }; DEVICES];

pub fn peers(device: usize) -> u32 {
    PEERS[device].load(Ordering::Relaxed)
}

/// Lets a device use the memory of another one, or not any more; whether that was otherwise before.
pub fn set_peer(device: usize, owner: usize, usable: bool) -> bool {
    let before = if usable {
        PEERS[device].fetch_or(1 << owner, Ordering::SeqCst)
    } else {
        PEERS[device].fetch_and(!(1 << owner), Ordering::SeqCst)
    };
    (before >> owner & 1 == 1) != usable
}

/// Bytes from which on zeros are those of pages that nobody has touched: see [`clear`].
pub const MANY: usize = 1 << 30;

/// Makes these bytes zero. They take no memory until they are used: a GPU's memory is larger than this machine's.
///
/// # Safety
/// They lie in one live allocation of `cuMemAlloc`.
pub unsafe fn clear(start: u64, bytes: usize) {
    let end = start as usize + bytes;
    let (first, last) = ((start as usize).next_multiple_of(PAGE), end / PAGE * PAGE);
    // SAFETY: passed on from the caller; the pages between are all the allocation's.
    unsafe {
        std::ptr::write_bytes(start as *mut u8, 0, first - start as usize);
        std::ptr::write_bytes(last as *mut u8, 0, end - last);
        assert!(libc::madvise(first as *mut libc::c_void, last - first, libc::MADV_DONTNEED) == 0, "no zeros");
    }
}

/// The live allocation that an address lies in.
pub fn find(address: u64) -> Option<Allocation> {
    let table = table();
    if address.wrapping_sub(table.base) as usize / PAGE >= REGION / PAGE - 16 {
        return None;
    }
    let number = table.number(address);
    if number == 0 {
        return None;
    }
    let record = table.record(number);
    let tag = record.tag.load(Ordering::Relaxed);
    let found = Allocation {
        start: record.start.load(Ordering::Relaxed),
        end: record.end.load(Ordering::Relaxed),
        kind: [Kind::Plain, Kind::Host, Kind::Mapped][tag as usize & 3],
        device: (tag >> 8) as usize % DEVICES,
        rights: tag >> 16,
        physical: record.physical.load(Ordering::Relaxed),
    };
    (found.start <= address && address < found.end).then_some(found)
}

/// Whether these bytes are all live, and `allowed`. Mappings may lie side by side.
fn covered(mut address: u64, bytes: u64, allowed: impl Fn(&Allocation) -> bool) -> bool {
    let Some(end) = address.checked_add(bytes) else { return false };
    while address < end {
        match find(address).filter(&allowed) {
            Some(found) => address = found.end,
            None => return false,
        }
    }
    true
}

/// Whether kernels of a device may use these bytes.
pub fn usable(device: usize, address: u64, bytes: u64) -> bool {
    covered(address, bytes, |found| found.usable_by(device))
}

/// Whether copies of a device may use these bytes: they do without peer access, but not without access to mappings.
pub fn copyable(device: usize, address: u64, bytes: u64) -> bool {
    covered(address, bytes, |found| found.kind == Kind::Plain || found.usable_by(device))
}
