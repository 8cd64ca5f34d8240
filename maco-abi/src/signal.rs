//! What a task does at its end: signals to counters, or routes to schedulers; and what schedulers push to workers.

/// No counter: an unused inline wait or signal.
pub const NO_COUNTER: u32 = u32::MAX;

/// Bit of a signal: the counter has a single producer, so the signal is a store of 1 instead of an atomic addition.
pub const SINGLE_PRODUCER: u32 = 1 << 31;
/// With schedulers a signal is a *route*. Bit 31: the scheduler that pushed the task gets its credit back. From [`ROUTE_SHIFT`] on: the scheduler. Below: the number
/// that it gives the counter, plus 1; 0 for none.
pub const CREDIT: u32 = 1 << 31;
/// See [`CREDIT`].
pub const ROUTE_SHIFT: u32 = 23;
/// Mask of the counter in a route.
pub const ROUTE_COUNTER: u32 = (1 << ROUTE_SHIFT) - 1;

/// Tasks that a scheduler pushes to a worker before the first of them has ended: one runs, one waits behind it.
pub const INBOX: u32 = 2;
/// Words of an inbox: [`INBOX`] entries, then for each a pair of words that [`UNTIL`] uses. The worker polls it, so it is one sector of 32 bytes.
pub const INBOX_WORDS: u32 = 8;
const _: () = assert!(INBOX_WORDS >= 3 * INBOX);
/// Entries of the mailbox from a worker to a scheduler.
pub const MAILBOX: u32 = 16;
/// Inbox word that ends the worker's launch. Any other is the index of the task's descriptor plus 1, perhaps with [`UNTIL`].
pub const PUSH_END: u32 = u32::MAX;
/// Bit of an inbox word: the task was pushed before it is ready. It may run when a worker has ended some number of tasks. Two words of the inbox say which worker
/// and how many.
pub const UNTIL: u32 = 1 << 31;
/// Fault for tests, bit of a task in a scheduler's image: its push is lost.
pub const LOST_PUSH: u32 = 1 << 31;
