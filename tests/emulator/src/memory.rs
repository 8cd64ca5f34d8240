//! Memory of the emulated GPU: host memory, each allocation on pages of its own with nothing valid around it.
//!
//! Addresses of freed allocations are not used again, so that a use after free is found.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

/// Addresses that may ever be given out.
const REGION: usize = 1 << 40;
const PAGE: usize = 1 << 14;
const MOST: usize = 1 << 22;

#[derive(Clone, Copy, Debug)]
pub struct Allocation {
    pub start: u64,
    pub end: u64,
    pub host: bool,
}

struct Table {
    base: u64,
    /// Number of the allocation of each page; 0 for none.
    owners: *const AtomicU32,
    /// Start and end of each allocation; the end is 0 once it is freed.
    bounds: *const [AtomicU64; 2],
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next_page: usize,
    next_number: usize,
    live: u64,
    hosts: std::collections::HashSet<u64>,
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
            bounds: map(MOST * 16) as *const [AtomicU64; 2],
            state: Mutex::new(State { next_page: 1, next_number: 1, ..State::default() }),
        }
    })
}

/// Bytes that all allocations together may have.
pub fn capacity() -> u64 {
    static CAPACITY: OnceLock<u64> = OnceLock::new();
    *CAPACITY.get_or_init(|| crate::settings::number("EMU_MEMORY_MB", 8192) << 20)
}

pub fn live() -> u64 {
    table().state.lock().unwrap().live
}

/// New memory, full of ones (not a number in every floating type).
pub fn allocate(bytes: u64, host: bool) -> Option<u64> {
    let table = table();
    let mut state = table.state.lock().unwrap();
    if bytes == 0 || state.live + bytes > capacity() || state.next_number >= MOST {
        return None;
    }
    // One page in front and the rest of the last one behind are nobody's. An odd multiple of 512 bytes: no more alignment than is promised.
    let pages = (bytes as usize + 512).div_ceil(PAGE) + 1;
    if (state.next_page + pages) * PAGE >= REGION - 16 * PAGE {
        return None;
    }
    let number = state.next_number;
    let first = state.next_page;
    (state.next_page, state.next_number) = (first + pages, number + 1);
    state.live += bytes;
    let start = table.base + (first * PAGE) as u64 + 512;
    if host {
        state.hosts.insert(start);
    }
    // SAFETY: within the tables.
    unsafe {
        (*table.bounds.add(number))[0].store(start, Ordering::Relaxed);
        (*table.bounds.add(number))[1].store(start + bytes, Ordering::Relaxed);
        for page in first..first + pages - 1 {
            (*table.owners.add(page)).store(number as u32, Ordering::Release);
        }
        if bytes <= 256 << 20 {
            std::ptr::write_bytes(start as *mut u8, 0xFF, bytes as usize);
        }
    }
    Some(start)
}

/// Frees what starts there.
pub fn free(start: u64) -> bool {
    let table = table();
    let mut state = table.state.lock().unwrap();
    let Some(found) = find(start).filter(|found| found.start == start) else { return false };
    state.live -= found.end - found.start;
    state.hosts.remove(&start);
    let first = ((start - table.base) as usize) / PAGE;
    // SAFETY: within the tables and the region; nobody may use freed memory.
    unsafe {
        let number = (*table.owners.add(first)).load(Ordering::Relaxed) as usize;
        (*table.bounds.add(number))[1].store(0, Ordering::Relaxed);
        let pages = ((found.end - table.base) as usize).div_ceil(PAGE) - first;
        for page in first..first + pages {
            (*table.owners.add(page)).store(0, Ordering::Release);
        }
        libc::madvise((table.base as usize + first * PAGE) as *mut libc::c_void, pages * PAGE, libc::MADV_DONTNEED);
    }
    true
}

/// Bytes from which on zeros are those of pages that nobody has touched: see [`clear`].
pub const MANY: usize = 1 << 30;

/// Makes these bytes zero. They take no memory until they are used: a GPU's memory is larger than this machine's.
///
/// # Safety
/// They lie in one live allocation.
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
    let page = address.wrapping_sub(table.base) as usize / PAGE;
    if page >= REGION / PAGE - 16 {
        return None;
    }
    // SAFETY: within the tables.
    let (start, end) = unsafe {
        let number = (*table.owners.add(page)).load(Ordering::Acquire) as usize;
        if number == 0 {
            return None;
        }
        let bounds = &*table.bounds.add(number);
        (bounds[0].load(Ordering::Relaxed), bounds[1].load(Ordering::Relaxed))
    };
    (start <= address && address < end).then_some(Allocation { start, end, host: false })
}

/// The same, and whether it is the host's.
pub fn find_whole(address: u64) -> Option<Allocation> {
    let mut found = find(address)?;
    found.host = table().state.lock().unwrap().hosts.contains(&found.start);
    Some(found)
}

/// Whether these bytes are all live.
#[inline]
pub fn holds(address: u64, bytes: u64) -> bool {
    bytes == 0 || find(address).is_some_and(|found| address + bytes <= found.end)
}
