//! Bulk tensor copies (PTX ISA §9.7.9.25.5). Loads are made when a thread waits, stores as late as their groups allow.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use super::copies::{Stored, check, read, write};
use super::load::{Load, Source, TensorBox};
use super::thread::with;

/// A box to be stored, before and after it has been read.
enum Store {
    Asked { from: u32, to: TensorBox },
    Read(Stored),
}

thread_local! {
    /// This thread's groups, the open one last.
    static GROUPS: RefCell<VecDeque<Vec<Store>>> = RefCell::new(VecDeque::from([Vec::new()]));
    /// This thread does not wait until its groups are read.
    static IMPATIENT: Cell<bool> = const { Cell::new(false) };
}

/// # Safety
/// `map` is a live tensor map, `shared` space for the box, `mbarrier` initialised and expecting it.
pub unsafe fn load(shared: u32, map: u64, col: i32, row: i32, plane: i32, mbarrier: u32) {
    check(shared);
    with(|thread| {
        super::delay();
        thread.shared.loads().push(Load { to: shared, from: Source::Box(TensorBox { map, col, row, plane }), mbarrier });
        thread.shared.wake();
    });
}

/// # Safety
/// As [`load`], for both.
pub unsafe fn load_two(a: (u32, u64, [i32; 3]), b: (u32, u64, [i32; 3]), mbarrier: u32) {
    for (shared, map, [col, row, plane]) in [a, b] {
        // SAFETY: passed on from the caller.
        unsafe { load(shared, map, col, row, plane, mbarrier) };
    }
}

/// # Safety
/// `from` is memory of the host and `shared` space for it, both at 16-byte boundaries, `bytes` a multiple of 16 and not 0, `mbarrier`
/// initialised and expecting them.
pub unsafe fn row(shared: u32, from: u64, bytes: u32, mbarrier: u32) {
    assert!((from | u64::from(shared) | u64::from(bytes)).is_multiple_of(16) && bytes > 0, "{bytes} bytes from {from:#x} to {shared:#x}");
    with(|thread| {
        super::delay();
        thread.shared.loads().push(Load { to: shared, from: Source::Row { from, bytes }, mbarrier });
        thread.shared.wake();
    });
}

/// # Safety
/// As [`row`], for each.
pub unsafe fn four_rows(shared: u32, from: [u64; 4], bytes: u32, mbarrier: u32) {
    for (n, from) in (0..).zip(from) {
        // SAFETY: passed on from the caller.
        unsafe { row(shared + n * bytes, from, bytes, mbarrier) };
    }
}

/// There is no cache here.
pub use {load as load_once, row as row_once};

/// # Safety
/// `map` is a live tensor map, `shared` holds the box.
pub unsafe fn store(map: u64, col: i32, row: i32, plane: i32, shared: u32) {
    check(shared);
    with(|thread| {
        super::delay();
        let asked = Store::Asked { from: shared, to: TensorBox { map, col, row, plane } };
        // Now and then a copy is quick.
        let store = if thread.choose(4) == 1 { advance(asked) } else { asked };
        GROUPS.with_borrow_mut(|groups| groups.back_mut().expect("one is open").push(store));
    });
}

fn advance(store: Store) -> Store {
    match store {
        // SAFETY: the store role promised it when it issued the copy.
        Store::Asked { from, to } => with(|thread| Store::Read(unsafe { read(thread.shared, from, to) })),
        read => read,
    }
}

/// Closes this thread's group.
pub fn commit() {
    GROUPS.with_borrow_mut(|groups| groups.push_back(Vec::new()));
}

/// From now on [`wait_read`] of this thread waits for nothing, or does again: what a test breaks.
pub fn set_impatient(impatient: bool) {
    IMPATIENT.set(impatient);
}

/// All but the `PENDING` newest groups are read.
pub fn wait_read<const PENDING: u32>() {
    if IMPATIENT.get() {
        return;
    }
    GROUPS.with_borrow_mut(|groups| {
        let old = (groups.len() - 1).saturating_sub(PENDING as usize);
        for group in groups.iter_mut().take(old) {
            *group = group.drain(..).map(advance).collect();
        }
    });
}

/// All groups are complete.
pub fn wait_all() {
    GROUPS.with_borrow_mut(|groups| {
        while groups.len() > 1 {
            for store in groups.pop_front().unwrap_or_default() {
                if let Store::Read(stored) = advance(store) {
                    // SAFETY: as above.
                    unsafe { write(stored) };
                }
            }
        }
    });
}

/// Forgets this thread's groups: at the end of a launch that was let through, or panicked.
pub fn forget() {
    GROUPS.set(VecDeque::from([Vec::new()]));
    IMPATIENT.set(false);
}
