//! Memory that is created, and mapped where there is a reservation (driver API, "Virtual Memory Management").
//!
//! Each piece is a memfd: whoever gets its descriptor, in this process or another, maps the same memory. The name says that it is an emulated GPU's, and
//! whose.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard};

use super::{Allocation, DEVICES, Kind, capacity, find, table};

/// All sizes and addresses are multiples of this.
pub const GRANULE: u64 = 2 << 20;

const NAME: &str = "emulated-gpu-";

/// What stands for the memory of a handle: no address looks like this.
fn physical(handle: u64) -> u64 {
    1 << 60 | handle << 40
}

/// The handle and the offset that something stands for.
pub fn named(physical: u64) -> Option<(u64, u64)> {
    (physical >> 60 == 1).then_some((physical >> 40 & 0xF_FFFF, physical & ((1 << 40) - 1)))
}

/// Why something is refused.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    Invalid,
    NoMemory,
}

/// A piece of memory, of a device of this process or imported from another.
struct Object {
    file: OwnedFd,
    inode: u64,
    bytes: u64,
    device: usize,
    /// Whether it may be exported.
    shareable: bool,
    imported: bool,
    /// Handles and mappings that keep it.
    handles: usize,
    mappings: usize,
}

#[derive(Default)]
struct State {
    next: u64,
    objects: BTreeMap<u64, Object>,
    /// Start and bytes.
    reservations: BTreeMap<u64, u64>,
    /// Start, bytes, and the handle of what is there.
    mappings: BTreeMap<u64, (u64, u64)>,
}

static STATE: Mutex<State> =
    Mutex::new(State { next: 1, objects: BTreeMap::new(), reservations: BTreeMap::new(), mappings: BTreeMap::new() });

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap()
}

impl State {
    fn insert(&mut self, object: Object) -> u64 {
        let handle = self.next;
        self.next += 1;
        self.objects.insert(handle, object);
        handle
    }

    fn held(&mut self, handle: u64) -> Result<&mut Object, Refusal> {
        self.objects.get_mut(&handle).filter(|object| object.handles > 0).ok_or(Refusal::Invalid)
    }

    /// Lets a piece of memory go if nothing keeps it.
    fn settle(&mut self, handle: u64) {
        let object = &self.objects[&handle];
        if object.handles == 0 && object.mappings == 0 {
            if !object.imported {
                table().state.lock().unwrap().live[object.device] -= object.bytes;
            }
            crate::exec::races::domain::forget(physical(handle), physical(handle) + object.bytes);
            self.objects.remove(&handle);
        }
    }

    /// Starts of the mappings that these bytes consist of; none if they are not whole ones.
    fn whole(&self, start: u64, bytes: u64) -> Option<Vec<u64>> {
        let end = start.checked_add(bytes).filter(|_| bytes > 0)?;
        let (mut at, mut found) = (start, Vec::new());
        while at < end {
            found.push(at);
            at += self.mappings.get(&at)?.0;
        }
        (at == end).then_some(found)
    }
}

/// Bytes of a file, and its number.
fn size(file: BorrowedFd<'_>) -> Option<(u64, u64)> {
    // SAFETY: zeros are a valid `stat`.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: an open descriptor, and a place for the answer.
    (unsafe { libc::fstat(file.as_raw_fd(), &mut status) } == 0).then_some((status.st_size as u64, status.st_ino))
}

fn duplicate(file: RawFd) -> Option<OwnedFd> {
    // SAFETY: of any number; the new descriptor is nobody else's.
    unsafe {
        let new = libc::fcntl(file, libc::F_DUPFD_CLOEXEC, 0);
        (new >= 0).then(|| OwnedFd::from_raw_fd(new))
    }
}

/// Maps a file at an address of the region, or without a file nothing but pages that nobody uses.
fn place(at: Option<u64>, bytes: u64, file: Option<&OwnedFd>) -> Option<u64> {
    let fixed = if at.is_some() { libc::MAP_FIXED } else { 0 };
    let (flags, file) = match file {
        Some(file) => (libc::MAP_SHARED | fixed, file.as_raw_fd()),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed, -1),
    };
    let wanted = at.unwrap_or(0) as *mut libc::c_void;
    // SAFETY: a fixed address is of a reservation, so of the region, and nothing but emulated memory is there.
    let at = unsafe { libc::mmap(wanted, bytes as usize, libc::PROT_READ | libc::PROT_WRITE, flags, file, 0) };
    (at != libc::MAP_FAILED).then_some(at as u64)
}

/// Memory of a device, full of ones if it is not too large; its handle.
pub fn create(bytes: u64, device: usize, shareable: bool) -> Result<u64, Refusal> {
    if bytes == 0 || !bytes.is_multiple_of(GRANULE) || device >= DEVICES {
        return Err(Refusal::Invalid);
    }
    {
        let live = &mut table().state.lock().unwrap().live[device];
        if *live + bytes > capacity() {
            return Err(Refusal::NoMemory);
        }
        *live += bytes;
    }
    let file = file(bytes, device);
    let Some((file, inode)) = file else {
        table().state.lock().unwrap().live[device] -= bytes;
        return Err(Refusal::NoMemory);
    };
    Ok(state().insert(Object { file, inode, bytes, device, shareable, imported: false, handles: 1, mappings: 0 }))
}

fn file(bytes: u64, device: usize) -> Option<(OwnedFd, u64)> {
    let name = CString::new(format!("{NAME}{device}")).ok()?;
    // SAFETY: a terminated name; the descriptor is new.
    let file = unsafe {
        let file = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC);
        (file >= 0).then(|| OwnedFd::from_raw_fd(file))?
    };
    // SAFETY: a descriptor that is open.
    if unsafe { libc::ftruncate(file.as_raw_fd(), bytes as libc::off_t) } != 0 {
        return None;
    }
    if bytes <= 256 << 20 {
        let at = place(None, bytes, Some(&file))?;
        // SAFETY: a mapping of so many bytes that nobody else knows.
        unsafe {
            std::ptr::write_bytes(at as *mut u8, 0xFF, bytes as usize);
            libc::munmap(at as *mut libc::c_void, bytes as usize);
        }
    }
    let inode = size(std::os::fd::AsFd::as_fd(&file))?.1;
    Some((file, inode))
}

/// A handle is given back.
pub fn release(handle: u64) -> Result<(), Refusal> {
    let mut state = state();
    state.held(handle)?.handles -= 1;
    state.settle(handle);
    Ok(())
}

/// A descriptor of the memory, which the caller closes.
pub fn export(handle: u64) -> Result<OwnedFd, Refusal> {
    let mut state = state();
    let object = state.held(handle)?;
    if !object.shareable {
        return Err(Refusal::Invalid);
    }
    duplicate(object.file.as_raw_fd()).ok_or(Refusal::NoMemory)
}

/// A handle of what was exported; the descriptor stays the caller's. Memory that this process has a handle of keeps it.
pub fn import(file: RawFd) -> Result<u64, Refusal> {
    let file = duplicate(file).ok_or(Refusal::Invalid)?;
    let name = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).map_err(|_| Refusal::Invalid)?;
    let name = name.to_string_lossy().into_owned();
    let device = name.split_once(NAME).and_then(|(_, rest)| rest.split(' ').next()?.parse::<usize>().ok());
    let device = device.filter(|&device| device < DEVICES).ok_or(Refusal::Invalid)?;
    let (bytes, inode) = size(std::os::fd::AsFd::as_fd(&file)).ok_or(Refusal::Invalid)?;
    let mut state = state();
    if let Some((&handle, object)) = state.objects.iter_mut().find(|(_, object)| object.inode == inode) {
        object.handles += 1;
        return Ok(handle);
    }
    Ok(state.insert(Object { file, inode, bytes, device, shareable: true, imported: true, handles: 1, mappings: 0 }))
}

/// Device of a handle's memory, and whether it may be exported.
pub fn properties(handle: u64) -> Result<(usize, bool), Refusal> {
    state().held(handle).map(|object| (object.device, object.shareable))
}

/// One more handle of what is mapped at an address.
pub fn retain(address: u64) -> Result<u64, Refusal> {
    let mut state = state();
    let (&start, &(bytes, handle)) = state.mappings.range(..=address).next_back().ok_or(Refusal::Invalid)?;
    if address >= start + bytes {
        return Err(Refusal::Invalid);
    }
    state.objects.get_mut(&handle).ok_or(Refusal::Invalid)?.handles += 1;
    Ok(handle)
}

/// Addresses for mappings.
pub fn reserve(bytes: u64, align: u64) -> Result<u64, Refusal> {
    if bytes == 0 || !bytes.is_multiple_of(GRANULE) || align != 0 && !align.is_power_of_two() {
        return Err(Refusal::Invalid);
    }
    let table = table();
    let start = table.fresh(&mut table.state.lock().unwrap(), bytes, align.max(GRANULE)).ok_or(Refusal::NoMemory)?;
    state().reservations.insert(start, bytes);
    Ok(start)
}

/// Gives a reservation back in which nothing is mapped.
pub fn unreserve(start: u64, bytes: u64) -> Result<(), Refusal> {
    let mut state = state();
    if state.reservations.get(&start) != Some(&bytes) || state.mappings.range(start..start + bytes).next().is_some() {
        return Err(Refusal::Invalid);
    }
    state.reservations.remove(&start);
    Ok(())
}

/// Maps memory. No device may use it yet.
pub fn map(start: u64, bytes: u64, handle: u64) -> Result<(), Refusal> {
    let mut state = state();
    let end = start.checked_add(bytes).filter(|_| bytes > 0).ok_or(Refusal::Invalid)?;
    let inside = state.reservations.range(..=start).next_back().is_some_and(|(&first, &size)| end <= first + size);
    let taken = state.mappings.range(..end).next_back().is_some_and(|(&other, &(size, _))| other + size > start);
    let object = state.held(handle)?;
    let aligned = start.is_multiple_of(GRANULE) && bytes.is_multiple_of(GRANULE);
    if !inside || taken || !aligned || bytes > object.bytes {
        return Err(Refusal::Invalid);
    }
    place(Some(start), bytes, Some(&object.file)).ok_or(Refusal::NoMemory)?;
    object.mappings += 1;
    let new = Allocation { start, end, kind: Kind::Mapped, device: object.device, rights: 0, physical: physical(handle) };
    state.mappings.insert(start, (bytes, handle));
    let table = table();
    table.enter(&mut table.state.lock().unwrap(), new).ok_or(Refusal::NoMemory)
}

/// Unmaps whole mappings.
pub fn unmap(start: u64, bytes: u64) -> Result<(), Refusal> {
    let mut state = state();
    for at in state.whole(start, bytes).ok_or(Refusal::Invalid)? {
        let found = find(at).ok_or(Refusal::Invalid)?;
        table().leave(&found);
        // A kernel that is just about to use it should not end the process.
        place(Some(at), found.end - found.start, None).ok_or(Refusal::NoMemory)?;
        let (_, handle) = state.mappings.remove(&at).ok_or(Refusal::Invalid)?;
        if let Some(object) = state.objects.get_mut(&handle) {
            object.mappings -= 1;
        }
        state.settle(handle);
    }
    Ok(())
}

/// Lets a device use whole mappings, or not any more.
pub fn allow(start: u64, bytes: u64, device: usize, usable: bool) -> Result<(), Refusal> {
    for at in state().whole(start, bytes).ok_or(Refusal::Invalid)? {
        let (table, bit) = (table(), 1 << (16 + device));
        let tag = &table.record(table.number(at)).tag;
        if usable {
            tag.fetch_or(bit, std::sync::atomic::Ordering::SeqCst);
        } else {
            tag.fetch_and(!bit, std::sync::atomic::Ordering::SeqCst);
        }
    }
    Ok(())
}

/// Devices whose memory these mappings are.
pub fn owners(start: u64, bytes: u64) -> Result<Vec<usize>, Refusal> {
    let starts = state().whole(start, bytes).ok_or(Refusal::Invalid)?;
    Ok(starts.into_iter().filter_map(find).map(|found| found.device).collect())
}
