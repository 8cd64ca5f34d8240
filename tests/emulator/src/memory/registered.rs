//! Memory of the host that is registered for devices: its pages once more, at addresses of the region.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::{Allocation, Kind, PAGE, find, table};

/// Where devices have what is registered, and how many bytes, by its address on the host.
static REGISTERED: Mutex<BTreeMap<u64, (u64, u64)>> = Mutex::new(BTreeMap::new());

/// Registers memory that is mapped in common (`MAP_SHARED`) and begins at a page. Whether it could be done.
///
/// # Safety
/// So many bytes are mapped there, until they are taken back.
pub unsafe fn register(at: u64, bytes: u64, device: usize) -> bool {
    let mut registered = REGISTERED.lock().unwrap();
    if bytes == 0 || !at.is_multiple_of(4096) || registered.contains_key(&at) {
        return false;
    }
    let table = table();
    let mut state = table.state.lock().unwrap();
    let Some(start) = table.fresh(&mut state, bytes, PAGE as u64) else { return false };
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: an old size of 0 maps the same pages once more and leaves the old mapping; the new addresses are of the region, and nobody else's.
    let alias = unsafe { libc::mremap(at as *mut libc::c_void, 0, bytes as usize, flags, start as *mut libc::c_void) };
    let new = Allocation { start, end: start + bytes, kind: Kind::Host, device, rights: 0, physical: start };
    if alias == libc::MAP_FAILED || table.enter(&mut state, new).is_none() {
        return false;
    }
    registered.insert(at, (start, bytes));
    true
}

/// Takes it back. Whether it was registered.
pub fn unregister(at: u64) -> bool {
    let Some((start, bytes)) = REGISTERED.lock().unwrap().remove(&at) else { return false };
    if let Some(found) = find(start) {
        table().leave(&found);
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: of the region, and of this registration; nobody may use it any more.
    unsafe { libc::mmap(start as *mut libc::c_void, bytes as usize, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    true
}

/// Where devices have what is registered at an address.
pub fn on_devices(at: u64) -> Option<u64> {
    let registered = REGISTERED.lock().unwrap();
    let (first, (start, bytes)) = registered.range(..=at).next_back()?;
    (at - first < *bytes).then_some(start + (at - first))
}
