//! Who this thread is, and where its shared memory lies.

use super::thread::with;

pub use super::shared::BASE;

/// Threads that run the consumers' share of a task: one for each warpgroup.
pub const CONSUMER_THREADS: u32 = 2;

pub fn shared_base() -> u32 {
    BASE
}

/// The host's address of a shared address.
pub fn generic(shared: u32) -> u64 {
    with(|thread| thread.shared.pointer(shared, 1) as u64)
}

/// The first hardware thread that this thread stands for.
pub fn thread() -> u32 {
    with(|thread| thread.number)
}

/// The same; there are no registers to spare here.
pub fn thread_again() -> u32 {
    thread()
}

pub fn block() -> u32 {
    with(|thread| thread.block)
}

/// [`block`] and [`shared_base`].
pub fn place_again() -> (u32, u32) {
    (block(), shared_base())
}

/// Nanoseconds of the clock that deadlines count.
pub fn global_timer() -> u64 {
    with(|thread| thread.surroundings.now())
}

/// Nanoseconds of the clock that all threads of this process share, and that never stands still.
pub fn wall() -> u64 {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64
}

/// The same in ticks of 16 ns: as many as fit a word are a minute.
pub fn clock() -> u64 {
    wall() / TICK
}

/// Nanoseconds of a tick.
pub const TICK: u64 = 16;

/// Both clocks at one moment.
pub fn stamp() -> maco_abi::Stamp {
    let ticks = clock();
    maco_abi::Stamp { ticks, nanoseconds: ticks * TICK }
}

/// The multiprocessor: there are none here.
pub fn multiprocessor() -> u32 {
    0
}

/// The same address.
pub fn opaque(base: u32) -> u32 {
    base
}

/// The same address.
pub fn same_pointer<T>(pointer: *mut T) -> *mut T {
    pointer
}

/// Waits as one who does nothing else meanwhile, in the midst of what else is work.
pub fn idle<T>(wait: impl FnOnce() -> T) -> T {
    with(|thread| thread.work(false));
    let result = wait();
    with(|thread| thread.work(true));
    result
}

/// The thread has polled in vain, or has found what it polled for.
pub fn polled(found: bool) {
    with(|thread| thread.tested(found));
}

/// A number below `end`, by the thread's seed; 0 without one.
pub fn choose(end: u32) -> u32 {
    with(|thread| thread.choose(end))
}
