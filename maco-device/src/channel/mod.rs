//! Channels between ranks: memory of peers, semaphores, packets, slots with credits, messages of tiles, the FIFO to a proxy. One source for GPU warps, CPU threads and the
//! model checker.
//!
//! Where memory comes from and who runs the proxy does not belong here (`maco-host`), nor do counters of one launch ([`crate::protocol`]).
//!
//! Rules that hold for all: a word that crosses ranks has one writer and a sequence number that only grows and is compared with wrap ([`reached`]). Signals
//! are pushed into the waiter's memory, and waits poll there. Accesses to it are of `.sys` scope. Every wait looks at a deadline and at a stop word
//! ([`Watch`]).

mod fifo;
#[cfg(not(target_arch = "nvptx64"))]
mod host;
mod memory;
mod packet;
mod peer;
mod port;
mod rank_view;
mod semaphore;
mod slots;
mod tile_channel;
mod tile_messages;
mod watch;

pub use fifo::{FifoConsumer, FifoProducer, Trigger};
#[cfg(not(target_arch = "nvptx64"))]
pub use host::CpuThread;
pub use memory::MemoryChannel;
pub use packet::{CLEANED, PacketBuffer, packet, packet_data, packet_flag};
pub use peer::{Peer, copy};
pub use port::PortChannel;
pub use rank_view::RankView;
pub use semaphore::Semaphore;
pub use slots::Slots;
pub use tile_channel::{Order, SIGNAL, Side, TileChannel};
pub use tile_messages::{TileMessages, Which};
pub use watch::{Control, DEADLINE, OTHER_CALL, Operation, STOPPED_BY_HOST, Stopped, Wait, Waiting, Watch};

/// Whether a sequence number that was `seen` is `expected` or a later one: fewer than 2³¹ lie between them.
#[inline(always)]
pub const fn reached(seen: u32, expected: u32) -> bool {
    seen.wrapping_sub(expected) as i32 >= 0
}

/// Accesses of one executor to memory that ranks share: a lane or warp of a GPU, a CPU thread. What is about lanes defaults to one.
///
/// Addresses are of memory that stays mapped while the executor runs; who breaks that breaks it for all methods.
///
/// # Safety
/// `acquire` after a `poll`, `load_packet` or `load_packets` that saw what another rank stored by `publish`, or stored behind its `release`, orders memory
/// between the two, among all ranks and the host. Words of 32 and packets of 64 bits are loaded and stored whole. What one lane did before [`System::meet`]
/// comes before what all lanes do behind it.
pub unsafe trait System {
    /// Polls between two looks at clock and stop word: both are slow to read.
    const LOOK: u32 = 64;
    /// This lane.
    #[inline(always)]
    fn lane(&self) -> u32 {
        0
    }
    /// Lanes that call together.
    #[inline(always)]
    fn lanes(&self) -> u32 {
        1
    }
    /// Whether `condition` holds in every lane. The lanes meet.
    #[inline(always)]
    fn all(&self, condition: bool) -> bool {
        condition
    }
    /// The lanes meet.
    #[inline(always)]
    fn meet(&self) {}

    /// Loads a word that only this executor uses, in this launch and in later ones.
    ///
    /// # Safety
    /// `at` is such a word.
    unsafe fn own_load(&self, at: *const u32) -> u32;
    /// Stores it.
    ///
    /// # Safety
    /// `at` is such a word.
    unsafe fn own_store(&self, at: *mut u32, value: u32);

    /// Loads a word that somebody else publishes.
    ///
    /// # Safety
    /// `at` is an aligned word of shared memory.
    unsafe fn poll(&self, at: *const u32) -> u32;
    /// Stores a word behind everything that this executor's lanes did or saw before they met.
    ///
    /// # Safety
    /// `at` is an aligned word of shared memory, of which this executor is the only writer.
    unsafe fn publish(&self, at: *mut u32, value: u32);
    /// What comes behind it sees what was published before polls of this executor.
    fn acquire(&self);
    /// What comes before it is seen by who acquires packets stored behind it.
    fn release(&self);

    /// Loads a byte of data.
    ///
    /// # Safety
    /// `at` is in shared memory.
    unsafe fn load1(&self, at: *const u8) -> u8;
    /// Stores it.
    ///
    /// # Safety
    /// `at` is in shared memory.
    unsafe fn store1(&self, at: *mut u8, value: u8);
    /// Loads a word of data.
    ///
    /// # Safety
    /// `at` is an aligned word of shared memory.
    unsafe fn load4(&self, at: *const u32) -> u32;
    /// Stores it.
    ///
    /// # Safety
    /// `at` is an aligned word of shared memory.
    unsafe fn store4(&self, at: *mut u32, value: u32);
    /// Loads four words of data, in no order.
    ///
    /// # Safety
    /// `at` is four words of shared memory at a 16-byte boundary.
    #[inline(always)]
    unsafe fn load16(&self, at: *const u32) -> [u32; 4] {
        // SAFETY: passed on from the caller.
        unsafe { [self.load4(at), self.load4(at.add(1)), self.load4(at.add(2)), self.load4(at.add(3))] }
    }
    /// Stores them, in no order.
    ///
    /// # Safety
    /// `at` is four words of shared memory at a 16-byte boundary.
    #[inline(always)]
    unsafe fn store16(&self, at: *mut u32, words: [u32; 4]) {
        // SAFETY: passed on from the caller.
        unsafe {
            self.store4(at, words[0]);
            self.store4(at.add(1), words[1]);
            self.store4(at.add(2), words[2]);
            self.store4(at.add(3), words[3]);
        }
    }

    /// Loads a word that carries its flag.
    ///
    /// # Safety
    /// `at` is 8 aligned bytes of shared memory.
    unsafe fn load_packet(&self, at: *const u64) -> u64;
    /// Stores it.
    ///
    /// # Safety
    /// `at` is 8 aligned bytes of shared memory.
    unsafe fn store_packet(&self, at: *mut u64, value: u64);
    /// Loads two of them, in no order.
    ///
    /// # Safety
    /// `at` is 16 bytes of shared memory at a 16-byte boundary.
    #[inline(always)]
    unsafe fn load_packets(&self, at: *const u64) -> [u64; 2] {
        // SAFETY: passed on from the caller.
        unsafe { [self.load_packet(at), self.load_packet(at.add(1))] }
    }
    /// Stores two of them, in no order.
    ///
    /// # Safety
    /// `at` is 16 bytes of shared memory at a 16-byte boundary.
    #[inline(always)]
    unsafe fn store_packets(&self, at: *mut u64, values: [u64; 2]) {
        // SAFETY: passed on from the caller.
        unsafe {
            self.store_packet(at, values[0]);
            self.store_packet(at.add(1), values[1]);
        }
    }

    /// Stores a trigger for the proxy, behind [`System::release`]: two packets, in no order.
    ///
    /// # Safety
    /// As of [`System::store_packets`].
    #[inline(always)]
    unsafe fn push(&self, at: *mut u64, words: [u64; 2]) {
        // SAFETY: passed on from the caller.
        unsafe { self.store_packets(at, words) }
    }

    /// Draws the next ticket of a word that only executors of this rank use.
    ///
    /// # Safety
    /// `at` is such a word.
    unsafe fn claim(&self, at: *mut u32) -> u32;
    /// Replaces a word of this rank that is `expected`, which peers may store meanwhile; what it was. Orders nothing.
    ///
    /// # Safety
    /// `at` is an aligned word of shared memory.
    unsafe fn compare_exchange(&self, at: *mut u32, expected: u32, new: u32) -> u32;
    /// Stores a word of a report, before [`System::publish`] of its last one.
    ///
    /// # Safety
    /// `at` is an aligned word of shared memory.
    unsafe fn tell(&self, at: *mut u32, value: u32);

    /// Nanoseconds since some moment; never 0.
    fn now(&self) -> u64;
    /// Lets others go on, after so many polls.
    fn pause(&self, polls: u32);
    /// A peer that is known to be lost, plus 1; 0 for none.
    #[inline(always)]
    fn lost(&self) -> u32 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::reached;

    #[test]
    fn sequences_are_compared_with_wrap() {
        for expected in [0, 1, 5, u32::MAX - 1, u32::MAX, 1 << 31] {
            for ahead in [0, 1, 2, 1000, (1 << 31) - 1] {
                assert!(reached(expected.wrapping_add(ahead), expected), "{expected} + {ahead}");
            }
            for behind in [1, 2, 1000, 1 << 31] {
                assert!(!reached(expected.wrapping_sub(behind), expected), "{expected} - {behind}");
            }
        }
    }
}
